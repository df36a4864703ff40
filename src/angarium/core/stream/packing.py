"""Blocks on their way to a replica that lacks them: compressed where that makes them shorter.

Compressing takes a fraction of a millisecond for a block, also for one that does not get shorter; it belongs into the
thread that reads the file. The format is zlib's; `isal` makes it ten times as fast (docs/adr/0001-dependencies.md).
"""
from typing import cast

from isal import isal_zlib

from angarium.core.checksum import crc32
from angarium.core.errors import RemoteProtocolError
from angarium.core.stream.blocks import FRAGMENT_BYTES, Block

_LEVEL = 1
_ERROR = cast(type[Exception], isal_zlib.error)  # for its types the class is an instance


class PackedBlock(Block):
    """Its payload is compressed, its crc is that of the content. It never gets into a file."""

    __slots__ = ()


def pack_block(block: Block) -> Block:
    packed = isal_zlib.compress(block.payload, _LEVEL)
    return PackedBlock(block.crc, block.is_last, packed) if len(packed) < len(block.payload) else block


def unpack_content(packed: bytes, crc: int) -> bytes:
    """At most one fragment, whatever the bytes say. Raises `RemoteProtocolError` for what nobody has packed."""
    unpacking = isal_zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, FRAGMENT_BYTES + 1)
    except _ERROR as error:
        raise RemoteProtocolError("bad-message", f"a packed block: {error}") from None
    if not unpacking.eof or unpacking.unused_data or len(content) > FRAGMENT_BYTES:
        reason = f"a packed block of {len(packed):,} bytes is cut short, or more than one of {FRAGMENT_BYTES:,}"
        raise RemoteProtocolError("bad-message", reason)
    if crc32(content) != crc:
        raise RemoteProtocolError("bad-message", f"a packed block of {len(packed):,} bytes fails its checksum")
    return content
