"""Goal: checksums are those that every other program computes. Method: zlib's, of random bytes in pieces."""
import zlib
from random import Random

from angarium.core.checksum import crc32


def test_a_checksum_is_the_one_of_zlib_also_in_pieces() -> None:
    random = Random(1)
    for length in (0, 1, 7, 8, 63, 64, 65, 1_000, 70_000):
        data = random.randbytes(length)
        start, cut = random.getrandbits(32), random.randint(0, length)
        assert crc32(data) == zlib.crc32(data)
        assert crc32(memoryview(bytearray(data)), start) == zlib.crc32(data, start)
        assert crc32(data[cut:], crc32(data[:cut], start)) == zlib.crc32(data, start)
