"""Goal: on machines of declared capacity a cluster carries what they can, and more of them carry more.
Method: whole clusters in virtual time, saturated; every promise is checked meanwhile."""
from dataclasses import replace

from angarium.sim.clusters.load import LoadWorld, shape_of
from angarium.sim.hardware import Capacity

BODY_BYTES = 1_024
QUICK_WIRE = Capacity(wire_bytes_per_s=1e9)
SECONDS = 0.2


def carried(capacity: Capacity, *, groups: int = 1, copies: int = 3, client_managers: int = 2) -> float:
    shape = shape_of(groups=groups, copies=copies, client_managers=client_managers)
    return LoadWorld(shape, capacity, body_bytes=BODY_BYTES).measure(SECONDS).settled_per_s


def test_a_wire_bounds_what_is_carried() -> None:
    """Every message enters and leaves the primary's machine."""
    slow = replace(QUICK_WIRE, wire_bytes_per_s=20e6)
    bound = slow.wire_bytes_per_s / BODY_BYTES
    assert 0.5 * bound < carried(slow, client_managers=8) < bound < carried(QUICK_WIRE) / 2


def test_a_process_that_takes_longer_carries_less() -> None:
    busy = replace(QUICK_WIRE, call_s=10 * QUICK_WIRE.call_s, byte_s=10 * QUICK_WIRE.byte_s)
    assert carried(busy) < carried(QUICK_WIRE) / 3


def test_more_groups_carry_more() -> None:
    """What is for one group costs the machines of another nothing, not even their wires."""
    wire = replace(QUICK_WIRE, wire_bytes_per_s=40e6)
    one = carried(wire, client_managers=6)
    assert carried(wire, groups=3, client_managers=18) > 2.4 * one
