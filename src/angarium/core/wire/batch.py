"""The batch: messages that were published in the same moment, as one block of bytes.

What a client packs is what is ordered, stored, delivered and analysed: nobody on the way re-encodes it, and nobody
looks inside unless `columns` says that there is something to see. The layout is columnar and little-endian:

     0  4s  magic b"ABT1"
     4  u32 crc32 of everything that follows
     8  u32 length of the whole batch in bytes
    12  u32 count of messages, at least 1
    16  16s producer (a global id)
    32  u64 sequence of the first message; the others follow without gaps
    40  i64 timestamp, milliseconds since 1970, UTC
    48  u32 columns: a bit for each optional column that is present
    52  u32 where the bodies start
    56  u64 zero
    64  i32 offsets[count + 1] of the bodies, from where they start
        the optional columns in the order of their bits, each starting at a multiple of 8:
          1 PRIORITY    u8[count]
          2 EXPIRY      i64[count], milliseconds since 1970, 0 is never
          4 HEADERS     i32[count + 1] offsets, then one MessagePack map or nothing for each message
          8 PROPERTIES  the same
        the bodies, one after the other

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

from angarium.core.errors import RemoteProtocolError

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("angarium's batches are little-endian and so must the machine be")

MAGIC = b"ABT1"
HEADER = struct.Struct("<4sIII16sQqIIQ")
_AFTER_CRC = struct.Struct("<II16sQqIIQ")
_SUM = struct.Struct("<4sI")
PRIORITY_DEFAULT = 4
SEQUENCE_MAX = (1 << 62) - 1
PRIORITY_MAX = 9


class Columns(IntFlag):
    PRIORITY = 1
    EXPIRY = 2
    HEADERS = 4
    PROPERTIES = 8


_KNOWN = int(Columns.PRIORITY | Columns.EXPIRY | Columns.HEADERS | Columns.PROPERTIES)


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The optional columns on their way into a batch; None means that no message has the field."""

    priorities: Sequence[int] | None = None
    expiries_ms: Sequence[int] | None = None
    headers: Sequence[bytes] | None = None
    properties: Sequence[bytes] | None = None


NO_COLUMNS = MessageColumns()


def pack(
    producer: bytes,
    sequence: int,
    timestamp_ms: int,
    bodies: Sequence[bytes],
    columns: MessageColumns = NO_COLUMNS,
) -> bytes:
    """Pack at least one message. The caller has checked sizes and priorities."""
    offsets = array("i", accumulate(map(len, bodies), initial=0))
    parts: list[bytes] = [offsets.tobytes()]
    at = HEADER.size + 4 * len(offsets)
    present = 0
    if columns is not NO_COLUMNS:
        for flag, block in _column_blocks(columns):
            padding = -at % 8
            parts.append(b"\0" * padding + block)
            at += padding + len(block)
            present |= flag
    length = at + offsets[-1]
    after_crc = _AFTER_CRC.pack(length, len(bodies), producer, sequence, timestamp_ms, present, at, 0)
    crc = zlib.crc32(after_crc)
    for part in parts:
        crc = zlib.crc32(part, crc)
    block = b"".join(bodies)
    crc = zlib.crc32(block, crc)
    return b"".join((_SUM.pack(MAGIC, crc), after_crc, *parts, block))


def _column_blocks(columns: MessageColumns) -> list[tuple[int, bytes]]:
    blocks: list[tuple[int, bytes]] = []
    if columns.priorities is not None:
        blocks.append((Columns.PRIORITY, bytes(columns.priorities)))
    if columns.expiries_ms is not None:
        blocks.append((Columns.EXPIRY, array("q", columns.expiries_ms).tobytes()))
    for flag, values in ((Columns.HEADERS, columns.headers), (Columns.PROPERTIES, columns.properties)):
        if values is not None:
            offsets = array("i", accumulate(map(len, values), initial=0))
            blocks.append((flag, offsets.tobytes() + b"".join(values)))
    return blocks


