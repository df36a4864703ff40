"""Goal: administration tells the truth, changes what it says it changes, and answers when that is durable.
Method: requests to one message manager, with producers, consumers and reads under way."""
from random import Random
from typing import Any

import pytest

from angarium.core.destination.events import BatchesRead, DestinationSettings, Read
from angarium.core.destination.log import LANE_POSITIONS, lane_for
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.lanes import place_of, priority_of
from tests.unit.core.core_manager import World
from tests.unit.core.core_messages import columns


def parts(reply: frames.Reply, payload: bytes) -> list[tuple[int, bytes]]:
    """Position and body of everything on a page."""
    assert not reply.code, reply.reason
    result: dict[str, Any] = reply.result
    found: list[tuple[int, bytes]] = []
    for part in result["parts"]:
        batch, payload = Batch.parse(payload[: part["bytes"]]), payload[part["bytes"] :]
        assert batch.count == part["count"]
        found += enumerate(batch.bodies(), start=part["position"])
    assert payload == b""
    return found


# -- creating and finding ------------------------------------------------------------------------------------


def test_a_destination_is_created_once_and_found_ever_after() -> None:
    world = World()
    destination = world.locate("q")
    assert world.locate("q") == destination
    assert world.locate("q", DestinationKind.ANY) == destination
    assert world.locate("other") != destination
    world = world.restarted()
    assert world.locate("q") == destination


def test_who_locates_first_is_answered_when_the_destination_is_durable() -> None:
    world = World(auto=False)
    session = world.session()
    world.frame(session, 0, frames.Locate("q", DestinationKind.QUEUE))
    assert world.sent == {}
    world.run_disk()
    assert world.last(session, frames.Located).destination == 1


def test_a_kind_that_differs_is_refused() -> None:
    world = World()
    world.locate("q")
    session = world.session()
    world.frame(session, 0, frames.Locate("q", DestinationKind.TOPIC))
    located = world.last(session, frames.Located)
    assert (located.destination, located.code) == (0, "wrong-kind")


@pytest.mark.parametrize(("name", "code"), [("", "bad-name"), ("a b", "bad-name"), ("_ADMIN", "reserved-name")])
def test_bad_names_are_refused_everywhere(name: str, code: str) -> None:
    world = World()
    session = world.session()
    world.frame(session, 0, frames.Locate(name, DestinationKind.QUEUE))
    assert world.last(session, frames.Located).code == code
    assert world.request("destination.create", name=name).code == code
    assert world.manager.destinations == {}


def test_one_destination_too_many_is_refused() -> None:
    world = World(DestinationSettings(destinations_max=2))
    world.locate("a")
    world.locate("b")
    session = world.session()
    world.frame(session, 0, frames.Locate("c", DestinationKind.QUEUE))
    assert world.last(session, frames.Located).code == "too-many-destinations"
    assert world.request("destination.create", name="c").code == "too-many-destinations"
    assert not world.request("destination.remove", name="a").code
    assert world.locate("c") == 3, "a number is never used twice"


def test_a_number_is_never_used_twice_even_after_a_restart() -> None:
    world = World()
    world.locate("a")
    assert not world.request("destination.remove", name="a").code
    world = world.restarted()
    assert world.locate("b") == 2


def test_creating_what_exists_is_fine_if_it_is_the_same() -> None:
    world = World()
    first = world.request("destination.create", name="t", kind="topic", confirm="memory")
    assert not first.code
    assert world.request("destination.create", name="t", kind="topic", confirm="memory").result == first.result
    assert world.request("destination.create", name="t", kind="queue", confirm="memory").code == "wrong-kind"
    assert world.request("destination.create", name="t", kind="topic").result == first.result, "what is not said may be"
    assert world.request("destination.create", name="t", kind="topic", confirm="disk").code == "already-exists"


