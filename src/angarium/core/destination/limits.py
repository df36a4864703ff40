"""How much a destination may hold, and what happens one past it.

    over_limit = "block"    producers are told to stop, and to go on when it has come down to `LOW_SHARE`
                 "refuse"   what is new is refused, message by message
                 "oldest"   the oldest messages that nobody holds go to the dead message queue; of a topic's
                            subscribers only those that still wait for them lose anything
    slow_subscriber = "drop"   of a topic: a subscription that is behind by more loses its oldest messages, counted

What is counted of a queue are its unsettled messages; of a topic, what its slowest subscriber still has to settle.
Bytes are those of the log and of the content of streams. What is not yet due counts where producers are blocked or
refused, and comes into the log whatever the limit is: it was accepted before. Whoever makes room (`oldest`, `drop`)
does so when it comes. What is only retained (`retaining`) has limits of its own, and does not count here.
"""
from collections.abc import Iterable

from angarium.core.destination.delays import Delays
from angarium.core.destination.events import Command, ToSession
from angarium.core.destination.state import DestinationState
from angarium.core.destination.subscription import Subscription
from angarium.core.ranges import Range
from angarium.core.wire import frames

LOW_SHARE = 0.8
CODE = "destination-full"
_REMEDY = "consume from it, or raise the limit with `angarium alter`"


