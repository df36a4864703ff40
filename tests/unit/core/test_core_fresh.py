"""Goal: a lone message takes fewer steps to who is first in line, and nobody can tell.
Method: random stories of a destination, told once with the short way and once without it: what is sent, written and
read has to be the same, word for word, and in the same order. And where it must not be taken, case by case."""
from collections.abc import Callable

import pytest

from angarium.core.destination import dispatch
from angarium.core.destination.consumer import Consumer as CoreConsumer
from angarium.core.destination.delivery import deliver_fresh
from angarium.core.destination.events import DestinationSettings, ToSession
from angarium.core.destination.subscription import Subscription
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import colours, columns, grouped
from tests.unit.core.core_story import Story

_Given = tuple[CoreConsumer, ToSession]


class Ways:
    """How often the short way was asked for and taken; if it is closed, it never is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_closed = False
        self.asked = self.taken = 0
        monkeypatch.setattr(dispatch, "deliver_fresh", self._deliver)

    def _deliver(self, subscription: Subscription, lane: int, end: int, batch: Batch) -> _Given | None:
        self.asked += 1
        given = None if self.is_closed else deliver_fresh(subscription, lane, end, batch)
        self.taken += given is not None
        return given


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


# -- the same story --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100))
def test_the_story_is_the_same_with_the_short_way_and_without(seed: int, ways: Ways) -> None:
    short = Story(seed)
    short.run(60)
    ways.is_closed = True
    long = Story(seed)
    long.run(60)
    for told, expected in zip(short.told, long.told, strict=False):
        assert told == expected
    assert len(short.told) == len(long.told)
    assert short.world.disk.tables == long.world.disk.tables


def test_such_stories_take_the_short_way_often_and_often_not(ways: Ways) -> None:
    for seed in range(100):
        Story(seed).run(60)
    assert ways.taken > 150
    assert ways.asked - ways.taken > 500


# -- where it is taken -----------------------------------------------------------------------------------------------


def open_queue(world: World) -> tuple[int, Producer]:
    """One that has had a message."""
    queue = world.queue_with(1)
    first = world.consumer(queue)
    first.settle((0, 1))
    first.close()
    return queue, world.producer(queue)


def test_lone_messages_go_round_those_in_line(ways: Ways) -> None:
    world = World()
    queue, producer = open_queue(world)
    takers = [world.consumer(queue) for _ in range(3)]
    ways.taken = 0
    for number in range(6):
        producer.publish(b"%d" % number)
    assert ways.taken == 6
    assert [taker.bodies for taker in takers] == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]
    assert world.describe("q")["messages"] == 6
    assert not world.reads
    for taker, positions in zip(takers, ((1, 4), (2, 5), (3, 6)), strict=True):
        taker.settle(*((position, position + 1) for position in positions))
    assert world.describe("q")["messages"] == 0


def test_a_batch_goes_whole_to_whoever_is_alone_up_to_his_credit(ways: Ways) -> None:
    world = World()
    queue, producer = open_queue(world)
    taker = world.consumer(queue, credit=5)
    ways.taken = 0
    producer.publish(b"a", b"b", b"c")
    producer.publish(b"d", b"e")
    assert ways.taken == 2
    assert taker.bodies == [b"a", b"b", b"c", b"d", b"e"]
    producer.publish(b"f")
    assert ways.taken == 2
    assert len(taker.bodies) == 5, "and no further"
    taker.credit(7)
    producer.publish(b"g", b"h")
    assert taker.bodies[5:] == [b"f", b"g"], "of a batch as much as he takes"
    assert ways.taken == 2


def test_what_was_delivered_before_a_crash_is_delivered_again_and_says_so(ways: Ways) -> None:
    """How far was delivered is noted, and known after a crash."""
    world = World()
    queue, producer = open_queue(world)
    world.consumer(queue)
    ways.taken = 0
    producer.publish(b"a")
    producer.publish(b"b")
    assert ways.taken == 2
    world.rest()
    world = world.restarted(after_s=1.0)
    world.advance(5.0)
    assert world.consumer(queue).deliveries == [(1, b"a", 1), (2, b"b", 1)]


# -- where it is not -------------------------------------------------------------------------------------------------


def soon(world: World) -> MessageColumns:
    return columns(expiries_ms=[world.wall_ms + 1_000])


def test_what_expires_or_belongs_to_a_group_is_looked_at(ways: Ways) -> None:
    world = World()
    queue, producer = open_queue(world)
    takers = [world.consumer(queue) for _ in range(2)]
    ways.taken = 0
    producer.publish(b"a", columns=grouped("g"))
    producer.publish(b"b", columns=grouped("g"))
    assert sorted(len(taker.bodies) for taker in takers) == [0, 2], "a group has one owner"
    producer.publish(b"c", columns=soon(world))
    assert ways.taken == 0


def test_what_has_expired_when_it_is_durable_is_not_delivered(ways: Ways) -> None:
    world = World()
    queue, producer = open_queue(world)
    taker = world.consumer(queue)
    world.auto = False
    producer.publish(b"a", columns=soon(world))
    world.now += 2.0
    world.run_disk()
    assert taker.bodies == []


def test_what_was_given_back_comes_first(ways: Ways) -> None:
    world = World()
    queue, producer = open_queue(world)
    taker = world.consumer(queue, credit=1)
    producer.publish(b"a")
    taker.release((1, 2))
    ways.taken = 0
    world.auto = False
    taker.credit(3)
    producer.publish(b"b")
    world.run_disk()
    assert ways.taken == 0
    assert taker.bodies == [b"a", b"a", b"b"]


def test_nothing_new_is_delivered_past_what_may_be_in_flight(ways: Ways) -> None:
    world = World(DestinationSettings(in_flight_max=2))
    queue, producer = open_queue(world)
    taker = world.consumer(queue)
    ways.taken = 0
    for body in (b"a", b"b", b"c"):
        producer.publish(body)
    assert ways.taken == 2
    assert taker.bodies == [b"a", b"b"]
    taker.settle((1, 2))
    assert taker.bodies == [b"a", b"b", b"c"]


def test_nobody_is_served_who_is_stalled_or_not_first(ways: Ways) -> None:
    world = World()
    queue, producer = open_queue(world)
    stalled, taker = world.consumer(queue), world.consumer(queue)
    world.stall(stalled.session, True)
    ways.taken = 0
    producer.publish(b"a")
    producer.publish(b"b")
    assert ways.taken == 2
    assert (stalled.bodies, taker.bodies) == ([], [b"a", b"b"])
    alone = world.consumer(queue, exclusive=True)
    producer.publish(b"c")
    assert alone.bodies == [b"c"]


def test_each_subscription_gets_its_own(ways: Ways) -> None:
    world = World()
    topic = world.locate("t", frames.DestinationKind.TOPIC)
    takers = [world.consumer(topic) for _ in range(2)]
    producer = world.producer(topic)
    producer.publish(b"a")
    assert ways.taken == 0
    assert [taker.bodies for taker in takers] == [[b"a"], [b"a"]]


@pytest.mark.parametrize("options", [{"messages_max": 9}, {"bytes_max": 9_999}, {"last_value": True}])
def test_where_room_is_made_or_values_are_superseded_nothing_is_short(ways: Ways, options: dict[str, int]) -> None:
    world = World()
    assert not world.request("destination.create", name="q", **options).code
    queue, producer = open_queue(world)
    taker = world.consumer(queue)
    ways.taken = 0
    producer.publish(b"a")
    assert taker.bodies == [b"a"]
    assert (ways.asked, ways.taken) == (0, 0)


def test_who_has_selected_something_else_does_not_get_it(ways: Ways) -> None:
    world = World()
    topic = world.locate("t", frames.DestinationKind.TOPIC)
    taker = world.consumer(topic, selector="colour = 'red'")
    producer = world.producer(topic)
    for colour in ("red", "blue", "red"):
        producer.publish(colour.encode(), columns=colours(colour))
    assert taker.bodies == [b"red", b"red"]
    assert ways.taken == 0


def test_who_came_after_a_message_was_published_does_not_get_it(ways: Ways) -> None:
    """Whoever it was for has gone before it was durable."""
    world = World()
    topic = world.locate("t", frames.DestinationKind.TOPIC)
    producer, first = world.producer(topic), world.consumer(topic)
    world.auto = False
    producer.publish(b"a")
    first.close()
    second = world.consumer(topic)
    world.run_disk()
    assert second.is_open
    producer.publish(b"b")
    world.run_disk()
    assert (first.bodies, second.bodies) == ([], [b"b"])


def returned(subscription: Subscription) -> None:
    subscription.returned.add(0, 1)


def passed_over(subscription: Subscription) -> None:
    subscription.passed_over.add(0, 1)


def doomed(subscription: Subscription) -> None:
    subscription.doom.add("expired", 0, 1)


def orphaned(subscription: Subscription) -> None:
    subscription.parking.orphaned.add(0, 1)


def selecting(subscription: Subscription) -> None:
    subscription.accepts = lambda fields, producer: True


def choosy(subscription: Subscription) -> None:
    subscription.line.choosy = 1


def reading(subscription: Subscription) -> None:
    subscription.reading = True


def pausing(subscription: Subscription) -> None:
    subscription.is_pausing = True


@pytest.mark.parametrize(
    "become", [returned, passed_over, doomed, orphaned, selecting, choosy, reading, pausing], ids=lambda f: f.__name__
)
def test_a_subscription_with_something_to_see_to_first_is_not_plain(become: Callable[[Subscription], None]) -> None:
    """Most of these come together, and each alone has to be enough."""
    subscription = Subscription("", durable=True, in_flight_max=10, holes_max=10)
    assert subscription.is_plain
    become(subscription)
    assert not subscription.is_plain


def test_what_is_urgent_is_never_overtaken(ways: Ways) -> None:
    world = World()
    queue, producer = open_queue(world)
    taker = world.consumer(queue, credit=0)
    world.auto = False
    producer.publish(b"urgent", columns=columns(priorities=[9]))
    world.run_disk()
    producer.publish(b"a")
    taker.credit(2)
    world.run_disk()
    assert taker.bodies == [b"urgent", b"a"]
    assert ways.taken == 0