@pytest.mark.parametrize(
    ("command", "arguments", "code"),
    [
        ("destination.creat", {}, "unknown-command"),
        ("destination.create", {}, "bad-argument"),
        ("destination.create", {"name": 1}, "bad-argument"),
        ("destination.create", {"name": "x", "kind": "any"}, "bad-argument"),
        ("destination.create", {"name": "x", "confirm": "never"}, "bad-argument"),
        ("destination.describe", {"name": "missing"}, "unknown-destination"),
        ("destination.remove", {"name": "missing"}, "unknown-destination"),
        ("destination.purge", {"name": "missing"}, "unknown-destination"),
        ("destination.browse", {"name": "missing"}, "unknown-destination"),
        ("destination.browse", {"name": "q", "count": "1"}, "bad-argument"),
        ("destination.browse", {"name": "q", "count": True}, "bad-argument"),
        ("destination.browse", {"name": "q", "place": 1.5}, "bad-argument"),
        ("subscription.remove", {"name": "q", "subscription": "s"}, "unknown-subscription"),
        ("subscription.remove", {"name": "q"}, "bad-argument"),
    ],
)
def test_wrong_requests_are_refused_and_change_nothing(command: str, arguments: dict[str, Any], code: str) -> None:
    world = World()
    world.queue_with(2)
    before = {table: dict(records) for table, records in world.disk.tables.items()}
    reply = world.request(command, **arguments)
    assert reply.code == code
    assert reply.reason
    assert world.disk.tables == before


def test_the_list_is_sorted_and_says_what_describe_says() -> None:
    world = World()
    for name in ("b", "a", "c"):
        world.queue_with(1, name=name)
    listed = world.request("destination.list").result
    assert listed == [world.describe(name) for name in ("a", "b", "c")]


def test_the_list_comes_in_pages_of_a_bounded_length() -> None:
    """Once: one reply for all, which kept everybody waiting and was longer than a frame may be."""
    world = World()
    names = sorted(f"d{number}" for number in range(1_200))
    world.is_checked = False
    for name in names:
        world.locate(name)
    world.is_checked = True
    pages: list[list[str]] = [[]]
    while page := world.request("destination.list", after=pages[-1][-1] if pages[-1] else "").result:
        pages.append([described["name"] for described in page])
    assert [len(page) for page in pages] == [0, 500, 500, 200]
    assert [name for page in pages for name in page] == names
    assert len(world.request("destination.list", count=10**9).result) == 500
    assert [found["name"] for found in world.request("destination.list", prefix="d119", count=3).result] == [
        "d119", "d1190", "d1191",
    ]  # fmt: skip
    assert [found["name"] for found in world.request("destination.list", prefix="d119", after="d1198").result] == [
        "d1199"
    ]
    assert world.request("destination.list", prefix="e").result == []


def test_a_page_of_the_list_follows_what_is_created_and_removed() -> None:
    world = World()
    for name in ("a", "b"):
        world.locate(name)

    def listed() -> list[str]:
        return [found["name"] for found in world.request("destination.list").result]

    assert listed() == ["a", "b"]
    world.request("destination.remove", name="a")
    assert listed() == ["b"]
    world.locate("aa")
    assert listed() == ["aa", "b"]
    world.request("destination.remove", name="aa")
    world.locate("c")
    assert listed() == ["b", "c"]


def test_describe_counts_what_is_there() -> None:
    world = World()
    destination = world.locate("q")
    producer = world.producer(destination)
    producer.publish(b"12", b"3456")
    producer.publish(b"")
    consumer = world.consumer(destination, credit=2)
    consumer.settle((0, 1))
    described = world.describe("q")
    expected = {
        "name": "q", "kind": "queue", "confirm": "disk", "messages": 2, "bytes_mean": 2, "first_position": 1,
        "next_position": 3, "producers": 1, "consumers": 1, "in_flight": 1, "messages_in": 3, "messages_out": 2,
        "settled": 1, "rejected": 0, "expired": 0, "damaged": 0, "blocked": "",
    }  # fmt: skip
    assert {key: described[key] for key in expected} == expected


# -- removing --------------------------------------------------------------------------------------------------


