"""Goal: a packed block is the same when it is unpacked, and whatever comes in its place takes no more memory than one.
Method: contents that compress and that do not; then packed ones that are damaged, cut or too long."""
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from angarium.core.checksum import crc32
from angarium.core.errors import RemoteProtocolError
from angarium.core.stream.blocks import FRAGMENT_BYTES, Block
from angarium.core.stream.packing import PackedBlock, pack_block, unpack_content

TEXT = b"what applications send repeats itself, " * 100


def packed(content: bytes) -> Block:
    return pack_block(Block(crc32(content), False, content))


@pytest.mark.parametrize("length", (1_000, FRAGMENT_BYTES - 1, FRAGMENT_BYTES))
def test_what_compresses_is_shorter_on_its_way_and_the_same_after_it(length: int) -> None:
    text = (TEXT * 20)[:length]
    for content in (text, text[: length // 2] + random.Random(1).randbytes(length - length // 2), bytes(length)):
        block = packed(content)
        assert isinstance(block, PackedBlock) and len(block.payload) < length
        assert unpack_content(block.payload, block.crc) == content


@pytest.mark.parametrize("content", (b"", b"x", random.Random(1).randbytes(FRAGMENT_BYTES)))
def test_what_would_be_longer_stays_as_it_is(content: bytes) -> None:
    block = Block(crc32(content), True, content)
    assert pack_block(block) is block


@pytest.mark.parametrize(
    "change",
    (
        lambda data: b"",
        lambda data: b"junk",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: zlib.compress(TEXT + b"!"),
        lambda data: zlib.compress(bytes(FRAGMENT_BYTES + 1)),
    ),
    ids=("nothing", "junk", "cut", "more behind it", "a bit flipped", "its sum changed", "another content", "too long"),
)  # fmt: skip
def test_what_nobody_has_packed_is_refused(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="a packed block"):
        unpack_content(change(packed(TEXT).payload), crc32(TEXT))


def test_what_claims_to_be_long_takes_no_memory() -> None:
    bomb = zlib.compress(bytes(200 << 20), 9)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="more than one"):
            unpack_content(bomb, 0)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
