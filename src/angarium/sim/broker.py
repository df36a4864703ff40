"""A broker in virtual time: the machines of `node/broker.py`, on a simulated network, bus and disk.

It starts from what the disk holds, dies without a word (`crash`) or with a goodbye (`shut_down`), and may start again.
Its message manager may also die alone (`crash_manager`), as in a cluster: connections and client manager live on.
Everything that passes between its parts is shown to the ledger, which knows what was promised.
"""
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.destination import events as mm
from angarium.core.destination.message_manager import MessageManager
from angarium.core.errors import RemoteProtocolError
from angarium.core.session import events as cm
from angarium.core.session.client_manager import ClientManager
from angarium.core.stream.events import StreamSettings
from angarium.core.wire.codec import FrameParser, encode_head
from angarium.core.wire.frames import Frame
from angarium.node.identity import take_up_identity
from angarium.sim.bus import SimBus
from angarium.sim.clock import Clock, Timer
from angarium.sim.disk import SimDisk
from angarium.sim.manager import SimManager, brief
from angarium.sim.network import Link, Network
from angarium.sim.trace import Trace

WALL_MS_AT_ZERO = 1_700_000_000_000.0
_NODE_CHANCE = 7  # becomes the node's number


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    session: cm.SessionSettings = field(default_factory=cm.SessionSettings)
    destination: mm.DestinationSettings = field(default_factory=mm.DestinationSettings)
    stream: StreamSettings = field(default_factory=StreamSettings)
    # The longest that a frame waits on the bus because its destination is busy.
    bus_delay_s_max: float = 0.02
    # The same for the way back; 0: frames arrive at once, as within one process.
    answer_delay_s_max: float = 0.0
    # The message manager's invariants are asserted after every so many events, and when the broker stops. 0: never.
    check_every: int = 16


class Witness(Protocol):
    """Who is shown what passes inside the broker."""

    def to_manager(self, event: mm.FromSession) -> None: ...

    def from_manager(self, command: mm.ToSession) -> None: ...

    def reported(self, report: mm.Report) -> None: ...

    def broker_started(self) -> None: ...

    def broker_stopped(self) -> None: ...


class SimBroker:
    """What outlives a crash: where it listens, its disk, and whether it is up."""

    def __init__(
        self, clock: Clock, trace: Trace, chance: Random, network: Network, disk: SimDisk,
        settings: BrokerSettings, witness: Witness,
    ) -> None:  # fmt: skip
        self.clock = clock
        self.trace = trace
        self.chance = chance
        self.network = network
        self.disk = disk
        self.settings = settings
        self.witness = witness
        self.node: Node | None = None  # None: it is down

    @property
    def is_idle(self) -> bool:
        return self.node is not None and self.node.is_idle and self.disk.is_idle

    def start(self) -> None:
        if self.node is None:
            self.trace.note("broker", "starts")
            self.witness.broker_started()
            self.node = Node(self)
            self.network.listen(self.node)

    def crash(self, *, keeps_staged: bool = False, is_power_cut: bool = False) -> None:
        """A killed process closes its sockets; after a power cut, clients find out by themselves."""
        node, self.node = self.node, None
        if node is None:
            return
        self.trace.note("broker", "loses power" if is_power_cut else "is killed")
        self.network.listen(None)
        is_whole = not node.manager.is_dead
        node.die(client_after_s=8.0 if is_power_cut else self.settings.bus_delay_s_max)
        if is_whole:
            self.witness.broker_stopped()  # while the disk still knows what it is about to lose
            self.disk.crash(keeps_staged=keeps_staged)

    def crash_manager(self, *, keeps_staged: bool = False) -> None:
        """The message manager's process is killed; the rest of the broker lives on."""
        if self.node is None or self.node.manager.is_dead:
            return
        self.trace.note("broker", "loses its message manager")
        self.node.lose_manager()
        self.witness.broker_stopped()
        self.disk.crash(keeps_staged=keeps_staged)

    def start_manager(self, *, notice_s: float = 0.0) -> None:
        """Another one on the same disk; the client manager hears of it a little later."""
        if self.node is not None and self.node.manager.is_dead:
            self.trace.note("broker", "has another message manager")
            self.witness.broker_started()
            self.node.start_manager(notice_s=notice_s)

    def shut_down(self) -> None:
        node, self.node = self.node, None
        if node is None:
            return
        self.trace.note("broker", "shuts down")
        self.network.listen(None)
        is_whole = not node.manager.is_dead
        node.say_goodbye()
        if is_whole:
            self.disk.shut_down()
            self.witness.broker_stopped()


