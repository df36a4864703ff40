"""Goal: what was encoded is what is decoded, however the bytes arrive; anything else is refused with a stable code,
before it costs memory.
Method: every frame kind with random fields; valid streams cut, flipped and lied about at every place."""
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.wire import frames
from angarium.core.wire.codec import HEADER, FrameParser, Received, encode, encode_head
from angarium.core.wire.frames import FRAMES, Frame
from tests.unit.core.core_frames import (
    EVERY_KIND,
    PARSER_CODES,
    any_frame,
    frame_of,
    raw_frame,
    sample,
)
from tests.unit.core.core_settings import QUICK, THOROUGH

FRAME_BYTES_MAX = 1 << 20
_sessions = st.integers(0, (1 << 32) - 1)


def received_as(session: int, frame: Frame, payload: bytes) -> Received:
    return Received(session, frame, payload, len(encode(session, frame, payload)))


_received = st.builds(received_as, _sessions, any_frame(), st.binary(max_size=60))
_STREAM = [received_as(kind.kind, sample(kind), b"payload" if kind.kind % 2 else b"") for kind in EVERY_KIND]


def parser() -> FrameParser:
    return FrameParser(frame_bytes_max=FRAME_BYTES_MAX)


def encoded(items: Sequence[Received]) -> bytes:
    return b"".join(encode(item.session, item.frame, item.payload) for item in items)


def fed(pieces: Sequence[bytes]) -> list[Received]:
    target = parser()
    return [received for piece in pieces for received in target.feed(piece)]


def refusal(data: bytes, *, peak_bytes_max: int | None = None) -> str:
    """The code that refuses the bytes; empty if they are taken. Any other exception fails the test."""
    target, code = parser(), ""
    if peak_bytes_max is not None:
        tracemalloc.start()
    try:
        target.feed(data)
    except RemoteProtocolError as error:
        assert error.code in PARSER_CODES
        assert error.reason
        code = error.code
    if peak_bytes_max is not None:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak_bytes < peak_bytes_max
    if code:
        with pytest.raises(LocalProtocolError):
            target.feed(b"more")  # a parser that has failed is finished
    return code


def test_every_kind_has_a_number_of_its_own() -> None:
    assert all(frame.kind == number for number, frame in FRAMES.items())
    declared = [value for value in vars(frames).values() if isinstance(value, type) and issubclass(value, Frame)]
    assert len(FRAMES) == len(declared) - 1, "a declared frame is missing in FRAMES, or two share a number"


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.__name__)
def test_every_frame_survives_the_round_trip(kind: type[Frame]) -> None:
    @QUICK
    @given(_sessions, frame_of(kind), st.binary(max_size=40))
    def round_trip(session: int, frame: Frame, payload: bytes) -> None:
        data = encode(session, frame, payload)
        assert data == encode_head(session, frame, len(payload)) + payload
        (received,) = parser().feed(data)
        assert received == (session, frame, payload, len(data))
        assert type(received.frame) is kind

    round_trip()


@THOROUGH
@given(st.lists(_received, max_size=5), st.randoms(use_true_random=False))
def test_frames_do_not_depend_on_the_pieces_they_come_in(items: list[Received], random: Random) -> None:
    data = encoded(items)
    cuts = sorted(random.sample(range(len(data) + 1), k=min(len(data), random.randint(0, 6))))
    pieces = [data[low:high] for low, high in pairwise([0, *cuts, len(data)])]
    assert fed([data]) == items
    assert fed(pieces) == items
    assert fed([data[at : at + 1] for at in range(len(data))]) == items


def test_a_frame_leaves_as_soon_as_its_last_byte_is_there() -> None:
    data = encoded(_STREAM)
    target, seen = parser(), 0
    ends = [len(encoded(_STREAM[: count + 1])) for count in range(len(_STREAM))]
    for at in range(len(data)):
        seen += len(target.feed(data[at : at + 1]))
        assert seen == sum(end <= at + 1 for end in ends)


