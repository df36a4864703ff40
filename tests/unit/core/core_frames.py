"""Frames and batches drawn at random, and the codes that may answer a peer's mistake."""
import enum
import typing
from typing import Any

import msgspec
from hypothesis import strategies as st

from angarium.core.wire import frames
from angarium.core.wire.codec import HEADER, HEADER_BYTES
from angarium.core.wire.frames import FRAMES, Frame
from angarium.core.wire.layout import ANNOUNCEMENTS, PRIORITY_MAX, SEQUENCE_MAX, Columns
from angarium.core.wire.packing import MessageColumns, pack

# What a peer's bytes may be answered with, at each place that looks at them (docs/protocol/codes.md).
PARSER_CODES = frozenset({"bad-frame", "frame-too-long", "unknown-frame"})
BATCH_CODES = frozenset({"bad-batch"})
SESSION_CODES = frozenset({
    "bad-range", "body-too-long", "not-open", "number-in-use", "sequence-gap", "too-many-connections",
    "too-many-frames", "too-many-links", "too-many-sessions", "unexpected-frame", "version-unsupported",
    "window-exceeded",
})  # fmt: skip
FAILURE_CODES = PARSER_CODES | BATCH_CODES | SESSION_CODES

_integers = st.one_of(st.integers(0, 300), st.integers(-(1 << 63), (1 << 64) - 1))
_texts = st.text(max_size=20)
_ranges = st.lists(st.tuples(_integers, _integers), max_size=4)
_scalars = st.one_of(
    st.none(), st.booleans(), _integers, st.floats(allow_nan=False), _texts, st.binary(max_size=20)
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3), max_leaves=8
)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: _integers,
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: _texts,
    bytes: st.binary(max_size=40),
    list[str]: st.lists(_texts, max_size=3),
    list[int]: st.lists(_integers, max_size=5),
    list[tuple[int, int]]: _ranges,
    list[tuple[int, int]] | None: st.none() | _ranges,
    list[tuple[int, list[tuple[int, int]]]]: st.lists(st.tuples(_integers, _ranges), max_size=3),
    list[tuple[int, int, int]]: st.lists(st.tuples(_integers, _integers, _integers), max_size=3),
    list[tuple[int, int, list[tuple[int, int]]]]: st.lists(st.tuples(_integers, _integers, _ranges), max_size=3),
    dict[str, Any]: st.dictionaries(_texts, _values, max_size=4),
    Any: _values,
}


def strategy_of(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return st.sampled_from(list(hint))
    return _BY_TYPE[hint]


def frame_of(kind: type[Frame]) -> st.SearchStrategy[Frame]:
    """A frame of the kind with every field drawn."""
    hints = typing.get_type_hints(kind)
    fields = [field.name for field in msgspec.structs.fields(kind)]
    return st.builds(kind, *(strategy_of(hints[name]) for name in fields))


def any_frame() -> st.SearchStrategy[Frame]:
    return st.one_of([frame_of(kind) for kind in FRAMES.values()])


def sample(kind: type[Frame]) -> Frame:
    """A plain frame of the kind, the same in every run."""
    samples: dict[Any, Any] = {
        int: 1, float: 1.5, bool: True, str: "text", bytes: b"identity 16 byte", list[str]: ["a"], list[int]: [1, 2],
        list[tuple[int, int]]: [(1, 2)], list[tuple[int, int]] | None: [(1, 2)],
        list[tuple[int, list[tuple[int, int]]]]: [(1, [(2, 3)])],
        list[tuple[int, int, int]]: [(1, 2, 3)], list[tuple[int, int, list[tuple[int, int]]]]: [(1, 2, [(3, 4)])],
        dict[str, Any]: {"name": "orders"}, Any: {"deep": [1, None, b"x"]},
    }  # fmt: skip
    hints = typing.get_type_hints(kind)
    fields = [hints[field.name] for field in msgspec.structs.fields(kind)]
    return kind(*(samples[hint] if hint in samples else next(iter(hint)) for hint in fields))


def raw_frame(kind: int, meta: bytes, payload: bytes = b"", *, session: int = 1) -> bytes:
    return HEADER.pack(HEADER_BYTES - 4 + len(meta) + len(payload), kind, 0, 0, session, len(meta)) + meta + payload


EVERY_KIND = sorted(FRAMES.values(), key=lambda frame: frame.kind)
CLIENT_KINDS = (
    frames.Hello, frames.Ping, frames.Pong, frames.Goodbye, frames.SessionOpen, frames.SessionClose,
    frames.ProducerOpen, frames.Publish, frames.ProducerClose,
    frames.ConsumerOpen, frames.Credit, frames.Settle, frames.ConsumerClose, frames.Recover, frames.Request,
    frames.Commit, frames.Watch, frames.WatchClose,
)  # fmt: skip


_ANNOUNCEMENTS = (Columns.GROUP, Columns.DEDUPLICATION, Columns.KEY, Columns.STREAM)


@st.composite
def columns_for(draw: st.DrawFn, count: int) -> MessageColumns:
    def column(of: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | st.lists(of, min_size=count, max_size=count))

    return MessageColumns(
        priorities=column(st.integers(0, PRIORITY_MAX)),
        expiries_ms=column(st.integers(-(1 << 63), (1 << 63) - 1)),
        headers=column(st.binary(max_size=12)),
        properties=column(st.binary(max_size=12)),
        dues_ms=column(st.integers(-(1 << 63), (1 << 63) - 1)),
        announcements=draw(st.sampled_from([0, *_ANNOUNCEMENTS, ANNOUNCEMENTS])),
    )


class Messages(typing.NamedTuple):
    """A batch before it is packed."""

    producer: bytes
    sequence: int
    timestamp_ms: int
    bodies: list[bytes]
    columns: MessageColumns

    def packed(self) -> bytes:
        return pack(*self)


@st.composite
def messages(draw: st.DrawFn) -> Messages:
    bodies = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
    return Messages(
        draw(st.binary(min_size=16, max_size=16)),
        draw(st.integers(1, SEQUENCE_MAX - len(bodies) + 1)),
        draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        bodies,
        draw(columns_for(len(bodies))),
    )
