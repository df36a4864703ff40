"""What happened, twice over: a digest that any difference changes, and, on request, lines for people.

Everything that crosses a seam goes into the digest: bytes on the network, frames on the bus, groups on the disk,
notifications to applications, faults. Two runs of one seed that behave alike have equal digests. Lines cost time, so
callers ask `is_read` before they make one.
"""
import struct
from hashlib import blake2b

from angarium.sim.clock import Clock

_STAMP = struct.Struct("<dI")


class Trace:
    def __init__(self, clock: Clock, *, is_read: bool = False) -> None:
        self.is_read = is_read
        self.lines: list[str] = []
        self._clock = clock
        self._hash = blake2b(digest_size=16)

    def mix(self, number: int, data: bytes | bytearray) -> None:
        self._hash.update(_STAMP.pack(self._clock.now, number) + data)

    def say(self, who: str, text: str) -> None:
        self.lines.append(f"{self._clock.now:11.6f}  {who:<12} {text}")

    def note(self, who: str, text: str) -> None:
        """Something rare: into the digest and, if there are any, among the lines."""
        self.mix(0, f"{who} {text}".encode())
        if self.is_read:
            self.say(who, text)

    def digest(self) -> str:
        return self._hash.hexdigest()
