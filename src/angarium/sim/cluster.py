"""Several message managers, each with a disk of its own, and client managers in front of them, in virtual time.

Each of them dies and starts alone. What was on its way between two of them is lost when one of them dies; a client
manager that finds another message manager behind a group detaches the sessions that have to do with it. A message
manager whose client manager is gone hears it from `Attendance`.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.destination import events as mm
from angarium.core.destination.attendance import Attendance
from angarium.core.errors import RemoteProtocolError
from angarium.core.groups.records import Placement
from angarium.core.ids import ANYBODY, GlobalIds
from angarium.core.session import events as cm
from angarium.core.session.client_manager import ClientManager
from angarium.core.session.destination_service import DestinationService
from angarium.core.wire.codec import FrameParser, encode_head
from angarium.sim.broker import WALL_MS_AT_ZERO, BrokerSettings, Witness
from angarium.sim.bus import SimBus
from angarium.sim.clock import Clock, Timer
from angarium.sim.disk import SimDisk
from angarium.sim.manager import SimManager, brief
from angarium.sim.network import Link, Network
from angarium.sim.trace import Trace

_NODE = 7
FRONTS = 2


class GroupWitness(Witness, Protocol):
    """Who is shown what passes inside the cluster."""

    def group_started(self, group: "SimGroup") -> None: ...

    def group_stopped(self, group: "SimGroup") -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    clock: Clock
    trace: Trace
    chance: Random
    network: Network
    settings: BrokerSettings
    witness: GroupWitness


class SimGroup:
    """One replica group: its disk, and a message manager that is there or not."""

    def __init__(self, cluster: "SimCluster", number: int, disk: SimDisk) -> None:
        self.number = number
        self.disk = disk
        self.manager: SimManager | None = None
        self._cluster = cluster
        self._around = cluster.around
        self._timer: Timer | None = None
        self._attendance = Attendance()

    @property
    def is_idle(self) -> bool:
        return self.manager is not None and self.disk.is_idle

    def start(self) -> None:
        if self.manager is not None:
            return
        around = self._around
        around.trace.note(f"group {self.number}", "starts")
        around.witness.group_started(self)
        self._attendance = Attendance()
        self.manager = SimManager(
            around.clock, around.trace, self.disk, around.settings, around.witness, wall_ms_at_zero=WALL_MS_AT_ZERO,
            enter=self._enter, answer=self._answer, report=self._report,
            number=self.number,
        )  # fmt: skip
        self.manager.begin()
        self._arm()
        self._cluster.group_started(self.number)

    def crash(self, *, keeps_staged: bool) -> None:
        if self.manager is None:
            return
        self._around.trace.note(f"group {self.number}", "is killed")
        self.manager.die()
        self.manager = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._around.witness.group_stopped(self)
        self.disk.crash(keeps_staged=keeps_staged)
        self._cluster.group_lost(self.number)

    def heard(self, client_manager: bytes, event: mm.FromSession, turn: int) -> None:
        if self.manager is None:
            return
        before: list[mm.FromSession] | None = []
        if event.session != ANYBODY:
            before = self._attendance.heard(
                client_manager, event.session, event.destination, event.frame, turn=turn
            )
        for told in (*before, event) if before is not None else ():
            self._enter(partial(self.manager.frame, told))

    def client_manager_gone(self, client_manager: bytes) -> None:
        for event in self._attendance.gone(client_manager):
            if self.manager is not None:
                self._enter(partial(self.manager.frame, event))

    def _answer(self, command: mm.ToSession) -> None:
        if command.session == ANYBODY:
            self._cluster.answer(self.number, None, command)
        elif (client_manager := self._attendance.client_manager_of(command.session)) is not None:
            self._cluster.answer(self.number, client_manager, command)

    def _enter(self, action: Callable[[], None]) -> None:
        action()
        self._arm()

    def _report(self, report: mm.Report) -> None:
        self._around.trace.note(f"group {self.number}", f"reports {report.code}: {report.text}")
        self._around.witness.reported(report)

    def _arm(self) -> None:
        at = None if self.manager is None else self.manager.deadline()
        if at is None or (self._timer is not None and self._timer.at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._around.clock.at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.manager is not None:
            self.manager.tell(mm.Tick())
        self._arm()


class SimCluster:
    """The groups, and two client managers in front of them: a client reaches any that is there."""

    def __init__(self, around: Surroundings, placement: Placement, disks: dict[int, SimDisk]) -> None:
        self.around = around
        self.placement = placement
        self.groups = {number: SimGroup(self, number, disk) for number, disk in disks.items()}
        self.fronts: list[SimFront] = []
        self._doors: dict[int, SimFront] = {}  # link -> who has it
        self._starts = 0

    @property
    def is_idle(self) -> bool:
        return all(front.is_idle for front in self.fronts) and all(group.is_idle for group in self.groups.values())

    def start(self) -> None:
        for group in self.groups.values():
            group.start()
        while len(self.fronts) < FRONTS:
            self._starts += 1
            self.around.trace.note("front", f"{self._starts} starts")
            start_ms = int(WALL_MS_AT_ZERO) + self._starts * 1_000_000
            self.fronts.append(SimFront(self, GlobalIds(start_ms=start_ms, site=0, node=_NODE)))
        self.around.network.listen(self)

    def crash_front(self) -> None:
        if not self.fronts:
            return
        front = self.fronts.pop(self.around.chance.randrange(len(self.fronts)))
        self.around.trace.note("front", "is killed")
        if not self.fronts:
            self.around.network.listen(None)
        front.die()
        for group in self.groups.values():
            delay_s = self.around.chance.random() * 0.5  # until its death is noticed
            self.around.clock.after(delay_s, partial(group.client_manager_gone, front.incarnation))

    # -- between groups and client managers ----------------------------------------------------------------

    def group_lost(self, number: int) -> None:
        for front in self.fronts:
            front.group_lost(number)

    def group_started(self, number: int) -> None:
        for front in self.fronts:
            front.group_started(number)

    def answer(self, number: int, client_manager: bytes | None, command: mm.ToSession) -> None:
        """None: to any."""
        fronts = [front for front in self.fronts if client_manager in (None, front.incarnation)]
        if fronts:
            self.around.chance.choice(fronts).answered(number, command)

    def heard(self, number: int, client_manager: bytes, event: mm.FromSession, turn: int) -> None:
        self.groups[number].heard(client_manager, event, turn)

    # -- connections ---------------------------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        front = self._doors[link.number] = self.around.chance.choice(self.fronts)
        front.opened(link)

    def received(self, link: Link, data: bytes) -> None:
        self._doors[link.number].received(link, data)

    def lost(self, link: Link, reason: str) -> None:
        self._doors.pop(link.number).lost(link, reason)

    def paused(self, link: Link, paused: bool) -> None:
        self._doors[link.number].paused(link, paused)


class SimFront:
    """One start of the client manager: connections, a bus to each group that is there."""

    def __init__(self, cluster: SimCluster, ids: GlobalIds) -> None:
        self._cluster = cluster
        self._around = around = cluster.around
        self._clock = around.clock
        self.incarnation = ids.next()
        self.manager = ClientManager(around.settings.session, ids, node="sim", incarnation=self.incarnation)
        self._service = DestinationService()
        self._service.placed(cluster.placement)
        self._links: dict[int, Link] = {}
        self._parsers: dict[int, FrameParser] = {}
        self._buses: dict[int, SimBus] = {}
        self._is_dead = False
        self._timer: Timer | None = None
        self.manager.handle(cm.GroupsKnown(list(cluster.groups)), now=self._clock.now)
        for number, group in cluster.groups.items():
            if group.manager is not None:
                self._connect(number)

    @property
    def is_idle(self) -> bool:
        return all(bus.is_idle for bus in self._buses.values())

    def die(self) -> None:
        self._is_dead = True
        for bus in self._buses.values():
            bus.cut()
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._links.values()):
            link.cut("the client manager is gone", client_after_s=self._around.chance.random())

    # -- groups ----------------------------------------------------------------------------------------

    def group_started(self, number: int) -> None:
        self._connect(number)
        self._tell(cm.GroupLost(number))

    def _connect(self, number: int) -> None:
        around, settings = self._around, self._around.settings
        self._buses[number] = SimBus(
            self._clock, around.trace, around.chance,
            to_manager=partial(self._cluster.heard, number, self.incarnation),
            to_sessions=partial(self._from_bus, number),
            delay_s_max=settings.bus_delay_s_max, answer_delay_s_max=max(settings.answer_delay_s_max, 0.001),
            in_order=True,
        )  # fmt: skip

    def group_lost(self, number: int) -> None:
        bus = self._buses.pop(number, None)
        if bus is not None:
            bus.cut()
            self._service.group_lost(number)

    def answered(self, number: int, command: mm.ToSession) -> None:
        if (bus := self._buses.get(number)) is not None:
            bus.answer(command)

    def _from_bus(self, number: int, event: cm.FromBus) -> None:
        told = self._service.answered(number, event)
        if told is not None:
            self._tell(told)

    # -- connections -----------------------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        if self._is_dead:
            return
        self._links[link.number] = link
        self._parsers[link.number] = FrameParser(frame_bytes_max=self._around.settings.session.frame_bytes_max)
        self._tell(cm.ConnectionOpened(link.number, f"client-{link.number}"))

    def received(self, link: Link, data: bytes) -> None:
        parser = self._parsers.get(link.number)
        if parser is None or self._is_dead:
            return
        try:
            received = parser.feed(data)
        except RemoteProtocolError as error:
            del self._parsers[link.number]
            self._tell(cm.InputRefused(link.number, error.code, error.reason))
            return
        if received:
            self._tell(cm.FramesReceived(link.number, received))

    def lost(self, link: Link, reason: str) -> None:
        self._links.pop(link.number, None)
        self._parsers.pop(link.number, None)
        if not self._is_dead:
            self._tell(cm.ConnectionLost(link.number))

    def paused(self, link: Link, paused: bool) -> None:
        self._clock.after(0.0, lambda: None if self._is_dead else self._tell(cm.ConnectionStalled(link.number, paused)))

    # -- the machine -----------------------------------------------------------------------------------

    def _tell(self, event: cm.Event) -> None:
        for command in self.manager.handle(event, now=self._clock.now):
            self._perform(command)
        self._arm()

    def _perform(self, command: cm.Command) -> None:
        match command:
            case cm.SendFrame(connection, session, frame, payload):
                link = self._links.get(connection)
                if link is not None:
                    if self._around.trace.is_read:
                        self._around.trace.say("front", f"-> link {connection} session {session} {brief(frame)}")
                    link.to_client.write(encode_head(session, frame, len(payload)) + payload)
            case cm.ToBus():
                for posted in self._service.route(command):
                    if (bus := self._buses.get(posted.group)) is not None:
                        bus.post(posted.command, self.manager.turn_of(command.session))
            case cm.CloseConnection(connection):
                link = self._links.pop(connection, None)
                self._parsers.pop(connection, None)
                if link is not None:
                    link.close(0, "closed")
                    self._clock.after(0.0, partial(self.lost, link, ""))
            case mm.Report():
                self._around.trace.note("front", f"reports {command.code}: {command.text}")
                self._around.witness.reported(command)

    def _arm(self) -> None:
        at = self.manager.deadline()
        if at is None or self._is_dead or (self._timer is not None and self._timer.at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._is_dead:
            self._tell(cm.Tick())


