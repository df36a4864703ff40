"""Goal: what one connection can make the node keep is bounded, and a full disk can still be emptied.
Method: the machine alone, at each limit and one past it."""
import pytest

from angarium.core.wire import frames
from angarium.core.wire.codec import Received
from angarium.node.holding import BYTES_MAX, FRAMES_MAX, Holding

_UNWRITTEN_MAX = 1_000
_CREDIT = Received(1, frames.Credit(1, 1), b"")
_SETTLE = Received(1, frames.Settle(1, 1, frames.Outcome.SETTLE, []), b"")
_PUBLISH = Received(1, frames.Publish(1), b"batch")


def holding() -> Holding:
    return Holding(unwritten_bytes_max=_UNWRITTEN_MAX)


def disk(machine: Holding, unwritten_bytes: int, freeing_bytes: int = 0, *, is_blocked: bool = False) -> list[int]:
    return machine.disk_changed(unwritten_bytes=unwritten_bytes, freeing_bytes=freeing_bytes, is_blocked=is_blocked)


@pytest.mark.parametrize(("frame_count", "size_bytes"), [(FRAMES_MAX, 0), (1, BYTES_MAX)], ids=["frames", "bytes"])
def test_a_connection_is_held_one_past_its_limit_and_let_go_at_half(frame_count: int, size_bytes: int) -> None:
    machine = holding()
    machine.posted(7, frame_count, size_bytes)
    assert not machine.received(7, [_CREDIT])
    machine.posted(7, 1, 1)
    assert machine.received(7, [_CREDIT])
    assert not machine.received(7, [_CREDIT]), "said once"
    machine.posted(8, 1, 1)
    assert not machine.received(8, [_CREDIT]), "others are not held for it"
    kept = 0
    while not machine.handled(7, size_bytes):
        kept += 1
    assert kept == (FRAMES_MAX + 1 - FRAMES_MAX // 2 - 1 if frame_count > 1 else 0)
    assert not machine.is_held(7)


@pytest.mark.parametrize("item", [_SETTLE, _PUBLISH], ids=["settle", "publish"])
def test_whoever_wants_more_written_is_held_while_too_much_is_unwritten(item: Received) -> None:
    machine = holding()
    assert disk(machine, _UNWRITTEN_MAX) == []
    assert not machine.received(7, [item])
    assert disk(machine, _UNWRITTEN_MAX + 1) == []
    assert not machine.received(8, [_CREDIT])
    assert machine.received(7, [_CREDIT, item])
    assert disk(machine, _UNWRITTEN_MAX // 2 + 1) == []
    assert disk(machine, _UNWRITTEN_MAX // 2) == [7]
    assert not machine.is_held(7)


def test_while_writes_are_blocked_only_what_makes_room_counts() -> None:
    machine = holding()
    disk(machine, 2 * _UNWRITTEN_MAX)
    assert machine.received(7, [_PUBLISH])
    assert disk(machine, 2 * _UNWRITTEN_MAX, is_blocked=True) == [7]
    assert not machine.received(7, [_PUBLISH, _SETTLE]), "its settlements empty the disk"
    disk(machine, 4 * _UNWRITTEN_MAX, _UNWRITTEN_MAX + 1, is_blocked=True)
    assert machine.received(7, [_SETTLE]), "settlements that find no room are bounded as well"


def test_held_for_two_reasons_a_connection_waits_for_both_to_end() -> None:
    machine = holding()
    disk(machine, 2 * _UNWRITTEN_MAX)
    machine.posted(7, 1, BYTES_MAX + 1)
    assert machine.received(7, [_PUBLISH])
    assert not machine.handled(7, BYTES_MAX + 1)
    assert machine.is_held(7)
    assert disk(machine, 0) == [7]
    disk(machine, 2 * _UNWRITTEN_MAX)
    machine.posted(7, 1, BYTES_MAX + 1)
    assert machine.received(7, [_PUBLISH])
    assert disk(machine, 0) == []
    assert machine.handled(7, BYTES_MAX + 1)


def test_of_a_connection_that_ended_nothing_is_kept() -> None:
    machine = holding()
    disk(machine, 2 * _UNWRITTEN_MAX)
    machine.posted(7, 2, BYTES_MAX + 1)
    machine.received(7, [_PUBLISH])
    machine.ended(7)
    assert not machine.handled(7, 1), "its frames are still on the bus"
    assert not machine.is_held(7)
    assert disk(machine, 0) == []
