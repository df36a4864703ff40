"""How a stream's content is cut: into fragments on the wire, the same fragments as blocks in its file.

Every fragment but the last holds exactly `FRAGMENT_BYTES`, so a fragment's number tells where it lies, in the content
and in the file, and a reader may begin anywhere. The last may be shorter, or empty. A block is 16 bytes of header and
the fragment, 64 KiB together: no page of the file is ever written a second time after it was synced.

     0  u32 crc32 of the fragment, as its sender made it
     4  u32 length of the fragment
     8  u64 number of the fragment, times two; plus one if it is the last

The crc32 travels with the fragment from the sender's process to the reader's.
"""
import struct
from typing import NamedTuple

from angarium.core.checksum import crc32

BLOCK_BYTES = 64 * 1024
HEADER = struct.Struct("<IIQ")
FRAGMENT_BYTES = BLOCK_BYTES - HEADER.size


class Block(NamedTuple):
    crc: int
    is_last: bool
    payload: bytes


def block_header(number: int, block: Block) -> bytes:
    return HEADER.pack(block.crc, len(block.payload), 2 * number + block.is_last)


def parse_block(number: int, data: bytes) -> Block | None:
    """The block that these bytes are; None if they are not that block, whole and undamaged."""
    if len(data) < HEADER.size:
        return None
    crc, length, numbered = HEADER.unpack_from(data)
    is_last = bool(numbered & 1)
    payload = data[HEADER.size :]
    if numbered >> 1 != number or length != len(payload) or (length < FRAGMENT_BYTES and not is_last):
        return None
    return Block(crc, is_last, payload) if crc32(payload) == crc else None


def content_bytes(fragments: int, last_bytes: int) -> int:
    """How long the content of that many fragments is."""
    return (fragments - 1) * FRAGMENT_BYTES + last_bytes if fragments else 0


def block_count(file_bytes: int) -> int:
    """How many blocks, whole or not, a file of that length holds."""
    return -(-file_bytes // BLOCK_BYTES)
