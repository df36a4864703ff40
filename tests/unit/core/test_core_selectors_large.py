"""Goal: a selector of thousands of terms is as good as another, and nobody waits long for its evaluation: a few
messages at a time are looked at, then others have their turn."""
import pytest

from angarium.core.destination import delivery, dispatch, selecting
from angarium.core.destination.events import BatchesRead, Command, DestinationSettings, Event, Tick
from angarium.core.destination.fields import BatchFields
from angarium.core.selector.fields import Fields
from angarium.core.selector.pace import PORTION
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns

TERMS = 5_000
SELECTOR = " OR ".join(f"p{n} = {n}" for n in range(TERMS))
AT_ONCE = selecting.AT_ONCE // TERMS


def fields(count: int) -> list[dict[str, int]]:
    return [{f"p{n}": n} if n % 3 == 0 else {"other": n} for n in range(count)]


@pytest.mark.parametrize("kind", [DestinationKind.QUEUE, DestinationKind.TOPIC])
@pytest.mark.parametrize("comes", ["before", "after"])
def test_all_that_it_selects_comes_a_few_at_a_time(
    kind: DestinationKind, comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    deliver = delivery.deliver

    def spy(subscription: object, pieces: object, asked: tuple[int, int], **more: object) -> object:
        looked.append(asked[1] - asked[0])
        return deliver(subscription, pieces, asked, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(dispatch, "deliver", spy)
    world = World()
    destination = world.locate("d", kind)
    name = "" if kind == DestinationKind.QUEUE else "durable"
    consumer = world.consumer(destination, selector=SELECTOR, subscription=name, credit=100 if comes == "before" else 0)
    world.producer(destination).publish(*[b"%d" % n for n in range(60)], columns=columns(properties=fields(60)))
    if comes == "after":
        world.end(consumer.session, closed=True)
        world = world.restarted()
        consumer = world.consumer(destination, selector=SELECTOR, subscription=name)
    assert consumer.bodies == [b"%d" % n for n in range(0, 60, 3)]
    assert max(looked) <= AT_ONCE < 60 and len(looked) >= 60 // AT_ONCE


def test_browsing_looks_at_a_few_for_each_page_and_comes_to_the_end() -> None:
    world = World()
    world.producer(world.locate("q")).publish(*[b"m"] * 60, columns=columns(properties=fields(60)))
    found, place, pages, end = 0, 0, 0, 1
    while place < end:
        page = world.request("destination.browse", name="q", selector=SELECTOR, count=100, place=place).result
        found += sum(part["count"] for part in page["parts"])
        assert place < page["next"]
        place, end, pages = page["next"], page["end"], pages + 1
    assert found == 20 and pages == 60 // AT_ONCE


def test_so_are_they_by_one_of_some_hundred_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which each message takes little, and a read has thousands of messages."""
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(*[b"m"] * 100, columns=columns(properties=fields(100)))
    asked = most_asked(world, monkeypatch)
    consumer = world.consumer(queue, selector=" OR ".join(f"p{n} = {n}" for n in range(400)), credit=100)
    assert len(consumer.bodies) == 34 and 0 < max(asked) <= selecting.AT_ONCE // 400


def test_one_that_is_quickly_evaluated_is_not_slowed_down() -> None:
    """However long it is."""
    world = World()
    queue = world.locate("q")
    world.producer(queue).publish(*[b"m"] * 60, columns=columns(properties=[{"a": n} for n in range(60)]))
    world.auto = False
    consumer = world.consumer(queue, selector=" OR ".join(f"a = {n}" for n in range(0, 10_000, 2)))
    world.read_selectors()
    assert world.complete_write()
    (read,) = world.reads
    world.reads.clear()
    world.tell(BatchesRead(read.token, world.disk.read(read)))  # type: ignore[arg-type]
    assert len(consumer.bodies) == 30


def most_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What selectors are asked from now on, by event."""
    asked: list[int] = []
    handle, decode = world.manager.handle, BatchFields.__getitem__

    def counting_handle(event: Event, *, now: float) -> list[Command]:
        asked.append(0)
        return handle(event, now=now)

    def counting_decode(fields: BatchFields, index: int) -> Fields:
        asked[-1] += 1
        return decode(fields, index)

    monkeypatch.setattr(world.manager, "handle", counting_handle)
    monkeypatch.setattr(BatchFields, "__getitem__", counting_decode)
    return asked


def waiting_topic(world: World, *subscriptions: str) -> int:
    """With durable subscriptions of such a selector, and nobody there."""
    topic = world.locate("t", DestinationKind.TOPIC)
    for name in subscriptions:
        world.end(world.consumer(topic, selector=SELECTOR, subscription=name, credit=0).session, closed=True)
    return topic


def test_what_expires_unseen_is_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    topic = waiting_topic(world, "s")
    expiries = [world.wall_ms + 1_000] * 60
    world.producer(topic).publish(
        *[b"m"] * 60, columns=MessageColumns(properties=columns(properties=fields(60)).properties, expiries_ms=expiries)
    )
    asked = most_asked(world, monkeypatch)
    world.advance(5.0)
    assert world.describe("_DMQ")["messages"] == 20, "those that it selects"
    assert 0 < max(asked) <= AT_ONCE


def test_where_the_oldest_make_room_a_few_at_a_time_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(DestinationSettings(node_messages_max=30, node_over_limit="oldest"))
    topic = waiting_topic(world, "s")
    asked = most_asked(world, monkeypatch)
    world.producer(topic).publish(*[b"m"] * 60, columns=columns(properties=fields(60)))
    assert world.describe("t")["messages"] == 30 and world.describe("_DMQ")["messages"] == 10
    assert 0 < max(asked) <= AT_ONCE


def test_of_many_such_subscriptions_each_has_its_own_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    consumers = [world.consumer(topic, selector=SELECTOR) for _ in range(5)]
    asked = most_asked(world, monkeypatch)
    world.producer(topic).publish(*[b"m"] * 9, columns=columns(properties=fields(9)))
    assert [len(consumer.bodies) for consumer in consumers] == [3] * 5
    assert 0 < max(asked) <= AT_ONCE


def test_consumers_of_a_queue_count_together_and_only_while_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    queue = world.locate("q")
    heavy = [world.consumer(queue, selector=SELECTOR) for _ in range(2)]
    producer = world.producer(queue)
    asked = most_asked(world, monkeypatch)
    producer.publish(*[b"m"] * 60, columns=columns(properties=fields(60)))
    assert sum(len(consumer.bodies) for consumer in heavy) == 20
    assert 0 < max(asked) <= AT_ONCE, "by all of them"
    for consumer in heavy:
        world.end(consumer.session, closed=True)
    events = len(asked)
    light = world.consumer(queue, selector="other >= 0")
    assert len(light.bodies) == 40 and max(asked[events:]) == 60, "in one piece"


@pytest.mark.parametrize("command", ["dmq.list", "dmq.summary", "dmq.discard"])
def test_so_are_dead_messages(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    queue = world.locate("q")
    consumer = world.consumer(queue, credit=100)
    world.producer(queue).publish(*[b"m"] * 60, columns=columns(properties=fields(60)))
    consumer.reject((0, 60))
    asked = most_asked(world, monkeypatch)
    found, place, end = 0, 0, 1
    while place < end:
        at = {"place": place} if command == "dmq.list" else {"position": place}
        page = world.request(command, selector=SELECTOR, count=100, **at).result
        found += sum(part["count"] for part in page.get("parts", ())) + page.get("discarded", 0)
        found += sum(group["count"] for group in page.get("groups", ()))
        assert place < page["next"]
        place, end = page["next"], page["end"]
    assert found == 20 and 0 < max(asked) <= AT_ONCE


# -- reading it ------------------------------------------------------------------------------------------------------


def unread(mark: str) -> str:
    """One that nobody has read yet."""
    return f"{mark} = 1 OR {SELECTOR}"


def ticks(world: World) -> int:
    count = 0
    while (due := world.manager.readings.deadline()) is not None:
        world.now = max(world.now, due)
        world.tell(Tick())
        count += 1
    return count


@pytest.mark.parametrize("kind", [DestinationKind.QUEUE, DestinationKind.TOPIC])
def test_others_have_their_turn_while_it_is_read(kind: DestinationKind) -> None:
    world = World(auto=False)
    world.auto = True
    destination = world.locate("d", kind)
    world.auto = False
    consumer = world.consumer(destination, selector=unread(f"turn{kind}"), subscription="")
    assert not consumer.is_open and not consumer.closed_codes
    assert world.describe("d")["name"] == "d"  # somebody else asks, and is answered at once
    count = ticks(world)
    assert count > 4 * TERMS // PORTION  # as many as it has tokens, at least
    world.run_disk()
    assert consumer.is_open


def test_what_its_session_sends_meanwhile_keeps_its_order() -> None:
    world = World()
    queue = world.locate("q")
    session = world.session()
    world.auto = False
    first = world.consumer(queue, session=session, number=1, selector=unread("first"))
    second = world.consumer(queue, session=session, number=2, selector=unread("second"))
    world.frame(session, queue, frames.ConsumerClose(1))
    assert ticks(world) > 8 * TERMS // PORTION
    world.run_disk()
    assert first.closed_codes == [""] and second.is_open
    assert world.describe("q")["consumers"] == 1


def test_one_that_is_wrong_at_its_end_is_refused_and_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    queue = world.locate("q")
    world.auto = False
    consumer = world.consumer(queue, selector=unread("wrong") + " OR p =")
    assert ticks(world) > 4 * TERMS // PORTION
    assert consumer.closed_codes == ["bad-selector"]
    again = world.consumer(queue, selector=unread("wrong") + " OR p =")
    assert again.closed_codes == ["bad-selector"] and world.manager.readings.deadline() is None


def test_a_session_that_ends_meanwhile_leaves_nothing() -> None:
    world = World()
    queue = world.locate("q")
    world.auto = False
    consumer = world.consumer(queue, selector=unread("ends"))
    world.end(consumer.session, closed=True)
    assert ticks(world) > 4 * TERMS // PORTION
    world.run_disk()
    assert world.describe("q")["consumers"] == 0
