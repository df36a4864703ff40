"""A simulated node: the machine, its disk, its clock, and the replicas that it holds.

The disk takes atomic groups one after the other and says so a little later; a crash loses those that were not done, but
may keep the first of them, done and not told. The node's clock runs at a rate of its own. A paused node does nothing,
and finds all that has come meanwhile when it goes on.
"""
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from angarium.core.errors import LocalProtocolError
from angarium.core.groups import changes as c
from angarium.core.groups import events as e
from angarium.core.groups import protocol as p
from angarium.core.groups.group_services import GroupServices
from angarium.core.groups.messages import Message
from angarium.core.groups.records import Hosted, NodeRecord, State
from angarium.core.report import Report
from angarium.core.storage import Operation, Put
from angarium.sim.clock import Timer
from angarium.sim.groups.ledger import Listener
from angarium.sim.groups.replicas import ReplicaDisk, ReplicaMessage, SimReplica
from angarium.sim.messages import Violation

if TYPE_CHECKING:
    from angarium.sim.groups.world import GroupsWorld

_LATE_S = 1e-7  # of a timer: never early, whatever the node's clock makes of it
CHANGES = (
    c.ViewChanged, c.NamedGroupChanged, c.ReplicaGroupChanged, c.PlacementChanged, c.SettingsChanged, c.VotersChanged,
    c.EssentialChanged,
)  # fmt: skip


