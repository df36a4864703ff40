"""A broker in memory that speaks the client's protocol: a fake, not a mock.

`FakeBroker` is what survives a cut connection; `FakePeer` is its side of one connection. What is published or settled
is durable, and answered, only at `commit()`. `crash()` forgets all that is not durable, and which consumer holds what.
`broker.violations` lists what no client may do.
"""
from itertools import count

from angarium.core.ranges import RangeSet
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.codec import FrameParser, Received, encode
from angarium.core.wire.frames import DestinationKind, Outcome, Start
from tests.unit.client.client_fake_commits import on_commit, on_recover
from tests.unit.client.client_fake_log import Consumer, Holder, Log, Session, Subscription
from tests.unit.client.client_fake_requests import on_request

BODY_BYTES_MAX = 4 * 1024 * 1024
RIVAL: Holder = (b"rival", 1)
FRAME_BYTES_MAX = 8 * 1024 * 1024


class FakeBroker:
    def __init__(self, *, heartbeat_s: float = 1.0, unconfirmed_bytes_max: int = 1 << 30, commits: bool = True) -> None:
        self.logs: dict[str, Log] = {}
        self.peers: list[FakePeer] = []
        self.violations: list[str] = []
        self.publishes = 0
        self.settles = 0
        self.settled_by_rival = RangeSet()
        self.resent = 0  # batches that came before, accepted or not
        self.seen: set[tuple[bytes, int]] = set()
        self.commits_by_itself = commits
        self.welcome = frames.Welcome(
            frames.PROTOCOL_VERSION, "fake", b"i" * 16, FRAME_BYTES_MAX, BODY_BYTES_MAX, unconfirmed_bytes_max,
            heartbeat_s,
        )  # fmt: skip
        self._ids = count(1)
        self.commits_done: dict[bytes, int] = {}  # the last commit's number, by session
        self.commits_durable: dict[bytes, int] = {}
        self.commits_repeated = 0

    def connect(self) -> "FakePeer":
        peer = FakePeer(self)
        self.peers.append(peer)
        return peer

    def next_id(self) -> bytes:
        return next(self._ids).to_bytes(16, "big")

    def commit(self) -> None:
        """Everything so far is on disk: answer it, and deliver it."""
        for log in self.logs.values():
            for position, batch in log.batches[log.committed :]:
                for subscription in log.subscriptions.values():
                    subscription.waiting.add(position, position + batch.count)
            log.committed = len(log.batches)
            for subscription in log.subscriptions.values():
                subscription.durable = RangeSet(subscription.settled)
        self.commits_durable = dict(self.commits_done)
        for peer in self.peers:
            peer.answer()
        self.deliver()

    def deliver(self) -> None:
        for peer in self.peers:
            peer.deliver()

    def cut(self, peer: "FakePeer") -> None:
        """The connection is gone; its sessions keep what they hold, for now."""
        if peer in self.peers:
            self.peers.remove(peer)

    def crash(self) -> None:
        self.peers.clear()
        self.commits_done = dict(self.commits_durable)
        for log in self.logs.values():
            del log.batches[log.committed :]
            log.end = sum(batch.count for _, batch in log.batches)
            log.sequences = {}
            for _, batch in log.batches:
                log.sequences[batch.producer] = batch.last_sequence
            for subscription in log.subscriptions.values():
                subscription.held.clear()
                subscription.settled = RangeSet(subscription.durable)
                subscription.waiting = RangeSet(subscription.settled.gaps(0, log.end))

    def expire(self) -> None:
        """Sessions that are not connected lose what they hold."""
        alive = {session.identity for peer in self.peers for session in peer.sessions.values()}
        for log in self.logs.values():
            for subscription in log.subscriptions.values():
                for position, (identity, _) in list(subscription.held.items()):
                    if identity not in alive:
                        subscription.give_back(position)

    def steal(self, name: str, count: int) -> None:
        """Somebody else takes up to `count` waiting messages."""
        subscription = self.log(name).subscriptions[""]
        while count > 0 and (first := subscription.waiting.first()) is not None:
            subscription.waiting.remove(first[0], first[0] + 1)
            subscription.held[first[0]] = RIVAL
            count -= 1

    def rival_done(self, name: str, *, settles: bool) -> None:
        """The somebody else settles all it holds, or gives it back."""
        subscription = self.log(name).subscriptions[""]
        for position in [position for position, holder in subscription.held.items() if holder == RIVAL]:
            if settles:
                del subscription.held[position]
                subscription.settled.add(position, position + 1)
                self.settled_by_rival.add(position, position + 1)
            else:
                subscription.give_back(position)

    def block(self, name: str, blocked: bool) -> None:
        """Every producer of that destination hears of it."""
        log = self.log(name)
        log.blocked = blocked
        for peer in self.peers:
            for number, session in peer.sessions.items():
                for producer, (other, _) in session.producers.items():
                    if other is log and blocked:
                        peer.send(number, frames.Block(producer, "destination-full", "the fake is full"))
                    elif other is log:
                        peer.send(number, frames.Unblock(producer))

    def log(self, name: str, kind: DestinationKind = DestinationKind.ANY) -> Log:
        if name not in self.logs:
            self.logs[name] = Log(DestinationKind.QUEUE if kind == DestinationKind.ANY else kind)
            if self.logs[name].kind == DestinationKind.QUEUE:
                self.logs[name].subscriptions[""] = Subscription()
        return self.logs[name]


