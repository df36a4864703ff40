"""The messages in a stream of bytes: each after its length (u32, little-endian).

Bytes are fed in order, in pieces cut anywhere. One incomplete message is kept, as the pieces it came in: it is joined
once.
"""
from angarium.core.bus.datagram import LENGTH


class RecordParser:
    def __init__(self, *, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._pieces: list[bytes] = []
        self._have = 0  # bytes of them
        self._want = LENGTH.size  # bytes needed before parsing can get any further

    @property
    def waiting_bytes(self) -> int:
        return self._have

    def feed(self, pieces: list[bytes]) -> list[bytes] | None:
        """The messages that they complete. None: a length that no message may have; the stream is beyond repair."""
        self._pieces += pieces
        self._have += sum(map(len, pieces))
        if self._have < self._want:
            return []
        block = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        messages: list[bytes] = []
        at, end = 0, len(block)
        self._want = LENGTH.size
        while end - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(block, at)
            if length > self._message_bytes_max:
                return None
            stop = at + LENGTH.size + length
            if stop > end:
                self._want = stop - at
                break
            messages.append(block[at + LENGTH.size : stop])
            at = stop
        self._pieces = [block[at:]] if at < end else []
        self._have = end - at
        return messages
