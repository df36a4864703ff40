"""Destinations that leave a replica group: the source's side of a move.

    WAITING --nothing stands in its way: taken out of memory, its sessions detached--> EMPTYING
            --something does, for too long, or always----------------------------------> ENDING
    EMPTYING --its last write is durable--> COPYING --the last row is durable in the target--> DECIDING
                                                    --refused, or nobody answers-------------> ENDING
    DECIDING: group services are asked to decide that it has moved, ENDING: that it has not; again and again

From EMPTYING on nobody here knows the destination any more, so nothing can change its rows, and they are read from the
disk. What became of it is seen in the placement alone (`moves.py`). A message manager that is started in the middle of
this begins anew.
"""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, DecideMove, ReadRows, RowsRead, ToSession
from angarium.core.destination.pending import PendingRows, PendingWrite
from angarium.core.groups.records import Move
from angarium.core.ids import ANYBODY
from angarium.core.moving.records import COPIED, arrival_delete
from angarium.core.replication.ranges import pack_items
from angarium.core.storage import Table, key_of
from angarium.core.wire import frames
from angarium.core.wire.frames import MoveRefused, MoveRows, MoveTaken

if TYPE_CHECKING:
    from angarium.core.destination.message_manager import MessageManager

CHUNK_BYTES = 256 << 10  # of rows in one message; one larger row still goes, alone
LOOK_S = 0.02  # how often is looked whether something still stands in the way
WAIT_S_MAX = 30.0  # after so long it is given up
AGAIN_S = 0.5  # what is not answered is said again
PATIENCE_S = 15.0  # without any answer of the target: so long a destination may stand still at most
GONE_MAX = 10_000  # ids that are remembered so that late frames for them are not answered; past it the first is not
_KEY_END = b"\xff" * 511  # above every key
_TABLES = (*COPIED, Table.TRANSACTION)


class Step(Enum):
    WAITING = "waiting"
    EMPTYING = "emptying"
    COPYING = "copying"
    DECIDING = "deciding"
    ENDING = "ending"


@dataclass(slots=True, eq=False)
class Departure:
    name: str
    move: Move
    since: float  # something last happened
    step: Step = Step.WAITING
    identity: int = 0  # once it is taken out
    record: bytes = b""
    table: int = 0  # of _TABLES, that is being copied
    low: bytes = b""  # and from where on
    sequence: int = 0
    sent: tuple[MoveRows, bytes] | None = None  # not yet answered
    ended: tuple[str, str] = ("", "")  # code and reason
    then: Callable[[], list[Command]] | None = None  # once its last write is durable: it was given up before
    again_at: float = 0.0
    rows: int = 0  # copied so far, for people
    copied_bytes: int = 0


