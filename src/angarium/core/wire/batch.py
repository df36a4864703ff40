"""The batch: messages that were published in the same moment, as one block of bytes.

What a client packs is what is ordered, stored, delivered and analysed: nobody on the way re-encodes it, and nobody
looks inside unless `columns` says that there is something to see. The layout is columnar and little-endian:

     0  4s  magic b"ABT1"
     4  u32 crc32 of everything that follows
     8  u32 length of the whole batch in bytes
    12  u32 count of messages, at least 1, at most COUNT_MAX
    16  16s producer (a global id)
    32  u64 sequence of the first message; the others follow without gaps, unless there is a column SEQUENCE
    40  i64 timestamp, milliseconds since 1970, UTC
    48  u32 columns: a bit for each optional column that is present, and the announcements
    52  u32 where the bodies start
    56  u64 zero
    64  i32 offsets[count + 1] of the bodies, from where they start
        the optional columns in the order of their bits, each starting at a multiple of 8:
          1 PRIORITY    u8[count]
          2 EXPIRY      i64[count], milliseconds since 1970, 0 is never
          4 HEADERS     i32[count + 1] offsets, then one MessagePack map or nothing for each message
          8 PROPERTIES  the same
         16 SEQUENCE    i64[count], ascending, the first as in the header
         32 DUE         i64[count], milliseconds since 1970 before which it is not delivered, 0 is at once
        the bodies, one after the other

An announcement is a bit without a column: "a header of some message says ...". Where it is missing, nobody looks for
that header; nobody checks that it is there. A part of a batch keeps the announcements of the whole.

A batch is checked once, by `Batch.parse`, where it enters a process. After that its views are trusted.
"""
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from itertools import accumulate, pairwise
from operator import itemgetter

from angarium.core.errors import RemoteProtocolError

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("angarium's batches are little-endian and so must the machine be")

MAGIC = b"ABT1"
HEADER = struct.Struct("<4sIII16sQqIIQ")
_AFTER_CRC = struct.Struct("<II16sQqIIQ")
_SUM = struct.Struct("<4sI")
_PAIR = struct.Struct("<ii")
PRIORITY_DEFAULT = 4
SEQUENCE_MAX = (1 << 62) - 1
PRIORITY_MAX = 9
COUNT_MAX = 65_536  # messages in a batch: some tenths of a second for whoever has to look at each


class Columns(IntFlag):
    PRIORITY = 1
    EXPIRY = 2
    HEADERS = 4
    PROPERTIES = 8
    SEQUENCE = 16
    DUE = 32
    # announcements: there is a header of this name
    GROUP = 1 << 16  # `group`
    DEDUPLICATION = 1 << 17  # `deduplication_id`
    KEY = 1 << 18  # `last_value_key`
    STREAM = 1 << 19  # `stream`: the body lies in a stream


