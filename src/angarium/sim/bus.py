"""The bus between client manager and message manager, with every frame as the bytes that a real network would carry.

Towards the message manager each destination has its own queue, as in `runtime/bus.py`: in order within a destination,
in any order between them. Between machines (`in_order`) there is one queue for all of them, as the bus of a cluster
keeps the order of each sender. Towards the client manager there is one queue. In one process it is always empty: frames
arrive at once. With `answer_delay_s_max` they take their time, as they will between two machines.

A message manager that dies alone takes with it what is on its way to it. What it has sent may still arrive, also after
the client manager knows of the new one, and always before what that one sends.
"""
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from angarium.core.destination.events import FromSession, ToSession
from angarium.core.session.events import FromBus, ToBus
from angarium.core.wire.codec import FrameParser, encode
from angarium.sim.clock import Clock
from angarium.sim.trace import Trace

_ENVELOPE = struct.Struct("<16sIQ")
_FRAME_BYTES_MAX = 64 << 20


class SimBus:
    def __init__(
        self, clock: Clock, trace: Trace, chance: Random, *, to_manager: Callable[[FromSession, int], None],
        to_sessions: Callable[[FromBus], None], delay_s_max: float, answer_delay_s_max: float, in_order: bool = False,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._trace = trace
        self._chance = chance
        self._to_manager = to_manager
        self._to_sessions = to_sessions
        self._delay_s_max = delay_s_max
        self._answer_delay_s_max = answer_delay_s_max
        self._in_order = in_order
        self._queues: dict[int, deque[bytes]] = {}  # by destination, or one
        self._answers: deque[bytes] = deque()
        self._manager_parser = FrameParser(frame_bytes_max=_FRAME_BYTES_MAX)
        self._session_parser = FrameParser(frame_bytes_max=_FRAME_BYTES_MAX)
        self._is_cut = False
        self.is_severed = False  # there is no message manager, or it is not known yet that there is another one
        self._severances = 0  # what was scheduled before the last one is void

    @property
    def is_idle(self) -> bool:
        return not self._queues and not self._answers

    def cut(self) -> None:
        """The process is gone, and what was in its memory."""
        self._is_cut = True
        self._queues.clear()
        self._answers.clear()

    def sever(self) -> None:
        """The message manager is gone, and what was on its way to it. Of what it has sent, some is still to arrive."""
        self.is_severed = True
        self._severances += 1
        self._queues.clear()
        for _ in range(self._chance.randint(0, len(self._answers))):
            self._answers.pop()

    def join(self) -> None:
        """From now on everything goes to the message manager that there is now."""
        self.is_severed = False

    # -- from sessions to destinations ---------------------------------------------------------------

    def post(self, command: ToBus, turn: int = 0) -> None:
        if self.is_severed:
            return
        head = _ENVELOPE.pack(command.session, turn, command.destination)
        packed = head + encode(0, command.frame, command.payload)
        self._trace.mix(2, packed)
        queue = 0 if self._in_order else command.destination
        waiting = self._queues.get(queue)
        if waiting is not None:
            waiting.append(packed)
            return
        self._queues[queue] = deque((packed,))
        self._schedule(queue)

    def _schedule(self, queue: int) -> None:
        # Mostly quick; sometimes a destination is busy and its queue waits its turn.
        delay_s = self._delay_s_max * self._chance.random() ** 4
        self._clock.after(delay_s, partial(self._serve, queue, self._severances))

    def _serve(self, queue: int, severances: int) -> None:
        if self._is_cut or severances != self._severances:
            return
        waiting = self._queues[queue]
        packed = waiting.popleft()
        if waiting:
            self._schedule(queue)
        else:
            del self._queues[queue]
        session, turn, destination = _ENVELOPE.unpack_from(packed)
        (received,) = self._manager_parser.feed(memoryview(packed)[_ENVELOPE.size :])
        self._to_manager(FromSession(session, destination, received.frame, received.payload), turn)

    # -- and back ------------------------------------------------------------------------------------

    def answer(self, command: ToSession) -> None:
        packed = _ENVELOPE.pack(command.session, 0, 0) + encode(0, command.frame, command.payload)
        self._trace.mix(3, packed)
        if self._answer_delay_s_max == 0.0:
            self._deliver_answer(packed)
            return
        self._answers.append(packed)
        if len(self._answers) == 1:
            self._schedule_answer()

    def _schedule_answer(self) -> None:
        self._clock.after(self._answer_delay_s_max * self._chance.random() ** 4, self._serve_answer)

    def _serve_answer(self) -> None:
        if self._is_cut or not self._answers:
            return
        packed = self._answers.popleft()
        if self._answers:
            self._schedule_answer()
        self._deliver_answer(packed)

    def _deliver_answer(self, packed: bytes) -> None:
        session, _, _ = _ENVELOPE.unpack_from(packed)
        (received,) = self._session_parser.feed(memoryview(packed)[_ENVELOPE.size :])
        self._to_sessions(FromBus(session, received.frame, received.payload))
