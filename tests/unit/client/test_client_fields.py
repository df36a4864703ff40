"""Goal: every field and every kind of body arrives as it was sent; what can never be sent is refused at once.
Method: the fake broker behind a real server, on stock asyncio and on uvloop; refusals without any broker."""
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import angarium
from angarium import Rejected
from angarium.client.dead_letter import dead_letter_of
from angarium.client.fields import (
    ID_BYTES_MAX,
    decode_body,
    decode_map,
    decode_properties,
    encode_body,
    make_options,
)
from angarium.core.destination import windows
from angarium.core.ids import format_id
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns
from tests.unit.client.client_fake_server import FakeServer
from tests.unit.client.client_running import Runner, with_session

NOW_MS = 1_700_000_000_000
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), st.floats(allow_nan=False), st.text(max_size=10),
    st.binary(max_size=10),
)  # fmt: skip
_BODIES = st.one_of(
    st.none(), st.binary(), st.text(), st.lists(_VALUES), st.dictionaries(st.text(min_size=1, max_size=5), _VALUES)
)


def test_header_fields_arrive(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        identity = await session.send(
            "orders", b"x", priority=9, ttl_s=60, delay_s=30, delivery_mode="non-persistent", correlation_id=b"\0c",
            reply_to=angarium.Topic("answers"), type="greeting", group="g", group_sequence=-3, deduplication_id="d",
            last_value_key="k",
        )  # fmt: skip
        async with session.consume("orders") as consumer:
            message = await anext(consumer)
        assert (message.id, message.id_text) == (identity, format_id(identity))
        assert (message.priority, message.delivery_mode, message.type) == (9, "non-persistent", "greeting")
        assert (message.correlation_id, message.reply_to) == (b"\0c", angarium.Topic("answers"))
        assert (message.group, message.group_sequence) == ("g", -3)
        assert (message.deduplication_id, message.last_value_key) == ("d", "k")
        assert 29_000 <= message.due_ms - message.timestamp_ms <= 30_001
        assert 59_000 <= message.expires_ms - message.timestamp_ms <= 60_001
        assert (message.redelivered, message.redelivery_count, message.delivery_count) == (False, 0, 1)
        (_, batch), = server.broker.log("orders").batches
        assert batch.columns & ~0xFFFF == Columns.GROUP | Columns.DEDUPLICATION | Columns.KEY

    with_session(run, scenario)


def test_a_plain_message_has_the_defaults(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send("orders", b"x")
        async with session.consume("orders") as consumer:
            message = await anext(consumer)
        assert (message.priority, message.delivery_mode, message.expires_ms) == (4, "persistent", 0)
        assert message.due_ms == message.timestamp_ms
        assert message.fields() == {}
        for name in ("correlation_id", "reply_to", "type", "group", "group_sequence", "deduplication_id",
                     "last_value_key", "content"):  # fmt: skip
            assert getattr(message, name) is None
        for name in ("priority", "properties", "type", "redelivered"):
            with pytest.raises(AttributeError):
                setattr(message, name, 5)
        (_, batch), = server.broker.log("orders").batches
        assert batch.columns == 0

    with_session(run, scenario)


def test_bodies_of_every_kind_arrive(run: Runner) -> None:
    bodies: list[Any] = [b"\0", "grüße", {"a": 1, "b": b"x", "c": None}, [True, 1.5, "s"], None, (), {}, ""]

    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        await session.send_many("orders", bodies)
        async with session.consume("orders") as consumer:
            messages = await consumer.receive_batch(len(bodies), timeout_s=5)
        assert [message.value for message in messages] == bodies
        contents = [None, "text", "map", "stream", "plain", "stream", "map", "text"]
        assert [message.content for message in messages] == contents
        assert (messages[2].map.get_int("a"), messages[3].stream.read_boolean()) == (1, True)
        for wrong in (0, 1, 3, 4):
            with pytest.raises(Rejected, match="not 'map'"):
                _ = messages[wrong].map

    with_session(run, scenario)


def test_a_received_message_is_sent_on_with_what_its_sender_said(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        fields: angarium.MessageFields = {
            "properties": {"n": 1}, "correlation_id": "c", "reply_to": "r", "type": "t", "group": "g",
            "group_sequence": 1, "deduplication_id": "d", "last_value_key": "k",
        }  # fmt: skip
        said_anew: angarium.MessageFields = {"priority": 9, "ttl_s": 60, "delivery_mode": "non-persistent"}
        await session.send("orders", {"a": 1}, **(fields | said_anew))
        async with session.consume("orders") as consumer:
            message = await anext(consumer)
            assert message.fields() == fields
            changed = message.fields()
            changed["properties"] = {**message.properties, "hops": 1}
            await session.send("archive", message.value, **changed)
        async with session.consume("archive") as consumer:
            copy = await anext(consumer)
        assert (copy.value, copy.properties, copy.group) == ({"a": 1}, {"n": 1, "hops": 1}, "g")
        assert (copy.priority, copy.expires_ms, copy.delivery_mode) == (4, 0, "persistent")
        assert copy.id != message.id

    with_session(run, scenario)


@given(_BODIES)
def test_a_body_is_read_as_it_was_written(body: Any) -> None:
    assert decode_body(*encode_body(body)) == body


@pytest.mark.parametrize(
    "body", [5, 1.5, print, {1: 2}, {"": 1}, {"a": []}, {"a": print}, [[]], [{}], {"a": 1 << 64}, {1, 2}], ids=str
)
def test_other_bodies_are_refused(body: Any) -> None:
    with pytest.raises(Rejected) as caught:
        encode_body(body)
    assert caught.value.code == "bad-body"


def test_no_content_makes_code_run_and_unknown_content_is_bytes() -> None:
    """What a sender writes is data: text, map and stream that are malformed are refused, anything else is bytes."""
    for content in ("text", "map", "stream"):
        with pytest.raises(Rejected, match="cannot be read"):
            decode_body(b"\xff\xc1", content)
    assert decode_body(b"cos\nsystem\n", "pickle") == b"cos\nsystem\n"
    for content, opening in (("map", b"\x81\xa1a"), ("stream", b"\x91")):
        with pytest.raises(Rejected, match="cannot be read"):
            decode_body(opening + b"\x91" * 100_000 + b"\xc0", content)


def test_text_of_what_is_no_text_is_refused(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        bodies: list[Any] = ["words", b"plain words", b"\xff\xfe", {"a": 1}, ["a"], None]
        for body in bodies:
            await session.send("orders", body)
        async with session.consume("orders") as consumer:
            messages = [await anext(consumer) for _ in bodies]
            assert [message.text for message in messages[:2]] == ["words", "plain words"]
            for message in messages[2:]:
                with pytest.raises(Rejected) as refused:
                    _ = message.text
                assert refused.value.code == "bad-conversion"

    with_session(run, scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"priority": 10}, "bad-priority"), ({"priority": "4"}, "bad-priority"),
        ({"priority": True}, "bad-priority"),
        ({"ttl_s": 0}, "bad-ttl"), ({"ttl_s": -1}, "bad-ttl"), ({"ttl_s": math.nan}, "bad-ttl"),
        ({"ttl_s": "x"}, "bad-ttl"), ({"ttl_s": True}, "bad-ttl"), ({"delay_s": "x"}, "bad-delay"),
        ({"properties": 5}, "bad-property"), ({"properties": ["region"]}, "bad-property"),
        ({"delay_s": -1}, "bad-delay"), ({"delay_s": math.inf}, "bad-delay"),
        ({"delay_s": 1, "deliver_at": 5}, "bad-delay"), ({"deliver_at": datetime(2030, 1, 1)}, "bad-delay"),
        ({"deliver_at": "soon"}, "bad-delay"), ({"deliver_at": -1}, "bad-delay"),
        ({"deliver_at": datetime(9999, 1, 1, tzinfo=UTC)}, "bad-delay"),
        ({"delivery_mode": "fast"}, "bad-delivery-mode"),
        ({"correlation_id": 5}, "bad-header"), ({"correlation_id": ""}, "bad-header"), ({"type": 5}, "bad-header"),
        ({"reply_to": "a b"}, "bad-name"), ({"group": ""}, "bad-header"), ({"group": b"g"}, "bad-header"),
        ({"group_sequence": 1}, "bad-header"), ({"group": "g", "group_sequence": 1 << 31}, "bad-header"),
        ({"group": "g", "group_sequence": True}, "bad-header"),
        ({"deduplication_id": "x" * 401}, "bad-header"), ({"last_value_key": "ü" * 201}, "bad-header"),
        ({"deduplication_id": 5}, "bad-header"), ({"last_value_key": ""}, "bad-header"),
        ({"properties": {"a-b": 1}}, "bad-property"), ({"properties": {"a": []}}, "bad-property"),
        ({"properties": {"a": 1 << 64}}, "bad-property"), ({"properties": {"JMSXGroupID": "g"}}, "bad-property"),
        ({"properties": {"a": "\ud800"}}, "bad-property"), ({"type": "\ud800"}, "bad-header"),
        ({"correlation_id": "\ud800"}, "bad-header"), ({"deduplication_id": "\ud800" * 200}, "bad-header"),
    ],
    ids=str,
)  # fmt: skip
def test_fields_that_cannot_be_are_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(Rejected) as caught:
        make_options(None, now_ms=NOW_MS, **fields)
    assert caught.value.code == code


@pytest.mark.parametrize("body", ["\ud800", {"a": "\ud800"}, {"\ud800": 1}, ["\ud800"]], ids=ascii)
def test_half_of_a_surrogate_pair_is_no_body(body: Any) -> None:
    with pytest.raises(Rejected) as caught:
        encode_body(body)
    assert caught.value.code == "bad-body"


def test_ids_and_keys_are_as_long_as_the_broker_remembers_them() -> None:
    assert ID_BYTES_MAX == windows.NAME_BYTES_MAX
    assert make_options(None, now_ms=NOW_MS, deduplication_id="ü" * 200, last_value_key="x" * 400) is not None
    with pytest.raises(Rejected, match=r"deduplication_id of 402 bytes exceeds 400.*digest"):
        make_options(None, now_ms=NOW_MS, deduplication_id="ü" * 201)


def test_a_field_that_does_not_exist_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match=r"send\(\).*'prio'"):
        make_options(None, now_ms=NOW_MS, prio=5)  # type: ignore[call-arg]