def test_removing_tells_everybody_and_leaves_nothing() -> None:
    world = World()
    destination = world.queue_with(3)
    producer, consumer = world.producer(destination), world.consumer(destination, credit=1)
    producer.publish(b"more")
    assert world.request("destination.remove", name="q").result == {"removed": "q"}
    assert world.last(producer.session, frames.ProducerClosed).code == "destination-removed"
    assert consumer.closed_codes == ["destination-removed"]
    assert world.disk.records_of(destination) == {}
    assert world.disk.tables[Table.DESTINATION] == {}
    assert world.manager.destinations == {}
    assert world.request("destination.describe", name="q").code == "unknown-destination"


def test_what_is_always_there_is_not_removed() -> None:
    world = World()
    world.locate("_DMQ")
    assert world.request("destination.remove", name="_DMQ").code == "reserved-name"
    assert world.request("destination.describe", name="_DMQ").code == ""


def test_removing_is_answered_when_it_is_durable() -> None:
    world = World()
    world.queue_with(1)
    world.auto = False
    session = world.session()
    world.frame(session, 0, frames.Request(1, "destination.remove", {"name": "q"}))
    assert world.received(session, frames.Reply) == []
    world.run_disk()
    assert len(world.received(session, frames.Reply)) == 1


def test_what_is_under_way_to_a_removed_destination_ends_quietly() -> None:
    world = World()
    destination = world.queue_with(3)
    producer = world.producer(destination)
    consumer = world.consumer(destination, credit=0)
    world.auto = False
    consumer.credit(10)
    producer.publish(b"under way")
    world.frame(world.session(), 0, frames.Request(1, "destination.remove", {"name": "q"}))
    consumer.settle((0, 1))
    consumer.credit(20)
    consumer.close()
    producer.publish(b"too late")
    late = world.consumer(destination)
    world.end(producer.session, closed=True)
    world.run_disk()
    assert late.closed_codes == ["destination-removed"]
    assert world.last(producer.session, frames.ProducerClosed).code == "destination-removed"
    assert world.disk.records_of(destination) == {}
    assert consumer.bodies == []


def test_a_name_can_be_used_again_after_its_removal_and_starts_empty() -> None:
    world = World()
    old = world.queue_with(3)
    world.consumer(old, credit=1)
    world.request("destination.remove", name="q")
    new = world.locate("q", DestinationKind.TOPIC)
    assert new != old
    assert world.describe("q")["kind"] == "topic"
    assert world.describe("q")["messages"] == 0
    world = world.restarted()
    assert world.describe("q")["kind"] == "topic"


# -- purging -----------------------------------------------------------------------------------------------------


def test_purging_takes_what_nobody_holds() -> None:
    world = World()
    destination = world.queue_with(2, 2, 2)
    consumer = world.consumer(destination, credit=3)
    consumer.release((0, 1))  # free again, for the next who has credit
    assert world.request("destination.purge", name="q").result == {"purged": 4}
    assert world.describe("q")["messages"] == 2
    assert world.disk.batch_ends(destination) == [2, 4, 6], "from the front only"
    consumer.credit(100)
    assert consumer.positions == [0, 1, 2], "what is purged is not delivered"
    consumer.settle((1, 3))
    assert consumer.settled[-1].lost == []
    assert world.disk.batch_ends(destination) == []
    assert world.request("destination.purge", name="q").result == {"purged": 0}


def test_a_purge_while_messages_are_read_for_delivery_wins() -> None:
    world = World()
    destination = world.queue_with(3)
    consumer = world.consumer(destination, credit=0)
    world.auto = False
    consumer.credit(10)
    assert len(world.reads) == 1
    read = world.reads.popleft()
    assert isinstance(read, Read)
    batches = world.disk.read(read)
    world.frame(world.session(), 0, frames.Request(1, "destination.purge", {"name": "q"}))
    world.run_disk()
    world.tell(BatchesRead(read.token, batches))
    world.run_disk()
    assert consumer.bodies == []
    assert world.reports == []
    world.auto = True
    world.producer(destination).publish(b"new")
    assert consumer.bodies == [b"new"]


