"""Destinations that leave a replica group: the source's side of a move.

    WAITING --nothing stands in its way--> CHECKING --its records are whole--> WAITING, for a last look
            --something does, for too long, or always, or a record is damaged-------------> ENDING
            --nothing does, and it is checked: taken out of memory, its sessions detached--> EMPTYING
    EMPTYING --its last write is durable--> COPYING --the last row is durable in the target--> DECIDING
                                                    (and the content of streams, which the target asks for)
             --it is not, for too long----> ENDING  --refused, nobody answers, damaged, or too large a row--> ENDING
    DECIDING: group services are asked to decide that it has moved, ENDING: that it has not; again and again

From EMPTYING on nobody here knows the destination any more, so nothing can change its rows, and they are read from the
disk. What became of it is seen in the placement alone (`moves.py`). If it is given up it is opened again once its last
write is durable, so that nothing is missing. A message manager that is started in the middle of this begins anew.
"""
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from angarium.core.bus.events import BusSettings
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, DecideMove, ReadRows, RowsRead, ToSession
from angarium.core.destination.pending import PendingRows, PendingWrite
from angarium.core.groups.records import Move
from angarium.core.ids import ANYBODY, format_id
from angarium.core.moving.files import UNFINISHED, WINDOW_FRAGMENTS, unfinished_items
from angarium.core.moving.reading import RowsReading
from angarium.core.moving.records import COPIED, arrival_delete
from angarium.core.replication.ranges import Item, pack_items
from angarium.core.storage import Table, key_of
from angarium.core.stream.events import BlocksRead
from angarium.core.wire import frames
from angarium.core.wire.frames import MoveBlock, MoveRefused, MoveRows, MoveTaken, MoveWants

if TYPE_CHECKING:
    from angarium.core.destination.message_manager import MessageManager

CHUNK_BYTES = 256 << 10  # of rows in one message; one larger row goes alone, if the bus takes it
# Of one row, packed or not: it goes over the bus to the target, and there again in an order, each time with an
# envelope, the destination's name and its record.
ROW_BYTES_MAX = BusSettings().message_bytes_max - (32 << 10)
_ROW_BYTES = 16  # what a row takes beside key and value
LOOK_S = 0.02  # how often is looked whether something still stands in the way
WAIT_S_MAX = 30.0  # after so long it is given up
STREAMS_S = 10.0  # so long senders of very large messages have to come back after a fail-over
AGAIN_S = 0.5  # what is not answered is said again, after twice as long each time,
AGAIN_S_MAX = 4.0  # up to this
PATIENCE_S = 15.0  # after so long without an answer of the target, or of the own disk, the move is given up
GONE_MAX = 10_000  # ids that are remembered so that late frames for them are not answered; past it the first is not
_NUMBERS_MAX = 5_000  # of commits in one message: less than CHUNK_BYTES
_TABLES = (*COPIED, UNFINISHED, Table.TRANSACTION)
_FROM_MEMORY = (UNFINISHED, Table.TRANSACTION)  # rows that are in no table of the destination


