"""Who has which message of a subscription in its hands: the ledger's page on deliveries.

What is promised to a session that survives, and checked here as it happens:
- a position in the hands of an application is not delivered again, to it or to anybody else, unless it was released,
  its consumer was closed, or its session was away for the grace time. *Away* begins when the message manager hears that
  the connection is lost, or when the broker starts again, and ends when the consumer is opened again;
- nothing is taken from a session that was never away so long (ConsumerOpened.lost);
- a settlement that was answered is final: the position is never delivered again;
- only durable messages are delivered, as they were published, and before they expire;
- first deliveries to one consumer keep the order of each producer, within a priority and a message group;
- who gets what another application had in its hands is told so, unless the broker has crashed in between.

Two exceptions, both when the broker stops at a bad moment and the earlier holder of a position comes back first; the
later one is then told that the position is lost:
- a release, close or giving up takes effect before it is durable, so the broker may still remember the earlier holder;
- an earlier holder has resumed and has not heard yet that it lost the position, so it claims it once more.
"""
from collections.abc import Callable, Sequence

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.log import lane_of
from angarium.core.ranges import Range
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Outcome
from angarium.core.wire.layout import Columns
from angarium.sim.delivery_facts import FIRST_SEND, NEVER, ConsumerFacts, Hold, Send, Stream, SubscriptionFacts
from angarium.sim.messages import Messages, Violation

_TOLERANCE_S = 1e-6


