"""A test bench for the client's machine alone: feed it frames, see what it sends and tells."""
from random import Random
from typing import TypeVar

from angarium.core.client import events
from angarium.core.client.connection import ConnectionMachine
from angarium.core.client.events import Command, Event
from angarium.core.client.gathered import Gathered, Options
from angarium.core.client.reconnect import Address, ReconnectPolicy
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.codec import FrameParser, Received
from angarium.core.wire.packing import pack

SESSION_ID = b"s" * 16
PRODUCER_ID = b"p" * 16
QUEUE = frames.DestinationKind.QUEUE
T = TypeVar("T", bound=Command)


def welcome(**changes: object) -> frames.Welcome:
    fields: dict[str, object] = {
        "version": frames.PROTOCOL_VERSION, "node": "n1", "incarnation": b"i" * 16, "frame_bytes_max": 1 << 23,
        "body_bytes_max": 1 << 22, "unconfirmed_bytes_max": 1 << 24, "heartbeat_s": 1.0, "addresses": [],
    }  # fmt: skip
    return frames.Welcome(**(fields | changes))  # type: ignore[arg-type]


def gathered(*bodies: bytes, options: dict[int, Options] | None = None) -> Gathered:
    messages = Gathered(timestamp_ms=1_000)
    for index, body in enumerate(bodies):
        messages.append(body, (options or {}).get(index))
    return messages


def batch_of(count: int, *, first: int = 1) -> bytes:
    return pack(PRODUCER_ID, first, 1_000, [b"%d" % i for i in range(first, first + count)])


class Bench:
    """The machine, a clock, and everything it has said since the last look."""

    def __init__(
        self,
        *addresses: str,
        connect_timeout_s: float = 10.0,
        policy: ReconnectPolicy | None = None,
        seed: int = 1,
    ) -> None:
        self.machine = ConnectionMachine(
            addresses=[Address(host, 4560) for host in addresses or ("a",)],
            name="bench",
            chance=Random(seed),
            connect_timeout_s=connect_timeout_s,
            policy=policy or ReconnectPolicy(),
        )
        self.now = 0.0
        self.told: list[Command] = []
        self.sent: list[Received] = []
        self._parser = FrameParser(frame_bytes_max=1 << 30)

    def do(self, event: Event) -> list[Command]:
        commands = self.machine.handle(event, now=self.now)
        for command in commands:
            if isinstance(command, events.SendBytes):
                self.sent += self._parser.feed(b"".join(command.buffers))
            else:
                self.told.append(command)
        return commands

    def receive(self, *received: frames.Frame, session: int = 1, payload: bytes = b"") -> list[Command]:
        return self.do(events.FramesReceived([Received(session, frame, payload) for frame in received]))

    def tick_to(self, now: float) -> None:
        """Time passes, and the driver is on time."""
        while (deadline := self.machine.deadline()) is not None and deadline <= now:
            self.now = max(self.now, deadline)
            self.do(events.Tick())
        self.now = now

    def take_sent(self) -> list[frames.Frame]:
        sent, self.sent = [received.frame for received in self.sent], []
        return sent

    def sent_frames(self) -> list[frames.Frame]:
        return [received.frame for received in self.sent]

    def take_batches(self) -> list[Batch]:
        sent, self.sent = self.sent, []
        return [Batch.parse(received.payload) for received in sent if isinstance(received.frame, frames.Publish)]

    def take_told(self) -> list[Command]:
        told, self.told = self.told, []
        return told

    def told_of(self, kind: type[T]) -> list[T]:
        return [command for command in self.told if isinstance(command, kind)]

    # -- short ways into a state -----------------------------------------------------------------

    def ready(self, **limits: object) -> "Bench":
        self.do(events.OpenConnection())
        return self.reach(**limits)

    def reach(self, **limits: object) -> "Bench":
        """From CONNECTING to READY."""
        self.do(events.Connected())
        self.receive(welcome(**limits), session=0)
        return self

    def with_session(self) -> "Bench":
        self.do(events.OpenSession(1))
        self.receive(frames.SessionOpened(SESSION_ID))
        return self

    def with_producer(self) -> "Bench":
        self.do(events.OpenProducer(1, 1, "orders", QUEUE))
        self.receive(frames.ProducerOpened(1, PRODUCER_ID, 0))
        return self.clear()

    def with_consumer(self, prefetch: int = 10) -> "Bench":
        self.do(events.OpenConsumer(1, 1, "orders", QUEUE, prefetch))
        self.receive(frames.ConsumerOpened(1))
        return self.clear()

    def reconnect(self) -> "Bench":
        """Lose the link and go through the handshake again, up to SessionOpened."""
        self.do(events.Disconnected("cut"))
        self._parser = FrameParser(frame_bytes_max=1 << 30)
        self.tick_to(self.machine.deadline() or self.now)
        self.reach()
        self.clear()
        self.receive(frames.SessionOpened(SESSION_ID))
        return self

    def clear(self) -> "Bench":
        self.told.clear()
        self.sent.clear()
        return self
