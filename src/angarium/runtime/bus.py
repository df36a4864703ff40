"""The bus of a node that is client manager and message manager in one: the same frames, passed in memory.

Every destination has its own queue of frames; destinations take turns, one frame each, and a turn of the loop handles
a bounded number. So a flood for one destination delays the others by at most a frame each, and never the sockets.
"""
import asyncio
from collections import deque
from collections.abc import Callable

from angarium.core.destination.events import FromSession

_FRAMES_PER_TURN_MAX = 256


class InProcessBus:
    def __init__(self, deliver: Callable[[FromSession], None]) -> None:
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._queues: dict[int, deque[FromSession]] = {}  # destinations with frames waiting, in turn
        self._scheduled = False

    def post(self, envelope: FromSession) -> None:
        waiting = self._queues.get(envelope.destination)
        if waiting is None:
            waiting = self._queues[envelope.destination] = deque()
        waiting.append(envelope)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Handle what waits, up to the bound; the rest in the next turn of the loop."""
        queues = self._queues
        for _ in range(_FRAMES_PER_TURN_MAX):
            if not queues:
                break
            destination, waiting = next(iter(queues.items()))
            del queues[destination]
            envelope = waiting.popleft()
            if waiting:
                queues[destination] = waiting
            self._deliver(envelope)
        self._scheduled = bool(queues)
        if queues:
            self._loop.call_soon(self.run)