class Holdings:
    def __init__(self, messages: Messages, *, grace_s: float) -> None:
        self.subscriptions: dict[tuple[str, str], SubscriptionFacts] = {}
        self.consumers: dict[ConsumerKey, ConsumerFacts] = {}
        self._messages = messages
        self._grace_s = grace_s
        self._start = 0  # of the broker
        self._sends = 0
        self._gone: set[ConsumerKey] = set()
        self._unsubscribed: set[tuple[str, str]] = set()  # perhaps: the broker may crash before it is durable
        self.unsubscribing: dict[ConsumerKey, tuple[str, str]] = {}  # and was not told that it is done

    # -- consumers come and go -----------------------------------------------------------------------

    def opening(self, session: bytes, destination: int, frame: frames.ConsumerOpen, now: float) -> None:
        key = (session, frame.consumer)
        facts = self.consumers.get(key)
        if facts is not None:
            self._note_absence(facts, now)
            facts.away_since = None
            facts.is_refused = False
            facts.destination = destination  # it may have been moved
            return
        name = frame.subscription
        log = self._messages.log(frame.destination, frame.destination_kind)
        if log.kind == frames.DestinationKind.TOPIC and not name:
            name = f"#{session.hex()}.{frame.consumer}"
        durable = bool(frame.subscription) or log.kind == frames.DestinationKind.QUEUE
        subscription = self.subscriptions.get((log.name, name))
        if subscription is None:
            subscription = self.subscriptions[log.name, name] = SubscriptionFacts(
                log, name, durable, "" if log.kind == frames.DestinationKind.QUEUE else frame.selector, frame.shared
            )
            if (log.name, name) not in self._unsubscribed:
                subscription.starts_after = now
        if log.kind == frames.DestinationKind.QUEUE or (
            subscription.opened_at is None and frame.start == frames.Start.OLDEST
        ):
            subscription.starts_after = -1.0
        subscription.is_divided |= bool(frame.selector) and log.kind == frames.DestinationKind.QUEUE
        self.consumers[key] = ConsumerFacts(key, destination, subscription, is_gone=key in self._gone)

    def _note_absence(self, facts: ConsumerFacts, now: float) -> None:
        """Whoever was away for the grace time has forfeited what it holds."""
        if self._is_away(facts, now):
            facts.was_away = True
            facts.forfeits_until = self._sends
            for _, hold in facts.subscription.held_by(facts.key):
                hold.is_forfeited = True

    def opened(self, session: bytes, frame: frames.ConsumerOpened, now: float) -> None:
        key = (session, frame.consumer)
        facts = self.consumers.get(key)
        if facts is None:
            return
        subscription = facts.subscription
        if subscription.opened_at is None:
            subscription.opened_at = now
        lost = facts.lost = {position for low, high in frame.lost for position in range(low, high)}
        for position, hold in subscription.held_by(key):
            if position not in lost:
                if hold.is_forfeited:  # it comes into its own again
                    self._check_free(subscription, position, key, now)
                hold.is_forfeited = False
                continue
            if not hold.is_forfeited and not hold.is_owed:  # owed: perhaps its own settlement was done before
                raise Violation(
                    "what a session holds is kept for it for the grace time",
                    f"{subscription.log.name}: position {position} is taken from a consumer that was not away so long",
                )

    def ready(self, key: ConsumerKey, now: float) -> None:
        """The application learns that its consumer is open; it must have learnt before what it lost."""
        facts = self.consumers[key]
        if facts.ready_at is None:
            facts.ready_at = now
        for position, hold in facts.subscription.held_by(key):
            if position in facts.lost and not hold.is_owed:
                raise Violation("what is lost is told", f"{facts.subscription.log.name}: position {position} is not")

    def ended(self, session: bytes, destination: int, closed: bool, now: float) -> None:
        for key, facts in [(key, facts) for key, facts in self.consumers.items() if key[0] == session]:
            if destination == facts.destination:  # each of them is told, in its own time
                if closed:
                    self.forget_consumer(key)
                elif facts.away_since is None:
                    facts.away_since = now

    def unsubscribe(self, session: bytes, number: int) -> None:
        """The message manager is told to end a durable subscription: the next one of that name is another one."""
        facts = self.consumers.get((session, number))
        if facts is not None and facts.subscription.is_ending:
            name = (facts.subscription.log.name, facts.subscription.name)
            self._unsubscribed.add(name)
            self.unsubscribing[facts.key] = name
            if self.subscriptions.get(name) is facts.subscription:
                del self.subscriptions[name]

    def broker_stopped(self, now: float, is_fragile: Callable[[int], bool]) -> None:
        for facts in self.consumers.values():
            self._note_absence(facts, now)
        for subscription in self.subscriptions.values():
            for position, holders in subscription.holds.items():
                if is_fragile(subscription.sent[position]) or self._is_claimed_twice(holders, now):
                    for hold in holders.values():
                        hold.is_forfeited = True

    def _is_claimed_twice(self, holders: dict[ConsumerKey, Hold], now: float) -> bool:
        """Somebody has lost the position, has resumed, and has not heard of the loss yet; it may be cut off again."""
        return len(holders) > 1 and any(
            hold.is_forfeited and not self._is_away(self.consumers[key], now) for key, hold in holders.items()
        )

    def _is_away(self, facts: ConsumerFacts, now: float) -> bool:
        """For the grace time."""
        return facts.away_since is not None and now - facts.away_since >= self._grace_s - _TOLERANCE_S

    def broker_started(self, now: float) -> None:
        self._start += 1
        for facts in self.consumers.values():
            facts.away_since = now

    def forget_consumer(self, key: ConsumerKey) -> None:
        """Its application has closed it, or is gone; perhaps before the broker knew of it."""
        self._gone.add(key)
        facts = self.consumers.get(key)
        if facts is not None:
            facts.is_gone = True
            facts.subscription.drop_all(key)

    # -- deliveries ----------------------------------------------------------------------------------

    def delivered(
        self, session: bytes, frame: frames.Deliver, payload: bytes, *, now: float, wall_ms: int, token: int
    ) -> None:
        """A delivery leaves the message manager, which has asked for writes up to `token`."""
        key = (session, frame.consumer)
        facts = self.consumers[key]
        subscription = facts.subscription
        log, sent = subscription.log, subscription.sent
        batch = Batch.trusted(payload)
        producer = self._messages.by_identity[batch.producer]
        expiries = batch.expiries_ms() if batch.columns else None
        self._sends += 1
        send = Send(self._start, self._sends)
        for index, position in enumerate(frame.positions(batch.count)):
            sequence = batch.sequence(index)
            if log.messages.get(position) != (batch.producer, sequence):
                raise Violation(
                    "only what is durable is delivered",
                    f"{log.name}: position {position} is delivered as message {sequence}; "
                    f"the disk has {log.messages.get(position)}",
                )
            if position in subscription.settled:
                raise Violation(
                    "settled is final", f"{log.name}{subscription.name}: position {position} is delivered again"
                )
            if expiries is not None and 0 < expiries[index] <= wall_ms:
                raise Violation("nothing expired is delivered", f"{log.name}: position {position}")
            if producer.confirmed_at.get(sequence, now) < subscription.starts_after:
                raise Violation(
                    "a subscription starts where it was asked to",
                    f"{log.name}{subscription.name}: position {position} was confirmed before it was opened",
                )
            self._check_free(subscription, position, key, now)
            facts.sends[position] = send
            facts.late.pop(position, None)
            if position in sent:
                sent[position] = token
            else:
                sent[position] = FIRST_SEND
                subscription.first_to[position] = key
            subscription.first_in.setdefault(position, self._start)

    def _check_free(self, subscription: SubscriptionFacts, position: int, key: ConsumerKey, now: float) -> None:
        for other, hold in subscription.holds.get(position, {}).items():
            if hold.is_forfeited:
                continue
            if other == key:
                raise Violation(
                    "nothing is delivered twice to a session",
                    f"{subscription.log.name}{subscription.name}: position {position} is sent to its holder again",
                )
            away_since = self.consumers[other].away_since
            if away_since is None or now - away_since < self._grace_s - _TOLERANCE_S:
                raise Violation(
                    "two sessions never hold the same position",
                    f"{subscription.log.name}{subscription.name}: position {position} is given away while another "
                    + ("holds it" if away_since is None else f"is away for {now - away_since:.3f} s only"),
                )
            self.consumers[other].was_away = True
            hold.is_forfeited = True

    def arrived(self, key: ConsumerKey, batch: Batch, positions: Sequence[int], counts: list[int], low: int) -> None:
        """The messages from `low` on of the batch reach the application."""
        facts = self.consumers[key]
        subscription = facts.subscription
        log, fields = subscription.log, BatchFields(batch)
        for index, at in enumerate(positions, start=low):
            sequence = batch.sequence(index)
            if key in subscription.holds.get(at, ()):
                raise Violation("nothing is delivered twice to a session", f"{log.name}: position {at}")
            wrong = self._messages.unlabelled(batch.producer, sequence, batch.body(index))
            if wrong:
                raise Violation("messages arrive as published", f"{log.name}: position {at}: {wrong}")
            send, seen = facts.sends[at], subscription.seen.get(at, NEVER)
            if seen.start == send.start and seen.number < send.number and not (counts and counts[index]):
                raise Violation("redeliveries are told", f"{log.name}: position {at} comes as if for the first time")
            group = fields.group(index)
            is_late = batch.columns & Columns.DUE  # what waits until it is due is overtaken
            is_first = subscription.sent[at] == FIRST_SEND and subscription.first_to[at] == key
            if is_first and not is_late and (group is None or not subscription.is_divided):
                stream = (batch.producer, lane_of(at), group)
                if facts.last.get(stream, 0) >= sequence:
                    raise Violation(
                        "order per producer, priority and group",
                        f"{log.name}: message {sequence} arrives after {facts.last[stream]}",
                    )
                facts.last[stream] = sequence
            elif at in facts.late and not is_late and (group is None or not subscription.is_divided):
                self._check_late_order(facts, at, sequence, (batch.producer, lane_of(at), group))
            subscription.seen[at] = max(seen, send)
            hold = Hold(is_forfeited=send.number <= facts.forfeits_until)
            subscription.holds.setdefault(at, {})[key] = hold

    def _check_late_order(self, facts: ConsumerFacts, at: int, sequence: int, stream: Stream) -> None:
        """What a replaced manager was the first to send is in its order too; whatever its successor does since."""
        start = facts.late.pop(at)
        before = max(facts.last.get(stream, 0), facts.late_last.get((start, stream), 0))
        if before >= sequence:
            what = f"message {sequence}, of a manager of the past, arrives after {before}"
            raise Violation("order per producer, priority and group", f"{facts.subscription.log.name}: {what}")
        facts.late_last[start, stream] = sequence

    # -- outcomes ------------------------------------------------------------------------------------

    def settled_by_application(self, key: ConsumerKey, low: int, high: int, outcome: Outcome) -> None:
        subscription = self.consumers[key].subscription
        if outcome in (Outcome.RELEASE, Outcome.RETURN):
            subscription.drop(key, low, high)
            return
        subscription.finished.update(range(low, high))
        for position in range(low, high):
            subscription.holds[position][key].is_owed = True

    def committing(self, key: ConsumerKey, ranges: Sequence[Range], *, is_owed: bool = True) -> None:
        """A commit is to settle these; or it was aborted, and they are still in the application's hands."""
        subscription = self.consumers[key].subscription
        for position in (position for low, high in ranges for position in range(low, high)):
            if (hold := subscription.holds.get(position, {}).get(key)) is not None:
                hold.is_owed = is_owed

    def unseen(self, key: ConsumerKey, ranges: Sequence[Range]) -> None:
        """They go back as if they had never arrived."""
        subscription = self.consumers[key].subscription
        for position in (position for low, high in ranges for position in range(low, high)):
            subscription.seen.pop(position, None)

    def committed(self, session: bytes, settles: Sequence[tuple[int, list[Range]]]) -> None:
        """The answer to a commit leaves the message manager: what it settles is settled."""
        for number, ranges in settles:
            self._finish(self.consumers[session, number], Outcome.SETTLE, ranges, [])

    def lost_by_application(self, key: ConsumerKey, ranges: list[Range]) -> None:
        for low, high in ranges:
            self.consumers[key].subscription.drop(key, low, high)

    def settle(self, session: bytes, frame: frames.Settle) -> None:
        facts = self.consumers.get((session, frame.consumer))
        if facts is not None and not facts.is_refused:
            facts.settles[frame.number] = (frame.outcome, list(frame.ranges))

    def settled(self, session: bytes, frame: frames.Settled) -> None:
        """The answer leaves the message manager: to this settlement and to every earlier one."""
        facts = self.consumers[session, frame.consumer]
        if frame.number not in facts.settles:
            raise Violation("only what is asked is answered", f"settlement {frame.number} of consumer {frame.consumer}")
        for number in range(facts.answered + 1, frame.number):
            if number in facts.settles:
                self._finish(facts, *facts.settles[number], [])
        facts.answered = max(facts.answered, frame.number)
        self._finish(facts, *facts.settles[frame.number], frame.lost)  # sent again, it is answered again

    def closed(self, session: bytes, frame: frames.ConsumerClosed) -> None:
        """As asked: that answers all settlements before. With a code, nobody knows."""
        facts = self.consumers.get((session, frame.consumer))
        if facts is not None and frame.code:
            facts.is_refused = True
        elif facts is not None and not facts.is_refused:
            self.unsubscribing.pop(facts.key, None)
            for number in [number for number in facts.settles if number > facts.answered]:
                self._finish(facts, *facts.settles[number], [])

    def _finish(self, facts: ConsumerFacts, outcome: Outcome, ranges: list[Range], lost_ranges: list[Range]) -> None:
        if outcome in (Outcome.RELEASE, Outcome.RETURN):
            return
        key, subscription = facts.key, facts.subscription
        lost = {position for low, high in lost_ranges for position in range(low, high)}
        for low, high in ranges:
            for position in range(low, high):
                if position not in lost:
                    subscription.settled.setdefault(position, outcome)
                    subscription.settled_in.setdefault(position, self._start)
                    continue
                hold = subscription.holds.get(position, {}).get(key)
                if hold is not None and not hold.is_forfeited:
                    raise Violation(
                        "what a session holds is its to settle",
                        f"{subscription.log.name}: the settlement of position {position} is refused",
                    )
            subscription.drop(key, low, high)

    def owed(self, session: bytes) -> list[tuple[SubscriptionFacts, int, Hold]]:
        """What the session has settled and not seen answered."""
        return [
            (facts.subscription, position, hold)
            for key, facts in self.consumers.items()
            if key[0] == session
            for position, hold in facts.subscription.held_by(key)
            if hold.is_owed and not hold.is_forfeited
        ]
