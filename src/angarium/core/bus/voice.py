"""What one node says on one channel: sealed datagrams, each with a sequence that is used once.

The voice outlives the channel's closing and opening again within one incarnation, and its counters with it: a nonce
must never come back.
"""
from angarium.core.bus.datagram import (
    CHANGING_HEADER,
    HEADER,
    OVERHEAD_BYTES,
    STREAM_HEADER,
    TAG_BYTES,
    VERSION,
    Body,
    Kind,
    encode_body,
    kind_of,
)
from angarium.core.bus.events import Part
from angarium.core.bus.seal import CONTROL, DATA, Box


class Voice:
    def __init__(self, *, channel: int, cluster: int, incarnation: bytes, box: Box) -> None:
        self.channel = channel
        self.incarnation = incarnation
        self.view = 0
        self.sequence_next = 1  # of the stream
        self.number_next = 1  # of its messages
        self.joins = 0  # streams of others that were begun or begun again here
        self._cluster = cluster
        self._box = box
        self._said = 0
        self._data_header = STREAM_HEADER.pack(VERSION, Kind.DATA, 0, channel, cluster, incarnation)

    def data(self, sequence: int, floor: int, body: Part) -> bytes:
        """To be called once for a sequence; repairs are the bytes that it returned. `floor` is within a window."""
        header = self._data_header + CHANGING_HEADER.pack(sequence, self.view, len(body) + TAG_BYTES, sequence - floor)
        return header + self._box.seal(DATA, sequence, body, header)

    def say(self, body: Body, *, length_min: int = 0) -> bytes:
        """Zeros behind the body make the datagram as long as it has to be."""
        self._said += 1
        plain = encode_body(body)
        plain += bytes(max(0, length_min - OVERHEAD_BYTES - len(plain)))
        header = HEADER.pack(VERSION, kind_of(body), 0, self.channel, self._cluster, self.incarnation, self._said,
                             self.view, len(plain) + TAG_BYTES, 0)  # fmt: skip
        return header + self._box.seal(CONTROL, self._said, plain, header)


class Seen:
    """Which control datagrams of one sender have been seen: each is heard once, however often it arrives."""

    __slots__ = ("_bits", "_highest")

    def __init__(self) -> None:
        self._highest = 0
        self._bits = 0  # bit n: highest - n

    def is_new(self, sequence: int) -> bool:
        """To be asked before opening the datagram; what is too old to tell counts as seen."""
        if sequence > self._highest:
            return True
        behind = self._highest - sequence
        return behind < 64 and not self._bits >> behind & 1

    def note(self, sequence: int) -> None:
        """To be called once it has proven genuine."""
        if sequence > self._highest:
            self._bits = (self._bits << min(sequence - self._highest, 64) | 1) & (1 << 64) - 1
            self._highest = sequence
        else:
            self._bits |= 1 << (self._highest - sequence)
