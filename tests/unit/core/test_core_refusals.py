"""Goal: whoever sends what is refused hears of it before a confirm covers it, also when the connection breaks.
Method: one message manager, a queue with a limit past which it refuses, a producer that comes back."""
import pytest

from angarium.core.ranges import RangeSet
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_manager import World


def limited(world: World, messages_max: int) -> int:
    assert not world.request("destination.create", name="q", messages_max=messages_max, over_limit="refuse").code
    return world.locate("q")


def resumed(world: World, queue: int, identity: bytes, confirmed: int = 0) -> list[frames.Frame]:
    """What a client hears that comes back under that identity, and was confirmed so much."""
    session = world.session()
    world.frame(session, queue, frames.ProducerOpen(1, "x", DestinationKind.ANY, identity, confirmed))
    return [frame for frame, _ in world.sent[session]]


def refused(heard: list[frames.Frame]) -> RangeSet:
    return RangeSet([(frame.first, frame.last + 1) for frame in heard if isinstance(frame, frames.Refuse)])


def test_a_refusal_that_was_lost_with_the_connection_is_told_again_before_any_confirm() -> None:
    for restarts in (False, True):
        world = World()
        queue = limited(world, messages_max=3)
        producer = world.producer(queue)
        producer.publish(b"1", b"2", b"3", b"4", b"5")
        world.end(producer.session, closed=False)
        if restarts:
            world = world.restarted()
        sent = resumed(world, queue, producer.identity)
        refusal = next(frame for frame in sent if isinstance(frame, frames.Refuse))
        assert (refusal.first, refusal.last, refusal.code) == (4, 5, "destination-full")
        kinds = [type(frame) for frame in sent]
        assert kinds.index(frames.Refuse) < kinds.index(frames.Confirm)


def test_a_refusal_that_is_known_to_be_heard_is_not_repeated() -> None:
    world = World()
    queue = limited(world, messages_max=3)
    producer = world.producer(queue)
    producer.publish(b"1", b"2", b"3", b"4", b"5")
    producer.resume(session=world.session())
    assert world.received(producer.session, frames.Refuse) == []


def test_a_refusal_is_told_when_it_is_durable_and_again_to_whoever_did_not_hear_it() -> None:
    world = World()
    queue = limited(world, messages_max=3)
    producer = world.producer(queue)
    world.auto = False
    producer.publish(b"1", b"2", b"3", b"4", b"5")
    assert world.received(producer.session, frames.Refuse) == []
    world.end(producer.session, closed=False)
    world.run_disk()
    assert world.received(producer.session, frames.Refuse) == [], "nobody is there"
    world.auto = True
    for after in (world, world.restarted()):
        producer.resume(world=after, session=after.session())
        sent = [frame for frame, _ in after.sent[producer.session] if isinstance(frame, frames.Refuse | frames.Confirm)]
        refusal, confirm = sent
        assert isinstance(refusal, frames.Refuse) and (refusal.first, refusal.last) == (4, 5)
        assert confirm == frames.Confirm(producer.number, 5)
        after.end(producer.session, closed=False)


def test_however_many_batches_were_refused_all_are_told_again() -> None:
    """A confirm covers them: whoever is not told of one takes it for stored."""
    for restarts in (False, True):
        world = World()
        queue = limited(world, messages_max=1)
        producer = world.producer(queue)
        for _ in range(400):
            producer.publish(b"x")
        world.end(producer.session, closed=False)
        if restarts:
            world = world.restarted()
        sent = resumed(world, queue, producer.identity)
        assert refused(sent) == RangeSet([(2, 401)])
        assert sent[-1] == frames.Confirm(1, 400)


@pytest.mark.parametrize("confirmed", [0, 100, 289, 290])
def test_of_very_many_refusals_those_are_told_again_that_are_durable(confirmed: int) -> None:
    world = World()
    queue = limited(world, messages_max=1)
    producer = world.producer(queue)
    world.auto = False
    for _ in range(700):
        producer.publish(b"x")
    for _ in range(290):
        assert world.complete_write()
    heard = resumed(world, queue, producer.identity, confirmed)
    assert refused(heard) == RangeSet([(max(2, confirmed + 1), 291)] if confirmed < 290 else [])
    assert heard[1:] == [] if confirmed == 290 else heard[-1] == frames.Confirm(1, 290)
    session = next(reversed(world.sent))
    world.run_disk()
    later = [frame for frame, _ in world.sent[session]][len(heard) :]
    assert refused(later) == RangeSet([(291, 701)]) and later[-1] == frames.Confirm(1, 700)
