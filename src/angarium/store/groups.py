"""The journal's format: a group of operations as bytes, and back. No I/O here.

    group     = head | operation ... | zeros | head again, at the end of the group's last page
    head      = magic "AgG1" | crc32 of the rest | identity u64 | life u64 | stamp u64 | sequence u64 | applied u64
                | body bytes u32 | operation count u32
    operation = magic "AgO1" | kind u8 | table u8 | key bytes u16 | value bytes u32 | key | value | crc32 of all before

Little-endian throughout. Groups begin and end on page boundaries, so a page that holds a confirmed group is never
written again, neither by the next group nor by a retry.

What the fields are for:
  identity   which journal: chosen at random when the directory is created, also in the segments' file names
  life       random for each open
  stamp      +1 for each attempt to write, across restarts: of two writes of one sequence the later stamp counts
  sequence   +1 for each confirmed group, across segments and restarts
  applied    every group up to this sequence was durable in LMDB when this head was written

An operation's checksum starts from `seed(life, stamp)`. The remains of an older group, or of an earlier attempt, at the
same place therefore never pass for operations of this one.

The head stands twice, so that one flipped bit in it does not cost the group. A group without operations is a *seal*.
"""
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from angarium.core.checksum import crc32
from angarium.core.storage import DeleteRange, Operation, Put, Table
from angarium.store.interface import OPERATION_BYTES, Damage, check_operations
from angarium.store.settings import PAGE_BYTES

GROUP_MAGIC = b"AgG1"
OPERATION_MAGIC = b"AgO1"
COPY_BYTES_MAX = 4096  # up to here copying a value is cheaper than a buffer of its own in the write vector

_HEAD = struct.Struct("<4sIQQQQQII")
_HEAD_TAIL = struct.Struct("<QQQQQII")
_SEED = struct.Struct("<QQ")
_OPERATION = struct.Struct("<4sBBHI")
_CRC = struct.Struct("<I")
_PUT, _DELETE_RANGE = 1, 2
_TABLES = {int(table): table for table in Table}

HEAD_BYTES = _HEAD.size
_RECORD_HEAD_BYTES = _OPERATION.size
assert _RECORD_HEAD_BYTES + _CRC.size == OPERATION_BYTES


