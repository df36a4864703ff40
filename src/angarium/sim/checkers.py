"""The ledger: what was promised, compared with what happens, as it happens and at the end.

`Messages` and `Holdings` object on the spot; this module connects them to the broker and the applications, and says at
the end what is missing:
- every confirmed message was settled by an application, on its queue and on every durable subscription that was open
  when it was published, and arrived at every other subscriber that was never away for the grace time. Excepted are
  messages that have expired, and those in a damaged batch that the broker has reported;
- nothing is left over in the broker: logs are trimmed, nothing is pending, nobody is remembered for nothing.
"""
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sized

import msgspec

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import FromSession, Level, Report, ToSession
from angarium.core.destination.records import DestinationRecord
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.names import TRACE_PREFIX
from angarium.core.ranges import Range
from angarium.core.selector.naive import matches
from angarium.core.selector.parser import parse
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Outcome
from angarium.sim.broker import WALL_MS_AT_ZERO, Node
from angarium.sim.clock import Clock
from angarium.sim.delivery_facts import SubscriptionFacts
from angarium.sim.disk import SimDisk
from angarium.sim.holdings import Holdings
from angarium.sim.messages import LogFacts, Messages, ProducerFacts, Violation
from angarium.store.interface import Item

_SET_ASIDE = re.compile(r"'(?P<name>[^']+)': positions (?P<low>\d+) to (?P<high>\d+) ")