class Batch:
    """A checked batch over bytes that nobody changes."""

    __slots__ = (
        "_bodies_at", "columns", "count", "data", "first_sequence", "offsets", "producer", "timestamp_ms",
    )  # fmt: skip

    data: bytes
    count: int
    producer: bytes
    first_sequence: int
    timestamp_ms: int
    columns: int
    _bodies_at: int
    offsets: memoryview  # of i32: offsets[i] to offsets[i + 1] is body i

    @classmethod
    def parse(cls, data: bytes) -> "Batch":
        """Check everything that a later reader relies on; raise RemoteProtocolError `bad-batch` otherwise."""
        self = cls.trusted(data)
        if zlib.crc32(memoryview(data)[8:]) != _SUM.unpack_from(data)[1]:
            raise RemoteProtocolError("bad-batch", "batch fails its checksum")
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
        self.offsets = memoryview(data)[HEADER.size : offsets_end].cast("i")
        return self

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.count - 1

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
        span = self._column_spans().get(Columns.PRIORITY)
        return self.data[span[0] : span[1]] if span else None

    def expiries_ms(self) -> memoryview | None:
        span = self._column_spans().get(Columns.EXPIRY)
        return memoryview(self.data)[span[0] : span[1]].cast("q") if span else None

    def headers(self) -> list[bytes] | None:
        return self._variable(Columns.HEADERS)

    def properties(self) -> list[bytes] | None:
        return self._variable(Columns.PROPERTIES)

    def slice(self, low: int, high: int) -> "Batch":
        """Messages low to high - 1 as a batch of their own; all of them is this batch itself."""
        if low == 0 and high == self.count:
            return self
        priorities, expiries = self.priorities(), self.expiries_ms()
        headers, properties = self.headers(), self.properties()
        columns = NO_COLUMNS
        if self.columns:
            columns = MessageColumns(
                priorities[low:high] if priorities is not None else None,
                expiries[low:high].tolist() if expiries is not None else None,
                headers[low:high] if headers is not None else None,
                properties[low:high] if properties is not None else None,
            )
        bodies = [self.body(index) for index in range(low, high)]
        data = pack(self.producer, self.first_sequence + low, self.timestamp_ms, bodies, columns)
        return Batch.trusted(data)

    def _column_spans(self) -> dict[int, tuple[int, int]]:
        """Where each present column lies; for variable ones from its offsets to the end of its values."""
        spans: dict[int, tuple[int, int]] = {}
        at = HEADER.size + 4 * (self.count + 1)
        for flag in Columns:
            if not self.columns & flag:
                continue
            at += -at % 8
            if flag == Columns.PRIORITY:
                end = at + self.count
            elif flag == Columns.EXPIRY:
                end = at + 8 * self.count
            else:
                values_at = at + 4 * (self.count + 1)
                if values_at > self._bodies_at:
                    raise RemoteProtocolError("bad-batch", f"column {flag.name} overruns the bodies")
                end = values_at + int.from_bytes(self.data[values_at - 4 : values_at], "little", signed=True)
            if not at <= end <= self._bodies_at:
                raise RemoteProtocolError("bad-batch", f"column {flag.name} overruns the bodies")
            spans[flag] = (at, end)
            at = end
        return spans

    def _variable(self, flag: Columns) -> list[bytes] | None:
        span = self._column_spans().get(flag)
        if span is None:
            return None
        values_at = span[0] + 4 * (self.count + 1)
        offsets = memoryview(self.data)[span[0] : values_at].cast("i").tolist()
        return [
            self.data[values_at + a : values_at + b] for a, b in pairwise(offsets)
        ]

    def _check_columns(self) -> None:
        if not self.columns:
            return
        spans = self._column_spans()
        priorities = self.priorities()
        if priorities is not None and max(priorities) > PRIORITY_MAX:
            raise RemoteProtocolError("bad-batch", f"priority {max(priorities)} exceeds {PRIORITY_MAX}")
        for flag in (Columns.HEADERS, Columns.PROPERTIES):
            if flag in spans:
                low, high = spans[flag]
                values_at = low + 4 * (self.count + 1)
                _check_offsets(memoryview(self.data)[low:values_at].cast("i").tolist(), high - values_at)


def _check_offsets(offsets: list[int], total: int) -> None:
    if offsets[0] != 0 or offsets[-1] != total or sorted(offsets) != offsets:
        raise RemoteProtocolError("bad-batch", "offsets do not ascend from zero to the end of their block")
