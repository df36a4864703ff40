"""Goal: administration answers become types, pages join without gap or repetition, and bad answers are named."""
import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from angarium.admin.administration import Administration
from angarium.admin.model import BrowsedMessage
from angarium.core.errors import RemoteProtocolError
from angarium.core.wire.frames import LANE_BITS
from angarium.core.wire.lanes import place_of
from angarium.core.wire.packing import MessageColumns, pack

PRODUCER = bytes(range(16))


@dataclass
class FakeAnswer:
    result: Any
    payload: bytes = b""


@dataclass
class FakeBroker:
    """Answers from a script, or browses bodies that lie in batches of `batch_count`."""

    answers: dict[str, Any] = field(default_factory=dict)
    pages: list[FakeAnswer] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    batch_count: int = 3
    batches_in_page: int = 2
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def request(self, command: str, arguments: dict[str, Any]) -> FakeAnswer:
        self.asked.append((command, arguments))
        if self.pages:
            return self.pages.pop(0)
        if command == "destination.browse":
            return self._browse(max(0, arguments["place"] - place_of(0)), arguments["count"])
        return FakeAnswer(self.answers[command])

    def _browse(self, position: int, count: int) -> FakeAnswer:
        end = len(self.bodies)
        stop = min(end, position + self.batch_count * self.batches_in_page)
        parts, payload, wanted = [], b"", count
        for low in range(position, stop, self.batch_count):
            bodies = self.bodies[low : min(low + self.batch_count, stop)][:wanted]
            if bodies:
                data = pack(PRODUCER, low + 1, 1_000, bodies)
                parts.append({"position": low, "count": len(bodies), "bytes": len(data)})
                payload += data
                wanted -= len(bodies)
        return FakeAnswer({"parts": parts, "next": place_of(stop), "end": place_of(end)}, payload)


def _browse(broker: FakeBroker, *, count: int, position: int | None = None) -> list[BrowsedMessage]:
    async def main() -> list[BrowsedMessage]:
        browsing = Administration(broker).browse("q", position=position, count=count)
        return [message async for message in browsing]

    return asyncio.run(main())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7, 19, 20, 21, 1_000])
@pytest.mark.parametrize("position", [0, 1, 5])
def test_pages_join_without_gap_or_repetition(count: int, position: int) -> None:
    bodies = [b"m%d" % number for number in range(20)]
    found = _browse(FakeBroker(bodies=bodies), count=count, position=position)
    assert [message.body for message in found] == bodies[position : position + count]
    assert [message.position for message in found] == list(range(position, min(20, position + count)))


def test_an_empty_page_in_the_middle_is_not_the_end() -> None:
    part = {"position": 10, "count": 1, "bytes": len(_one())}
    pages = [
        FakeAnswer({"parts": [], "next": place_of(10), "end": place_of(11)}),
        FakeAnswer({"parts": [part], "next": place_of(11), "end": place_of(11)}, _one()),
    ]
    assert [message.position for message in _browse(FakeBroker(pages=pages), count=5)] == [10]


def test_a_broker_that_does_not_get_on_is_not_asked_for_ever() -> None:
    pages = [FakeAnswer({"parts": [], "next": 0, "end": place_of(11)})]
    with pytest.raises(RemoteProtocolError, match="does not get past place 0"):
        _browse(FakeBroker(pages=pages), count=5)


def test_browsing_may_start_with_the_message_at_a_position_of_any_priority() -> None:
    async def asked(position: int | None) -> int:
        broker = FakeBroker(pages=[FakeAnswer({"parts": [], "next": 1 << 62, "end": 1 << 62})])
        assert [message async for message in Administration(broker).browse("q", position=position, count=5)] == []
        return int(broker.asked[-1][1]["place"])

    urgent = 5 << LANE_BITS  # of priority 9
    assert [asyncio.run(asked(p)) for p in (None, urgent, urgent + 7, 7)] == [0, 0, 7, (5 << LANE_BITS) + 7]


def _one() -> bytes:
    return pack(PRODUCER, 1, 1_000, [b"one"])