class Ledger:
    """The broker's witness."""

    def __init__(self, clock: Clock, *, grace_s: float) -> None:
        self.messages = Messages()
        self.holdings = Holdings(self.messages, grace_s=grace_s)
        self.is_unsynced: Callable[[int], bool] = lambda token: False
        self.last_token: Callable[[], int] = lambda: 0
        self.tally: Counter[str] = Counter()  # what happened how often, for people
        self.expected: set[str] = set()  # what the broker may warn of, in a world where that happens
        self._clock = clock
        self._producers: dict[tuple[bytes, int], tuple[int, bytes]] = {}  # session, number -> destination, identity
        self._commits: dict[tuple[bytes, int], list[tuple[int, list[Range]]]] = {}  # -> consumers, what they settle

    # -- what passes inside the broker ---------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        session, frame = event.session, event.frame
        match frame:
            case frames.Settle():
                self.holdings.settle(session, frame)
            case frames.TransactionCommit():
                self._commits[session, frame.number] = [(number, ranges) for _, number, ranges in frame.settles]
            case frames.ProducerOpen():
                self._producers[session, frame.producer] = (event.destination, frame.identity)
            case frames.ConsumerOpen():
                self.tally["consumers resumed" if frame.resumed else "consumers opened"] += 1
                self.holdings.opening(session, event.destination, frame, self._clock.now)
            case frames.ConsumerClose(number, unsubscribe):
                if unsubscribe:
                    self.holdings.unsubscribe(session, number)
                self.holdings.forget_consumer((session, number))  # its session may be closed, not only it
            case frames.SessionEnded(closed):
                self.holdings.ended(session, event.destination, closed, self._clock.now)

    def from_manager(self, command: ToSession) -> None:
        session, frame = command.session, command.frame
        match frame:
            case frames.Deliver():
                self.tally["redeliveries" if frame.redeliveries else "first deliveries"] += 1
                now = self._clock.now
                wall_ms = int(WALL_MS_AT_ZERO + now * 1000)
                self.holdings.delivered(
                    session, frame, command.payload, now=now, wall_ms=wall_ms, token=self.last_token()
                )
            case frames.Confirm(number, sequence):
                destination, identity = self._producers[session, number]
                self.messages.confirm_leaves(destination, identity, sequence, self._clock.now)
            case frames.Refuse(number, first, last):
                destination, identity = self._producers[session, number]
                self.messages.refusal_leaves(destination, identity, first, last)
            case frames.Dropped(number, count):
                self.tally["told of a loss"] += count
                self.holdings.consumers[session, number].dropped += count
            case frames.Settled():
                self.holdings.settled(session, frame)
            case frames.Committed(number):
                self.tally["commits"] += 1
                self.holdings.committed(session, self._commits[session, number])
            case frames.Aborted():
                self.tally["aborts"] += 1
            case frames.ConsumerClosed():
                self.holdings.closed(session, frame)
            case frames.ConsumerOpened():
                self.tally["positions lost"] += sum(high - low for low, high in frame.lost)
                self.holdings.opened(session, frame, self._clock.now)

    def confirmed_late(self, session: bytes, frame: frames.Confirm) -> None:
        """By a message manager that has been replaced; of producers that it alone knows nothing is asked."""
        destination, identity = self._producers.get((session, frame.producer), (0, b""))
        self.messages.confirmed_late(destination, identity, frame.sequence, self._clock.now)

    def reported(self, report: Report) -> None:
        if report.code == "batch-damaged":
            found = _SET_ASIDE.search(report.text)
            assert found is not None, f"not understood: {report.text}"
            log = self.messages.by_name[found["name"]]
            low, high = int(found["low"]), int(found["high"]) + 1
            sound = [position for position in range(low, high) if position not in log.damaged]
            if sound:
                raise Violation("only damage is set aside", f"{log.name}: {sound} of {low} to {high - 1} were sound")
            log.set_aside.update(range(low, high))
            self.tally["positions damaged"] += high - low
        elif report.code == "disk-blocked":
            self.tally["disk blocked"] += 1
        elif report.code == "stage-dropped":
            self.tally["staged in vain"] += 1
        elif report.code in self.expected:
            self.tally[report.code] += 1
        elif report.level == Level.WARNING:
            raise Violation("the broker accuses nobody who keeps the protocol", report.text)

    def broker_started(self) -> None:
        self.tally["broker starts"] += 1
        self.holdings.broker_started(self._clock.now)

    def broker_stopped(self) -> None:
        self.messages.broker_crashed()
        self.holdings.broker_stopped(self._clock.now, self.is_unsynced)

    # -- what is still missing -----------------------------------------------------------------------

    def unfinished(self) -> Iterator[str]:
        """What keeps the world from being drained; nothing means that all is done."""
        for facts in self.messages.producers:
            if not facts.is_abandoned and facts.confirmed < len(facts.bodies):
                yield f"{facts.destination}: {len(facts.bodies) - facts.confirmed} messages are not confirmed"
        for subscription in self.holdings.subscriptions.values():
            if subscription.is_durable and not subscription.is_ending:
                yield from self._missing(subscription, subscription.opened_at, subscription.finished, "settled")
            yield from self._unburied(subscription)
        for log in self.messages.by_name.values():
            if log.kind == DestinationKind.QUEUE and (log.name, "") not in self.holdings.subscriptions and log.messages:
                yield f"{log.name}: nobody consumes it"
        for key, consumer in self.holdings.consumers.items():
            if not consumer.subscription.is_durable and not consumer.was_away and not consumer.is_gone:
                subscription = consumer.subscription
                found = list(self._missing(subscription, consumer.ready_at, subscription.seen, f"seen by {key[1]}"))
                yield from found if len(found) > consumer.dropped else ()

    def _unburied(self, subscription: SubscriptionFacts) -> Iterator[str]:
        """What was rejected, and the rejection answered, is in the dead message queue."""
        name = subscription.log.name
        for position, outcome in subscription.settled.items():
            lost = position in subscription.log.damaged or position in subscription.log.set_aside
            buried = (name, subscription.name, position) in self.messages.dead
            if outcome is Outcome.REJECT and subscription.is_durable and not buried and not lost:
                yield f"{name}{subscription.name}: position {position} was rejected and is not buried"

    def _missing(
        self, subscription: SubscriptionFacts, since: float | None, done: Container[int], what: str
    ) -> Iterator[str]:
        log, name = subscription.log, f"{subscription.log.name}{subscription.name}"
        for facts, sequence in self._expected(log, since):
            position = log.positions.get((facts.identity, sequence))
            if sequence in facts.refused or log.has_twin(facts, sequence):
                continue
            if position is None:
                if sequence not in facts.forgiven and not facts.is_staged:
                    yield f"{name}: message {sequence} of {facts.identity.hex()[-6:]} is confirmed and not in the log"
            elif self._is_rightly_dead(subscription, position) or not _is_wanted(subscription, position):
                continue
            elif position not in done and not self._is_excused(log, facts, sequence, position):
                yield f"{name}: position {position} is not {what}"

    def _expected(self, log: LogFacts, since: float | None) -> Iterator[tuple[ProducerFacts, int]]:
        """Confirmed messages that a subscription has to get: on a topic, those published since it was open."""
        if log.kind == DestinationKind.QUEUE:
            since = -1.0
        if since is None:
            return
        for facts in self.messages.producers:
            if facts.destination == log.name:
                for sequence in range(1, facts.confirmed + 1):
                    if facts.published_at[sequence - 1] > since:
                        yield facts, sequence

    def _is_rightly_dead(self, subscription: SubscriptionFacts, position: int) -> bool:
        reason = self.messages.dead.get((subscription.log.name, subscription.name, position))
        return (
            (reason == "limit-exceeded" and subscription.log.over_limit == "oldest")
            or (reason == "redelivery-limit" and subscription.log.redeliveries_max > 0)
            or (reason == "node-limit" and "node-makes-room" in self.expected)
        )

    def _is_excused(self, log: LogFacts, facts: ProducerFacts, sequence: int, position: int) -> bool:
        expiry_ms = facts.expiries_ms[sequence - 1]
        if 0 < expiry_ms <= WALL_MS_AT_ZERO + self._clock.now * 1000:
            return True
        return position in log.damaged and position in log.set_aside