class SimNode:
    def __init__(self, world: "GroupsWorld", name: str, *, keeps_log: bool, hosts: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self.keeps_log = keeps_log
        self.disk: dict[bytes, bytes] = {}  # durable records of the log
        self.replica_disks: dict[str, ReplicaDisk] = {}
        self.hosts = list(hosts)
        self.rate = 1.0
        self.essential = b"essential"
        self.machine: GroupServices | None = None
        self.incarnation = b""
        self.start_number = 0
        self.replicas: dict[str, SimReplica] = {}
        self.listener = Listener()
        self.reports: list[Report] = []
        self.answers: dict[int, e.RequestAnswered] = {}
        self.messages_sent = 0
        self.wanted_groups: set[str] = set()
        self._asks: dict[tuple[int, str], bytes] = {}  # (term, node) -> the disk that asked for our vote
        self._writes: deque[e.Persist] = deque()
        self._timer: Timer | None = None
        self._paused_until = 0.0
        self._inbox: deque[Callable[[], e.Event | None]] = deque()
        self._requests = 0
        self._compared: State | None = None

    @property
    def now(self) -> float:
        return self.world.clock.now * self.rate

    @property
    def is_alive(self) -> bool:
        return self.machine is not None

    @property
    def store(self) -> bytes:
        return b"" if self.machine is None or self.machine.raft is None else self.machine.raft.me.store

    # -- life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.machine is not None:
            return
        self.start_number += 1
        self.incarnation = self.world.draw_id()
        self.listener, self._asks = Listener(), {}
        self.replicas = {}
        for group in self.hosts:
            if group not in self.replica_disks:
                self.replica_disks[group] = ReplicaDisk(self.world.draw_id())
            self.replicas[group] = SimReplica(group, self, self.replica_disks[group])
        self.world.trace.note(self.name, f"starts, incarnation {self.incarnation.hex()[-6:]}")
        self.machine = GroupServices(
            self.record(), seeds=self.world.seeds, essential=self.essential, keeps_log=self.keeps_log,
            settings=self.world.settings, jitter=self.world.jitter,
        )  # fmt: skip
        self.tell(e.Started(dict(self.disk), self.world.draw_id()))
        for group in sorted(self.wanted_groups):
            self.tell(e.JoinGroup(group))

    def record(self) -> NodeRecord:
        hosted = tuple(
            Hosted(group, replica.disk.store, replica.disk.epoch == 0) for group, replica in self.replicas.items()
        )
        return NodeRecord(self.name, self.incarnation, (f"{self.name}:1",), ("mm",), hosted)

    def crash(self, *, keeps_first: bool, loses_disk: bool = False) -> None:
        if self.machine is None:
            return
        lost = ", and its disk is lost" if loses_disk else ""
        self.world.trace.note(self.name, f"crashes, {len(self._writes)} writes under way{lost}")
        if keeps_first and self._writes:
            self._make_durable(self._writes[0].operations)
        self.machine = None
        self._writes.clear()
        self._inbox.clear()
        self._paused_until = 0.0
        if self._timer is not None:
            self._timer.cancel()
        if loses_disk:
            self.disk = {}
            self.replica_disks = {}

    def _restart_of(self, start_number: int) -> Callable[[], None]:
        def restart() -> None:
            if start_number == self.start_number and self.machine is not None:
                self.crash(keeps_first=True)
                self.start()

        return restart

    def pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self.world.clock.now + seconds)
        self.world.trace.note(self.name, f"stands still for {seconds:.2f} s")
        self.world.clock.at(self._paused_until, self._resume)

    def _resume(self) -> None:
        while self._inbox and self.machine is not None and self.world.clock.now >= self._paused_until:
            event = self._inbox.popleft()()
            if event is not None:
                self._handle(event)
        if self.world.clock.now >= self._paused_until:
            self._arm()

    @property
    def is_paused(self) -> bool:
        return self.world.clock.now < self._paused_until

    # -- events --------------------------------------------------------------------------------------

    def tell(self, event: e.Event) -> None:
        if self.machine is None:
            return
        if self.is_paused or self._inbox:
            self._inbox.append(lambda: event)
        else:
            self._handle(event)

    def request(self, request: p.Request) -> int:
        self._requests += 1
        self.tell(e.Requested(self._requests, request))
        return self._requests

    def receive(self, sender: str, data: bytes) -> None:
        message = p.decode_message(data)
        if isinstance(message, p.VoteAsk) and not message.is_pre:
            self._asks[(message.term, sender)] = message.candidate.store
        self.tell(e.MessageReceived(sender, message))

    def receive_replica(self, message: ReplicaMessage) -> None:
        def deliver() -> None:
            replica = self.replicas.get(message.group)
            if replica is not None:
                replica.receive(message)

        if self.machine is None:
            return
        if self.is_paused or self._inbox:
            self._inbox.append(deliver)
        else:
            deliver()

    def _handle(self, event: e.Event) -> None:
        machine = self.machine
        assert machine is not None
        try:
            commands = machine.handle(event, now=self.now)
        except AssertionError as error:
            raise Violation("the machine's own invariants", str(error)) from error
        except LocalProtocolError:
            return  # the harness asked for too much
        for command in commands:
            self._perform(command)
        if self.machine is machine:
            self.world.ledger.look(machine, self.start_number)
            if machine.state is not self._compared:
                self._compared = machine.state
                self.world.ledger.compare(machine)
                self.listener.compare(machine.state)
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = None if self.machine is None else self.machine.deadline()
        if due is not None:
            self._timer = self.world.clock.at(due / self.rate + _LATE_S, self._tick)

    def _tick(self) -> None:
        if not self.is_paused:
            self.tell(e.Tick())

    # -- commands ------------------------------------------------------------------------------------

    def _perform(self, command: e.Command) -> None:
        world = self.world
        match command:
            case e.SendMessage(to, message):
                self._send(to, message)
            case e.Persist():
                self._writes.append(command)
                if len(self._writes) == 1:
                    world.clock.after(world.draw_sync_s(), self._sync_of(self.start_number))
            case e.ToReplica(message):
                replica = self.replicas.get(message.group)
                if replica is not None:
                    replica.asked(message)
            case e.RequestAnswered(number):
                self.answers[number] = command
                world.trace.note(self.name, f"request {number}: {command.code or 'done'}")
            case Report():
                self.reports.append(command)
                world.trace.note(self.name, command.text)
            case e.Left():
                world.trace.note(self.name, "has left")
                world.clock.after(0.5, self._restart_of(self.start_number))
            case e.StopNode(code, reason):
                world.trace.note(self.name, f"must stop: {code}: {reason}")
                self.crash(keeps_first=False)
            case e.SeekNode():
                pass  # everybody can be reached by name
            case e.LeaderChanged(leader, term):
                world.trace.note(self.name, f"leader {leader or 'unknown'} in term {term}")
            case _:
                assert isinstance(command, CHANGES)
                self._changed(command)

    def _send(self, to: str, message: Message) -> None:
        self.messages_sent += 1
        if self.keeps_log:
            asked = self._asks.get((message.term, to), b"") if isinstance(message, p.VoteAnswer) else b""
            self.world.ledger.sends(self.store, message, self.disk, asked)
        self.world.net.send(self.name, to, p.encode_message(message), message)

    def send_replica(self, to: str, message: ReplicaMessage) -> None:
        self.world.net.send_replica(self.name, to, message)

    def _changed(self, change: c.Change) -> None:
        self.world.trace.note(self.name, f"{change!r}"[:400])
        self.listener.told(change)
        if isinstance(change, c.ReplicaGroupChanged):
            self.world.configured(change.configuration)
            replica = self.replicas.get(change.configuration.group)
            if replica is not None:
                replica.configured(change.configuration)

    # -- the disk ------------------------------------------------------------------------------------

    def _sync_of(self, start_number: int) -> Callable[[], None]:
        def sync() -> None:
            if start_number != self.start_number or self.machine is None:
                return
            write = self._writes.popleft()
            self._make_durable(write.operations)
            if self._writes:
                self.world.clock.after(self.world.draw_sync_s(), self._sync_of(start_number))
            self.tell(e.Persisted(write.token))

        return sync

    def _make_durable(self, operations: list[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Put):
                self.disk[operation.key] = operation.value
            else:
                for key in [key for key in self.disk if operation.low <= key < operation.high]:
                    del self.disk[key]