def test_columns_become_fields() -> None:
    properties = msgspec.msgpack.encode({"region": "EU"})
    columns = MessageColumns([7, 4], [5_000, 0], [b"", b""], [properties, b""])
    data = pack(PRODUCER, 1, 1_234, [b"a", b"b"], columns)
    part = {"position": 3, "count": 2, "bytes": len(data)}
    broker = FakeBroker(pages=[FakeAnswer({"parts": [part], "next": place_of(5), "end": place_of(5)}, data)])
    first, second = _browse(broker, count=10)
    assert (first.priority, first.expires_ms, first.properties) == (7, 5_000, {"region": "EU"})
    assert (second.priority, second.expires_ms, second.properties) == (4, 0, {})
    assert first.timestamp_ms == 1_234
    assert first.id != second.id


def test_unknown_fields_are_ignored_and_missing_ones_have_defaults() -> None:
    broker = FakeBroker(answers={"destination.list": [{"name": "q", "kind": "queue", "colour": "red"}]})
    (found,) = asyncio.run(Administration(broker).destinations())
    assert (found.name, found.kind, found.messages, found.subscriptions) == ("q", "queue", 0, [])


def test_the_list_is_asked_for_page_by_page() -> None:
    names = [f"d{number:04}" for number in range(1_200)]
    described = [{"name": name, "kind": "queue"} for name in names]
    pages = [FakeAnswer(described[at : at + 500]) for at in (0, 500, 1_000)]
    broker = FakeBroker(pages=[*pages, FakeAnswer([])])
    found = asyncio.run(Administration(broker).destinations())
    assert [destination.name for destination in found] == names
    assert [arguments["after"] for _, arguments in broker.asked] == ["", "d0499", "d0999", "d1199"]


def test_the_first_few_of_a_prefix_are_one_request() -> None:
    described = [{"name": f"d{number}", "kind": "queue"} for number in range(3)]
    broker = FakeBroker(pages=[FakeAnswer(described)])
    assert len(asyncio.run(Administration(broker).destinations(prefix="d", count=3))) == 3
    assert broker.asked == [("destination.list", {"after": "", "prefix": "d", "count": 3})]


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ([{"kind": "queue"}], "name"),
        ([{"name": "q", "kind": "queue", "messages": "many"}], "messages"),
        ({"name": "q"}, "array"),
        (None, "array"),
    ],
)
def test_an_answer_of_the_wrong_shape_is_the_brokers_mistake(answer: Any, named: str) -> None:
    with pytest.raises(RemoteProtocolError, match=named) as failed:
        asyncio.run(Administration(FakeBroker(answers={"destination.list": answer})).destinations())
    assert failed.value.code == "bad-reply"
    assert "destination.list" in str(failed.value)


@pytest.mark.parametrize(("count", "size"), [(2, len(_one())), (1, 5), (1, len(_one()) - 1)])
def test_a_payload_that_is_not_what_was_described_is_refused(count: int, size: int) -> None:
    part = {"position": 0, "count": count, "bytes": size}
    broker = FakeBroker(pages=[FakeAnswer({"parts": [part], "next": 1, "end": 1}, _one())])
    with pytest.raises(RemoteProtocolError):
        _browse(broker, count=1)


def test_commands_carry_their_arguments() -> None:
    broker = FakeBroker(
        answers={
            "destination.create": {"name": "t", "kind": "topic"},
            "destination.remove": {"removed": "t"},
            "subscription.remove": {"removed": "s"},
            "destination.purge": {"purged": 3},
        }
    )

    async def main() -> int:
        administration = Administration(broker)
        await administration.create("t", "topic", confirm="memory")
        await administration.remove_subscription("t", "s")
        await administration.remove("t")
        return await administration.purge("t")

    assert asyncio.run(main()) == 3
    assert broker.asked == [
        ("destination.create", {"name": "t", "kind": "topic", "confirm": "memory"}),
        ("subscription.remove", {"name": "t", "subscription": "s"}),
        ("destination.remove", {"name": "t"}),
        ("destination.purge", {"name": "t"}),
    ]