def _is_wanted(subscription: SubscriptionFacts, position: int) -> bool:
    selector = parse(subscription.selector)
    return selector is None or matches(selector, subscription.log.fields.get(position, {}))


def left_in_memory(node: Node) -> Iterator[str]:
    """What a broker still remembers after everything is settled and every client has gone. Reads private tables."""
    manager, client_manager = node.message_manager, node.client_manager
    tables: dict[str, Sized] = {
        "writes": manager._writes, "reads": manager._reads, "timed": manager._timed,
        "connections": client_manager._connections, "sessions": client_manager._sessions,
        "detached sessions": client_manager._detached,
    }  # fmt: skip
    yield from (f"{name}: {len(table)} left" for name, table in tables.items() if table)
    streams = manager.streams
    if any(counts := (len(streams.table), streams.open_count, streams.reader_count)):
        yield f"streams held, written and read: {counts}"
    for destination in manager.destinations.values():
        if _is_kept(destination.record):
            continue
        yield from (f"{destination.record.name}: {what}" for what in left_in(destination))


def left_on_disk(disk: SimDisk, *, producers_max: int) -> Iterator[str]:
    stored = {table: disk.store.scan(table, b"", b"\xff" * 60, limit=10_000) for table in Table}
    records = (item for item in stored[Table.DESTINATION] if isinstance(item, Item))
    graves = {r.key for r in records if _is_kept(msgspec.msgpack.decode(r.value, type=DestinationRecord))}
    if disk.stream_files.blocks:
        yield f"{len(disk.stream_files.blocks)} files of streams left on disk"
    for table in (Table.BATCH, Table.ATTACHED, Table.STREAM, Table.DELAYED, Table.STAGED, Table.STAGE_PART):
        left = [item for item in stored[table] if item.key[:8] not in graves]
        if left:
            yield f"{table.name}: {len(left)} records left on disk"
    if len(stored[Table.PRODUCER]) > producers_max:
        yield f"PRODUCER: {len(stored[Table.PRODUCER])} records on disk, of {producers_max} producers"


def _is_kept(record: DestinationRecord) -> bool:
    """The dead rest in `_DMQ`, and traces are kept for a week."""
    return record.name == DMQ or record.name.startswith(TRACE_PREFIX)


def left_in(destination: Destination) -> Iterator[str]:
    for lane in destination.log.order:
        if not lane.first == lane.readable == lane.next:
            yield f"log has positions {lane.first} to {lane.next}, readable to {lane.readable}"
    if destination.consumers or destination.producers.attached():
        yield "somebody is attached"
    if staged := destination.publishing.staging.count:
        yield f"{staged} messages are staged"
    for subscription in destination.subscriptions:
        if not subscription.durable:
            yield f"{subscription.name} was not durable and is still there"
        sets = (subscription.settled, subscription.returned, subscription.delayed)
        if any(sets) or subscription.parking or subscription.parking.orphaned or subscription.redeliveries.count:
            yield f"subscription {subscription.name!r} holds on to positions"
        for lane in destination.log.order:
            if subscription.is_idle_in(lane.number):
                continue  # it waits only for what it is offered, and stands where that was last
            if (cursor := subscription.cursor_of(lane.number)) != lane.next:
                yield f"subscription {subscription.name!r} stands at {cursor} of {lane.next}"
