"""From the log to the consumers: what to read next, and what to do with what was read.

    arrived (durable, still in memory) ----------------------+
    pump: the next wanted position --> Read --> BatchesRead -+--> deliver --> Deliver frames
                                                             +--> deaths  --> dead message queue
                                                             +--> damage  --> set aside

A subscription with a selector on a topic is *live* once it has looked at everything stored: then an index over all
selectors says which of them a message concerns, and nobody else does anything. One that lags behind looks for
itself, batch by batch.
"""
from collections.abc import Callable

from angarium.core.destination.consumer import Consumer
from angarium.core.destination.delivery import (
    Damage,
    Death,
    Delivery,
    Piece,
    deliver,
    deliver_fresh,
    without_expired,
)
from angarium.core.destination.events import BatchesRead, Command, Level, Read, Report, StoredBatch, ToSession
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.log import Lane, LogField, lane_of, log_put
from angarium.core.destination.pending import Arrival, PendingRead, PendingWrite
from angarium.core.destination.selecting import HEAVY, LIGHT, compiled, names_of, parsed, portion
from angarium.core.destination.state import DestinationState
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.wanting import wanted
from angarium.core.destination.windows import LastValues
from angarium.core.ranges import Range, RangeSet
from angarium.core.selector.fields import Fields
from angarium.core.selector.index import SelectorIndex
from angarium.core.storage import Operation, Put, Table, delete_key, position_key
from angarium.core.wire.batch import Batch


