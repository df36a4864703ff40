"""A world for the client's machine: application, machine, a link that tears, and the fake broker, in virtual time.

One seed draws everything: how many bytes the link moves, where it is cut, when the broker commits or crashes, what the
application sends and settles. The application checks what it is handed as it goes:

- a position comes once, unless it was released, or reported lost;
- a position that was settled never comes back;
- confirms only ever cover what was sent, and grow.
"""
from dataclasses import dataclass, field
from random import Random

from angarium.core.client import events
from angarium.core.client.connection import ConnectionMachine
from angarium.core.client.gathered import Gathered
from angarium.core.client.reconnect import Address, ReconnectPolicy
from angarium.core.ranges import RangeSet
from angarium.core.wire.codec import FrameParser
from angarium.core.wire.frames import DestinationKind
from tests.unit.client.client_fake_broker import FakeBroker, FakePeer

STEP_S = 0.01


@dataclass
class Link:
    """Bytes under way. What is not yet moved is lost with a cut, wherever it is: in the middle of a frame too."""

    peer: FakePeer
    to_broker: bytearray = field(default_factory=bytearray)
    to_client: bytearray = field(default_factory=bytearray)
    parser: FrameParser = field(default_factory=lambda: FrameParser(frame_bytes_max=1 << 24))


@dataclass
class Application:
    """What one consumer has in its hands, and has done."""

    held: RangeSet = field(default_factory=RangeSet)
    settled: RangeSet = field(default_factory=RangeSet)
    bodies: dict[int, bytes] = field(default_factory=dict)
    lost_count: int = 0

    def arrived(self, command: events.MessagesArrived) -> None:
        low, high = command.position + command.low, command.position + command.high
        assert self.held.gaps(low, high) == [(low, high)], f"{low} to {high} handed out while held"
        assert self.settled.gaps(low, high) == [(low, high)], f"{low} to {high} handed out after it was settled"
        self.held.add(low, high)
        for index in range(command.low, command.high):
            self.bodies[command.position + index] = command.batch.body(index)

    def lost(self, command: events.PositionsLost) -> None:
        for low, high in command.ranges:
            assert not self.held.gaps(low, high), "lost what was not held"
            self.held.remove(low, high)
            self.lost_count += high - low


