"""What an application has of the client library: sessions, producers, consumers. Each keeps the ledger up to date.

Requests go to the client's machine; notifications come back from it. Whatever an application did and whatever it was
told is written down, and a notification that no promise allows is a `Violation`.
"""
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from angarium.core.client import events
from angarium.core.client.gathered import Gathered, Options
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire.frames import DestinationKind, Outcome, Start
from angarium.sim.broker import WALL_MS_AT_ZERO
from angarium.sim.delivery_facts import Hold, SubscriptionFacts
from angarium.sim.messages import Violation

if TYPE_CHECKING:
    from angarium.sim.client import SimClient

_EXPECTED_ENDS = frozenset({"", "subscription-in-use", "close-timeout"})


class SimSession:
    def __init__(self, client: "SimClient", number: int) -> None:
        self.client = client
        self.number = number
        self.identity = b""
        self.is_closing = False
        self.is_ended = False
        self.producers: dict[int, SimProducer] = {}
        self.consumers: dict[int, SimConsumer] = {}
        self.on_notice: Callable[[events.Command], None] | None = None  # told of everything, after it has had effect
        self._producer_last = 0
        self._consumer_last = 0
        self._sync_last = 0
        self._syncs: dict[int, list[tuple[SubscriptionFacts, int, Hold]]] = {}  # what was owed when it was asked

    def produce(
        self, destination: str, kind: DestinationKind = DestinationKind.QUEUE, *, stage: tuple[str, int] = ("", 0)
    ) -> "SimProducer":
        """With a stage, a query and the number of its batch, what it publishes waits for a commit."""
        self._producer_last += 1
        producer = SimProducer(self, self._producer_last, destination, is_staged=bool(stage[0]))
        self.producers[producer.number] = producer
        self.client.handle(events.OpenProducer(self.number, producer.number, destination, kind, *stage))
        return producer

    def consume(
        self, destination: str, kind: DestinationKind = DestinationKind.QUEUE, *, subscription: str = "",
        prefetch: int = 10, start: Start = Start.NEXT, selector: str = "", shared: bool = False,
    ) -> "SimConsumer":  # fmt: skip
        self._consumer_last += 1
        consumer = SimConsumer(self, self._consumer_last, destination, kind, subscription, prefetch)
        self.consumers[consumer.number] = consumer
        request = events.OpenConsumer(
            self.number, consumer.number, destination, kind, prefetch, subscription, start, selector, shared
        )
        self.client.handle(request)
        return consumer

    def close(self, *, timeout_s: float = 60.0) -> None:
        """Wait for confirms and answers, then end; give up after the timeout."""
        if not self.is_closing and not self.is_ended:
            self.is_closing = True
            for consumer in self.consumers.values():
                consumer.release_hands()
            self.client.say(f"closes session {self.number}, within {timeout_s:g} s")
            self.client.handle(events.CloseSession(self.number, timeout_s))

    def sync(self) -> None:
        """Ask to be told when the settlements so far are durable."""
        if self.identity and not self.is_closing and not self.is_ended:
            self._sync_last += 1
            self._syncs[self._sync_last] = self.client.ledger.holdings.owed(self.identity)
            self.client.handle(events.Sync(self.number, self._sync_last))

    def notify(self, command: events.Command) -> None:
        match command:
            case events.SessionReady():
                self.identity = command.identity
            case events.Synced(token=token, code=code):
                self._synced(token, code)
            case events.SessionEnded(code=code, reason=reason):
                if code not in _EXPECTED_ENDS:
                    raise Violation("sessions end when asked to", f"{self.client.name}: {code}: {reason}")
                self.end()
            case (
                events.ProducerReady() | events.Confirmed() | events.Refused() | events.ProducerEnded()
                | events.Blocked() | events.Unblocked()
            ):  # fmt: skip
                self.producers[command.producer].notify(command)
            case (
                events.ConsumerReady() | events.MessagesArrived() | events.PositionsLost() | events.SettlementsLost()
                | events.ConsumerEnded()
            ):  # fmt: skip
                self.consumers[command.consumer].notify(command)
        if self.on_notice is not None:
            self.on_notice(command)

    def _synced(self, token: int, code: str) -> None:
        for subscription, position, hold in self._syncs.pop(token):
            if not code and any(held is hold for held in subscription.holds.get(position, {}).values()):
                raise Violation("synced means answered", f"{subscription.log.name}: position {position} is not")

    def end(self) -> None:
        self.is_ended = True
        for producer in self.producers.values():
            producer.end()
        for consumer in list(self.consumers.values()):
            consumer.end()
        self.client.sessions.pop(self.number, None)