class Dispatch:
    def __init__(self, state: DestinationState, last_values: LastValues) -> None:
        self._state = state
        self._last_values = last_values
        self._log = state.log
        self._index: SelectorIndex[str] = SelectorIndex()  # names of the live subscriptions
        self._live: dict[str, Subscription] = {}
        # What is too much goes before anything is delivered, of one subscription alone: a topic may have many.
        self.make_room: Callable[[Subscription], list[Command]] = lambda _: []

    # -- subscriptions with a selector -------------------------------------------------------------

    def prepare(self, subscription: Subscription) -> None:
        """A subscription has come: from now on it knows what it accepts."""
        self.follow_options(subscription)
        if not subscription.selector and not subscription.no_local:
            return
        selector = compiled(subscription.selector)
        match = None if selector is None else selector.match
        subscription.names = names_of(subscription.selector)
        subscription.weight += 0 if selector is None else selector.weight
        subscription.is_large = selector is not None and selector.is_large
        client_of = self._state.producers.client_of

        def accepts(fields: Fields, producer: bytes) -> bool:
            no_local = subscription.no_local
            return (match is None or match(fields)) and not (no_local and client_of(producer).hex() == no_local)

        subscription.accepts = accepts
        self._go_live_if_level(subscription)

    def follow_options(self, subscription: Subscription) -> None:
        record = self._state.record
        subscription.redeliveries_max = record.redeliveries_max
        subscription.buries = subscription.durable and record.buries

    def _go_live_if_level(self, subscription: Subscription) -> None:
        if subscription.accepts is None or subscription.is_live or subscription.weight > HEAVY:
            return
        if subscription.is_large:  # to put it into the index would keep others waiting
            return
        # What was returned by a restart has not been looked at yet.
        level = all(subscription.fresh_of(lane.number) >= lane.readable for lane in self._log.order)
        if subscription.parking.orphaned or subscription.returned or not level:
            return
        subscription.is_live, subscription.live_beyond = True, self._log.readable_count
        self._live[subscription.name] = subscription
        self._index.add(subscription.name, parsed(subscription.selector))

    def at_once(self) -> int:
        """How many messages all of them may be asked about, who have not looked yet, before others have their turn."""
        return portion(sum(each.weight for each in self._state.subscriptions if each.accepts and not each.is_live))

    def forget(self, subscription: Subscription) -> None:
        if self._live.pop(subscription.name, None) is not None:
            self._index.remove(subscription.name)

    # -- what has just become durable --------------------------------------------------------------

    def arrived(self, arrivals: list[Arrival], *, now: float) -> list[Command]:
        commands: list[Command] = []
        for arrival in arrivals:
            lane, start = arrival.lane, arrival.lane.readable
            lane.readable = max(start, arrival.end)
            if arrival.batch is not None:
                if self._state.trace is not None:
                    batch, sender = arrival.batch, self._state.producers.find(arrival.batch.producer)
                    session = None if sender is None else sender.session
                    self._state.trace.confirmed(arrival.end - batch.count, batch, session)
                commands += self._hand_out(lane, arrival.end, arrival.batch, now)
        return commands

    def _hand_out(self, lane: Lane, end: int, batch: Batch, now: float) -> list[Command]:
        record, sole = self._state.record, self._state.subscriptions.sole
        is_limited = record.messages_max or record.bytes_max or record.last_value
        if sole is not None and len(self._log.order) == 1 and not is_limited:
            given = deliver_fresh(sole, lane.number, end, batch)
            if given is not None:
                return self._delivered_fresh(sole, *given, batch.count, now)
        commands: list[Command] = []
        piece, base = [Piece(end, batch)], end - batch.count
        if self._live:
            for subscription in self._offer(batch, base):
                commands += self._delivered(subscription, piece, (base, end), now)
        for subscription in list(self._state.subscriptions) if len(self._live) < len(self._state.subscriptions) else ():
            if subscription.is_live:
                continue
            is_light = subscription.weight <= HEAVY  # else it is read when it is its turn: there may be many such
            if is_light and not subscription.reading and wanted(subscription, self._log) == base:
                commands += self._delivered(subscription, piece, (base, end), now)
            else:
                commands += self.pump(subscription)
        return commands

    def _delivered_fresh(
        self, subscription: Subscription, consumer: Consumer, delivery: ToSession, count: int, now: float
    ) -> list[Command]:
        """What `_delivered` does afterwards; nothing else is free, so that there is nothing to read."""
        if consumer.held_since is None:
            consumer.held_since = now
        self._state.counters.messages_out += count
        if self._state.trace is not None:
            self._state.trace.delivered(subscription.name, [delivery])
        if subscription.durable:
            subscription.is_noted = False
            self._note_later(subscription)
        return [delivery]

    def _offer(self, batch: Batch, base: int) -> list[Subscription]:
        """Tell the live subscriptions what concerns them; returns those that can be served from the batch at once."""
        matches = self._index.match_batch(BatchFields(batch, names=self._index.names).all())
        client = self._state.producers.client_of(batch.producer).hex()
        offered: dict[str, RangeSet] = {}
        for index, names in enumerate(matches):
            for name in names:
                offered.setdefault(name, RangeSet()).add(base + index, base + index + 1)
        served: list[Subscription] = []
        for name, positions in offered.items():
            subscription = self._live[name]
            if subscription.no_local and subscription.no_local == client:
                continue
            was_idle = [subscription.offer(low, high) for low, high in positions]
            if any(was_idle):
                self._state.subscriptions.note_unsettled(subscription, base)
            if not subscription.reading and not subscription.is_pausing:
                served.append(subscription)
        return served

    # -- reading -----------------------------------------------------------------------------------

    def pump(self, subscription: Subscription) -> list[Command]:
        """Ask for what the subscription could deliver next, unless that is under way already."""
        record = self._state.record
        commands = self.make_room(subscription) if record.messages_max or record.bytes_max else []
        if subscription.doom:
            commands += self._read_doomed(subscription)
        if subscription.reading:
            return commands
        position = wanted(subscription, self._log)
        if position is not None:
            subscription.reading = True
            commands.append(self._read(subscription, position))
        return commands

    def _read(self, subscription: Subscription, position: int, *, burying: bool = False) -> Read:
        state, readable = self._state, self._log.lanes[lane_of(position)].readable
        token = state.read_token(PendingRead(state.identity, subscription.name, position, readable, burying))
        return Read(token, state.identity, position, state.settings.read_bytes_max, readable)

    def batches_read(self, asked: PendingRead, event: BatchesRead, *, now: float) -> list[Command]:
        subscription = self._state.subscriptions.get(asked.subscription)
        if subscription is None:
            return []
        pieces = [
            Piece(stored.end, Batch.trusted(stored.data)) if isinstance(stored, StoredBatch)
            else Piece(stored.end, None, stored.raw)
            for stored in event.batches
        ]  # fmt: skip
        if asked.burying:
            subscription.burying = False
            return self.bury(subscription, pieces, (asked.position, asked.end), PendingWrite(), now=now)
        subscription.reading = False
        subscription.reads += 1
        if subscription.is_pausing:
            return []
        if not subscription.looks:  # else `deliver` keeps the order of each consumer
            first = wanted(subscription, self._log)
            if first is not None and first < asked.position and lane_of(first) == lane_of(asked.position):
                return self.pump(subscription)  # it was given back meanwhile, perhaps with some of what was read
        commands = self._delivered(subscription, pieces, (asked.position, asked.end), now)
        self._go_live_if_level(subscription)
        return commands

    def _is_superseded(self, headers: bytes, position: int) -> bool:
        later = self._last_values.later(headers, position)
        if later is None:
            return False
        lane = self._log.lanes[lane_of(later)]
        return lane.first <= later < lane.readable  # what is not durable yet supersedes nothing

    def _delivered(
        self, subscription: Subscription, pieces: list[Piece], asked: Range, now: float
    ) -> list[Command]:
        state = self._state
        if subscription.weight > LIGHT and not subscription.is_live:
            # The rest is read again, when it is its turn.
            asked = (asked[0], min(asked[1], asked[0] + portion(subscription.weight)))
            pieces = [piece for piece in pieces if piece.batch is None or piece.end - piece.batch.count < asked[1]]
        is_superseded = self._is_superseded if state.record.last_value else None
        result = deliver(subscription, pieces, asked, wall_ms=state.wall_ms(now), is_superseded=is_superseded)
        commands: list[Command] = list(result.deliveries)
        for consumer in result.consumers:
            consumer.held_since = now if consumer.held_since is None else consumer.held_since
        state.counters.messages_out += result.delivered
        if state.trace is not None:
            state.trace.delivered(subscription.name, result.deliveries)
        for damage in result.damaged:
            commands += self.set_aside(damage)
        commands += self._saved(subscription, result, now)
        return commands + self.pump(subscription)

    def _saved(self, subscription: Subscription, result: Delivery, now: float) -> list[Command]:
        state = self._state
        if result.deaths:
            state.counters.expired += sum(high - low for death in result.deaths for low, high in death.positions)
            return self._buried(subscription, result.deaths, now)
        if result.changed:
            operations = state.saved(subscription)
            return [state.write(operations, PendingWrite(), freeing=True, patient=True)] if operations else []
        if result.delivered and subscription.durable:
            subscription.is_noted = False
            self._note_later(subscription)
        return []

    def expire(self, pieces: list[Piece], looked: Range, *, now: float) -> list[Command]:
        """Of what was read of the stretch, settle and bury what has expired and nobody holds."""
        wall_ms, lane = self._state.wall_ms(now), self._log.lane_at(looked[0])
        low, high = max(looked[0], lane.first), min(looked[1], lane.readable)
        over = [
            (piece.batch, piece.end - piece.batch.count) for piece in pieces
            if piece.batch is not None and any(0 < ms <= wall_ms for ms in piece.batch.expiries_ms() or ())
        ]  # fmt: skip
        commands: list[Command] = []
        for subscription in list(self._state.subscriptions) if over else ():
            result = Delivery()
            for batch, base in over:
                if subscription.room() > 0:
                    free = subscription.free_in(max(base, low), min(base + batch.count, high))
                    without_expired(subscription, batch, base, free, wall_ms, result)
            if result.changed:
                commands += self._saved(subscription, result, now)
        return commands

    def _note_later(self, subscription: Subscription) -> None:
        if not subscription.noting:
            subscription.noting = True
            self._state.note_later(subscription)

    def note(self, subscription: Subscription) -> list[Command]:
        """Its moment has come. One such write at a time is enough, and it rides along with the next publish."""
        if subscription.is_noted:  # by what was settled since
            subscription.noting = False
            return []
        operations = self._state.saved(subscription)
        return [self._state.write(operations, PendingWrite(noted=subscription), freeing=True, patient=True)]

    def noted(self, subscription: Subscription) -> None:
        """That write is done. What was delivered since has to be noted too, or it never is on a quiet destination."""
        subscription.noting = False
        if not subscription.is_noted and self._state.subscriptions.get(subscription.name) is subscription:
            self._note_later(subscription)

    # -- the dead ----------------------------------------------------------------------------------

    def bury_restored(self) -> list[Command]:
        """After a start: what was doomed and not yet buried does not wait for a consumer."""
        return [command for s in self._state.subscriptions if s.doom for command in self._read_doomed(s)]

    def _read_doomed(self, subscription: Subscription) -> list[Command]:
        position = subscription.doom.first()
        if position is None or subscription.burying:
            return []
        subscription.burying = True
        return [self._read(subscription, position, burying=True)]

    def bury(
        self, subscription: Subscription, pieces: list[Piece], asked: Range, pending: PendingWrite, *, now: float
    ) -> list[Command]:
        """What is doomed of the pieces moves to the dead message queue; what is damaged is set aside."""
        deaths: list[Death] = []
        unreadable: list[Damage] = []
        at = asked[0]
        for piece in pieces:
            base = at if piece.batch is None else piece.end - piece.batch.count
            unreadable += _missing(subscription, at, base)
            for reason, part, counts in subscription.entomb(base, piece.end):
                if piece.batch is not None:
                    deaths.append(Death(reason, piece.batch, base, [part], counts))
                else:
                    unreadable.append(Damage([part], piece.end, piece.raw))
            at = piece.end
        if not pieces:
            unreadable += _missing(subscription, *asked)
        commands = self._buried(subscription, deaths, now, pending)
        for damage in unreadable:
            commands += self.set_aside(damage)
        return commands + self.pump(subscription)

    def _buried(
        self, subscription: Subscription, deaths: list[Death], now: float, pending: PendingWrite | None = None
    ) -> list[Command]:
        """One write: they are in the dead message queue, and settled here."""
        state, pending = self._state, pending or PendingWrite()
        operations: list[Operation] = []
        if subscription.buries and state.bury is not None:
            for death in deaths:
                state.counters.dead += sum(high - low for low, high in death.positions)
                operations += state.bury(state, subscription, death, pending, state.wall_ms(now))
        operations += state.saved(subscription)
        # Of the class of all writes of subscriptions: they have to keep their order, also on a full disk.
        if operations:
            return [state.write(operations, pending, freeing=True)]
        return [] if pending.follows is None else pending.follows(now)

    def set_aside(self, damage: Damage) -> list[Command]:
        """What cannot be read is kept apart, skipped by every subscription, and reported."""
        state = self._state
        state.counters.damaged += sum(high - low for low, high in damage.positions)
        operations: list[Operation] = [log_put(state.identity, LogField.DAMAGED, state.counters.damaged)]
        if damage.end:
            key = position_key(state.identity, damage.end)
            operations += [Put(Table.DAMAGED, key, damage.raw), delete_key(Table.BATCH, key)]
        for subscription in state.subscriptions:
            for low, high in damage.positions:
                for part in subscription.free_in(low, high):
                    subscription.discard(*part, "damaged")
            if subscription.durable:
                operations += state.subscription_puts(subscription)
        operations += state.trim()
        commands: list[Command] = [state.write(operations, PendingWrite(), freeing=True)]
        for low, high in damage.positions:
            text = f"{state.record.name!r}: positions {low} to {high - 1} fail their checksum or are missing: set aside"
            commands.append(Report(Level.ERROR, "batch-damaged", text))
        return commands


def _missing(subscription: Subscription, low: int, high: int) -> list[Damage]:
    """What is doomed there, and not stored as it ought to be."""
    return [Damage([part], 0, b"") for _, part, _ in subscription.entomb(low, high)]
