"""The bus of a node that is client manager and message manager in one: the same frames, passed in memory.

Every destination has its own queue of frames; destinations take turns, one frame each, and a turn of the loop handles
a bounded number. So a flood for one destination delays the others by at most a frame each, and never the sockets.
How much waits here is bounded by whoever posts: each frame is told back to its `sender` once it is handled.
"""
import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from angarium.core.destination.events import FromSession

_FRAMES_PER_TURN_MAX = 256


class _Posted(NamedTuple):
    envelope: FromSession
    sender: int
    size_bytes: int


class InProcessBus:
    """Calls `deliver` for each frame, and then `handled` with the sender and the size that it was posted with."""

    def __init__(self, deliver: Callable[[FromSession], None], handled: Callable[[int, int], None]) -> None:
        self._deliver = deliver
        self._handled = handled
        self._loop = asyncio.get_running_loop()
        self._queues: dict[int, deque[_Posted]] = {}  # destinations with frames waiting, in turn
        self._next_run: asyncio.Handle | None = None

    def post(self, envelope: FromSession, sender: int = 0, size_bytes: int = 0) -> None:
        """Sender 0 is nobody: what the node itself says."""
        waiting = self._queues.get(envelope.destination)
        if waiting is None:
            waiting = self._queues[envelope.destination] = deque()
        waiting.append(_Posted(envelope, sender, size_bytes))
        if self._next_run is None:
            self._next_run = self._loop.call_soon(self.run)

    @property
    def is_idle(self) -> bool:
        """Nothing waits: whoever has a single frame may as well hand it over himself."""
        return not self._queues

    def run(self) -> None:
        """Handle what waits, up to the bound; the rest in the next turn of the loop. The bus calls it there, and
        whoever does not want to wait may."""
        if self._next_run is not None:
            self._next_run.cancel()
            self._next_run = None
        queues = self._queues
        for _ in range(_FRAMES_PER_TURN_MAX):
            if not queues:
                break
            destination, waiting = next(iter(queues.items()))
            del queues[destination]
            posted = waiting.popleft()
            if waiting:
                queues[destination] = waiting
            self._deliver(posted.envelope)
            if posted.sender:
                self._handled(posted.sender, posted.size_bytes)
        if queues and self._next_run is None:
            self._next_run = self._loop.call_soon(self.run)