def test_the_parser_keeps_nothing_of_a_shared_buffer() -> None:
    """All connections share one receive buffer: what was parsed must not change with the next read."""
    data = encoded(_STREAM)
    for cut in (0, 7, 16, 40, len(data)):
        target, found, buffer = parser(), list[Received](), bytearray(len(data))
        for piece in (data[:cut], data[cut:]):
            buffer[: len(piece)] = piece
            found += target.feed(memoryview(buffer)[: len(piece)])
            buffer[:] = b"\xff" * len(buffer)
        assert found == _STREAM


def test_frames_before_a_violation_are_those_of_their_own_piece() -> None:
    """A violation ends the connection; what was complete in earlier pieces has been handed out."""
    good, bad = encode(1, frames.Ping(7)), raw_frame(99, b"\x90")
    target = parser()
    assert target.feed(good + bad[:5]) == [received_as(1, frames.Ping(7), b"")]
    with pytest.raises(RemoteProtocolError):
        target.feed(bad[5:])


# -- a peer of another version -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.__name__)
def test_fields_appended_by_a_newer_peer_are_ignored(kind: type[Frame]) -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(sample(kind)))
    meta = msgspec.msgpack.encode([*fields, "new", {"more": 1}])
    data = raw_frame(kind.kind, meta)
    assert parser().feed(data) == [Received(1, sample(kind), b"", len(data))]


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.__name__)
def test_fields_unknown_to_an_older_peer_have_defaults(kind: type[Frame]) -> None:
    required = [field for field in msgspec.structs.fields(kind) if field.required]
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(sample(kind)))
    ((_, frame, _, _),) = parser().feed(raw_frame(kind.kind, msgspec.msgpack.encode(fields[: len(required)])))
    assert frame == kind(*(getattr(sample(kind), field.name) for field in required))
    if required:
        assert refusal(raw_frame(kind.kind, msgspec.msgpack.encode(fields[: len(required) - 1]))) == "bad-frame"


# -- a peer that lies ----------------------------------------------------------------------------------------


@THOROUGH
@given(st.binary(max_size=200))
def test_random_bytes_are_frames_or_refused(data: bytes) -> None:
    refusal(data)


@THOROUGH
@given(st.sampled_from(EVERY_KIND), st.binary(max_size=40), st.binary(max_size=10))
def test_random_meta_is_a_frame_or_refused(kind: type[Frame], meta: bytes, payload: bytes) -> None:
    assert refusal(raw_frame(kind.kind, meta, payload)) in ("", "bad-frame")


def test_every_flipped_bit_gives_frames_or_a_refusal() -> None:
    data = encoded(_STREAM)
    outcomes: set[str] = set()
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            outcomes.add(refusal(bytes(flipped)))
    assert outcomes == {"", *PARSER_CODES}, "the flips have to reach every refusal"


def test_a_truncated_stream_gives_its_complete_frames_and_no_error() -> None:
    data = encoded(_STREAM)
    ends = [len(encoded(_STREAM[: count + 1])) for count in range(len(_STREAM))]
    for cut in range(len(data)):
        assert fed([data[:cut]]) == _STREAM[: sum(end <= cut for end in ends)]


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX - 3, 1 << 31, (1 << 32) - 1])
def test_a_header_that_announces_too_much_is_refused_before_anything_is_buffered(length: int) -> None:
    header = HEADER.pack(length, frames.Ping.kind, 0, 0, 1, 2)
    assert refusal(header[:-1]) == ""
    assert refusal(header, peak_bytes_max=10_000) == "frame-too-long"


def test_the_longest_frame_allowed_is_taken_and_one_byte_more_is_not() -> None:
    overhead = len(encode(1, frames.Publish(1)))
    longest = encode(1, frames.Publish(1), b"x" * (FRAME_BYTES_MAX - overhead))
    assert len(longest) == FRAME_BYTES_MAX
    assert len(fed([longest])) == 1
    assert refusal(encode(1, frames.Publish(1), b"x" * (FRAME_BYTES_MAX - overhead + 1))) == "frame-too-long"


