"""Ranges of tables: which are replicated, how one is digested, packed for the way, and cut out of an order.

Everything that a message manager writes is replicated. What a node knows of itself is not: tables REPLICA and GROUPS,
and of table NODE everything but the message manager's own counter.
"""
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from angarium.core.destination.restoring import NEXT_DESTINATION_KEY
from angarium.core.errors import RemoteProtocolError
from angarium.core.malformed import MALFORMED
from angarium.core.storage import DeleteRange, Operation, Put, Table

Item = tuple[bytes, bytes]  # key, value

_KEY_END = b"\xff" * 511  # above every key
_UNPACKED_BYTES_MAX = 64 << 20  # a range is at most range_bytes and one value more
_DIGEST_BYTES = 16
_items_decoder = msgspec.msgpack.Decoder(list[Item])


def replicated_ranges() -> list[tuple[Table, bytes, bytes]]:
    """Table, low, high: in the order in which they are copied."""
    ranges = [(Table.NODE, NEXT_DESTINATION_KEY, NEXT_DESTINATION_KEY + b"\0")]
    tables = [table for table in Table if table not in (Table.NODE, Table.REPLICA, Table.GROUPS)]
    return ranges + [(table, b"", _KEY_END) for table in tables]


class Digest:
    """Of items in the order of their keys."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=_DIGEST_BYTES)

    def add(self, key: bytes, value: bytes) -> None:
        self._hash.update(b"%d %d " % (len(key), len(value)))
        self._hash.update(key)
        self._hash.update(value)

    def value(self) -> bytes:
        return self._hash.digest()


def digest_of(items: Iterable[Item]) -> bytes:
    digest = Digest()
    for key, value in items:
        digest.add(key, value)
    return digest.value()


def pack_items(items: list[Item]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(items), 1)


def unpack_items(data: bytes) -> list[Item]:
    """Raises `RemoteProtocolError` for what nobody has packed."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, _UNPACKED_BYTES_MAX)
        if unpacking.unconsumed_tail:
            raise RemoteProtocolError("bad-message", f"a range of more than {_UNPACKED_BYTES_MAX:,} bytes")
        return _items_decoder.decode(plain)
    except (zlib.error, *MALFORMED) as error:
        raise RemoteProtocolError("bad-message", f"a range of a table: {error}") from None


def clip(operations: Iterable[Operation], table: Table, low: bytes, high: bytes) -> Iterator[Operation]:
    """Of these operations what concerns keys in [low, high)."""
    for operation in operations:
        if operation.table != table:
            continue
        if isinstance(operation, Put):
            if low <= operation.key < high:
                yield operation
        else:
            first, end = max(low, operation.low), min(high, operation.high)
            if first < end:
                yield DeleteRange(table, first, end)