class FakePeer:
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.sessions: dict[int, Session] = {}
        self.detached: set[int] = set()  # sessions that their client has to open again
        self.received: list[frames.Frame] = []
        self.keep_received = False
        self._output: list[bytes] = []
        self._parser = FrameParser(frame_bytes_max=FRAME_BYTES_MAX)
        self.is_open = True

    # -- bytes -----------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        for received in self._parser.feed(data):
            self.receive(received)
        if self.broker.commits_by_itself:
            self.broker.commit()

    def take_output(self) -> bytes:
        output, self._output = b"".join(self._output), []
        return output

    def send(self, session: int, frame: frames.Frame, payload: bytes = b"") -> None:
        self._output.append(encode(session, frame, payload))

    # -- frames ----------------------------------------------------------------------------------

    def detach(self) -> None:
        """What is unanswered never will be; each session keeps what it holds."""
        for number in self.sessions:
            self.send(number, frames.SessionDetached("detached"))
        self.detached |= self.sessions.keys()
        self.sessions.clear()

    def receive(self, received: Received) -> None:
        number, frame, payload, _ = received
        if self.keep_received:
            self.received.append(frame)
        if number in self.detached:
            if isinstance(frame, frames.SessionClose | frames.SessionOpen):
                self.detached.remove(number)
            if isinstance(frame, frames.SessionClose):
                self.send(number, frames.SessionClosed())
            if not isinstance(frame, frames.SessionOpen):
                return
        match frame:
            case frames.Hello():
                self.send(0, self.broker.welcome)
            case frames.Ping(number=ping):
                self.send(0, frames.Pong(ping))
            case frames.Pong() | frames.Failure():
                pass
            case frames.Goodbye():
                self.is_open = False
            case frames.Request():
                on_request(self, frame)
            case frames.SessionOpen():
                self.sessions[number] = Session(frame.identity or self.broker.next_id(), frame.transacted)
                self.send(number, frames.SessionOpened(self.sessions[number].identity))
            case frames.SessionClose():
                self._on_session_close(number)
            case frames.ProducerOpen() | frames.Publish() | frames.ProducerClose():
                self._on_producing(number, self.sessions[number], frame, payload)
            case frames.Commit():
                on_commit(self, number, self.sessions[number], frame, payload)
            case _:
                self._on_consuming(number, self.sessions[number], frame)

    def _on_session_close(self, number: int) -> None:
        session = self.sessions[number]
        for consumer in session.consumers.values():
            self._release_all(session, consumer, RangeSet())

        def closed() -> None:
            del self.sessions[number]
            self.send(number, frames.SessionClosed())

        session.unanswered.append(closed)

    # -- producing -------------------------------------------------------------------------------

    def _on_producing(self, number: int, session: Session, frame: frames.Frame, payload: bytes) -> None:
        match frame:
            case frames.ProducerOpen(producer=producer, destination=name, destination_kind=kind):
                log = self.broker.log(name, kind)
                if kind not in (DestinationKind.ANY, log.kind):
                    self.send(number, frames.ProducerClosed(producer, "wrong-kind", f"{name} is a {log.kind.name}"))
                    return
                identity = frame.identity or self.broker.next_id()
                session.producers[producer] = (log, identity)
                self.send(number, frames.ProducerOpened(producer, identity, log.sequences.get(identity, 0)))
                if log.blocked:
                    self.send(number, frames.Block(producer, "destination-full", "the fake is full"))
                if frame.identity:
                    self._confirm_later(number, session, producer)
            case frames.Publish(producer=producer):
                self._on_publish(number, session, producer, Batch.parse(payload))
            case frames.ProducerClose(producer=producer):
                del session.producers[producer]

    def _on_publish(self, number: int, session: Session, producer: int, batch: Batch) -> None:
        broker = self.broker
        broker.publishes += 1
        log, identity = session.producers[producer]
        if batch.producer != identity:
            broker.violations.append("batch of another producer")
        if b"refuse me" in batch.bodies():
            refusal = (batch.first_sequence, batch.last_sequence, "bad-taste", "the fake refuses this")
            self.send(number, frames.Refuse(producer, *refusal))
            return
        if b"end me" in batch.bodies():
            del session.producers[producer]
            self.send(number, frames.ProducerClosed(producer, "removed", "the destination was removed"))
            return
        broker.resent += (identity, batch.first_sequence) in broker.seen
        broker.seen.add((identity, batch.first_sequence))
        if batch.first_sequence > log.sequences.get(identity, 0):
            log.append(batch)
        self._confirm_later(number, session, producer)

    def _confirm_later(self, number: int, session: Session, producer: int) -> None:
        log, identity = session.producers[producer]
        sequence = log.sequences.get(identity, 0)
        session.unanswered.append(lambda: self.send(number, frames.Confirm(producer, sequence)))

    # -- consuming -------------------------------------------------------------------------------

    def _on_consuming(self, number: int, session: Session, frame: frames.Frame) -> None:
        match frame:
            case frames.ConsumerOpen():
                self._on_consumer_open(number, session, frame)
            case frames.Credit(consumer=consumer, limit=limit):
                session.consumers[consumer].limit = limit
            case frames.Settle(consumer=consumer) if consumer in session.consumers:
                self._on_settle(number, session, session.consumers[consumer], frame)
            case frames.Recover(consumer=consumer) if consumer in session.consumers:
                on_recover(self, number, session, frame)
            case frames.ConsumerClose(consumer=consumer) if consumer in session.consumers:
                self._on_consumer_close(number, session, session.consumers.pop(consumer), frame.unsubscribe)
            case _:
                self.broker.violations.append(f"unexpected {frame}")

    def _on_consumer_open(self, number: int, session: Session, frame: frames.ConsumerOpen) -> None:
        log = self.broker.log(frame.destination, frame.destination_kind)
        if frame.destination_kind not in (DestinationKind.ANY, log.kind):
            reason = f"{frame.destination} is a {log.kind.name}"
            self.send(number, frames.ConsumerClosed(frame.consumer, "wrong-kind", reason))
            return
        key: object = ""
        if log.kind == DestinationKind.TOPIC:
            key = frame.subscription or (session.identity, frame.consumer)
        if key not in log.subscriptions:
            subscription = log.subscriptions[key] = Subscription()
            if frame.start == Start.OLDEST:
                subscription.waiting.add(0, sum(batch.count for _, batch in log.batches[: log.committed]))
        subscription = log.subscriptions[key]
        consumer = Consumer(frame.consumer, log, subscription, key, frame.credit)
        session.consumers[frame.consumer] = consumer
        holder = (session.identity, frame.consumer)
        lost = RangeSet()
        for low, high in frame.held:
            for position in range(low, high):
                if position in subscription.waiting:
                    subscription.waiting.remove(position, position + 1)
                    subscription.held[position] = holder
                elif subscription.held.get(position) != holder:
                    lost.add(position, position + 1)
        self._release_all(session, consumer, RangeSet(frame.held))
        self.send(number, frames.ConsumerOpened(frame.consumer, list(lost)))

    def _release_all(self, session: Session, consumer: Consumer, but: RangeSet) -> None:
        holder = (session.identity, consumer.number)
        for position, other in sorted(consumer.subscription.held.items()):
            if other == holder and position not in but:
                consumer.subscription.give_back(position)

    def _on_settle(self, number: int, session: Session, consumer: Consumer, frame: frames.Settle) -> None:
        self.broker.settles += 1
        holder, subscription = (session.identity, consumer.number), consumer.subscription
        lost = RangeSet()
        for low, high in frame.ranges:
            for position in range(low, high):
                if subscription.held.get(position) != holder:
                    lost.add(position, position + 1)
                elif frame.outcome in (Outcome.RELEASE, Outcome.RETURN):
                    subscription.give_back(position, counted=frame.outcome == Outcome.RELEASE)
                else:
                    del subscription.held[position]
                    subscription.settled.add(position, position + 1)
        if frame.credit >= 0:
            consumer.limit = frame.credit
        answer = frames.Settled(frame.consumer, frame.number, list(lost))
        session.unanswered.append(lambda: self.send(number, answer))

    def _on_consumer_close(self, number: int, session: Session, consumer: Consumer, unsubscribe: bool) -> None:
        self._release_all(session, consumer, RangeSet())
        if unsubscribe:
            consumer.log.subscriptions.pop(consumer.key, None)
        session.unanswered.append(lambda: self.send(number, frames.ConsumerClosed(consumer.number)))

    # -- what comes later ------------------------------------------------------------------------

    def answer(self) -> None:
        for session in list(self.sessions.values()):
            unanswered, session.unanswered = session.unanswered, []
            for answer in unanswered:
                answer()

    def deliver(self) -> None:
        for number, session in self.sessions.items():
            for consumer in session.consumers.values():
                while self._deliver_one(number, session, consumer):
                    pass

    def _deliver_one(self, number: int, session: Session, consumer: Consumer) -> bool:
        subscription = consumer.subscription
        first, room = subscription.waiting.first(), consumer.limit - consumer.delivered
        if first is None or room <= 0:
            return False
        position, batch = next(pair for pair in consumer.log.batches if first[0] < pair[0] + pair[1].count)
        low = first[0]
        high = min(first[1], low + room, position + batch.count)
        consumer.delivered += high - low
        subscription.waiting.remove(low, high)
        holder = (session.identity, consumer.number)
        subscription.held.update((p, holder) for p in range(low, high))
        redeliveries = [subscription.redeliveries[p] for p in range(low, high)]
        self.send(
            number,
            frames.Deliver(consumer.number, low, redeliveries if any(redeliveries) else []),
            batch.slice(low - position, high - position).data,
        )
        return True
