"""What a measured system must offer; one implementation for ours and one for each peer.

A variant is one way of using a system that a careful user might choose: all are measured, and ratios are taken
against the fastest, so that nobody loses for want of a setting.
"""
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Protocol

from benchmarks.processes import Launch

Ready = Callable[[], None]  # says that the role is connected, and returns when it may start
Send = Callable[[bytes], Awaitable[object]]  # one message; returns when it is confirmed


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    settings: str  # for people: batch sizes, pipelining, acknowledgement, loop


@dataclass(frozen=True, slots=True)
class Work:
    """What a role is to do."""

    port: int
    variant: str
    count: int
    body_bytes: int
    time_s_max: float
    channel: int = -1  # descriptor of a socket to the other role, where they have to talk


@dataclass(frozen=True, slots=True)
class Samples:
    """One message at a time: seconds from send to confirm and from send to reception, in the order of sending."""

    confirm_s: list[float]
    receive_s: list[float]


@dataclass(frozen=True, slots=True)
class Filled:
    count: int  # confirmed
    started: float
    ended: float


class System(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def durability(self) -> str:
        """For people."""

    @property
    def variants(self) -> Sequence[Variant]: ...

    @property
    def fill_variant(self) -> str:
        """The fastest way in."""

    def missing(self) -> str:
        """Empty when it can be measured here; else what is missing and how to get it."""

    def versions(self) -> dict[str, str]: ...

    def launch(self, data: Path, port: int) -> Launch: ...

    async def prepare(self, work: Work) -> None:
        """Create what the roles need."""

    async def produce(self, work: Work, ready: Ready) -> Filled:
        """Publish until `count` are confirmed, or until `time_s_max` is over."""

    async def consume(self, work: Work, ready: Ready) -> float:
        """Receive and settle `count` messages; the monotonic time when the last was settled."""

    def sending(self, work: Work) -> AbstractAsyncContextManager[Send]:
        """Connected, to publish one message after the other."""

    def taking(self, work: Work, arrived: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Connected, calling `arrived` as each message comes, and settling it."""

    async def first(self, work: Work, ready: Ready) -> float:
        """Connect as soon as the broker answers and receive one message; the monotonic time of its arrival."""


DISTINCT_COUNT = 1_000


def bodies(work: Work) -> Iterator[bytes]:
    """`count` random bodies of the size, the same for every system; a thousand different ones, over and over."""
    chance = random.Random(work.body_bytes)
    distinct = [chance.randbytes(work.body_bytes) for _ in range(DISTINCT_COUNT)]
    return islice(cycle(distinct), work.count)


class Received:
    """What a consumer has received so far; checked in the end, so that nobody is fast by leaving something out."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.count = 0
        self._bytes = 0

    @property
    def left(self) -> int:
        return self._work.count - self.count

    def add(self, sizes: list[int]) -> None:
        self.count += len(sizes)
        self._bytes += sum(sizes)

    def check(self) -> None:
        expected = (self._work.count, self._work.count * self._work.body_bytes)
        if (self.count, self._bytes) != expected:
            raise RuntimeError(f"received {(self.count, self._bytes)} messages and bytes instead of {expected}")


class Deadline:
    def __init__(self, time_s_max: float) -> None:
        self._at = time.monotonic() + time_s_max

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._at