def test_a_purge_survives_a_restart() -> None:
    world = World()
    destination = world.queue_with(3)
    world.request("destination.purge", name="q")
    world = world.restarted()
    assert world.describe("q")["messages"] == 0
    world.producer(destination).publish(b"new")
    assert world.consumer(destination).deliveries == [(3, b"new", 0)]


def test_purging_a_topic_empties_every_subscription() -> None:
    world = World()
    topic = world.locate("t", DestinationKind.TOPIC)
    for name in ("a", "b"):
        world.consumer(topic, subscription=name, credit=0)
    world.consumer(topic, credit=0)
    world.producer(topic).publish(b"x", b"y")
    assert world.request("destination.purge", name="t").result == {"purged": 6}
    assert world.describe("t")["messages"] == 0
    assert world.disk.batch_ends(topic) == []


# -- browsing ----------------------------------------------------------------------------------------------------


def browse_all(world: World, **options: int) -> list[tuple[int, bytes]]:
    """Page by page, as a client would."""
    found: list[tuple[int, bytes]] = []
    place = 0
    for _ in range(1_000):
        reply, payload = world.request_with_payload("destination.browse", name="q", place=place, **options)
        found += parts(reply, payload)
        if reply.result["next"] >= reply.result["end"]:
            return found
        assert reply.result["next"] > place, "a page must lead on"
        place = reply.result["next"]
    raise AssertionError("browsing does not come to an end")


def test_browsing_shows_everything_and_takes_nothing() -> None:
    world = World()
    destination = world.queue_with(2, 3)
    assert browse_all(world) == [(number, b"m%d" % number) for number in range(5)]
    assert world.describe("q")["messages"] == 5
    assert world.consumer(destination).positions == list(range(5))


# Once: `next` is the end of all that was read, also when `count` was reached before: the messages between are skipped.
@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("bytes_max", [1, 200, 1 << 30])
def test_pages_together_show_each_unsettled_message_once(count: int, bytes_max: int) -> None:
    world = World()
    destination = world.queue_with(1, 4, 2, 5, 3)
    consumer = world.consumer(destination)
    consumer.settle((0, 2), (6, 9), (14, 15))
    expected = [(p, b"m%d" % p) for p in range(15) if p not in {0, 1, 6, 7, 8, 14}]
    assert browse_all(world, count=count, bytes_max=bytes_max) == expected


# Once: with bytes_max 0 or less nothing is read, and `next` says that this was the end.
@pytest.mark.parametrize("bytes_max", [0, -1])
def test_a_page_of_no_bytes_does_not_pretend_to_be_the_end(bytes_max: int) -> None:
    world = World()
    world.queue_with(2)
    reply = world.request("destination.browse", name="q", bytes_max=bytes_max)
    assert reply.code == "bad-argument" or reply.result["parts"] or reply.result["next"] < reply.result["end"]


@pytest.mark.parametrize("arguments", [{"place": place_of(5)}, {"place": 1 << 62}, {"count": 0}, {"count": -1}])
def test_a_page_beyond_the_end_or_of_nothing_is_empty(arguments: dict[str, int]) -> None:
    world = World()
    world.queue_with(5)
    reply, payload = world.request_with_payload("destination.browse", name="q", **arguments)
    assert parts(reply, payload) == []
    assert reply.result["end"] == place_of(5)
    assert reply.result["next"] == arguments.get("place", place_of(0))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("bytes_max", [1, 200, 1 << 30])
