"""Making room on a node that holds more than it may: `node_over_limit = "oldest"`.

    too much --keep--> Read the oldest of whoever holds most --BatchesRead--> one write: they are in the dead message
        ^                                                                     queue, and settled where they were
        +------------------------------ Written -----------------------------------+

Of the destination that holds most, because it is why there is no room, whoever publishes: a small queue that is quickly
emptied loses nothing to a large one that nobody reads. Of it the oldest that nobody holds, the least urgent first, as
at a limit of its own. One portion at a time for the whole node, so no write is large, and each is followed by a look
at what is too much then. A portion takes no more than is too much, and than the dead message queue has room for.

Between such a write and its end the subscription delivers nothing: after a crash the oldest would live again, and come
after what was delivered in their stead; which destination holds most may have changed by then.

Nothing is lost of what lived: it is in the dead message queue. That may hold as much as the limits say, too; past them
its own `over_limit` decides: "block" (as it is made) blocks all producers, "refuse" refuses what is new, until somebody
redrives, discards or consumes so much that a fifth is free again, with what may still die; "oldest" drops the oldest
dead, counted and reported.
Producers are blocked as well once there are `AHEAD_MESSAGES` or `AHEAD_BYTES` too much, because they are faster than
this, or because all that could be moved is held: so there is an end to what the node holds. Not earlier: who holds
messages may have to send something before it settles them.
"""
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from heapq import nlargest

from angarium.core.destination.delivery import Piece
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, Command, Read, Report, StoredBatch, ToSession
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.log import Lane
from angarium.core.destination.node_limits import NodeLimits
from angarium.core.destination.pending import PendingRoom, PendingWrite
from angarium.core.destination.subscription import Subscription
from angarium.core.ranges import Range, RangeSet
from angarium.core.report import Level
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch

READ_BYTES = 1 << 20
PORTION = 10_000  # dead messages of one portion; of a topic one for each subscription that still waits
CANDIDATES = 16  # destinations that are asked; those that hold most
AHEAD_MESSAGES = 10_000
AHEAD_BYTES = 16 << 20
LOOK_ANEW_S = 1.0  # at least, for who holds most while nobody of them gives anything
REPORT_S = 60.0  # between two notices
REASON = "node-limit"
_SLOWLY = "the oldest make room more slowly than producers send"
_HELD = "all that could go to _DMQ to make room is held by consumers or transactions, or waits for its time"


