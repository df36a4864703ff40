"""The batch: messages that were published in the same moment, as one block of bytes.

What a client packs is what is ordered, stored, delivered and analysed: nobody on the way re-encodes it, and nobody
looks inside unless `columns` says that there is something to see. Its bytes are in
`layout.py`, how it is made in `packing.py`.

A batch is checked once, by `Batch.parse`, where it enters a process. After that its views are trusted.
"""
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import NamedTuple

from angarium.core.checksum import crc32
from angarium.core.errors import RemoteProtocolError
from angarium.core.wire.layout import (
    ANNOUNCEMENTS,
    COUNT_MAX,
    DUE,
    EXPIRY,
    HEADER,
    HEADERS,
    IN_ORDER,
    KNOWN,
    MAGIC,
    OFFSET_PAIR,
    PRIORITY,
    PRIORITY_MAX,
    PROPERTIES,
    SEQUENCE,
    SEQUENCE_MAX,
    SUM,
    VARIABLE,
    Columns,
)
from angarium.core.wire.packing import seal


class Values(NamedTuple):
    """What some messages have in a column, one behind the other; counted from offsets[0]."""

    data: bytes
    offsets: list[int]  # one more than there are messages


class Batch:
    """A checked batch over bytes that nobody changes."""

    __slots__ = (
        "_bodies_at", "_found", "_offsets", "columns", "count", "data", "first_sequence", "producer", "timestamp_ms",
    )  # fmt: skip

    data: bytes
    count: int
    producer: bytes
    first_sequence: int
    timestamp_ms: int
    columns: int
    _bodies_at: int
    _found: dict[int, tuple[int, int]] | None  # where the columns lie, once somebody has asked
    _offsets: memoryview | None  # made once somebody has asked

    @classmethod
    def parse(cls, data: bytes) -> "Batch":
        """Check everything that a later reader relies on; raise RemoteProtocolError `bad-batch` otherwise."""
        self = cls.intact(data)
        if self.count > 1 or OFFSET_PAIR.unpack_from(data, HEADER.size) != (0, self.body_bytes):
            _check_offsets(self.offsets.tolist(), self.body_bytes)
        if self.columns:
            self._check_columns()
        return self

    @classmethod
    def trusted(cls, data: bytes) -> "Batch":
        """Check the header only: for bytes that this process has parsed before."""
        if len(data) < HEADER.size:
            raise RemoteProtocolError("bad-batch", f"batch of {len(data)} bytes is shorter than its header")
        magic, _, length, count, producer, sequence, timestamp_ms, columns, bodies_at, zero = HEADER.unpack_from(data)
        offsets_end = HEADER.size + 4 * (count + 1)
        if magic != MAGIC or length != len(data) or zero != 0 or columns & ~KNOWN:
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
        self._found = self._offsets = None
        return self

    @classmethod
    def intact(cls, data: bytes) -> "Batch":
        """Check header and checksum: for bytes of a batch that was parsed before it was stored."""
        self = cls.trusted(data)
        if self.count > COUNT_MAX:
            reason = f"batch of {self.count:,} messages exceeds {COUNT_MAX:,}; publish them in several"
            raise RemoteProtocolError("bad-batch", reason)
        if crc32(memoryview(data)[8:]) != SUM.unpack_from(data)[1]:
            raise RemoteProtocolError("bad-batch", "batch fails its checksum")
        return self

    @property
    def last_sequence(self) -> int:
        return self.sequence(self.count - 1) if self.columns & SEQUENCE else self.first_sequence + self.count - 1

    def sequence(self, index: int) -> int:
        if self.columns & SEQUENCE:
            return int(self._fixed(SEQUENCE)[index])
        return self.first_sequence + index

    def sequences(self) -> Sequence[int]:
        if self.columns & SEQUENCE:
            return self._fixed(SEQUENCE)
        return range(self.first_sequence, self.first_sequence + self.count)

    @property
    def offsets(self) -> memoryview:
        """Of i32: offsets[i] to offsets[i + 1] is body i."""
        if self._offsets is None:
            self._offsets = memoryview(self.data)[HEADER.size : HEADER.size + 4 * (self.count + 1)].cast("i")
        return self._offsets

    @property
    def body_bytes(self) -> int:
        return len(self.data) - self._bodies_at

    def body(self, index: int) -> bytes:
        at, offsets = self._bodies_at, self.offsets
        return self.data[at + offsets[index] : at + offsets[index + 1]]

    def bodies(self) -> list[bytes]:
        at, data = self._bodies_at, self.data
        if self.count == 1:
            return [data[at:]]
        ends = [at + offset for offset in self.offsets]
        return [data[low:high] for low, high in pairwise(ends)]

    def priorities(self) -> bytes | None:
        span = self._column_spans().get(PRIORITY)
        return self.data[span[0] : span[1]] if span else None

    def expiries_ms(self) -> memoryview | None:
        return self._fixed(EXPIRY) if self.columns & EXPIRY else None

    def dues_ms(self) -> memoryview | None:
        return self._fixed(DUE) if self.columns & DUE else None

    def headers(self) -> list[bytes] | None:
        return self._variable(HEADERS)

    def properties(self) -> list[bytes] | None:
        return self._variable(PROPERTIES)

    def headers_of(self, index: int) -> bytes:
        """The headers of one message: a MessagePack map, or nothing."""
        return self._value(HEADERS, index)

    def properties_of(self, index: int) -> bytes:
        """The properties of one message: a MessagePack map, or nothing."""
        return self._value(PROPERTIES, index)

    def headers_in(self, low: int, high: int) -> Values | None:
        return self._values(HEADERS, low, high)

    def properties_in(self, low: int, high: int) -> Values | None:
        return self._values(PROPERTIES, low, high)

    # -- parts -----------------------------------------------------------------------------------

    def slice(self, low: int, high: int) -> "Batch":
        """Messages low to high - 1 as a batch of their own; all of them is this batch itself."""
        if low == 0 and high == self.count:
            return self
        at, sequence = self._bodies_at, self.sequence(low)
        blocks: list[tuple[int, bytes]] = []
        for flag, (start, _) in self._column_spans().items():
            if flag & VARIABLE:
                values_at = start + 4 * (self.count + 1)
                offsets = memoryview(self.data)[start + 4 * low : start + 4 * (high + 1)].cast("i")
                values = self.data[values_at + offsets[0] : values_at + offsets[-1]]
                blocks.append((flag, _from_zero(offsets) + values))
            elif flag == PRIORITY:
                blocks.append((flag, self.data[start + low : start + high]))
            elif flag != SEQUENCE or self.sequence(high - 1) - sequence != high - 1 - low:
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
            if flag & VARIABLE:
                values: Sequence[bytes] = (
                    [self._value(flag, index) for index in indices] if is_sparse else take(self._variable(flag) or [])
                )
                offsets = array("i", accumulate(map(len, values), initial=0))
                blocks.append((flag, offsets.tobytes() + b"".join(values)))
            elif flag == PRIORITY:
                blocks.append((flag, bytes(take(self.priorities() or b""))))
            elif flag != SEQUENCE:
                blocks.append((flag, array("q", take(self._fixed(flag))).tobytes()))
        sequences = take(self.sequences())
        if sequences[-1] - sequences[0] != len(sequences) - 1:
            at = next((i for i, (flag, _) in enumerate(blocks) if flag > SEQUENCE), len(blocks))
            blocks.insert(at, (SEQUENCE, array("q", sequences).tobytes()))
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
            seal(self.producer, sequence, self.timestamp_ms, count, announced, offsets, blocks, bodies)
        )

    # -- columns ---------------------------------------------------------------------------------

    def _column_spans(self) -> dict[int, tuple[int, int]]:
        """Where each present column lies; for variable ones from its offsets to the end of its values."""
        if self._found is not None:
            return self._found
        spans: dict[int, tuple[int, int]] = {}
        at = HEADER.size + 4 * (self.count + 1)
        for flag in IN_ORDER:
            if not self.columns & flag:
                continue
            at += -at % 8
            if flag == PRIORITY:
                end = at + self.count
            elif not flag & VARIABLE:
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
        low, high = OFFSET_PAIR.unpack_from(self.data, start + 4 * index)
        return self.data[values_at + low : values_at + high]

    def _values(self, flag: int, low: int, high: int) -> Values | None:
        span = self._column_spans().get(flag)
        if span is None:
            return None
        values_at = span[0] + 4 * (self.count + 1)
        offsets = memoryview(self.data)[span[0] + 4 * low : span[0] + 4 * (high + 1)].cast("i").tolist()
        return Values(self.data[values_at + offsets[0] : values_at + offsets[-1]], offsets)

    def _check_columns(self) -> None:
        spans = self._column_spans()
        priorities = self.priorities()
        if priorities is not None and max(priorities) > PRIORITY_MAX:
            raise RemoteProtocolError("bad-batch", f"priority {max(priorities)} exceeds {PRIORITY_MAX}")
        for flag in (HEADERS, PROPERTIES):
            if flag in spans:
                low, high = spans[flag]
                values_at = low + 4 * (self.count + 1)
                _check_offsets(memoryview(self.data)[low:values_at].cast("i").tolist(), high - values_at)
        if self.columns & SEQUENCE:
            sequences = self._fixed(SEQUENCE).tolist()
            ascends = all(a < b for a, b in pairwise(sequences))
            if sequences[0] != self.first_sequence or not ascends or sequences[-1] > SEQUENCE_MAX:
                raise RemoteProtocolError("bad-batch", "sequences do not ascend from the header's first")


def _from_zero(offsets: memoryview) -> bytes:
    first = offsets[0]
    return array("i", [offset - first for offset in offsets]).tobytes()


def _check_offsets(offsets: list[int], total: int) -> None:
    if offsets[0] != 0 or offsets[-1] != total or sorted(offsets) != offsets:
        raise RemoteProtocolError("bad-batch", "offsets do not ascend from zero to the end of their block")
