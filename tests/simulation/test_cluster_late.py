"""Goal: a primary that is cut off with some clients, and replaced, goes on by what it knew when it was replaced; and
the checks of that (sim/group_holdings.py) can fail.
Method: a story in which it delivers late, as it is, and with bugs that only a manager that was replaced has."""
from collections.abc import Callable
from dataclasses import replace
from random import Random

import msgspec
import pytest

from angarium.core.client.reconnect import Address
from angarium.core.destination.events import Command, Event, ToSession
from angarium.core.destination.message_manager import MessageManager
from angarium.core.wire.frames import Deliver
from angarium.sim.client import SimClient
from angarium.sim.clusters.node import CLIENT_PORT, Machine
from angarium.sim.clusters.shapes import Shape
from angarium.sim.clusters.witness import WitnessedManager
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.messages import Violation
from angarium.sim.sessions import SimConsumer
from angarium.sim.world import World, draw_settings
from tests.simulation.stories import producer_in, publish

NODES = ("n1", "n2", "n3")
SHAPE = Shape({"a": NODES}, NODES, NODES)
Deliveries = list[ToSession]


def cut_off_with_clients() -> ClusterWorld:
    """Two consumers at the primary, which has more for them than they want; the others find another primary."""
    world = ClusterWorld(1, replace(draw_settings(1), faults=(), grace_s=20.0), shape=SHAPE)
    world.start()
    primary = next(machine for machine in world.machines.values() if serves(machine))
    others = [machine for machine in world.machines.values() if machine is not primary]
    first, second = (_consumer_at(world, primary, name) for name in ("first", "second"))
    producer = producer_in(world)
    for number in range(40):
        publish(world, producer, b"%d" % number)
    world.run_until(lambda: len(first.received) == len(second.received) == 5)
    for consumer in (first, second):
        consumer.settle(min(consumer.received), min(consumer.received) + 1)
    world.run_for(1.0)
    cut_off(world, primary)
    world.run_until(lambda: any(map(serves, others)))
    assert serves(primary), "it has heard of its successor"
    for consumer in (first, second):
        consumer.set_prefetch(15)
    world.run_for(0.5)
    assert len(first.received) + len(second.received) > 12
    world.wires.unblock_all()
    world.run_for(10.0)
    return world


def cut_off(world: ClusterWorld, primary: Machine) -> None:
    for other in world.machines.values():
        if other is not primary:
            world.wires.block(primary.host, other.host)
            world.wires.block(other.host, primary.host)


def serves(machine: Machine) -> bool:
    return machine.node is not None and machine.node.replicas["a"].manager is not None


def client_at(world: World, machine: Machine, name: str) -> SimClient:
    return SimClient(world, name, Random(name), [Address(machine.host, CLIENT_PORT)])


def _consumer_at(world: World, machine: Machine, name: str) -> SimConsumer:
    consumer = client_at(world, machine, name).open_session().consume("orders", prefetch=5)
    world.run_until(lambda: consumer.is_open)
    return consumer


def test_who_is_cut_off_goes_on_by_what_it_knew() -> None:
    assert cut_off_with_clients().ledger.tally["late deliveries"] > 1


# -- bugs that only a manager has that was replaced ------------------------------------------------------------

Plant = Callable[[Deliveries, Deliveries], Deliveries]  # what it sent before, what it is about to send


def it_gives_out_backwards(before: Deliveries, late: Deliveries) -> Deliveries:
    return late[::-1]


def it_delivers_what_was_settled(before: Deliveries, late: Deliveries) -> Deliveries:
    return [before[0], *late]


def it_delivers_again_to_the_holder(before: Deliveries, late: Deliveries) -> Deliveries:
    return [before[-1], *late]


def it_gives_away_what_another_holds(before: Deliveries, late: Deliveries) -> Deliveries:
    held = [delivery for delivery in before[2:] if delivery.session != late[0].session]
    return [msgspec.structs.replace(held[-1], session=late[0].session), *late]


PLANTS: dict[Plant, str] = {
    it_gives_out_backwards: "order per producer.* of a manager of the past",
    it_delivers_what_was_settled: "settled is final.* since replaced",
    it_delivers_again_to_the_holder: "delivered twice to a session.* of the past that knows its holder",
    it_gives_away_what_another_holds: "never hold the same position.* of the past that knows its holder",
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_a_manager_of_the_past_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = MessageManager.handle
    before: Deliveries = []

    def mutant(self: MessageManager, event: Event, *, now: float) -> list[Command]:
        commands = handle(self, event, now=now)
        deliveries = [c for c in commands if isinstance(c, ToSession) and isinstance(c.frame, Deliver)]
        assert isinstance(self, WitnessedManager)
        if self._witness.current is self:
            before.extend(deliveries)
        elif deliveries:
            return [*(c for c in commands if c not in deliveries), *plant(before, deliveries)]
        return commands

    monkeypatch.setattr(MessageManager, "handle", mutant)
    with pytest.raises(Violation, match=PLANTS[plant]):
        cut_off_with_clients()