_PRIORITY, _EXPIRY, _HEADERS, _PROPERTIES, _SEQUENCE, _DUE = (1, 2, 4, 8, 16, 32)  # an enumeration's own are slow
_COLUMNS = (_PRIORITY, _EXPIRY, _HEADERS, _PROPERTIES, _SEQUENCE, _DUE)
_VARIABLE = _HEADERS | _PROPERTIES
ANNOUNCEMENTS = int(Columns.GROUP | Columns.DEDUPLICATION | Columns.KEY | Columns.STREAM)
_KNOWN = sum(_COLUMNS) | ANNOUNCEMENTS


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The optional columns on their way into a batch; None means that no message has the field."""

    priorities: Sequence[int] | None = None
    expiries_ms: Sequence[int] | None = None
    headers: Sequence[bytes] | None = None
    properties: Sequence[bytes] | None = None
    dues_ms: Sequence[int] | None = None
    announcements: int = 0  # bits of Columns
    sequences: Sequence[int] | None = None  # when they are not consecutive


NO_COLUMNS = MessageColumns()


def pack(
    producer: bytes,
    sequence: int,
    timestamp_ms: int,
    bodies: Sequence[bytes],
    columns: MessageColumns = NO_COLUMNS,
) -> bytes:
    """Pack at least one message. The caller has checked sizes and priorities."""
    offsets = array("i", accumulate(map(len, bodies), initial=0)).tobytes()
    blocks = [] if columns is NO_COLUMNS else _column_blocks(columns)
    announced = columns.announcements
    return _seal(producer, sequence, timestamp_ms, len(bodies), announced, offsets, blocks, b"".join(bodies))


def _seal(
    producer: bytes,
    sequence: int,
    timestamp_ms: int,
    count: int,
    announced: int,
    offsets: bytes,
    blocks: list[tuple[int, bytes]],
    bodies: bytes,
) -> bytes:
    parts: list[bytes] = [offsets]
    at = HEADER.size + len(offsets)
    present = announced
    for flag, block in blocks:
        padding = -at % 8
        parts.append(b"\0" * padding + block)
        at += padding + len(block)
        present |= flag
    length = at + len(bodies)
    after_crc = _AFTER_CRC.pack(length, count, producer, sequence, timestamp_ms, present, at, 0)
    crc = zlib.crc32(after_crc)
    for part in parts:
        crc = zlib.crc32(part, crc)
    crc = zlib.crc32(bodies, crc)
    return b"".join((_SUM.pack(MAGIC, crc), after_crc, *parts, bodies))


def _column_blocks(columns: MessageColumns) -> list[tuple[int, bytes]]:
    blocks: list[tuple[int, bytes]] = []
    if columns.priorities is not None:
        blocks.append((_PRIORITY, bytes(columns.priorities)))
    if columns.expiries_ms is not None:
        blocks.append((_EXPIRY, array("q", columns.expiries_ms).tobytes()))
    for flag, values in ((_HEADERS, columns.headers), (_PROPERTIES, columns.properties)):
        if values is not None:
            offsets = array("i", accumulate(map(len, values), initial=0))
            blocks.append((flag, offsets.tobytes() + b"".join(values)))
    if columns.sequences is not None:
        blocks.append((_SEQUENCE, array("q", columns.sequences).tobytes()))
    if columns.dues_ms is not None:
        blocks.append((_DUE, array("q", columns.dues_ms).tobytes()))
    return blocks


class Batch:
    """A checked batch over bytes that nobody changes."""

    __slots__ = (
        "_bodies_at", "_found", "columns", "count", "data", "first_sequence", "offsets", "producer", "timestamp_ms",
    )  # fmt: skip

    data: bytes
    count: int
    producer: bytes
    first_sequence: int
    timestamp_ms: int
    columns: int
    _bodies_at: int
    _found: dict[int, tuple[int, int]] | None  # where the columns lie, once somebody has asked
    offsets: memoryview  # of i32: offsets[i] to offsets[i + 1] is body i

    @classmethod
    def parse(cls, data: bytes) -> "Batch":
        """Check everything that a later reader relies on; raise RemoteProtocolError `bad-batch` otherwise."""
        self = cls.intact(data)
        offsets = self.offsets.tolist()
        _check_offsets(offsets, len(data) - self._bodies_at)
        self._check_columns()
        return self

    @classmethod
    def trusted(cls, data: bytes) -> "Batch":
        """Check the header only: for bytes that this process has parsed before."""
        if len(data) < HEADER.size:
            raise RemoteProtocolError("bad-batch", f"batch of {len(data)} bytes is shorter than its header")
        magic, _, length, count, producer, sequence, timestamp_ms, columns, bodies_at, zero = HEADER.unpack_from(data)
        offsets_end = HEADER.size + 4 * (count + 1)
        if magic != MAGIC or length != len(data) or zero != 0 or columns & ~_KNOWN:
            raise RemoteProtocolError("bad-batch", "batch header is malformed")
        if count < 1 or not 1 <= sequence <= SEQUENCE_MAX - count + 1 or offsets_end > bodies_at or bodies_at > length:
            raise RemoteProtocolError("bad-batch", f"batch header is inconsistent: {count} messages, {length} bytes")
        self = cls.__new__(cls)
        self.data = data
        self.count = count
        self.producer = producer
        self.first_sequence = sequence
        self.timestamp_ms = timestamp_ms
        self.columns = columns
        self._bodies_at = bodies_at
        self._found = None
        self.offsets = memoryview(data)[HEADER.size : offsets_end].cast("i")
        return self

    @classmethod
    def intact(cls, data: bytes) -> "Batch":
        """Check header and checksum: for bytes of a batch that was parsed before it was stored."""
        self = cls.trusted(data)
        if self.count > COUNT_MAX:
            reason = f"batch of {self.count:,} messages exceeds {COUNT_MAX:,}; publish them in several"
            raise RemoteProtocolError("bad-batch", reason)
        if zlib.crc32(memoryview(data)[8:]) != _SUM.unpack_from(data)[1]:
            raise RemoteProtocolError("bad-batch", "batch fails its checksum")
        return self

    @property
    def last_sequence(self) -> int:
        return self.sequence(self.count - 1)

    def sequence(self, index: int) -> int:
        if self.columns & _SEQUENCE:
            return int(self._fixed(_SEQUENCE)[index])
        return self.first_sequence + index

    def sequences(self) -> Sequence[int]:
        if self.columns & _SEQUENCE:
            return self._fixed(_SEQUENCE)
        return range(self.first_sequence, self.first_sequence + self.count)

    @property
    def body_bytes(self) -> int:
        return len(self.data) - self._bodies_at

    def body(self, index: int) -> bytes:
        at = self._bodies_at
        return self.data[at + self.offsets[index] : at + self.offsets[index + 1]]

    def bodies(self) -> list[bytes]:
        at, data = self._bodies_at, self.data
        ends = [at + offset for offset in self.offsets]
        return [data[low:high] for low, high in pairwise(ends)]

    def priorities(self) -> bytes | None:
        span = self._column_spans().get(_PRIORITY)
        return self.data[span[0] : span[1]] if span else None

    def expiries_ms(self) -> memoryview | None:
        return self._fixed(_EXPIRY) if self.columns & _EXPIRY else None

    def dues_ms(self) -> memoryview | None:
        return self._fixed(_DUE) if self.columns & _DUE else None

    def headers(self) -> list[bytes] | None:
        return self._variable(_HEADERS)

    def properties(self) -> list[bytes] | None:
        return self._variable(_PROPERTIES)

    def headers_of(self, index: int) -> bytes:
        """The headers of one message: a MessagePack map, or nothing."""
        return self._value(_HEADERS, index)

    def properties_of(self, index: int) -> bytes:
        """The properties of one message: a MessagePack map, or nothing."""
        return self._value(_PROPERTIES, index)

    # -- parts -----------------------------------------------------------------------------------

    def slice(self, low: int, high: int) -> "Batch":
        """Messages low to high - 1 as a batch of their own; all of them is this batch itself."""
        if low == 0 and high == self.count:
            return self
        at, sequence = self._bodies_at, self.sequence(low)
        blocks: list[tuple[int, bytes]] = []
        for flag, (start, _) in self._column_spans().items():
            if flag & _VARIABLE:
                values_at = start + 4 * (self.count + 1)
                offsets = memoryview(self.data)[start + 4 * low : start + 4 * (high + 1)].cast("i")
                values = self.data[values_at + offsets[0] : values_at + offsets[-1]]
                blocks.append((flag, _from_zero(offsets) + values))
            elif flag == _PRIORITY:
                blocks.append((flag, self.data[start + low : start + high]))
            elif flag != _SEQUENCE or self.sequence(high - 1) - sequence != high - 1 - low:
                blocks.append((flag, self.data[start + 8 * low : start + 8 * high]))
        offsets = self.offsets[low : high + 1]
        bodies = self.data[at + offsets[0] : at + offsets[-1]]
        return self._part(sequence, high - low, _from_zero(offsets), blocks, bodies)

    def select(self, indices: Sequence[int]) -> "Batch":
        """These messages, at least one, ascending, as a batch of their own; all of them is this batch itself."""
        low, high = indices[0], indices[-1] + 1
        if high - low == len(indices):
            return self.slice(low, high)
        take = itemgetter(*indices)  # of at least two, so that it gives a tuple
        is_sparse = 4 * len(indices) < self.count  # then what is not wanted is not even looked at
        blocks: list[tuple[int, bytes]] = []
        for flag in self._column_spans():
            if flag & _VARIABLE:
                values: Sequence[bytes] = (
                    [self._value(flag, index) for index in indices] if is_sparse else take(self._variable(flag) or [])
                )
                offsets = array("i", accumulate(map(len, values), initial=0))
                blocks.append((flag, offsets.tobytes() + b"".join(values)))
            elif flag == _PRIORITY:
                blocks.append((flag, bytes(take(self.priorities() or b""))))
            elif flag != _SEQUENCE:
                blocks.append((flag, array("q", take(self._fixed(flag))).tobytes()))
        sequences = take(self.sequences())
        if sequences[-1] - sequences[0] != len(sequences) - 1:
            at = next((i for i, (flag, _) in enumerate(blocks) if flag > _SEQUENCE), len(blocks))
            blocks.insert(at, (_SEQUENCE, array("q", sequences).tobytes()))
        bodies = [self.body(index) for index in indices] if is_sparse else take(self.bodies())
        offsets = array("i", accumulate(map(len, bodies), initial=0))
        return self._part(sequences[0], len(bodies), offsets.tobytes(), blocks, b"".join(bodies))

    def without(self, columns: int, *, bodies: bool) -> "Batch":
        """The same messages without these columns, and without their bodies if `bodies`."""
        spans = self._column_spans().items()
        blocks = [(flag, self.data[start:end]) for flag, (start, end) in spans if not flag & columns]
        offsets = bytes(4 * (self.count + 1)) if bodies else self.offsets.tobytes()
        return self._part(
            self.first_sequence, self.count, offsets, blocks, b"" if bodies else self.data[self._bodies_at :]
        )

    def _part(
        self, sequence: int, count: int, offsets: bytes, blocks: list[tuple[int, bytes]], bodies: bytes
    ) -> "Batch":
        announced = self.columns & ANNOUNCEMENTS
        return Batch.trusted(
            _seal(self.producer, sequence, self.timestamp_ms, count, announced, offsets, blocks, bodies)
        )

    # -- columns ---------------------------------------------------------------------------------

    def _column_spans(self) -> dict[int, tuple[int, int]]:
        """Where each present column lies; for variable ones from its offsets to the end of its values."""
        if self._found is not None:
            return self._found
        spans: dict[int, tuple[int, int]] = {}
        at = HEADER.size + 4 * (self.count + 1)
        for flag in _COLUMNS:
            if not self.columns & flag:
                continue
            at += -at % 8
            if flag == _PRIORITY:
                end = at + self.count
            elif not flag & _VARIABLE:
                end = at + 8 * self.count
            else:
                values_at = at + 4 * (self.count + 1)
                if values_at > self._bodies_at:
                    raise RemoteProtocolError("bad-batch", f"column {Columns(flag).name} overruns the bodies")
                end = values_at + int.from_bytes(self.data[values_at - 4 : values_at], "little", signed=True)
            if not at <= end <= self._bodies_at:
                raise RemoteProtocolError("bad-batch", f"column {Columns(flag).name} overruns the bodies")
            spans[flag] = (at, end)
            at = end
        self._found = spans
        return spans

    def _fixed(self, flag: int) -> memoryview:
        low, high = self._column_spans()[flag]
        return memoryview(self.data)[low:high].cast("q")

    def _variable(self, flag: int) -> list[bytes] | None:
        span = self._column_spans().get(flag)
        if span is None:
            return None
        values_at = span[0] + 4 * (self.count + 1)
        offsets = memoryview(self.data)[span[0] : values_at].cast("i").tolist()
        return [
            self.data[values_at + a : values_at + b] for a, b in pairwise(offsets)
        ]

    def _value(self, flag: int, index: int) -> bytes:
        if not self.columns & flag:
            return b""
        start, _ = self._column_spans()[flag]
        values_at = start + 4 * (self.count + 1)
        low, high = _PAIR.unpack_from(self.data, start + 4 * index)
        return self.data[values_at + low : values_at + high]

    def _check_columns(self) -> None:
        if not self.columns:
            return
        spans = self._column_spans()
        priorities = self.priorities()
        if priorities is not None and max(priorities) > PRIORITY_MAX:
            raise RemoteProtocolError("bad-batch", f"priority {max(priorities)} exceeds {PRIORITY_MAX}")
        for flag in (_HEADERS, _PROPERTIES):
            if flag in spans:
                low, high = spans[flag]
                values_at = low + 4 * (self.count + 1)
                _check_offsets(memoryview(self.data)[low:values_at].cast("i").tolist(), high - values_at)
        if self.columns & _SEQUENCE:
            sequences = self._fixed(_SEQUENCE).tolist()
            ascends = all(a < b for a, b in pairwise(sequences))
            if sequences[0] != self.first_sequence or not ascends or sequences[-1] > SEQUENCE_MAX:
                raise RemoteProtocolError("bad-batch", "sequences do not ascend from the header's first")


def _from_zero(offsets: memoryview) -> bytes:
    first = offsets[0]
    return array("i", [offset - first for offset in offsets]).tobytes()


def _check_offsets(offsets: list[int], total: int) -> None:
    if offsets[0] != 0 or offsets[-1] != total or sorted(offsets) != offsets:
        raise RemoteProtocolError("bad-batch", "offsets do not ascend from zero to the end of their block")
