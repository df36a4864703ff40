"""Applications that work in transactions: receive from some queues, send what follows from it to others, commit.

A `Trader` commits or rolls back by chance, begins anew after an abort, changes its session now and then. A `Supplier`
gives it work: messages that are due later, some of them twice under one deduplication id; told to wait, it waits.
"""
from collections.abc import Sequence
from itertools import count
from random import Random

import msgspec

from angarium.core.client import events
from angarium.core.client.gathered import Gathered, Options
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire.layout import Columns
from angarium.sim.broker import WALL_MS_AT_ZERO
from angarium.sim.client import SimClient
from angarium.sim.sessions import SimConsumer, SimProducer, SimSession
from angarium.sim.transactions import Attempt, TransactionAudit

_CALM_PREFETCH = 50
_CALM_PAUSE_S = 0.05
_ABORTED_PAUSE_S = 0.1
_BOLD_CHANCE = 0.3


class Trader:
    def __init__(
        self, client: SimClient, chance: Random, audit: TransactionAudit, *, inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:  # fmt: skip
        self.client = client
        self.messages_left = 0
        self.inputs = inputs
        self.outputs = outputs
        self._chance = chance
        self._audit = audit
        self._pause_s_max = chance.choice((0.02, 0.1, 0.6))
        self._rollback_chance = chance.choice((0.05, 0.3))
        self.renew_chance = chance.choice((0.0, 0.03))
        self._delay_chance = chance.choice((0.0, 0.2))
        self._prefetch_max = chance.choice((1, 5, 30))
        self._is_calm = False
        self._boldness = Random(f"boldness of {client.name}")
        self._begin_session()
        client.clock.after(chance.random(), self._work)

    @property
    def is_done(self) -> bool:
        return not self.client.is_alive or self._desk.is_idle

    def calm_down(self) -> None:
        self._is_calm = True
        if self.client.is_alive:
            for consumer in self._desk.consumers:
                consumer.set_prefetch(_CALM_PREFETCH)

    def _begin_session(self) -> None:
        prefetch = self._chance.randint(1, self._prefetch_max)
        self._desk = Desk(self.client, self._audit, self.inputs, self.outputs, prefetch)

    def _work(self) -> None:
        if not self.client.is_alive:
            return
        desk, chance = self._desk, self._chance
        if desk.session.is_ended:
            self._begin_session()
        elif desk.is_idle and desk.is_ready:
            mood = 1.0 if self._is_calm else chance.random()
            if desk.was_aborted or mood < self._rollback_chance:
                desk.roll_back(chance)
            elif mood < self._rollback_chance + self.renew_chance:
                desk.session.close(timeout_s=chance.choice((0.05, 1.0)))
                self._begin_session()
            else:
                self._trade()
                if not self._is_calm and chance.random() < self.renew_chance:  # with the commit under way
                    desk.session.close(timeout_s=chance.choice((0.05, 1.0, 10.0)))
                    self._begin_session()
        pause_s = _CALM_PAUSE_S if self._is_calm else self._pause_s_max
        self.client.clock.after(chance.random() * pause_s + (_ABORTED_PAUSE_S if desk.was_aborted else 0), self._work)

    def _trade(self) -> None:
        chance = self._chance
        taken = [(consumer, self._some(consumer)) for consumer in self._desk.consumers]
        taken = [(consumer, ranges) for consumer, ranges in taken if ranges]
        if not taken and (self._is_calm or chance.random() < 0.8):
            return
        sent = [
            (producer, chance.randint(1, 3))
            for producer in self._desk.producers
            if (not producer.is_blocked or self._is_bold()) and chance.random() < 0.7
        ]
        if taken or sent:
            delay_ms = chance.choice((50, 1_000)) if chance.random() < self._delay_chance else 0
            self._desk.commit(taken, sent, delay_ms=delay_ms)

    def _is_bold(self) -> bool:
        """It sends to a queue that takes no more: its commit has to wait."""
        return not self._is_calm and self._boldness.random() < _BOLD_CHANCE

    def _some(self, consumer: SimConsumer) -> list[Range]:
        """The first so many of what is in hands."""
        wanted, found = self._chance.randint(1, 10), RangeSet()
        for low, high in consumer.in_hands:
            if found.count < wanted:
                found.add(low, min(high, low + wanted - found.count))
        return list(found)


class Desk:
    """One transacted session: at most one commit or recovery at a time."""

    def __init__(
        self, client: SimClient, audit: TransactionAudit, inputs: Sequence[str], outputs: Sequence[str], prefetch: int
    ) -> None:
        self.session: SimSession = client.open_session(transacted=True)
        self.session.on_notice = self._told
        self.consumers = [self.session.consume(name, prefetch=prefetch) for name in inputs]
        self.producers = [self.session.produce(name) for name in outputs]
        self.was_aborted = False  # and nothing given back yet
        self._client = client
        self._audit = audit
        self._attempt: Attempt | None = None
        self._settles: list[tuple[SimConsumer, list[Range]]] = []
        self._sends: list[tuple[SimProducer, int]] = []
        self._recovering: set[int] = set()

    @property
    def is_idle(self) -> bool:
        return self.session.is_ended or (self._attempt is None and not self._recovering)

    @property
    def is_ready(self) -> bool:
        return bool(self.session.identity) and all(consumer.is_open for consumer in self.consumers)

    def commit(
        self, taken: list[tuple[SimConsumer, list[Range]]], sent: list[tuple[SimProducer, int]], *, delay_ms: int
    ) -> None:
        attempt = self._attempt = self._audit.begin(self.session.identity)
        holdings = self._client.ledger.holdings
        for consumer, ranges in taken:
            holdings.committing(consumer.key, ranges)
            for low, high in ranges:
                attempt.inputs.update((consumer.destination, position) for position in range(low, high))
                consumer.in_hands.remove(low, high)
        publishes: list[tuple[int, list[Gathered]]] = []
        for producer, number in sent:
            bodies = [b"%b:%b:%d" % (attempt.label, producer.destination.encode(), n) for n in range(number)]
            attempt.outputs.update(bodies)
            now_ms = int(WALL_MS_AT_ZERO + self._client.clock.now * 1000)
            options = [Options(due_ms=now_ms + delay_ms) if delay_ms and n == 0 else None for n in range(number)]
            publishes.append((producer.number, [producer.gather(list(zip(bodies, options, strict=True)))]))
        self._settles, self._sends = taken, sent
        self._client.say(f"commits {attempt.label!r}: {sorted(attempt.inputs)} to {len(attempt.outputs)} messages")
        settles = [(consumer.number, ranges) for consumer, ranges in taken]
        self._client.handle(events.Commit(self.session.number, publishes, settles))

    def roll_back(self, chance: Random) -> None:
        self.was_aborted = False
        self._recovering = {consumer.number for consumer in self.consumers}
        for consumer in self.consumers:
            first = consumer.in_hands.first()
            # Of what is in hands, the application may have looked at nothing but the first.
            unseen = list(consumer.in_hands) if first is not None and chance.random() < 0.2 else []
            consumer.recover(unseen)

    def _told(self, command: events.Command) -> None:
        if isinstance(command, events.Recovered):
            self._recovering.discard(command.consumer)
        elif isinstance(command, events.Committed):
            self._committed()
        elif isinstance(command, events.Aborted):
            self._aborted()

    def _committed(self) -> None:
        assert self._attempt is not None
        self._audit.committed(self._attempt)
        messages = self._client.ledger.messages
        for producer, _ in self._sends:
            if producer.facts.confirmed < len(producer.facts.bodies):
                messages.confirmed(producer.facts, len(producer.facts.bodies))
        self._attempt = None

    def _aborted(self) -> None:
        assert self._attempt is not None
        self._audit.aborted(self._attempt)
        for producer, number in self._sends:
            producer.facts.take_back(number)
        for consumer, ranges in self._settles:
            self._client.ledger.holdings.committing(consumer.key, ranges, is_owed=False)
            for part in ranges if not self.session.is_closing else ():
                consumer.in_hands.add(*part)
        self._attempt, self.was_aborted = None, True


class Supplier:
    def __init__(
        self, client: SimClient, chance: Random, *, queues: Sequence[str], messages: int, serial: "count[int]",
        identifiers: list[str],
    ) -> None:  # fmt: skip
        self.client = client
        self.messages_left = messages
        self.queues = queues
        self._chance = chance
        self._serial = serial
        self._identifiers = identifiers  # that were used before
        self._burst_max = chance.choice((1, 5, 20))
        self._pause_s_max = chance.choice((0.02, 0.2, 0.8))
        self._delay_chance = chance.choice((0.0, 0.3))
        self._identifier_chance = chance.choice((0.0, 0.3))
        self._is_calm = False
        self._session = client.open_session()
        self._producers = [self._session.produce(queue) for queue in queues]
        client.clock.after(chance.random(), self._publish)

    @property
    def is_done(self) -> bool:
        return not self.client.is_alive or self.messages_left == 0

    def calm_down(self) -> None:
        self._is_calm = True

    def _publish(self) -> None:
        if self.is_done:
            return
        chance = self._chance
        producer = chance.choice(self._producers)
        if not producer.is_blocked:
            burst = min(self.messages_left, chance.randint(1, self._burst_max))
            self.messages_left -= burst
            messages = producer.gather([(b"%d" % next(self._serial), self._options()) for _ in range(burst)])
            self.client.handle(events.Publish(self._session.number, producer.number, messages))
        self.client.clock.after(chance.random() * (0.01 if self._is_calm else self._pause_s_max), self._publish)

    def _options(self) -> Options | None:
        chance = self._chance
        due_ms = 0
        if chance.random() < self._delay_chance:
            due_ms = int(WALL_MS_AT_ZERO + self.client.clock.now * 1000) + chance.choice((1, 100, 3_000))
        if chance.random() >= self._identifier_chance:
            return Options(due_ms=due_ms) if due_ms else None
        if not self._identifiers or chance.random() < 0.5:
            self._identifiers.append(f"id-{len(self._identifiers)}")
        headers = msgspec.msgpack.encode({"deduplication_id": chance.choice(self._identifiers[-5:])})
        return Options(due_ms=due_ms, headers=headers, announcements=int(Columns.DEDUPLICATION))
