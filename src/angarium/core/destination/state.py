"""What the parts of one destination share: its log, who uses it, and how its writes are made."""
from collections.abc import Callable

from angarium.core.destination.consumer import Consumer, ConsumerKey
from angarium.core.destination.delivery import Death
from angarium.core.destination.events import Command, DestinationSettings, Write
from angarium.core.destination.log import Lane, Log, lane_of
from angarium.core.destination.log_readers import LogReaders
from angarium.core.destination.pages import delete_pages
from angarium.core.destination.pending import PendingDelayed, PendingRead, PendingRoom, PendingSweep, PendingWrite
from angarium.core.destination.producers import ProducerTable
from angarium.core.destination.records import Counters, DestinationRecord, attached_key
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.subscription_record import changed_pages, recorded
from angarium.core.destination.subscriptions import Subscriptions
from angarium.core.destination.tracing import DestinationTrace
from angarium.core.ranges import RangeSet
from angarium.core.storage import Operation, Put, Table, delete_key, key_of
from angarium.core.stream.streams import Streams
from angarium.core.wire.frames import DestinationKind

# Move what died to the dead message queue: what to write, beside that it is settled here.
Bury = Callable[["DestinationState", Subscription, Death, PendingWrite, int], list[Operation]]


class DestinationState:
    def __init__(
        self,
        identity: int,
        record: DestinationRecord,
        settings: DestinationSettings,
        *,
        write_token: Callable[[PendingWrite], int],
        read_token: Callable[[PendingRead | PendingDelayed | PendingSweep | PendingRoom], int],
        streams: Streams,
        wall_ms_at_zero: float,
    ) -> None:
        self.identity = identity
        self.record = record
        self.settings = settings
        self.log = Log(identity)
        self.log_readers = LogReaders()
        self.subscriptions = Subscriptions(
            record.kind, self.log,
            subscriptions_max=settings.subscriptions_max, in_flight_max=settings.in_flight_max,
            holes_max=settings.holes_max,
        )  # fmt: skip
        self.consumers: dict[ConsumerKey, Consumer] = {}
        self.producers = ProducerTable(producers_max=settings.producers_max)
        self.counters = Counters()
        self.keep_until = 0.0  # a topic keeps its log until its subscribers had time to resume, or to come
        self.reserved = 0  # messages that prepared transactions will send here, if they are committed
        self.bury: Bury | None = None
        self.trace: DestinationTrace | None = None  # what becomes of its messages is noted
        self.note_expiring: Callable[[], None] = lambda: None  # something that expires is in the log
        self.note_later: Callable[[Subscription], None] = lambda _: None  # how far it has delivered
        self.read_token = read_token
        self.write_token = write_token
        self.streams = streams
        self.wall_ms_at_zero = wall_ms_at_zero

    @property
    def log_identity(self) -> int:
        """By which readers know the log: it stays the same when the destination is moved to another replica group."""
        return self.record.first_identity or self.identity

    @property
    def is_queue(self) -> bool:
        return self.record.kind == DestinationKind.QUEUE

    def wall_ms(self, now: float) -> int:
        return int(self.wall_ms_at_zero + now * 1000)

    def monotonic(self, wall_ms: int) -> float:
        return (wall_ms - self.wall_ms_at_zero) / 1000

    # -- writes --------------------------------------------------------------------------------------

    def write(
        self, operations: list[Operation], pending: PendingWrite, *, freeing: bool = False, patient: bool = False
    ) -> Write:
        pending.destination = self.identity
        return Write(self.write_token(pending), operations, freeing, patient)

    def freed(self) -> list[Command]:
        """Free what nobody needs any more, in a write of its own."""
        operations = self.trim()
        return [self.write(operations, PendingWrite(), freeing=True)] if operations else []

    def trim(self) -> list[Operation]:
        """Free what no subscription needs any more, unless it is retained: then it goes in time (`retaining`)."""
        return [] if self.record.retains else self.trim_to(lambda lane: lane.next)

    def trim_to(self, floor: Callable[[Lane], int]) -> list[Operation]:
        """Free what no subscription needs any more, of each lane no further than to its floor."""
        if self.keep_until:
            return []
        operations: list[Operation] = []
        for lane in self.log.order:
            operations += self.log.trim(lane, min(self.needed_from(lane), floor(lane)))
            operations += self.streams.release_all(self.identity, lane.base, lane.first)
        return operations

    def needed_from(self, lane: Lane) -> int:
        """What lies below is settled everywhere."""
        slowest = self.subscriptions.slowest_cursor(lane)
        return lane.readable if slowest is None else slowest

    def retained_count(self) -> int:
        """Messages that are stored for those who read the log alone."""
        return sum(max(0, self.needed_from(lane) - lane.first) for lane in self.log.order) if self.record.retains else 0

    def held_bytes(self) -> int:
        """What is stored in the log, with the content of its streams, but for what is retained."""
        if not self.record.retains:
            return self.log.stored_bytes + self.streams.table.log_bytes(self.identity)
        return sum(self.bytes_from(lane, self.needed_from(lane)) for lane in self.log.order)

    def bytes_from(self, lane: Lane, position: int) -> int:
        """The same from a position of a lane on, retained or not."""
        streamed = self.streams.table.bytes_between(self.identity, position, lane.end)
        return lane.gauge.total_from(position) + streamed

    def is_needed(self, position: int) -> bool:
        """Some subscription has not settled it, or may come that has not; or it is retained."""
        lane = lane_of(position)
        return bool(self.keep_until) or self.record.retains or any(
            position >= subscription.cursor_of(lane) and position not in subscription.settled
            for subscription in self.subscriptions
        )

    def unsettled_in(self, low: int, high: int) -> RangeSet:
        """What of [low, high), which lies in one lane, some subscription has not settled, or may come that has not."""
        if self.keep_until:
            return RangeSet([(low, high)])
        lane, found = lane_of(low), RangeSet()
        for subscription in self.subscriptions:
            end = min(high, subscription.fresh_of(lane)) if subscription.is_live else high
            for part in subscription.settled.gaps(max(low, subscription.cursor_of(lane)), end):
                found.add(*part)
        return found

    def saved(self, subscription: Subscription, *, freeing: bool = True) -> list[Operation]:
        """Store the subscription, and free what it was the last to need. `freeing`: as the write will be."""
        puts = self.subscription_puts(subscription, freeing=freeing) if subscription.durable else []
        return puts + self.trim()

    def subscription_key(self, subscription: Subscription) -> bytes:
        return key_of(self.identity, subscription.name.encode())

    def subscription_puts(self, subscription: Subscription, *, freeing: bool = True) -> list[Operation]:
        """Its record, the pages that have changed, and the traces of that: all of it is to be written, in one write."""
        key = self.subscription_key(subscription)
        put = Put(Table.SUBSCRIPTION, key, recorded(subscription))
        subscription.is_noted = True
        traced = [] if self.trace is None else self.trace.flush(freeing=freeing)
        return [put, *changed_pages(subscription, self.identity), *traced]

    def subscription_deletes(self, subscription: Subscription) -> list[Operation]:
        key = self.subscription_key(subscription)
        traced = [] if self.trace is None else self.trace.flush(freeing=True)
        return [delete_key(Table.SUBSCRIPTION, key), delete_pages(self.identity, subscription.name), *traced]

    def attached_put(self, consumer: Consumer) -> Operation:
        key = attached_key(self.identity, consumer.key, consumer.subscription.name)
        return Put(Table.ATTACHED, key, consumer.recovered.to_bytes(8, "big") if consumer.recovered else b"")

    def detached(self, subscription: Subscription, keys: list[ConsumerKey]) -> list[Operation]:
        if not subscription.durable:
            return []
        return [delete_key(Table.ATTACHED, attached_key(self.identity, key, subscription.name)) for key in keys]