def test_when_a_message_is_due() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    milliseconds = int(moment.timestamp() * 1000)
    for fields, expected in (
        ({"delay_s": 1.5}, NOW_MS + 1_500),
        ({"deliver_at": moment}, milliseconds),
        ({"deliver_at": moment + timedelta(milliseconds=1)}, milliseconds + 1),
        ({"deliver_at": moment.timestamp()}, milliseconds),
    ):
        options = make_options(None, now_ms=NOW_MS, **fields)
        assert options is not None and options.due_ms == expected
    assert make_options(None, now_ms=NOW_MS, delay_s=0) is None


def test_due_times_and_announcements_are_of_the_batch(run: Runner) -> None:
    async def scenario(server: FakeServer, session: angarium.Session) -> None:
        session.send("orders", b"now")
        session.send("orders", b"later", deliver_at=5.0)
        session.send("orders", b"grouped", group="g")
        await session.flush()
        (_, batch), = server.broker.log("orders").batches
        parsed = Batch.parse(batch.data)
        dues_ms = parsed.dues_ms()
        assert dues_ms is not None and dues_ms.tolist() == [0, 5_000, 0]
        assert parsed.columns & ~0xFFFF == Columns.GROUP

    with_session(run, scenario)


@pytest.mark.parametrize("encoded", [b"\xc1", b"\x93\x01\x02\x03", b"\x81\x01\x01", b"\x81"])
def test_headers_and_properties_that_are_no_map_are_refused_where_they_are_read(encoded: bytes) -> None:
    """Another client may have sent them: brokers do not look."""
    for decode in (decode_map, decode_properties):
        with pytest.raises(Rejected, match="no map") as refused:
            decode(encoded)
        assert refused.value.code == "bad-property"


@pytest.mark.parametrize(
    "header",
    [7, {}, {"destination": "q", "reason": "expired"}, {"destination": 1, "reason": "", "died_ms": 1}],
)
def test_a_death_that_no_broker_has_told_is_none(header: object) -> None:
    assert dead_letter_of(header) is None