class Limits:
    def __init__(self, state: DestinationState, delays: Delays) -> None:
        self._state = state
        self._delays = delays
        self._is_over = False

    @property
    def is_set(self) -> bool:
        record = self._state.record
        return bool(record.messages_max or record.bytes_max)

    def held(self) -> tuple[int, int]:
        """Messages and bytes in all, what is not yet due included."""
        state, delays = self._state, self._delays
        waiting_bytes = delays.bytes + state.streams.table.waiting_bytes(state.identity)
        return self.count() + delays.count, state.held_bytes() + waiting_bytes

    def durable(self) -> tuple[int, int]:
        """The same without what is on its way to the disk, or to the dead message queue."""
        messages, stored_bytes = self.held()
        if self._state.is_queue:
            (subscription,) = self._state.subscriptions
            messages -= sum(ranges.count for ranges in subscription.doom.sets())
        for lane in self._state.log.order:
            messages -= lane.next - max(lane.readable, lane.first)
            stored_bytes -= self._state.bytes_from(lane, max(lane.readable, lane.first))
        coming, coming_bytes = self._delays.coming()
        return messages - coming, stored_bytes - coming_bytes

    def count(self) -> int:
        """Messages in the log, those on their way to the disk included."""
        log = self._state.log
        if not self._state.is_queue:
            return log.stored_count - self._state.retained_count()
        (subscription,) = self._state.subscriptions
        unsettled = sum(max(0, lane.next - subscription.cursor_of(lane.number)) for lane in log.order)
        return unsettled - subscription.settled.count

    def room(self) -> int:
        """How many more messages fit; for those who refuse."""
        record = self._state.record
        count, stored_bytes = self.held()
        if record.bytes_max and stored_bytes >= record.bytes_max:
            return 0
        return max(0, record.messages_max - count - self._state.reserved) if record.messages_max else 1 << 62

    def refuses(self) -> bool:
        return self.is_set and self._state.record.over_limit == "refuse"

    def reason(self) -> str:
        """Why nothing more fits; empty if something does."""
        record = self._state.record
        share = LOW_SHARE if self._is_over else 1.0
        count, stored_bytes = self.held()
        later = f" ({self._delays.count:,} of its messages are not yet due)" if self._delays.count else ""
        if record.messages_max and count > record.messages_max * share - (share == 1.0):
            self._is_over = True
            limit = f"messages_max is {record.messages_max:,}"
            return f"{record.name!r} holds {count:,} messages{later}, and {limit}; {_REMEDY}"
        if record.bytes_max and stored_bytes > record.bytes_max * share - (share == 1.0):
            self._is_over = True
            limit = f"bytes_max is {record.bytes_max:,}"
            return f"{record.name!r} holds {stored_bytes:,} bytes{later}, and {limit}; {_REMEDY}"
        self._is_over = False
        return ""

    # -- making room -------------------------------------------------------------------------------

    def doom_oldest(self, subscriptions: Iterable[Subscription]) -> list[Subscription]:
        """Of these, doom as many of the oldest free messages as are too many; returns who has to be pumped. Too many
        for what is durable: what is on its way to the disk may never get there. So after a crash the same ones are too
        many again, unless a session that survived it settles what it was given in their stead: then they live, and come
        late (docs/guarantees.md)."""
        lanes = self._state.log.order
        coming = sum(lane.next - lane.readable for lane in lanes)
        coming_bytes = sum(self._state.bytes_from(lane, lane.readable) for lane in lanes)
        stored = self._state.log.stored_count - self._state.retained_count() - coming
        count, stored_bytes = self.count() - coming, self._state.held_bytes() - coming_bytes
        if self._state.is_queue:
            excess = self._excess(count, _share(stored_bytes, count, stored), count)
        else:
            excess = self._excess(count, stored_bytes, stored)
        touched: list[Subscription] = []
        ends = {} if self._state.is_queue else self._ends_of_oldest(excess)
        for subscription in subscriptions if excess else ():
            if self._state.is_queue:
                # What is doomed already still counts until it is buried.
                doomed = sum(ranges.count for ranges in subscription.doom.sets())
                parts = self._oldest_free(subscription, excess - doomed)
            else:
                parts = [part for number, end in ends.items() for part in self._free_below(subscription, number, end)]
            for part in parts:
                subscription.doom_free("limit-exceeded", *part)
            if parts:
                touched.append(subscription)
        return touched

    def drop_behind(self, subscriptions: Iterable[Subscription]) -> tuple[list[Subscription], list[Command]]:
        """Of each of these that is too far behind, drop the oldest; returns who lost something, and the notices."""
        touched: list[Subscription] = []
        notices: list[Command] = []
        for subscription in subscriptions:
            waiting = subscription.waiting_count(self._state.log)
            between = waiting + subscription.settled.count
            excess = self._excess(waiting, _share(self._bytes_behind(subscription), waiting, between), waiting)
            parts = self._oldest_free(subscription, excess) if excess else []
            dropped = sum(high - low for low, high in parts)
            if not dropped:
                continue
            for part in parts:
                subscription.discard(*part, "dropped")
            subscription.dropped += dropped
            touched.append(subscription)
            for consumer in subscription.consumers.values():
                notices.append(ToSession(consumer.session, frames.Dropped(consumer.number, dropped)))
        return touched, notices

    def _bytes_behind(self, subscription: Subscription) -> int:
        """What it still has to settle, and what lies between."""
        lanes = self._state.log.order
        return sum(self._state.bytes_from(lane, subscription.cursor_of(lane.number)) for lane in lanes)

    def _excess(self, count: int, stored_bytes: int, stored: int) -> int:
        record = self._state.record
        over = count - record.messages_max if record.messages_max else 0
        if record.bytes_max and stored_bytes > record.bytes_max:
            over = max(over, -(-(stored_bytes - record.bytes_max) * stored // stored_bytes))
        return max(0, over)

    def _ends_of_oldest(self, count: int) -> dict[int, int]:
        """By lane, the position below which lie the oldest `count` that a topic still has to keep. Whoever is past it
        is not why they are kept, and loses nothing. The least urgent lanes first."""
        ends: dict[int, int] = {}
        for lane in reversed(self._state.log.order):
            kept_from = self._state.subscriptions.slowest_cursor(lane)
            if kept_from is not None and count > 0:
                ends[lane.number] = min(lane.readable, kept_from + count)
                count -= max(0, ends[lane.number] - kept_from)
        return ends

    def _free_below(self, subscription: Subscription, number: int, end: int) -> list[Range]:
        cursor = subscription.cursor_of(number)
        return subscription.free_in(cursor, end) if cursor < end else []

    def _oldest_free(self, subscription: Subscription, count: int) -> list[Range]:
        """The least urgent lanes first: what is urgent is dropped last."""
        found: list[Range] = []
        for lane in reversed(self._state.log.order):
            for low, high in subscription.free_in(subscription.cursor_of(lane.number), lane.readable):
                if count <= 0:
                    return found
                found.append((low, min(high, low + count)))
                count -= found[-1][1] - low
        return found


def _share(stored_bytes: int, count: int, stored: int) -> int:
    """The bytes of those that are not settled. What is settled behind a message that somebody holds stays stored until
    that is settled, too: were it counted, all that is free would die, and make no room."""
    return stored_bytes if count >= stored else stored_bytes * count // stored