def paged(count: int) -> int:
    """Rounded up to whole pages."""
    return -(-count // PAGE_BYTES) * PAGE_BYTES


def seed(life: int, stamp: int) -> int:
    return crc32(_SEED.pack(life, stamp))


class Head(NamedTuple):
    identity: int
    life: int
    stamp: int
    sequence: int
    applied: int
    body_bytes: int
    operation_count: int

    @property
    def group_bytes(self) -> int:
        return paged(self.body_bytes + 2 * HEAD_BYTES)

    @property
    def is_seal(self) -> bool:
        return self.operation_count == 0

    def pack(self) -> bytes:
        tail = _HEAD_TAIL.pack(*self)
        return GROUP_MAGIC + _CRC.pack(crc32(tail)) + tail


def parse_head(data: bytes, offset: int, identity: int) -> Head | None:
    """The head at `offset`; None when there is none, or one of another journal."""
    if data[offset : offset + 4] != GROUP_MAGIC or offset + HEAD_BYTES > len(data):
        return None
    _, crc, *fields = _HEAD.unpack_from(data, offset)
    if crc != crc32(data[offset + 8 : offset + HEAD_BYTES]) or fields[0] != identity:
        return None
    return Head(*fields)


@dataclass(slots=True)
class Body:
    """A group's operations as buffers to write; `buffers[0]` begins with room for the head."""

    buffers: list[bytes | bytearray]
    body_bytes: int
    operation_count: int
    group_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.group_bytes = paged(self.body_bytes + 2 * HEAD_BYTES)

    def finish(self, head: Head) -> list[bytes | bytearray]:
        packed = head.pack()
        first, last = self.buffers[0], self.buffers[-1]
        assert isinstance(first, bytearray)
        assert isinstance(last, bytearray)
        first[:HEAD_BYTES] = packed
        last += bytes(self.group_bytes - self.body_bytes - 2 * HEAD_BYTES)
        last += packed
        return self.buffers


def encode(operations: Sequence[Operation], start: int) -> Body:
    """Large values are not copied: they stand in the vector as they are. `start` is the group's `seed`."""
    check_operations(operations)
    pack, crc_pack = _OPERATION.pack, _CRC.pack
    small = bytearray(HEAD_BYTES)
    buffers: list[bytes | bytearray] = [small]
    body_bytes = 0
    for operation in operations:
        if isinstance(operation, Put):
            kind, key, value = _PUT, operation.key, operation.value
        else:
            kind, key, value = _DELETE_RANGE, operation.low, operation.high
        value_bytes = len(value)
        record = pack(OPERATION_MAGIC, kind, operation.table, len(key), value_bytes) + key
        body_bytes += len(record) + value_bytes + 4
        if value_bytes <= COPY_BYTES_MAX:
            record += value
            small += record + crc_pack(crc32(record, start))
        else:
            small += record
            small = bytearray(crc_pack(crc32(value, crc32(record, start))))
            buffers += (value, small)
    return Body(buffers, body_bytes, len(operations))


@dataclass(slots=True)
class Decoded:
    operations: list[Operation] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def decode(data: bytes, offset: int, head: Head) -> Decoded:
    """Every operation of the group at `offset` that passes its checksum, in order; the rest as damages."""
    result = Decoded()
    start = seed(head.life, head.stamp)
    at, end = offset + HEAD_BYTES, offset + HEAD_BYTES + head.body_bytes
    with memoryview(data) as view:
        while at < end:
            record = _record(data, view, at, end, start)
            if record is None:
                following = _next_record(data, view, at, end, start)
                result.damages.append(_damage(data, at, following, head))
                at = following
            else:
                operation, at = record
                result.operations.append(operation)
    missing = head.operation_count - len(result.operations) - len(result.damages)
    if missing > 0:  # neighbours damaged together count as one stretch of bytes
        result.damages.append(Damage(None, None, f"group {head.sequence}: {missing} more operations unreadable"))
    return result


def _record(data: bytes, view: memoryview, at: int, end: int, start: int) -> tuple[Operation, int] | None:
    """The operation at `at` and where it ends, if it is whole."""
    if at + OPERATION_BYTES > end:
        return None
    magic, kind, number, key_bytes, value_bytes = _OPERATION.unpack_from(data, at)
    value_at = at + _RECORD_HEAD_BYTES + key_bytes
    crc_at = value_at + value_bytes
    if magic != OPERATION_MAGIC or crc_at + 4 > end:
        return None
    if crc32(view[at:crc_at], start) != _CRC.unpack_from(data, crc_at)[0]:
        return None
    table = _TABLES.get(number)
    if table is None or kind not in (_PUT, _DELETE_RANGE):
        return None  # written by a later version; refusing to guess
    key, value = data[value_at - key_bytes : value_at], data[value_at:crc_at]
    return Put(table, key, value) if kind == _PUT else DeleteRange(table, key, value), crc_at + 4


def _candidates(data: bytes, at: int, end: int) -> Iterator[int]:
    """Where the record after a damaged one may begin: first where its own lengths say, then wherever the magic is."""
    if at + OPERATION_BYTES <= end:
        _, _, _, key_bytes, value_bytes = _OPERATION.unpack_from(data, at)
        yield at + OPERATION_BYTES + key_bytes + value_bytes
    found = data.find(OPERATION_MAGIC, at + 1, end)
    while found >= 0:
        yield found
        found = data.find(OPERATION_MAGIC, found + 1, end)


def _next_record(data: bytes, view: memoryview, at: int, end: int, start: int) -> int:
    for candidate in _candidates(data, at, end):
        if candidate < end and _record(data, view, candidate, end, start) is not None:
            return candidate
    return end


def _damage(data: bytes, at: int, following: int, head: Head) -> Damage:
    raw = data[at:following]
    reason = f"group {head.sequence}: an operation of {len(raw):,} bytes fails its checksum"
    if len(raw) >= OPERATION_BYTES:
        _, _, table, key_bytes, value_bytes = _OPERATION.unpack_from(raw, 0)
        # Only lengths that fit the gap exactly are believed.
        if OPERATION_BYTES + key_bytes + value_bytes == len(raw) and table in _TABLES:
            key = raw[_RECORD_HEAD_BYTES : _RECORD_HEAD_BYTES + key_bytes]
            return Damage(Table(table), key, reason, raw)
    return Damage(None, None, reason, raw)