class SimProducer:
    def __init__(self, session: SimSession, number: int, destination: str, *, is_staged: bool = False) -> None:
        self.session = session
        self.number = number
        self.destination = destination
        self.is_blocked = False
        self.is_ended = False
        self.facts = session.client.ledger.messages.producer(destination, is_staged=is_staged)

    @property
    def unconfirmed(self) -> int:
        return len(self.facts.bodies) - self.facts.confirmed

    def publish(self, bodies: list[bytes], *, expires_after_s: float = 0.0, options: Options | None = None) -> None:
        self.publish_each([(body, options) for body in bodies], expires_after_s=expires_after_s)

    def publish_each(
        self, messages: Sequence[tuple[bytes, Options | None]], *, expires_after_s: float = 0.0
    ) -> None:
        client = self.session.client
        if expires_after_s:
            expiry_ms = int(WALL_MS_AT_ZERO + client.clock.now * 1000) + int(expires_after_s * 1000)
            messages = [(body, (each or Options())._replace(expiry_ms=expiry_ms)) for body, each in messages]
        client.handle(events.Publish(self.session.number, self.number, self.gather(messages)))

    def gather(self, messages: Sequence[tuple[bytes, Options | None]]) -> Gathered:
        """Note that these are published: by whoever asks for them now, in a Publish or a Commit."""
        client, facts = self.session.client, self.facts
        gathered = Gathered(int(WALL_MS_AT_ZERO + client.clock.now * 1000))
        for body, options in messages:
            gathered.append(body, options)
            facts.note(body, client.clock.now, options)
        first, last = len(facts.bodies) - len(messages) + 1, len(facts.bodies)
        client.say(f"session {self.session.number} producer {self.number} publishes {first} to {last}")
        return gathered

    def close(self) -> None:
        """Only with nothing unconfirmed."""
        self.session.client.handle(events.CloseProducer(self.session.number, self.number))
        self.end()

    def notify(self, command: events.Command) -> None:
        match command:
            case events.ProducerReady(identity=identity):
                self.session.client.ledger.messages.identified(self.facts, identity)
            case events.Confirmed(sequence=sequence):
                self.session.client.ledger.messages.confirmed(self.facts, sequence)
            case events.Blocked():
                self.is_blocked = True
            case events.Unblocked():
                self.is_blocked = False
            case events.Refused(code="destination-full" | "node-full", first=first, last=last):
                self.session.client.ledger.messages.refused(self.facts, first, last)
            case events.Refused(code=code, reason=reason) | events.ProducerEnded(code=code, reason=reason):
                raise Violation("what may be stored is stored", f"{self.destination}: {code}: {reason}")

    def end(self) -> None:
        self.is_ended = True
        self.facts.is_abandoned = self.facts.is_abandoned or self.unconfirmed > 0


