"""A real message manager in the place of the stand-in: what it confirmed has to be there after any promotion.

Every payload is one batch of a producer of its own, in a session of its own: located, opened, published. After a
fail-over the producer is resumed, and the message manager says by itself whether it has the message.
"""
from collections import deque

from angarium.core.destination import events as mm
from angarium.core.destination.message_manager import MessageManager
from angarium.core.stream.events import FileSynced
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import pack
from angarium.sim.broker import WALL_MS_AT_ZERO
from angarium.sim.manager import load
from angarium.sim.replicas.manager import Asked
from angarium.store.interface import Store

_QUEUE = "orders"


def identity_of(uid: bytes) -> bytes:
    return uid.ljust(16, b".")


def batch_of(uid: bytes, body: bytes) -> bytes:
    return pack(identity_of(uid), 1, int(WALL_MS_AT_ZERO), [body])


class RealManager:
    def __init__(self, store: Store, now: float) -> None:
        self.blocked = ""
        self._machine = MessageManager(mm.DestinationSettings(), wall_ms_at_zero=WALL_MS_AT_ZERO)
        self._now = now
        state = load(store)
        self._restored = {key[8:] for key in state.producers}
        self._payloads: dict[bytes, tuple[bytes, bytes]] = {}  # session -> id, batch
        self._confirmed: list[bytes] = []
        self._repeated: list[bytes] = []
        self.asked: list[Asked] = self._run(self._machine.restore(state, now=now))

    def _run(self, commands: list[mm.Command]) -> list[Asked]:
        asked: list[Asked] = []
        waiting = deque(commands)
        while waiting:
            command = waiting.popleft()
            if isinstance(command, mm.Write):
                asked.append(command)
            elif isinstance(command, mm.ToSession):
                waiting += self._told(command.session, command.frame)
        return asked

    def _told(self, session: bytes, frame: frames.Frame) -> list[mm.Command]:
        uid, batch = self._payloads[session]
        match frame:
            case frames.Located(destination=destination):
                opening = frames.ProducerOpen(1, _QUEUE, DestinationKind.QUEUE, identity_of(uid))
                return self._send(session, destination, opening)
            case frames.ProducerOpened(sequence=0):
                queue = self._machine.find(_QUEUE)
                assert queue is not None
                return self._send(session, queue.identity, frames.Publish(1), batch)
            case frames.Confirm(sequence=1):
                (self._repeated if session in self._restored else self._confirmed).append(uid)
        return []

    def _send(self, session: bytes, destination: int, frame: frames.Frame, payload: bytes = b"") -> list[mm.Command]:
        return self._machine.handle(mm.FromSession(session, destination, frame, payload), now=self._now)

    # -- as the node sees it -----------------------------------------------------------------------------

    def payload(self, uid: bytes, payload: bytes, now: float) -> list[Asked]:
        self._now = now
        if self.blocked:
            return []
        session = identity_of(uid)
        self._payloads[session] = (uid, payload)
        return self._run(self._send(session, 0, frames.Locate(_QUEUE, DestinationKind.QUEUE)))

    def written(self, tokens: list[int], now: float) -> list[Asked]:
        self._now = now
        commands = [command for token in tokens for command in self._machine.handle(mm.Written(token), now=now)]
        return self._run(commands)

    def file_synced(self, event: FileSynced) -> list[Asked]:
        """It has no streams here."""
        return []

    def set_blocked(self, event: mm.WritesBlocked | mm.WritesUnblocked, now: float) -> list[Asked]:
        self._now = now
        self.blocked = event.reason if isinstance(event, mm.WritesBlocked) else ""
        return self._run(self._machine.handle(event, now=now))

    def take_confirmed(self) -> tuple[list[bytes], list[bytes]]:
        taken = (self._confirmed, self._repeated)
        self._confirmed, self._repeated = [], []
        return taken