class Step(Enum):
    WAITING = "waiting"
    CHECKING = "checking"
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
    checked: int = 0  # its id, once its records have been found whole
    goes_home: bool = False  # to where its name belongs
    is_absent: bool = False  # there is no such destination, and none is made until it is decided: only its name moves
    identity: int = 0  # once it is taken out
    is_empty: bool = False  # all that was written of it is durable
    record: bytes = b""
    table: int = 0  # of _TABLES, that is being copied
    low: bytes = b""  # and from where on
    sequence: int = 0
    sent: tuple[MoveRows, bytes] | None = None  # not yet answered
    is_reading: bool = False  # fragments that the target has asked for
    served: tuple[bytes, int] | None = None  # stream and first fragment that were last sent, since the rows were
    numbers: list[Item] | None = None  # of commits, as they were when their turn came
    ended: tuple[str, str] = ("", "")  # code and reason
    then: Callable[[], list[Command]] | None = None  # once its last write is durable: it was given up before
    again_at: float = 0.0
    again_s: float = AGAIN_S
    rows: int = 0  # copied so far, for people
    copied_bytes: int = 0
    total_bytes: int = 0  # of messages that are to be copied; what is kept beside them is little


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
        """It was taken out of memory, or may not be made."""
        departure = self._found.get(name)
        return departure is not None and (departure.identity != 0 or departure.is_absent)

    def begin(self, name: str, move: Move, now: float, *, goes_home: bool) -> list[Command]:
        departure = self._found[name] = Departure(name, move, now, goes_home=goes_home)
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
                reason = f"{departure.name!r} could not be opened in the group where it is"
                return [] if now < departure.since + WAIT_S_MAX else self._end(departure, "moving", reason, now)
            if departure.goes_home:  # it was moved here, and removed: its name need not be remembered any more
                departure.is_absent, departure.step = True, Step.DECIDING
                return self._decide(departure, now)
            return self._end(departure, "unknown-destination", f"there is no destination {departure.name!r}", now)
        if refusal := _refusal(destination):
            return self._end(departure, *refusal, now)
        if hindrance := self._hindrance(destination, now):
            return [] if now < departure.since + WAIT_S_MAX else self._end(departure, *hindrance, now)
        if departure.checked != destination.identity:
            return self._check(departure, destination.identity)
        return self._take_out(departure, destination, now)

    def _hindrance(self, destination: Destination, now: float) -> tuple[str, str] | None:
        """Code and reason, of what may pass."""
        manager, identity, name = self._manager, destination.identity, destination.record.name
        if not manager.is_stored(destination):
            return "moving", f"{name!r} is not yet stored"
        if blocked := manager.writes_blocked():
            return blocked  # its last write would not become durable, and it would stand still
        for _, prepared in manager.transactions.participant:
            places = [place for place, *_ in (*prepared.publishes, *prepared.settles)]
            if identity in places:
                return "in-transaction", f"{name!r} has a part of a transaction that another group decides; try later"
        found = manager.streams.unknown_since()
        if found is not None and now < found + STREAMS_S:
            # Afterwards a sender that comes back to the target is told that its stream is unknown, and begins anew.
            return "has-streams", f"very large messages were being sent when this primary started, perhaps to {name!r}"
        return None

    def _check(self, departure: Departure, identity: int) -> list[Command]:
        """Read its small tables while it still serves: it has to be opened from them, here or at the target."""
        departure.step = Step.CHECKING
        reading = RowsReading(
            self._manager, identity, lambda reading, now: self._checked(departure, identity, reading, now), keeps=False
        )
        return reading.begin()

    def _checked(self, departure: Departure, identity: int, reading: RowsReading, now: float) -> list[Command]:
        if self._found.get(departure.name) is not departure:
            return []  # it was given up meanwhile
        if damage := reading.damage(departure.name):
            reason = f"{damage}: it stays where it is; the next primary of its group repairs what can be repaired"
            return self._end(departure, "damaged", reason, now)
        departure.step, departure.checked = Step.WAITING, identity
        return self._look(departure, now)

    def _take_out(self, departure: Departure, destination: Destination, now: float) -> list[Command]:
        departure.identity = destination.identity
        departure.total_bytes = destination.stored_bytes
        traced_from, traces = self._manager.tracer.leaves()
        departure.record = msgspec.msgpack.encode(
            replace(destination.record, first_identity=destination.state.log_identity, traced_from=traced_from)
        )
        departure.step, departure.since, departure.again_at = Step.EMPTYING, now, now + PATIENCE_S
        self.gone[destination.identity] = None
        if len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]
        sessions = self._manager.take_out(destination)
        reason = f"{departure.name!r} is being moved to another replica group"
        told: list[Command] = [ToSession(session, frames.SessionDetached(reason)) for session in sessions]
        # It follows all writes of the destination. That nothing of this name arrives here is true anyway.
        pending = PendingWrite(follows=lambda now: self._emptied(departure, now))
        return [*told, self._manager.write([arrival_delete(departure.name), *traces], pending)]

    def _emptied(self, departure: Departure, now: float) -> list[Command]:
        departure.is_empty = True
        if departure.then is not None:
            return departure.then()
        if departure.step is not Step.EMPTYING:
            return []  # it took too long
        departure.step, departure.since, departure.again_at = Step.COPYING, now, now + AGAIN_S
        return self._read(departure, now)

    # -- copying -----------------------------------------------------------------------------------------

    def _read(self, departure: Departure, now: float) -> list[Command]:
        table, identity = _TABLES[departure.table], departure.identity
        if table is UNFINISHED:
            items = unfinished_items(self._manager.streams.unfinished(identity))
            rest = [item for item in items if item[0] >= departure.low]
            return self._rows_read(departure, RowsRead(0, rest), now)
        if table is Table.TRANSACTION:
            return self._rows_read(departure, self._numbers(departure), now)
        pending = PendingRows(identity, lambda event, now: self._rows_read(departure, event, now))
        token = self._manager.pending_read(pending)
        return [ReadRows(token, table, key_of(identity) + departure.low, key_of(identity + 1), CHUNK_BYTES)]

    def _numbers(self, departure: Departure) -> RowsRead:
        """Those of commits are in memory, and right, whatever has become of their rows."""
        if departure.numbers is None:
            departure.numbers = self._manager.transactions.numbers.known()
        start = bisect_left(departure.numbers, (departure.low, b""))
        items = departure.numbers[start : start + _NUMBERS_MAX]
        rest = departure.numbers[start + _NUMBERS_MAX : start + _NUMBERS_MAX + 1]
        return RowsRead(0, items, rest[0][0] if rest else b"")

    def _rows_read(self, departure: Departure, event: RowsRead, now: float) -> list[Command]:
        name, number = departure.name, departure.move.number
        if self._found.get(name) is not departure or departure.step is not Step.COPYING:
            return []
        table = _TABLES[departure.table]
        if event.damaged:
            reason = f"{name!r} has records that fail their checksum ({table.name}): it stays where it is"
            return self._end(departure, "damaged", reason, now)
        start = 0 if table in _FROM_MEMORY else 8
        found, rest = _portion(event)
        departure.low = rest[start:]
        departure.table += not rest
        is_last = departure.table == len(_TABLES)
        if not found and not is_last and departure.sequence:
            return self._read(departure, now)
        items = [(key[start:], value) for key, value in found]
        payload = pack_items(items)
        size_bytes = sum(len(key) + len(value) for key, value in items)
        if max(size_bytes, len(payload)) > ROW_BYTES_MAX:
            reason = f"{name!r} has a record of {size_bytes:,} bytes ({table.name}): one of more than {ROW_BYTES_MAX:,}"
            return self._end(departure, "too-long", f"{reason} cannot be sent to another group", now)
        record = departure.record if departure.sequence == 0 else b""
        rows = MoveRows(
            departure.move.target, self._group, name, number, self.attempt, departure.sequence, table, record, is_last
        )
        departure.rows += len(items)
        departure.copied_bytes += size_bytes
        departure.sent = (rows, payload)
        departure.sequence += 1
        departure.again_s = AGAIN_S
        return self._send(departure, now)

    def _send(self, departure: Departure, now: float) -> list[Command]:
        assert departure.sent is not None
        departure.served = None
        departure.again_at = now + departure.again_s
        departure.again_s = min(2 * departure.again_s, AGAIN_S_MAX)
        return [ToSession(ANYBODY, *departure.sent)]

    def _waiting(self, message: MoveTaken | MoveRefused | MoveWants) -> Departure | None:
        """The one that has sent something, and waits for such an answer."""
        departure = self._found.get(message.name)
        if departure is None or departure.sent is None or departure.step is not Step.COPYING:
            return None
        sent = departure.sent[0]
        return departure if (message.number, message.attempt) == (sent.number, sent.attempt) else None

    def wanted(self, message: MoveWants, now: float) -> list[Command]:
        """The target lacks content of very large messages that the last rows name."""
        departure, key = self._waiting(message), (message.stream, message.first)
        if departure is None or departure.sent is None or message.sequence != departure.sent[0].sequence:
            return []
        if departure.is_reading or departure.served == key:
            return []  # the answer is on its way
        departure.is_reading, departure.served, departure.since = True, key, now
        departure.again_s, departure.again_at = AGAIN_S, now + AGAIN_S
        count = max(0, min(message.end - message.first, WINDOW_FRAGMENTS))
        then = partial(self._blocks_read, departure, message)
        return [self._manager.streams.copy(message.stream, message.first, count, then)]

    def _blocks_read(self, departure: Departure, message: MoveWants, event: BlocksRead) -> list[Command]:
        departure.is_reading = False
        if self._waiting(message) is not departure:
            return []
        name, number = departure.name, message.first + len(event.blocks)
        if event.damage:
            reason = f"{name!r} holds stream {format_id(message.stream)}, of which fragment {number}: {event.damage}"
            return self._end(departure, "damaged", f"{reason}: it stays where it is", self._manager.now)
        commands: list[Command] = []
        for fragment, (crc, is_last, payload) in enumerate(event.blocks, message.first):
            block = MoveBlock(
                departure.move.target, self._group, name, message.number, message.attempt, message.stream, fragment,
                crc, is_last,
            )  # fmt: skip
            commands.append(ToSession(ANYBODY, block, payload))
            departure.copied_bytes += len(payload)
        return commands

    def answered(self, message: MoveTaken | MoveRefused, now: float) -> list[Command]:
        departure = self._waiting(message)
        if departure is None or departure.sent is None:
            return []
        sent = departure.sent[0]
        if isinstance(message, MoveRefused):
            return self._end(departure, message.code, message.reason, now)
        if message.sequence != sent.sequence:
            return []
        departure.sent, departure.since = None, now
        if not sent.last:
            return self._read(departure, now)
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
        return min((departure.again_at for departure in self._found.values()), default=None)

    def tick(self, now: float) -> list[Command]:
        due = [departure for departure in self._found.values() if now >= departure.again_at]
        return [command for departure in due for command in self._go_on(departure, now)]

    def _go_on(self, departure: Departure, now: float) -> list[Command]:
        match departure.step:
            case Step.WAITING:
                return self._look(departure, now)
            case Step.DECIDING | Step.ENDING:
                return self._decide(departure, now)
            case Step.EMPTYING if now >= departure.since + PATIENCE_S:
                waits = f"what was sent to {departure.name!r} has not become durable in {PATIENCE_S:g} s"
                return self._end(departure, *(self._manager.writes_blocked() or ("copies-behind", waits)), now)
            case Step.COPYING if now >= departure.since + PATIENCE_S:
                reason = f"replica group number {departure.move.target} has taken nothing for {PATIENCE_S:g} s"
                return self._end(departure, "no-primary", reason, now)
            case Step.COPYING if departure.sent is not None:
                return self._send(departure, now)
        departure.again_at = now + AGAIN_S  # a disk is being waited for
        return []


def _portion(event: RowsRead) -> tuple[list[Item], bytes]:
    """What goes with one message, and from which key on something is left: the row that is too much goes with the
    next."""
    size_bytes = 0
    for at, (key, value) in enumerate(event.items):
        size_bytes += _ROW_BYTES + len(key) + len(value)
        if at and size_bytes > CHUNK_BYTES:
            return event.items[:at], key
    return event.items, event.rest


def _refusal(destination: Destination) -> tuple[str, str] | None:
    """Code and reason, of what stands in the way for good."""
    record = destination.record
    if record.owner:
        return "temporary", f"{record.name!r} is temporary: it stays where the connection that made it looks for it"
    return None
