"""Goal: administration tells the truth, changes what it says it changes, and answers when that is durable.
Method: requests to one message manager, with producers, consumers and reads under way."""
from typing import Any

import pytest

from angarium.core.destination.events import BatchesRead, DestinationSettings, Read
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_manager import World

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


def _of_the_dead_message_queue(world: World) -> list[tuple[str, str, Any]]:
    """What is said of it, but for how it is called in the store."""
    asked = ("describe", "remove", "purge", "browse", "explain")
    replies = [world.request(f"destination.{command}", name="_DMQ") for command in asked]
    replies.append(world.request("subscription.remove", name="_DMQ", subscription="s"))
    return [(reply.code, reply.reason, reply.result) for reply in replies]


def test_the_dead_message_queue_is_the_same_before_and_after_it_is_made() -> None:
    world = World()
    before = _of_the_dead_message_queue(world)
    assert [code for code, _, _ in before] == ["", "reserved-name", "", "", "", "unknown-subscription"]
    assert before[2][2] == {"purged": 0}
    assert world.disk.tables.get(Table.DESTINATION, {}) == {} and world.manager.destinations == {}
    world.locate("_DMQ")
    assert _of_the_dead_message_queue(world) == before
    assert world.request("destination.remove", name="_DMQ").code == "reserved-name"


def test_the_dead_message_queue_is_given_a_limit_before_anything_has_died() -> None:
    world = World()
    assert world.request("destination.alter", name="_DMQ", messages_max=5).result["messages_max"] == 5
    assert world.restarted().describe("_DMQ")["messages_max"] == 5


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