class Departures:
    """`is_expected(name)`: it is not here yet, and will be."""

    def __init__(self, manager: "MessageManager", group: int, is_expected: Callable[[str], bool]) -> None:
        self._manager = manager
        self._group = group
        self._is_expected = is_expected
        self._found: dict[str, Departure] = {}
        self.attempt = 0  # the epoch in which the message manager was started
        self.gone: dict[int, None] = {}  # ids of destinations that were taken out since the start

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[Departure]:
        return iter(self._found.values())

    def get(self, name: str) -> Departure | None:
        return self._found.get(name)

    def is_out(self, name: str) -> bool:
        """It was taken out of memory."""
        departure = self._found.get(name)
        return departure is not None and departure.identity != 0

    def begin(self, name: str, move: Move, now: float) -> list[Command]:
        departure = self._found[name] = Departure(name, move, now)
        return self._look(departure, now)

    def over(self, name: str) -> Departure:
        """It is decided what becomes of it."""
        return self._found.pop(name)

    # -- taking it out -----------------------------------------------------------------------------------

    def _look(self, departure: Departure, now: float) -> list[Command]:
        departure.again_at = now + LOOK_S
        destination = self._manager.find(departure.name)
        if destination is None:
            if self._is_expected(departure.name):
                return []
            return self._end(departure, "unknown-destination", f"there is no destination {departure.name!r}", now)
        if refusal := _refusal(destination):
            return self._end(departure, *refusal, now)
        if hindrance := self._hindrance(destination):
            return [] if now < departure.since + WAIT_S_MAX else self._end(departure, *hindrance, now)
        return self._take_out(departure, destination, now)

    def _hindrance(self, destination: Destination) -> tuple[str, str] | None:
        """Code and reason, of what may pass."""
        manager, identity, name = self._manager, destination.identity, destination.record.name
        if not manager.is_stored(destination):
            return "moving", f"{name!r} is not yet stored"
        for _, prepared in manager.transactions.participant:
            places = [place for place, *_ in (*prepared.publishes, *prepared.settles)]
            if identity in places:
                return "in-transaction", f"{name!r} has a part of a transaction that another group decides; try later"
        if manager.streams.concern(identity):
            return "has-streams", f"{name!r} holds very large messages, or is sent one: settle them first"
        return None

    def _take_out(self, departure: Departure, destination: Destination, now: float) -> list[Command]:
        departure.identity = destination.identity
        departure.record = msgspec.msgpack.encode(
            replace(destination.record, first_identity=destination.state.log_identity)
        )
        departure.step, departure.since = Step.EMPTYING, now
        self.gone[destination.identity] = None
        if len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]
        sessions = self._manager.take_out(destination)
        reason = f"{departure.name!r} is being moved to another replica group"
        told: list[Command] = [ToSession(session, frames.SessionDetached(reason)) for session in sessions]
        # It follows all writes of the destination. That nothing of this name arrives here is true anyway.
        pending = PendingWrite(follows=lambda now: self._emptied(departure, now))
        return [*told, self._manager.write([arrival_delete(departure.name)], pending)]

    def _emptied(self, departure: Departure, now: float) -> list[Command]:
        if departure.step is not Step.EMPTYING:
            return []
        departure.step, departure.since = Step.COPYING, now
        if departure.then is not None:
            return departure.then()
        return self._read(departure)

    # -- copying -----------------------------------------------------------------------------------------

    def _read(self, departure: Departure) -> list[Command]:
        table = _TABLES[departure.table]
        prefix, end = key_of(departure.identity), key_of(departure.identity + 1)
        low, high = (departure.low, _KEY_END) if table is Table.TRANSACTION else (prefix + departure.low, end)
        token = self._manager.pending_read(PendingRows(departure.identity, departure.name, departure.move.number))
        return [ReadRows(token, table, low, high, CHUNK_BYTES)]

    def rows_read(self, event: RowsRead, name: str, number: int, now: float) -> list[Command]:
        departure = self._found.get(name)
        if departure is None or departure.move.number != number or departure.step is not Step.COPYING:
            return []
        table = _TABLES[departure.table]
        if event.damaged:
            reason = f"{name!r} has records that fail their checksum ({table.name}): it stays where it is"
            return self._end(departure, "damaged", reason, now)
        start = 0 if table is Table.TRANSACTION else 8
        departure.low = event.rest[start:]
        departure.table += not event.rest
        is_last = departure.table == len(_TABLES)
        if not event.items and not is_last and departure.sequence:
            return self._read(departure)
        items = [(key[start:], value) for key, value in event.items]
        record = departure.record if departure.sequence == 0 else b""
        rows = MoveRows(
            departure.move.target, self._group, name, number, self.attempt, departure.sequence, table, record, is_last
        )
        departure.rows += len(items)
        departure.copied_bytes += sum(len(key) + len(value) for key, value in items)
        departure.sent = (rows, pack_items(items))
        departure.sequence += 1
        return self._send(departure, now)

    def _send(self, departure: Departure, now: float) -> list[Command]:
        assert departure.sent is not None
        departure.again_at = now + AGAIN_S
        return [ToSession(ANYBODY, *departure.sent)]

    def answered(self, message: MoveTaken | MoveRefused, now: float) -> list[Command]:
        departure = self._found.get(message.name)
        if departure is None or departure.sent is None or departure.step is not Step.COPYING:
            return []
        sent = departure.sent[0]
        if (message.number, message.attempt) != (sent.number, sent.attempt):
            return []
        if isinstance(message, MoveRefused):
            return self._end(departure, message.code, message.reason, now)
        if message.sequence != sent.sequence:
            return []
        departure.sent, departure.since = None, now
        if not sent.last:
            return self._read(departure)
        departure.step = Step.DECIDING
        return self._decide(departure, now)

    # -- the end -----------------------------------------------------------------------------------------

    def _end(self, departure: Departure, code: str, reason: str, now: float) -> list[Command]:
        departure.step, departure.sent, departure.ended = Step.ENDING, None, (code, reason)
        return self._decide(departure, now)

    def _decide(self, departure: Departure, now: float) -> list[Command]:
        departure.again_at = now + AGAIN_S
        return [DecideMove(departure.name, departure.move.number, *departure.ended)]

    # -- time --------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        times = (d.again_at for d in self._found.values() if d.step is not Step.EMPTYING)
        return min(times, default=None)

    def tick(self, now: float) -> list[Command]:
        due = [departure for departure in self._found.values() if now >= departure.again_at]
        return [command for departure in due for command in self._go_on(departure, now)]

    def _go_on(self, departure: Departure, now: float) -> list[Command]:
        match departure.step:
            case Step.WAITING:
                return self._look(departure, now)
            case Step.DECIDING | Step.ENDING:
                return self._decide(departure, now)
            case Step.COPYING if now >= departure.since + PATIENCE_S:
                reason = f"replica group number {departure.move.target} has taken nothing for {PATIENCE_S:g} s"
                return self._end(departure, "no-primary", reason, now)
            case Step.COPYING if departure.sent is not None:
                return self._send(departure, now)
        departure.again_at = now + AGAIN_S  # a disk is being waited for
        return []


def _refusal(destination: Destination) -> tuple[str, str] | None:
    """Code and reason, of what stands in the way for good."""
    record = destination.record
    if record.owner:
        return "temporary", f"{record.name!r} is temporary: it stays where the connection that made it looks for it"
    if record.traced:
        reason = f"{record.name!r} is traced, and traces are of one replica group: alter it with traced = false before"
        return "traced", reason
    return None