@pytest.mark.parametrize("seed", range(5))
def test_browsing_shows_messages_in_the_order_in_which_they_would_be_received(
    count: int, bytes_max: int, seed: int
) -> None:
    random = Random(seed)
    world = World()
    queue = world.locate("q")
    producer = world.producer(queue)
    for batch in range(8):
        priorities = [random.randrange(10) for _ in range(random.randint(1, 4))]
        producer.publish(*(b"%d.%d" % (batch, p) for p in priorities), columns=columns(priorities=priorities))
    browsed = browse_all(world, count=count, bytes_max=bytes_max)
    consumer = world.consumer(queue)
    assert [body for _, body in browsed] == consumer.bodies
    assert [position for position, _ in browsed] == consumer.positions


def test_a_priority_that_appears_between_two_pages_neither_shows_anything_twice_nor_hides_anything() -> None:
    """Lanes of 2, 4 and 6 are there; after the first page 9, 7, 5 and 1 appear, and more of each of the others."""
    world = World()
    producer = world.producer(world.locate("q"))
    before = [2, 2, 4, 4, 6, 6]
    producer.publish(*(b"before" for _ in before), columns=columns(priorities=before))
    reply, payload = world.request_with_payload("destination.browse", name="q", count=1)
    found, end = parts(reply, payload), reply.result["end"]
    later = [9, 7, 6, 5, 4, 2, 1]
    producer.publish(*(b"later" for _ in later), columns=columns(priorities=later))
    while (place := reply.result["next"]) < end:
        reply, payload = world.request_with_payload("destination.browse", name="q", count=1, place=place)
        found += [(position, body) for position, body in parts(reply, payload) if place_of(position) < end]
    assert [(priority_of(position), body) for position, body in found] == [
        (6, b"before"), (6, b"before"), (6, b"later"), (5, b"later"),
        (4, b"before"), (4, b"before"), (4, b"later"), (2, b"before"), (2, b"before"),
    ]  # fmt: skip
    assert len(dict(found)) == len(found)


def test_places_ascend_as_urgency_falls() -> None:
    positions = [lane_for(priority) * LANE_POSITIONS + offset for priority in range(9, -1, -1) for offset in (0, 1, 99)]
    places = [place_of(position) for position in positions]
    assert places == sorted(set(places))
    assert places[0] == 0, "a browser that asks for 0 begins with the most urgent"


def test_browsing_skips_damage_and_what_is_not_yet_durable() -> None:
    world = World()
    destination = world.queue_with(2, 2, 2)
    producer = world.producer(destination)
    world.disk.damaged.add(next(key for key in world.disk.tables[Table.BATCH] if key.endswith(b"\x04")))
    world.auto = False
    producer.publish(b"under way")
    session = world.session()
    world.frame(session, 0, frames.Request(1, "destination.browse", {"name": "q"}))
    while world.complete_read():
        pass
    (frame, payload) = world.sent[session][0]
    assert isinstance(frame, frames.Reply)
    assert [position for position, _ in parts(frame, payload)] == [0, 1, 4, 5]


def test_a_browse_that_outlives_its_destination_is_answered_with_nothing() -> None:
    world = World()
    world.queue_with(2)
    world.auto = False
    session = world.session()
    world.frame(session, 0, frames.Request(1, "destination.browse", {"name": "q"}))
    world.frame(world.session(), 0, frames.Request(1, "destination.remove", {"name": "q"}))
    world.run_disk()
    (frame, payload) = world.sent[session][0]
    assert isinstance(frame, frames.Reply)
    assert parts(frame, payload) == []


@pytest.mark.parametrize("seed", range(10))
def test_browsing_a_busy_queue_shows_only_messages_that_were_there(seed: int) -> None:
    random = Random(seed)
    world = World()
    destination = world.queue_with(*(random.randint(1, 5) for _ in range(8)))
    consumer = world.consumer(destination)
    for position in random.sample(consumer.positions, k=len(consumer.positions) // 2):
        outcome = random.choice([frames.Outcome.SETTLE, frames.Outcome.RELEASE])
        consumer.settle((position, position + 1), outcome=outcome)
    unsettled = world.describe("q")["messages"]
    found = browse_all(world, count=1_000)
    assert len(found) == len(dict(found)) == unsettled
    assert all(body == b"m%d" % position for position, body in found)

