"""Goal: browsing shows what is there, in the order in which it would be received, takes nothing, and comes to an end.
Method: requests to one message manager, page by page, with producers and consumers between."""
from random import Random
from typing import Any

import pytest

from angarium.core.destination.log import LANE_POSITIONS, lane_for
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
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


def test_what_arrives_between_two_pages_is_not_shown_whatever_its_priority() -> None:
    """Lanes of 2, 4 and 6 are there; after the first page 9, 7, 5 and 1 appear, and more of each of the others."""
    world = World()
    producer = world.producer(world.locate("q"))
    before = [2, 2, 4, 4, 6, 6]
    producer.publish(*(b"before" for _ in before), columns=columns(priorities=before))
    reply, payload = world.request_with_payload("destination.browse", name="q", count=1)
    found, ends, end = parts(reply, payload), reply.result["ends"], reply.result["end"]
    later = [9, 7, 6, 5, 4, 2, 1]
    producer.publish(*(b"later" for _ in later), columns=columns(priorities=later))
    while (place := reply.result["next"]) < end:
        reply, payload = world.request_with_payload("destination.browse", name="q", count=1, place=place, ends=ends)
        assert (reply.result["ends"], reply.result["end"]) == (ends, end)
        found += parts(reply, payload)
    assert [(priority_of(position), body) for position, body in found] == [(6, b"before")] * 2 + [
        (4, b"before"), (4, b"before"), (2, b"before"), (2, b"before"),
    ]  # fmt: skip
    assert len(dict(found)) == len(found)


def test_browsing_ends_also_if_more_arrives_than_is_shown() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.publish(b"urgent", b"urgent", b"usual", columns=columns(priorities=[9, 9, 4]))
    reply, payload = world.request_with_payload("destination.browse", name="q", count=1)
    found, asked = parts(reply, payload), {"name": "q", "count": 1, "ends": reply.result["ends"]}
    for _ in range(3):
        if reply.result["next"] >= reply.result["end"]:
            break
        producer.publish(b"more", b"more", b"more", columns=columns(priorities=[9, 9, 9]))
        reply, payload = world.request_with_payload("destination.browse", place=reply.result["next"], **asked)
        found += parts(reply, payload)
    assert [body for _, body in found] == [b"urgent", b"urgent", b"usual"]


def test_what_is_gone_between_two_pages_is_passed_over() -> None:
    world = World()
    producer = world.producer(world.locate("q"))
    producer.publish(b"urgent", b"urgent", b"usual", columns=columns(priorities=[9, 9, 4]))
    reply, _ = world.request_with_payload("destination.browse", name="q", count=1)
    world.request("destination.purge", name="q")
    producer.publish(b"new", b"new", columns=columns(priorities=[9, 4]))
    asked = {"name": "q", "ends": reply.result["ends"]}
    following, payload = world.request_with_payload("destination.browse", place=reply.result["next"], **asked)
    assert parts(following, payload) == []
    assert following.result["next"] == reply.result["end"]


@pytest.mark.parametrize("ends", [7, [1.5], ["x"], [True], list(range(11)), [-1]])
def test_ends_that_are_none_are_refused_or_show_nothing(ends: Any) -> None:
    world = World()
    world.queue_with(2)
    reply = world.request("destination.browse", name="q", ends=ends)
    assert reply.code == "bad-argument" or reply.result["parts"] == []


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