class World:
    def __init__(
        self, seed: int, *, consumers: int = 1, crashes: bool = True, expires: bool = False, detaches: bool = False
    ) -> None:
        self.random = Random(seed)
        self.broker = FakeBroker(commits=False, unconfirmed_bytes_max=self.random.choice([2_000, 1 << 20]))
        self.machine = ConnectionMachine(
            addresses=[Address("a", 1), Address("b", 2)],
            name="world",
            chance=self.random,
            connect_timeout_s=1e9,
            policy=ReconnectPolicy(delay_max_s=0.1),  # or most of the time would pass in waiting
        )
        self.now = 0.0
        self.faults = True
        self.crashes = crashes
        self.expires = expires
        self.detaches = detaches
        self.link: Link | None = None
        self.dialling = False
        self.sent: dict[int, list[bytes]] = {1: [], 2: []}
        self.confirmed = {1: 0, 2: 0}
        self.applications = {number: Application() for number in range(1, consumers + 1)}
        self.ended: list[events.Command] = []
        self.outcomes = [0, 0, 0, 1, 2] + [-1] * self.random.choice([1, 20])  # -1: keep it for now
        self.cuts = 0
        self.detached = 0
        self.bytes_lost = 0
        self.do(events.OpenConnection())
        self.do(events.OpenSession(1))
        for producer in self.sent:
            self.do(events.OpenProducer(1, producer, "orders", DestinationKind.ANY))
        for consumer in self.applications:
            prefetch = self.random.choice([1, 3, 50])
            self.do(events.OpenConsumer(1, consumer, "orders", DestinationKind.ANY, prefetch))

    # -- the driver ------------------------------------------------------------------------------

    def do(self, event: events.Event) -> None:
        for command in self.machine.handle(event, now=self.now):
            match command:
                case events.SendBytes(buffers=buffers):
                    assert self.link is not None
                    self.link.to_broker += b"".join(buffers)
                case events.Connect():
                    self.dialling = True
                case events.CloseTransport():
                    self.drop_link()
                case events.ConnectionFailed(error=error):
                    raise error
                case _:
                    self.notify(command)

    def notify(self, command: events.Command) -> None:
        match command:
            case events.Confirmed(producer=producer, sequence=sequence):
                assert self.confirmed[producer] < sequence <= len(self.sent[producer])
                self.confirmed[producer] = sequence
            case events.MessagesArrived(consumer=consumer):
                self.applications[consumer].arrived(command)
            case events.PositionsLost(consumer=consumer):
                self.applications[consumer].lost(command)
            case events.SessionEnded() | events.ProducerEnded() | events.ConsumerEnded() | events.Refused():
                self.ended.append(command)

    def drop_link(self) -> None:
        if self.link is not None:
            self.broker.cut(self.link.peer)
            self.bytes_lost += len(self.link.to_broker) + len(self.link.to_client)
        self.link, self.dialling = None, False

    def cut(self) -> None:
        self.cuts += 1
        self.drop_link()
        self.do(events.Disconnected("cut"))

    # -- one step --------------------------------------------------------------------------------

    def step(self) -> None:
        self.now += STEP_S
        deadline = self.machine.deadline()
        if deadline is not None and self.now >= deadline:
            self.do(events.Tick())
        if self.dialling:
            self.dialling = False
            if self.faults and self.random.random() < 0.3:
                self.do(events.Disconnected("refused"))
            else:
                self.link = Link(self.broker.connect())
                self.do(events.Connected())
        self.move()
        if self.random.random() < (0.2 if self.faults else 1.0):
            self.broker.commit()
        if self.faults:
            self.fault()

    def move(self) -> None:
        """Some bytes each way."""
        link = self.link
        if link is None:
            return
        link.to_client += link.peer.take_output()
        for pipe in (link.to_broker, link.to_client):
            count = int(len(pipe) * self.random.choice([0, 0, self.random.random(), 1])) if self.faults else len(pipe)
            piece = bytes(pipe[:count])
            del pipe[:count]
            if not piece:
                continue
            if pipe is link.to_broker:
                link.peer.feed(piece)
            else:
                frames = link.parser.feed(piece)
                if frames:
                    self.do(events.FramesReceived(frames))
                if self.link is not link:
                    return

    def fault(self) -> None:
        draw = self.random.random()
        if self.expires and self.link is None and self.random.random() < 0.2:
            self.broker.expire()
            self.broker.steal("orders", self.random.choice([1, 5, 50]))
        if self.detaches and self.link is not None and self.random.random() < 0.08:
            self.link.peer.detach()
            self.detached += 1
        if draw < 0.03 and self.link is not None:
            self.cut()
        elif draw < 0.05 and self.crashes:
            self.broker.crash()
            if self.link is not None:
                self.cut()
        elif draw < 0.10 and self.expires:
            self.broker.steal("orders", self.random.choice([1, 5, 50]))
        elif draw < 0.13 and self.expires:
            self.broker.rival_done("orders", settles=self.random.random() < 0.5)

    # -- the application -------------------------------------------------------------------------

    def send(self) -> None:
        producer = self.random.choice([1, 2])
        messages = Gathered(timestamp_ms=int(self.now * 1000))
        for _ in range(self.random.choice([1, 1, 2, 20])):
            sequence = len(self.sent[producer]) + 1
            body = b"%d:%d:" % (producer, sequence) + b"x" * self.random.choice([0, 10, 500])
            self.sent[producer].append(body)
            messages.append(body)
        self.do(events.Publish(1, producer, messages))

    def settle(self, *, all_of_it: bool = False) -> None:
        number = self.random.choice(list(self.applications))
        application = self.applications[number]
        outcomes: tuple[list[tuple[int, int]], ...] = ([], [], [])
        for low, high in list(application.held):
            at = low
            while at < high:
                end = high if all_of_it else min(high, at + self.random.choice([1, 2, 10]))
                outcome = 0 if all_of_it else self.random.choice(self.outcomes)
                if outcome >= 0:
                    outcomes[outcome].append((at, end))
                    application.held.remove(at, end)
                    if outcome < 2:
                        application.settled.add(at, end)
                at = end
        if any(outcomes):
            self.do(events.Settle(1, number, *outcomes))

    def heal(self) -> None:
        self.faults = False
        self.broker.rival_done("orders", settles=False)

    def run_until(self, condition: str, steps_max: int = 3_000) -> None:
        """Liveness: it must come true in bounded time."""
        for _ in range(steps_max):
            if getattr(self, condition)():
                return
            self.step()
            for _ in self.applications:
                self.settle(all_of_it=True)
        raise AssertionError(f"{condition} not reached in {steps_max} steps")

    def all_confirmed(self) -> bool:
        return all(self.confirmed[producer] == len(sent) for producer, sent in self.sent.items())

    def all_settled(self) -> bool:
        log = self.broker.log("orders")
        return self.all_confirmed() and log.subscriptions[""].durable.count == log.end

    def is_closed(self) -> bool:
        return bool(self.ended)
