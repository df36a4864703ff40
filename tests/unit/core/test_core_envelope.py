"""Goal: a frame comes out of its envelope as it went in, and nothing else comes out of one."""
import random

import pytest

from angarium.core.errors import RemoteProtocolError
from angarium.core.wire import frames
from angarium.core.wire.envelope import Envelope, open_envelope, seal

SESSION = b"s" * 16


@pytest.mark.parametrize("payload", [b"", b"x" * 100_000])
def test_a_frame_comes_out_as_it_went_in(payload: bytes) -> None:
    parts = seal(3, 9, SESSION, 3 << 40 | 5, frames.Publish(4), payload, turn=7)
    assert len(parts) == (2 if payload else 1), "the payload is not copied"
    assert open_envelope(b"".join(parts)) == Envelope(3, 9, SESSION, 7, 3 << 40 | 5, frames.Publish(4), payload)


def test_garbage_is_refused_with_a_code() -> None:
    chance = random.Random(1)
    whole = b"".join(seal(3, 9, SESSION, 5, frames.Publish(4), b"payload"))
    refused = 0
    for _ in range(2_000):
        cut = whole[: chance.randrange(len(whole))]
        flipped = bytearray(whole)
        flipped[chance.randrange(40, 64)] ^= 1 << chance.randrange(8)
        for data in (cut, bytes(flipped), chance.randbytes(chance.randrange(100)), whole + whole[40:]):
            try:
                open_envelope(data)
            except RemoteProtocolError as error:
                assert error.code
                refused += 1
    assert refused > 5_000
