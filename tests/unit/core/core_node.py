"""A whole node without sockets: a client manager and a message manager on a fake disk, joined by a fake bus.

The bus promises what the real one does: frames for one destination stay in order; with `random` the destinations take
turns by chance. Whatever is sent to a client is encoded and parsed on the way, so that it must be encodable.
"""
from collections import deque
from random import Random
from typing import TypeVar

from angarium.core.destination.events import DestinationSettings, FromSession, Report
from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import GlobalIds
from angarium.core.session import events as cm
from angarium.core.session.client_manager import ClientManager
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.codec import FrameParser, Received, encode
from angarium.core.wire.frames import PROTOCOL_VERSION, DestinationKind, Frame
from tests.unit.core.core_manager import World

_F = TypeVar("_F", bound=Frame)
HELLO = frames.Hello(PROTOCOL_VERSION, "test", "test")


class Node:
    def __init__(
        self,
        settings: cm.SessionSettings | None = None,
        *,
        destination_settings: DestinationSettings | None = None,
        random: Random | None = None,
        auto: bool = True,
    ) -> None:
        self.settings = settings or cm.SessionSettings()
        self.auto = auto
        self.world = World(destination_settings, auto=False)
        self.world.on_sent = self._from_manager
        self.client_manager = ClientManager(
            self.settings, GlobalIds(start_ms=1, site=0, node=1), node="n", incarnation=b"i" * 16
        )
        self.clients: dict[int, Client] = {}
        self.reports: list[Report] = []
        self.own: list[cm.OwnPublished | cm.ManagerReplied] = []  # what became of what the node itself did
        self.asked: list[frames.Request] = []  # of the node itself
        self._random = random
        self._queues: dict[int, deque[FromSession]] = {}
        self._connections = 0

    def connect(self, *, greet: bool = True, client: bytes = b"") -> "Client":
        """`client`: the identity of an earlier connection."""
        self._connections += 1
        made = self.clients[self._connections] = Client(self, self._connections)
        self.tell(cm.ConnectionOpened(self._connections, "peer"))
        if greet:
            made.send(frames.Hello(PROTOCOL_VERSION, "test", "test", client), session=0)
        return made

    def connect_with_session(self, *, client: bytes = b"") -> "Client":
        made = self.connect(client=client)
        made.open_session()
        return made

    def tell(self, event: cm.Event) -> None:
        self._perform(self.client_manager.handle(event, now=self.world.now))
        if self.auto:
            self.run()

    def _perform(self, commands: list[cm.Command]) -> None:
        for command in commands:
            match command:
                case cm.SendFrame(connection, session, frame, payload):
                    self.clients[connection].arrive(session, frame, payload)
                case cm.CloseConnection(connection):
                    self.clients[connection].closed = True
                case cm.ToBus(session, destination, frame, payload):
                    envelope = FromSession(session, destination, frame, payload)
                    self._queues.setdefault(destination, deque()).append(envelope)
                case cm.AskNode(session, frame):
                    assert isinstance(frame, frames.Request)
                    self.asked.append(frame)
                    reply = frames.Reply(frame.number, "", "", "about the node")
                    self._perform(self.client_manager.handle(cm.FromBus(session, reply), now=self.world.now))
                case cm.OwnPublished() | cm.ManagerReplied():
                    self.own.append(command)
                case Report():
                    self.reports.append(command)

    def _from_manager(self, session: bytes, frame: Frame, payload: bytes) -> None:
        self._perform(self.client_manager.handle(cm.FromBus(session, frame, payload), now=self.world.now))

    # -- what is under way -----------------------------------------------------------------------------

    def run(self) -> None:
        """Until nothing is under way any more."""
        while self.step_bus() or self.world.complete_write() or self.world.complete_read():
            pass

    def run_bus(self) -> None:
        while self.step_bus():
            pass

    def step_bus(self) -> bool:
        """Handle one frame from the bus."""
        if not self._queues:
            return False
        waiting = list(self._queues)
        destination = self._random.choice(waiting) if self._random else waiting[0]
        self._queues[destination] = self._queues.pop(destination)  # it has had its turn
        self.step_destination(destination)
        return True

    def step_destination(self, destination: int) -> None:
        """Handle the first frame that waits for the destination."""
        envelope = self._queues[destination].popleft()
        if not self._queues[destination]:
            del self._queues[destination]
        self.world.tell(envelope)

    def waiting_for(self, destination: int) -> list[Frame]:
        return [envelope.frame for envelope in self._queues.get(destination, ())]

    def advance(self, seconds: float) -> None:
        until = self.world.now + seconds
        while True:
            due = [d for d in (self.client_manager.deadline(), self.world.manager.deadline()) if d is not None]
            if not due or min(due) > until:
                break
            self.world.now = max(self.world.now, min(due))
            self.world.advance(0)
            self.tell(cm.Tick())
        self.world.now = until