class SimConsumer:
    def __init__(
        self, session: SimSession, number: int, destination: str, kind: DestinationKind, subscription: str,
        prefetch: int,
    ) -> None:  # fmt: skip
        self.session = session
        self.number = number
        self.destination = destination
        self.kind = kind
        self.subscription = subscription
        self._prefetch_max = prefetch  # the highest ever
        self.in_hands = RangeSet()  # arrived, and neither settled nor lost
        self.received: list[int] = []  # positions, in the order of arrival
        self.lost: list[Range] = []
        self.is_open = False
        self.is_closing = False
        self.is_ended = False
        self.on_arrival: ArrivalHook | None = None

    @property
    def key(self) -> tuple[bytes, int]:
        return self.session.identity, self.number

    def settle(self, low: int, high: int, outcome: Outcome = Outcome.SETTLE) -> None:
        """Of positions low to high - 1, what is still in hands."""
        if self.is_ended or self.is_closing or self.session.is_closing:
            return
        ranges = self.in_hands.remove(low, high)
        if not ranges:
            return
        client = self.session.client
        for part in ranges:
            client.ledger.holdings.settled_by_application(self.key, *part, outcome)
        client.say(f"session {self.session.number} consumer {self.number}: {outcome.name.lower()} {ranges}")
        names = {Outcome.SETTLE: "settled", Outcome.REJECT: "rejected", Outcome.RELEASE: "released"}
        client.handle(events.Settle(self.session.number, self.number, **{names[outcome]: ranges}))

    def recover(self, unseen: Sequence[Range] = ()) -> None:
        """Give back all that is in hands; until `Recovered` comes, nothing arrives."""
        client = self.session.client
        client.say(f"session {self.session.number} consumer {self.number}: recover {self.in_hands}")
        client.ledger.holdings.unseen(self.key, unseen)
        self.release_hands()
        client.handle(events.Recover(self.session.number, self.number, unseen))

    def set_prefetch(self, prefetch: int) -> None:
        if not self.is_ended and not self.is_closing and not self.session.is_closing:
            self._prefetch_max = max(self._prefetch_max, prefetch)
            self.session.client.handle(events.SetPrefetch(self.session.number, self.number, prefetch))

    def close(self, *, unsubscribe: bool = False) -> None:
        if self.is_ended or self.is_closing or self.session.is_closing:
            return
        self.is_closing = True
        self.release_hands()
        if unsubscribe:
            facts = self.session.client.ledger.holdings.subscriptions.get((self.destination, self.subscription))
            if facts is not None:
                facts.is_ending = True
        self.session.client.say(f"session {self.session.number} closes consumer {self.number}")
        self.session.client.handle(events.CloseConsumer(self.session.number, self.number, unsubscribe))

    def release_hands(self) -> None:
        """Whoever closes gives back what is in hands."""
        for low, high in self.in_hands:
            self.session.client.ledger.holdings.lost_by_application(self.key, [(low, high)])
        self.in_hands = RangeSet()

    def notify(self, command: events.Command) -> None:
        holdings = self.session.client.ledger.holdings
        match command:
            case events.MessagesArrived(batch=batch, position=position, low=low, high=high):
                every = command.positions or range(position, position + batch.count)
                positions = every[low:high]
                holdings.arrived(self.key, batch, positions, command.redeliveries, low)
                self.received += positions
                ranges = RangeSet((at, at + 1) for at in positions)
                for part in ranges:
                    self.in_hands.add(*part)
                if self.in_hands.count > self._prefetch_max:
                    held = f"{self.in_hands.count} positions, with a prefetch of {self._prefetch_max} at most"
                    raise Violation("nobody holds more than it asked for", f"{self.destination}: {held}")
                for part in ranges:
                    if self.on_arrival is not None:
                        self.on_arrival(self, *part)
            case events.PositionsLost(ranges=ranges):
                self.lost += ranges
                holdings.lost_by_application(self.key, ranges)
                for low, high in ranges:
                    self.in_hands.remove(low, high)
            case events.ConsumerReady():
                self.is_open = True
                holdings.ready(self.key, self.session.client.clock.now)
            case events.ConsumerEnded(code=code, reason=reason):
                if code not in _EXPECTED_ENDS:
                    raise Violation("consumers end when asked to", f"{self.destination}: {code}: {reason}")
                self.end()

    def end(self) -> None:
        self.is_ended = True
        self.in_hands = RangeSet()
        if self.session.identity:
            self.session.client.ledger.holdings.forget_consumer(self.key)
        self.session.consumers.pop(self.number, None)


class ArrivalHook(Protocol):
    def __call__(self, consumer: SimConsumer, low: int, high: int) -> None: ...