# Once: a header of 16 bytes makes the parser allocate the whole frame it announces (twice, for a moment), before
# the peer has even said Hello: 20,000 connections of 16 bytes each cost 160 GB at the default frame_bytes_max.
def test_an_incomplete_frame_costs_about_what_has_arrived_of_it() -> None:
    header = HEADER.pack(FRAME_BYTES_MAX - 4, frames.Publish.kind, 0, 0, 1, 2)
    assert refusal(header, peak_bytes_max=FRAME_BYTES_MAX // 4) == ""


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20])
def test_a_long_frame_leaves_a_buffer_behind_only_as_long_as_agreed(kept_bytes: int) -> None:
    frame = encode(1, frames.Reply(1, "", "", {}), bytes(900_000))
    reader = FrameParser(frame_bytes_max=FRAME_BYTES_MAX, buffer_kept_bytes=kept_bytes)
    tracemalloc.start()
    try:
        for _ in range(3):
            assert not reader.feed(frame[:500_000])
            assert len(reader.feed(frame[500_000:])) == 1
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert (kept > 800_000) is (kept_bytes > 0)


@pytest.mark.parametrize(
    ("meta_bytes", "length"),
    [(3, 14), (1 << 31, 14), ((1 << 32) - 1, 14), (0, 11), (0, 0), (2, 13)],
    ids=["one more than there is", "2 GB", "4 GB", "a frame shorter than a header", "no length", "one byte short"],
)
def test_a_meta_that_does_not_fit_its_frame_is_refused_at_once(meta_bytes: int, length: int) -> None:
    assert refusal(HEADER.pack(length, frames.Ping.kind, 0, 0, 1, meta_bytes)) == "bad-frame"


@pytest.mark.parametrize("at", [5, 6, 7])
def test_reserved_bytes_must_be_zero(at: int) -> None:
    data = bytearray(encode(1, frames.Ping(1)))
    data[at] = 1
    assert refusal(bytes(data)) == "bad-frame"


def test_a_web_browser_is_told_what_it_is_talking_to() -> None:
    assert refusal(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") in ("bad-frame", "frame-too-long")


_REQUEST = b"\x93\x01\xa1x\x81\xa1a"  # Request(1, "x", {"a": ...


@pytest.mark.parametrize(
    ("kind", "meta"),
    [
        (frames.Request, _REQUEST + b"\x91" * 100_000),
        (frames.Request, _REQUEST + b"\x81\xa1k" * 100_000),
        (frames.Request, _REQUEST + b"\xdd\xff\xff\xff\xff"),
        (frames.Request, _REQUEST + b"\xdf\xff\xff\xff\xff"),
        (frames.Request, _REQUEST + b"\xdb\xff\xff\xff\xff"),
        (frames.Request, _REQUEST + b"\xc6\xff\xff\xff\xff"),
        (frames.Request, _REQUEST + b"\xc9\xff\xff\xff\xff\x01"),
        (frames.Request, _REQUEST + b"\x81\x80\x01"),
        (frames.Request, _REQUEST + b"\x81\xdd\xff\xff\xff\xff"),
        (frames.Request, _REQUEST + b"\xd7\xff" + b"\xff" * 8),
        (frames.Request, _REQUEST + b"\xc1"),
        (frames.Request, _REQUEST + b"\xa2\xff\xff"),
        (frames.Settle, b"\x95\x01\x01\x01\xdd\xff\xff\xff\xff"),
        (frames.Settle, b"\x95\x01\x01\x09\x90\x01"),
        (frames.Settle, b"\x95\x01\x01\x01\x91\x93\x01\x02\x03\x01"),
        (frames.Ping, b"\xdd\xff\xff\xff\xff\x01"),
        (frames.Ping, b"\x91\x01\x00"),
        (frames.Ping, b"\x91\xc3"),
        (frames.Ping, b"\x91\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"),
    ],
    ids=[
        "deep arrays", "deep maps", "array of 4 billion", "map of 4 billion", "text of 4 GB", "bytes of 4 GB",
        "extension of 4 GB", "a map as key", "a huge array as key", "a time that never was", "a reserved byte",
        "text that is no UTF-8", "4 billion ranges", "unknown outcome", "range of three", "4 billion fields",
        "trailing bytes", "true for a number", "infinity for a number",
    ],
)  # fmt: skip
def test_messagepack_that_means_harm_is_refused_in_little_memory(kind: type[Frame], meta: bytes) -> None:
    data = raw_frame(kind.kind, meta)
    assert refusal(data, peak_bytes_max=100_000 + 8 * len(data)) == "bad-frame"