class Client:
    """One connection, as seen from its other end. Session 1 is opened by `open_session`."""

    def __init__(self, node: Node, connection: int) -> None:
        self.node = node
        self.connection = connection
        self.closed = False
        self.frames: list[Received] = []
        self.identity = b""
        self._sent = FrameParser(frame_bytes_max=1 << 30)
        self._input = FrameParser(frame_bytes_max=node.settings.frame_bytes_max)

    # -- to the node -------------------------------------------------------------------------------

    def send(self, *items: Frame, session: int = 1) -> None:
        """All of them in one read."""
        self.feed(b"".join(encode(session, frame) for frame in items))

    def send_with(self, frame: Frame, payload: bytes, *, session: int = 1) -> None:
        self.feed(encode(session, frame, payload))

    def feed(self, data: bytes) -> None:
        """What the listener does with bytes from a socket."""
        if self.closed:
            return
        try:
            received = self._input.feed(data)
        except RemoteProtocolError as error:
            self.node.tell(cm.InputRefused(self.connection, error.code, error.reason))
            return
        if received:
            self.node.tell(cm.FramesReceived(self.connection, received))

    def open_session(self, *, session: int = 1, identity: bytes = b"") -> None:
        self.send(frames.SessionOpen(identity), session=session)
        if self.closed:
            return
        opened = self.last(frames.SessionOpened, session=session)
        if session == 1:
            self.identity = opened.identity

    def open_producer(self, name: str, *, number: int = 1, session: int = 1) -> bytes:
        """The identity under which the producer may publish."""
        self.send(frames.ProducerOpen(number, name, DestinationKind.ANY), session=session)
        return self.last(frames.ProducerOpened, session=session).identity

    def open_consumer(self, name: str, *, number: int = 1, credit: int = 100) -> None:
        self.send(frames.ConsumerOpen(number, name, DestinationKind.ANY, credit=credit))

    def lose(self) -> None:
        self.closed = True
        self.node.tell(cm.ConnectionLost(self.connection))

    # -- from the node -----------------------------------------------------------------------------

    def arrive(self, session: int, frame: Frame, payload: bytes) -> None:
        assert not self.closed, f"{frame} sent over a closed connection"
        self.frames += self._sent.feed(encode(session, frame, payload))

    def received(self, kind: type[_F], *, session: int | None = None) -> list[_F]:
        wanted = (session,) if session is not None else tuple(item.session for item in self.frames)
        return [item.frame for item in self.frames if isinstance(item.frame, kind) and item.session in wanted]

    def last(self, kind: type[_F], *, session: int | None = None) -> _F:
        return self.received(kind, session=session)[-1]

    @property
    def failure(self) -> str:
        """The code with which the node ended the connection; empty if it did not."""
        failures = self.received(frames.Failure, session=0)
        return failures[-1].code if failures else ""

    @property
    def bodies(self) -> list[bytes]:
        return [
            body
            for item in self.frames
            if isinstance(item.frame, frames.Deliver)
            for body in Batch.parse(item.payload).bodies()
        ]