class RoomMaker:
    def __init__(
        self, destinations: dict[int, Destination], limits: NodeLimits, dead: Callable[[], Destination | None]
    ) -> None:
        self._destinations = destinations
        self._limits = limits
        self._dead = dead  # the dead message queue, if there is one
        self._is_busy = False  # a portion is read, or written
        self._is_short = False  # too much is there, and nothing of it is free
        self._is_ahead = False  # producers are blocked because they are faster
        self._is_full = False  # nothing more may die; until there is some room again, not for one message
        # What reads for its consumers since the last portion, and how many such reads it had: their turn comes first.
        self._turns: list[tuple[Destination, Subscription, int]] = []
        self._candidates: list[int] = []
        self._noted = 0  # when they were looked for
        self._look_anew_at = float("-inf")
        self.moved = 0  # messages that died of the node's limits, since the start
        self.dropped = 0  # dead ones that were dropped for others
        self._told = (0, 0)  # the same at the last notice
        self._tell_at = float("-inf")

    # -- what is too much ----------------------------------------------------------------------------

    def keep(self, now: float) -> list[Command]:
        """Look whether room has to be made; `limits.stuck` says why nothing more may come meanwhile."""
        limits = self._limits
        if not limits.makes_room:
            self._is_full = False
            return []
        commands = self._drop_dead(now) if any(limits.excess(limits.dead)) else []
        over = limits.excess(limits.living)
        was_ahead, self._is_ahead = self._is_ahead, self._is_far(over, 2 if self._is_ahead else 1)
        self._is_full = self._is_full_of_dead(over)
        limits.stuck_policy, limits.is_quiet, limits.stuck, self._is_short = "block", False, "", False
        if not any(over) and not self._is_full:
            return commands
        has_begun = not any(over) or self._is_busy or self._is_turn() or self._begin(over, commands)
        if not has_begun and self._may_look_anew(now, is_urgent=self._is_ahead and not was_ahead):
            has_begun = self._begin(over, commands)
        self._is_short = not has_begun
        if not has_begun and limits.is_low(limits.dead):
            self._is_full = False  # what is too much is held, and cannot die: room for it among the dead is in vain
        if self._is_full:
            limits.stuck = f"{self._figures()}; {self._full_of_dead()}"
        elif self._is_ahead:
            limits.is_quiet = has_begun  # it comes and goes
            limits.stuck = f"{self._figures()}; {_SLOWLY if has_begun else _HELD}"
        return commands

    def is_waiting(self) -> bool:
        """Whether it waits for something that no write tells: a delivery to others, or that something is free again."""
        return self._is_short or bool(self._limits.stuck) or self._is_turn()

    def _is_turn(self) -> bool:
        """Subscriptions that paused for the last portion are delivered to before the next one is made."""
        if self._turns:
            self._turns = [turn for turn in self._turns if self._is_unserved(*turn)]
        return bool(self._turns)

    def _is_unserved(self, destination: Destination, subscription: Subscription, reads: int) -> bool:
        """Its read of that time is still to be answered. One that has gone meanwhile will not be delivered to."""
        is_read = subscription.reading and subscription.reads == reads
        return is_read and self._knows(destination, subscription)

    def _knows(self, destination: Destination, subscription: Subscription) -> bool:
        known = self._destinations.get(destination.identity) is destination
        return known and destination.subscriptions.get(subscription.name) is subscription

    def _is_far(self, over: tuple[int, int], part: int) -> bool:
        return over[0] > AHEAD_MESSAGES // part or over[1] > AHEAD_BYTES // part

    def _figures(self) -> str:
        limits, settings = self._limits, self._limits.settings
        over_messages, _ = limits.excess(limits.living)
        if over_messages or not settings.node_bytes_max:
            limit = f"node_messages_max is {settings.node_messages_max:,}"
            return f"the node holds {limits.messages:,} messages, and {limit}"
        return f"the node holds {limits.bytes:,} bytes, and node_bytes_max is {settings.node_bytes_max:,}"

    def _is_full_of_dead(self, over: tuple[int, int]) -> bool:
        """Whether the dead message queue has no room for what is too much. Once it had none, this holds until a fifth
        of its room, or of the room of all others, is free: else producers would stop and go with each one redriven."""
        limits, queue = self._limits, self._dead()
        if queue is None:
            return False
        room = self._dead_room()
        if not self._is_full:
            return any(over) and not room and not self._is_busy
        if room and queue.record.over_limit == "oldest":
            return False
        return not limits.is_low(limits.dead, over) and not limits.is_low(limits.living)

    def _full_of_dead(self) -> str:
        """Why nothing more may die; what happens meanwhile the dead message queue says."""
        limits, queue = self._limits, self._dead()
        assert queue is not None
        limits.stuck_policy = "refuse" if queue.record.over_limit == "refuse" else "block"
        return (
            f"_DMQ holds {limits.dead.messages:,} messages of {limits.dead.bytes:,} bytes, as many as may die of that: "
            "redrive or discard them (`angarium dmq`), or let it drop its oldest (`angarium alter _DMQ --over-limit "
            "oldest`), or raise the limit"
        )

    def _dead_room(self) -> int:
        """How many more may die. One that drops its oldest makes its own room, unless they are held."""
        limits, queue = self._limits, self._dead()
        if queue is not None and queue.record.over_limit == "oldest":
            return 0 if any(limits.excess(limits.dead)) else PORTION
        return limits.dead_room()

    # -- a portion -----------------------------------------------------------------------------------

    def _begin(self, over: tuple[int, int], commands: list[Command]) -> bool:
        """Ask for the oldest of the first who has something to give."""
        if not self._dead_room():
            return False
        for identity in self._largest(by_bytes=over[0] == 0):
            destination = self._destinations.get(identity)
            found = None if destination is None else _first(destination, prefix=over[0] == 0)
            if destination is not None and found is not None:
                lane, low = found
                self._is_busy = True
                token = destination.state.read_token(PendingRoom(identity, low, lane.readable))
                commands.append(Read(token, identity, low, READ_BYTES, lane.readable))
                return True
        return False

    def _largest(self, *, by_bytes: bool) -> list[int]:
        """Looked for again after as many changes as there are destinations: so it costs the same for many and few."""
        limits = self._limits
        if limits.notes - self._noted >= len(limits.living.of) or not self._candidates:
            self._noted = limits.notes
            held = limits.living.of
            buried = (identity for identity in held if self._destinations[identity].record.buries)
            self._candidates = nlargest(CANDIDATES, buried, key=lambda identity: (held[identity][by_bytes], -identity))
        return self._candidates

    def _may_look_anew(self, now: float, *, is_urgent: bool) -> bool:
        """Of those who held most nobody gives anything: others may by now. Before producers are blocked for that, and
        else now and then."""
        if self._noted == self._limits.notes or (now < self._look_anew_at and not is_urgent):
            return False
        self._candidates, self._look_anew_at = [], now + LOOK_ANEW_S
        return True

    def batches_read(self, asked: PendingRoom, event: BatchesRead, now: float) -> list[Command]:
        self._is_busy = False
        destination = self._destinations.get(asked.destination)
        over, room = self._limits.excess(self._limits.living), self._dead_room()
        if destination is None or not any(over) or not room or not self._limits.makes_room:
            return self.keep(now)
        pieces = [
            Piece(stored.end, Batch.trusted(stored.data)) if isinstance(stored, StoredBatch)
            else Piece(stored.end, None, stored.raw)
            for stored in event.batches
        ]  # fmt: skip
        lane = destination.log.lane_at(asked.low)
        end = min(pieces[-1].end, asked.high) if pieces else asked.high
        count = over[0] or _count_of(destination, lane, (asked.low, end), over[1])
        each = 1 if destination.state.is_queue else max(1, len(destination.subscriptions))
        count = min(count, max(1, min(room, PORTION) // each), destination.dispatch.at_once())
        parts = _oldest(destination, lane, (asked.low, end), count, prefix=over[0] == 0)
        return self._moved(destination, parts, pieces, (asked.low, end), now) if parts else self.keep(now)

    def _moved(
        self, destination: Destination, parts: dict[Subscription, list[Range]], pieces: list[Piece], asked: Range,
        now: float,
    ) -> list[Command]:  # fmt: skip
        commands: list[Command] = []
        waiting = 0

        def written(subscription: Subscription, now: float) -> list[Command]:
            nonlocal waiting
            waiting -= 1
            self._is_busy = waiting > 0
            subscription.is_pausing = False
            if not self._knows(destination, subscription):
                return []
            commands = destination.dispatch.pump(subscription)
            if subscription.reading:
                self._turns.append((destination, subscription, subscription.reads))
            return commands

        for subscription, found in parts.items():
            # What is damaged has been set aside for all when the first of them met it.
            ranges = [part for low, high in found for part in subscription.free_in(low, high)]
            unwanted = _unwanted(subscription, pieces, ranges)
            for part in unwanted:
                subscription.discard(*part, "unselected")
            for part in [gap for low, high in ranges for gap in unwanted.gaps(low, high)]:
                subscription.doom_free(REASON, *part)
                if subscription.buries:
                    self.moved += part[1] - part[0]
                else:
                    commands += _lost(subscription, part[1] - part[0])
            subscription.is_pausing = True
            pending = PendingWrite(follows=partial(written, subscription))
            waiting += 1
            commands += destination.dispatch.bury(subscription, pieces, asked, pending, now=now)
        self._is_busy = waiting > 0
        self._limits.note(destination)
        commands += self._tell(now)
        return commands if self._is_busy else commands + self.keep(now)  # nothing had to be written

    # -- the dead ------------------------------------------------------------------------------------

    def _drop_dead(self, now: float) -> list[Command]:
        """The oldest of the dead message queue, if that is what it is to do when it is full."""
        queue, (messages, stored_bytes) = self._dead(), self._limits.excess(self._limits.dead)
        if queue is None or queue.record.over_limit != "oldest":
            return []
        (subscription,) = queue.subscriptions
        parts: list[Range] = []
        for lane in reversed(queue.log.order):
            stretch = (subscription.cursor_of(lane.number), lane.readable)
            if not parts and stretch[0] < stretch[1]:
                count = messages or _count_of(queue, lane, stretch, stored_bytes)
                parts = _oldest(queue, lane, stretch, count, prefix=messages == 0).get(subscription, [])
        for part in parts:
            subscription.discard(*part, "dropped")
            subscription.dropped += part[1] - part[0]
            self.dropped += part[1] - part[0]
        self._limits.note(queue)
        return [*queue.consuming.save(subscription, PendingWrite()), *self._tell(now)] if parts else []

    def _tell(self, now: float) -> list[Command]:
        """Now and then; the figures are in the status at any time."""
        if now < self._tell_at or self._told == (self.moved, self.dropped):
            return []
        moved, dropped = self.moved - self._told[0], self.dropped - self._told[1]
        self._told, self._tell_at = (self.moved, self.dropped), now + REPORT_S
        settings = self._limits.settings
        limits = f"node_messages_max {settings.node_messages_max:,}, node_bytes_max {settings.node_bytes_max:,}"
        text = f"the node made room ({limits}): {moved:,} of its oldest messages went to _DMQ"
        text += f", which dropped {dropped:,} of its own" if dropped else ""
        return [Report(Level.WARNING, "node-makes-room", text)]


# -- which are the oldest ----------------------------------------------------------------------------


def _first(destination: Destination, *, prefix: bool) -> tuple[Lane, int] | None:
    """Where the oldest begin that can be moved: lane and position."""
    state = destination.state
    for lane in reversed(destination.log.order):
        low = state.needed_from(lane)
        if state.is_queue and not prefix:
            (subscription,) = destination.subscriptions
            free = subscription.first_free(low, lane.readable) if low < lane.readable else None
            if free is not None:
                return lane, free
        elif low < lane.readable and _oldest(destination, lane, (low, low + 1), 1, prefix=True):
            return lane, low
    return None


def _oldest(
    destination: Destination, lane: Lane, asked: Range, count: int, *, prefix: bool
) -> dict[Subscription, list[Range]]:
    """Of the stretch, as many of the oldest as that, by who still waits for them. Of a queue that holds too many those
    that nobody holds. Bytes are only freed from the log's beginning on (`prefix`), and messages of a topic too: there
    all up to the first that somebody holds."""
    low, high = asked
    if destination.state.is_queue and not prefix:
        (subscription,) = destination.subscriptions
        found: list[Range] = []
        for start, end in subscription.free_in(low, high):
            if count > 0:
                found.append((start, min(end, start + count)))
                count -= found[-1][1] - start
        return {subscription: found} if found else {}
    high = min(high, low + count)
    waiting: list[tuple[Subscription, int]] = []
    for subscription in destination.subscriptions:
        cursor = max(low, subscription.cursor_of(lane.number))
        if cursor < high and not subscription.is_idle_in(lane.number):
            waiting.append((subscription, cursor))
            if not subscription.buries and not subscription.consumers:
                return {}  # it is cut off, and could not be told
            over = RangeSet([*subscription.free_in(cursor, high), *subscription.settled.overlap(cursor, high)])
            high = min([high, *(start for start, _ in over.gaps(cursor, high))])
    parts = {each: each.free_in(cursor, high) for each, cursor in waiting if cursor < high}
    return {subscription: ranges for subscription, ranges in parts.items() if ranges}


def _count_of(destination: Destination, lane: Lane, asked: Range, wanted_bytes: int) -> int:
    """How many messages of the stretch, from its beginning on, have so many bytes, with the content of streams."""
    low, high = asked
    state = destination.state
    left = state.bytes_from(lane, low) - wanted_bytes
    return bisect_left(range(low, high), True, key=lambda at: state.bytes_from(lane, at + 1) <= left) + 1


def _lost(subscription: Subscription, count: int) -> list[Command]:
    """It is not durable, so nothing of it is in the dead message queue: it is counted, and its consumers are told."""
    subscription.dropped += count
    consumers = subscription.consumers.values()
    return [ToSession(consumer.session, frames.Dropped(consumer.number, count)) for consumer in consumers]


def _unwanted(subscription: Subscription, pieces: list[Piece], ranges: list[Range]) -> RangeSet:
    """What it would not have got: it has a selector, and has not looked yet."""
    found = RangeSet()
    if subscription.accepts is None or subscription.is_live:
        return found
    for piece in pieces:
        if piece.batch is None:
            continue
        base, fields = piece.end - piece.batch.count, BatchFields(piece.batch, names=subscription.names)
        for low, high in ranges:
            for at in range(max(low, base), min(high, piece.end)):
                if not subscription.accepts(fields[at - base], piece.batch.producer):
                    found.add(at, at + 1)
    return found