class Node:
    """One start of the broker: connections, machines, bus, one timer."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._trace = broker.trace
        self._witness = broker.witness
        self._disk = broker.disk
        self._links: dict[int, Link] = {}
        self._parsers: dict[int, FrameParser] = {}
        self._paused_until = 0.0
        self._backlog: deque[Callable[[], None]] = deque()
        self._is_dead = False
        self._timer: Timer | None = None
        settings = broker.settings
        self.manager = self._new_manager()
        wall_ms = int(WALL_MS_AT_ZERO + self._clock.now * 1000)
        identity = take_up_identity(self.manager.stored.node, site=0, wall_ms=wall_ms, chance=_NODE_CHANCE)
        self._disk.commit_now(identity.operations)
        at_once = settings.answer_delay_s_max == 0.0
        self.bus = SimBus(
            self._clock, self._trace, broker.chance, to_manager=lambda event, _: self._on_bus(event),
            to_sessions=self._tell_cm if at_once else self._on_answer,
            delay_s_max=settings.bus_delay_s_max, answer_delay_s_max=settings.answer_delay_s_max,
        )  # fmt: skip
        self.client_manager = ClientManager(
            settings.session, identity.ids, node="sim", incarnation=identity.incarnation
        )
        self.manager.begin()
        self._arm()

    def _new_manager(self) -> SimManager:
        return SimManager(
            self._clock, self._trace, self._disk, self._broker.settings, self._witness,
            wall_ms_at_zero=WALL_MS_AT_ZERO, enter=self._enter, answer=lambda command: self.bus.answer(command),
            report=self._report,
        )  # fmt: skip

    @property
    def message_manager(self) -> MessageManager:
        return self.manager.machine

    @property
    def is_idle(self) -> bool:
        is_whole = not self.manager.is_dead and not self.bus.is_severed
        return is_whole and self.bus.is_idle and not self._backlog and self._clock.now >= self._paused_until

    def check(self) -> None:
        self.manager.check()

    def lose_manager(self) -> None:
        self.manager.die()
        self.bus.sever()

    def start_manager(self, *, notice_s: float) -> None:
        self.manager = self._new_manager()
        self.manager.begin()
        self._clock.after(notice_s, partial(self._enter, partial(self._group_lost, self.manager)))
        self._arm()

    def _group_lost(self, manager: SimManager) -> None:
        if manager is self.manager and not manager.is_dead:
            self.bus.join()
            self._tell_cm(cm.GroupLost(0))

    def die(self, *, client_after_s: float) -> None:
        self.manager.die()
        self._is_dead = True
        self.bus.cut()
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._links.values()):
            link.cut("the broker is gone", client_after_s=client_after_s * self._broker.chance.random())
        self._links.clear()

    def say_goodbye(self) -> None:
        self.manager.die()
        self._run_cm(self.client_manager.handle(cm.ShutDown("shutting down"), now=self._clock.now))
        self._is_dead = True
        self.bus.cut()
        if self._timer is not None:
            self._timer.cancel()

    # -- everything that reaches the process -----------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """The process stands still; what reaches it meanwhile waits, in order."""
        self._trace.note("broker", f"stands still for {seconds:.3f} s")
        self._paused_until = max(self._paused_until, self._clock.now + seconds)
        self._clock.at(self._paused_until, self._go_on)

    def _enter(self, action: Callable[[], None]) -> None:
        if self._is_dead:
            return
        if self._backlog or self._clock.now < self._paused_until:
            self._backlog.append(action)
        else:
            action()
            self._arm()

    def _go_on(self) -> None:
        while self._backlog and not self._is_dead and self._clock.now >= self._paused_until:
            self._backlog[0]()
            self._backlog.popleft()
        self._arm()

    # -- connections -----------------------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        self._enter(partial(self._opened, link))

    def received(self, link: Link, data: bytes) -> None:
        self._enter(partial(self._received, link, data))

    def lost(self, link: Link, reason: str) -> None:
        self._enter(partial(self._lost, link))

    def paused(self, link: Link, paused: bool) -> None:
        # Told while we are writing: it takes effect after that.
        self._clock.after(0.0, lambda: self._enter(partial(self._stalled, link, paused)))

    def _opened(self, link: Link) -> None:
        self._links[link.number] = link
        self._parsers[link.number] = FrameParser(frame_bytes_max=self._broker.settings.session.frame_bytes_max)
        self._tell_cm(cm.ConnectionOpened(link.number, f"client-{link.number}"))

    def _received(self, link: Link, data: bytes) -> None:
        parser = self._parsers.get(link.number)
        if parser is None:
            return
        try:
            received = parser.feed(data)
        except RemoteProtocolError as error:
            del self._parsers[link.number]
            self._tell_cm(cm.InputRefused(link.number, error.code, error.reason))
            return
        if received:
            self._tell_cm(cm.FramesReceived(link.number, received))

    def _lost(self, link: Link) -> None:
        self._links.pop(link.number, None)
        self._parsers.pop(link.number, None)
        self._tell_cm(cm.ConnectionLost(link.number))

    def _stalled(self, link: Link, stalled: bool) -> None:
        self._tell_cm(cm.ConnectionStalled(link.number, stalled))

    def _send(self, connection: int, session: int, frame: Frame, payload: bytes) -> None:
        link = self._links.get(connection)
        if link is not None:
            if self._trace.is_read:
                self._trace.say("broker", f"-> link {connection} session {session} {brief(frame)}")
            link.to_client.write(encode_head(session, frame, len(payload)) + payload)

    def _close(self, connection: int) -> None:
        link = self._links.pop(connection, None)
        self._parsers.pop(connection, None)
        if link is not None:
            link.close(0, "the broker closed the connection")
            self._clock.after(0.0, lambda: self.lost(link, ""))

    # -- machines --------------------------------------------------------------------------------------

    def _tell_cm(self, event: cm.Event) -> None:
        self._run_cm(self.client_manager.handle(event, now=self._clock.now))

    def _on_bus(self, event: mm.FromSession) -> None:
        self._enter(partial(self.manager.frame, event))

    def _on_answer(self, event: cm.FromBus) -> None:
        self._enter(partial(self._tell_cm, event))

    def _on_timer(self) -> None:
        self._enter(self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._tell_cm(cm.Tick())
        self.manager.tell(mm.Tick())

    def _run_cm(self, commands: list[cm.Command]) -> None:
        for command in commands:
            match command:
                case cm.SendFrame(connection, session, frame, payload):
                    self._send(connection, session, frame, payload)
                case cm.ToBus():
                    self.bus.post(command)
                case cm.CloseConnection(connection):
                    self._close(connection)
                case mm.Report():
                    self._report(command)

    def _arm(self) -> None:
        deadlines = (self.client_manager.deadline(), self.manager.deadline())
        at = min((d for d in deadlines if d is not None), default=None)
        if at is None or self._is_dead or (self._timer is not None and self._timer.at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.at(at, self._on_timer)

    def _report(self, report: mm.Report) -> None:
        self._trace.note("broker", f"reports {report.code}: {report.text}")
        self._witness.reported(report)
