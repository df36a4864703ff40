"""A node with one replica, in virtual time: the machine, its disk, a stand-in for the message manager.

It starts from what its disk holds, dies without a word, stands still for a while, loses its disk; and starts again.
"""
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol

from angarium.core.destination.events import BatchesRead, DelayedRead, Write, WritesBlocked, WritesUnblocked
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.messages import Fenced, FromReplicaMessage, ToReplicaMessage
from angarium.core.replication import events as r
from angarium.core.replication.messages import decode, encode
from angarium.core.replication.replication import Replication
from angarium.core.report import Report
from angarium.core.storage import Operation, Table
from angarium.core.stream.events import FileEvent, FileSynced
from angarium.sim.clock import Clock, Timer
from angarium.sim.disk import SimDisk, SimDiskSettings
from angarium.sim.replicas.checkers import Ledger
from angarium.sim.replicas.manager import Asked, Manager, StandIn
from angarium.sim.replicas.network import ReplicaNetwork
from angarium.sim.replicas.real import RealManager
from angarium.sim.trace import Trace
from angarium.store.replicas import answer_range, load_replica, rows, scan_range

GROUP = "g"


class Surroundings(Protocol):
    """What a node needs of its world."""

    clock: Clock
    trace: Trace
    network: ReplicaNetwork
    ledger: Ledger
    members: list[str]
    is_real: bool  # the message managers are
    replication: r.ReplicationSettings
    disk_settings: SimDiskSettings

    def chance(self, purpose: str) -> Random: ...

    def to_groups(self, node: "SimReplica", message: FromReplicaMessage) -> None: ...

    def node_started(self, node: "SimReplica") -> None: ...


class SimReplica:
    def __init__(self, world: Surroundings, name: str) -> None:
        self.name = name
        self.starts = 0
        self.is_up = False
        self.manager: Manager | None = None
        self._world = world
        self._clock = world.clock
        self._chance = world.chance(f"node {name}")
        self._stores = 0
        self._timer: Timer | None = None
        self._paused_until = 0.0
        self._backlog: deque[Callable[[], None]] = deque()
        self._commands: deque[r.Command] = deque()
        self._is_running = False
        self.new_disk()

    # -- life ----------------------------------------------------------------------------------------

    def new_disk(self) -> None:
        self._stores += 1
        self.replica = Replica(self.name, f"{self.name}-{self._stores}".encode())
        self._world.ledger.new_disk(self.replica)
        world, replica = self._world, self.replica
        self.disk = SimDisk(
            world.clock, world.trace, world.chance(f"disk {self.name} {self._stores}"), world.disk_settings,
            partial(self._synced, replica), world.chance(f"files {self.name} {self._stores}"),
        )  # fmt: skip
        world.ledger.disks[replica].files = self.disk.stream_files

    def _synced(self, replica: Replica, operations: Sequence[Operation]) -> None:
        self._world.ledger.synced(replica, list(operations))

    @property
    def incarnation(self) -> bytes:
        return f"{self.name} {self.starts}".encode()

    def start(self) -> None:
        if self.is_up:
            return
        self.starts += 1
        self.is_up = True
        self._world.trace.note(self.name, "starts")
        store = self.disk.open(self)
        files = self.disk.stream_files.open(self, ())
        self.machine = Replication(
            self.replica, self.incarnation, GROUP, load_replica(store), self._world.replication,
            {stream: file.fragments for stream, file in files.items()},
        )  # fmt: skip
        self._world.network.join(self.name, self.received)
        self._world.node_started(self)

    def crash(self, *, keeps_staged: bool, loses_disk: bool = False) -> None:
        if not self.is_up:
            return
        self._world.trace.note(self.name, "loses its disk" if loses_disk else "crashes")
        self.is_up = False
        self._stop_manager()
        self._world.network.leave(self.name)
        self.disk.crash(keeps_staged=keeps_staged)
        self._backlog.clear()
        self._paused_until = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if loses_disk:
            self._world.ledger.disks[self.replica].is_lost = True
            self.new_disk()

    def pause(self, seconds: float) -> None:
        if self.is_up:
            self._world.trace.note(self.name, f"stands still for {seconds:.3f} s")
            self._paused_until = max(self._paused_until, self._clock.now + seconds)
            self._clock.at(self._paused_until, self._resume)

    @property
    def is_paused(self) -> bool:
        return self._clock.now < self._paused_until

    def _resume(self) -> None:
        while self._backlog and self._clock.now >= self._paused_until:
            self._backlog.popleft()()
        self._arm()

    def _enter(self, action: Callable[[], None]) -> None:
        """Everything that reaches the process."""
        if not self.is_up:
            return
        if self._backlog or self._clock.now < self._paused_until:
            self._backlog.append(action)
        else:
            action()
            self._arm()

    # -- events in -------------------------------------------------------------------------------------

    def received(self, sender: str, head: bytes, payload: bytes) -> None:
        replica_bytes, _, message = head.partition(b"|")
        self._enter(partial(
            self._tell,
            r.MessageReceived(Replica(sender, replica_bytes), decode(message), payload),
        ))  # fmt: skip

    def heard(self, sender: bytes, sequence: int, uid: bytes, payload: bytes) -> None:
        """A client manager's message on the group's channel."""
        self._enter(partial(self._heard, sender, sequence, uid, payload))

    def _heard(self, sender: bytes, sequence: int, uid: bytes, payload: bytes) -> None:
        self._tell(r.PayloadReceived(sender, sequence, payload))
        if self.manager is not None:
            self._ask(self.manager.payload(uid, payload, self._clock.now))

    def _ask(self, asked: Sequence[Asked]) -> None:
        """What the message manager wants, gathered as in a turn of the loop."""
        files = [one for one in asked if not isinstance(one, Write)]
        if files:
            self._world.ledger.files_asked(files)
            self._tell(r.FilesAsked(files))
        if writes := [one for one in asked if isinstance(one, Write)]:
            self._tell(r.WritesAsked(writes))
        if self.manager is not None:
            confirmed, repeated = self.manager.take_confirmed()
            self._world.ledger.written(self, confirmed)
            self._world.ledger.written(self, repeated, is_repeated=True)

    def configured(self, configuration: GroupConfiguration) -> None:
        self._enter(partial(self._tell, r.ConfigurationChanged(configuration)))

    def asked(self, message: ToReplicaMessage) -> None:
        self._enter(partial(self._tell, r.FromGroups(message)))

    def written(self, tokens: list[int]) -> None:
        self._enter(partial(self._tell, r.LocallyWritten(tokens[-1])))

    def writes_blocked(self, reason: str) -> None:
        self._enter(partial(self._tell, r.DiskBlocked(reason)))

    def read_done(self, event: BatchesRead | DelayedRead) -> None: ...

    def files_told(self, event: FileEvent) -> None:
        self._enter(partial(self._tell, event))

    def _on_timer(self) -> None:
        self._timer = None
        self._enter(partial(self._tell, r.Tick()))

    def _arm(self) -> None:
        at = self.machine.deadline() if self.is_up else None
        if at is None or (self._timer is not None and self._timer.at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.at(at, self._on_timer)

    # -- commands out ----------------------------------------------------------------------------------

    def _tell(self, event: r.Event) -> None:
        if not self.is_up:
            return
        self._commands += self.machine.handle(event, now=self._clock.now)
        self._world.ledger.handled(self)
        if self._is_running:
            return  # in the order in which they were given, also when running one leads to more
        self._is_running = True
        while self._commands:
            self._do(self._commands.popleft())
        self._is_running = False

    def _do(self, command: r.Command) -> None:
        world = self._world
        match command:
            case r.WriteLocal(token, operations):
                if any(operation.table != Table.REPLICA for operation in operations):
                    world.ledger.writes_orders(self)
                self.disk.write(Write(token, operations, freeing=True))
            case r.SendTo(replica, message, payload):
                head = self.replica.store + b"|" + encode(message)
                world.network.send(self.name, replica.node, head, payload)
            case r.SendOrder(message, payload):
                head = self.replica.store + b"|" + encode(message)
                world.network.multicast(self.name, world.members, head, payload)
            case r.ToGroups(asked):
                if isinstance(asked, Fenced):
                    world.ledger.promised(self.replica, asked.epoch, asked.position)
                world.to_groups(self, asked)
            case r.Written(tokens):
                assert self.manager is not None
                self._ask(self.manager.written(tokens, self._clock.now))
            case r.ToManager(told):
                self._tell_manager(told)
            case r.LocalFile(on_file):
                self.disk.stream_files.do(on_file)
            case r.StartMessageManager():
                world.trace.note(self.name, f"is primary in epoch {self.machine.epoch}")
                world.ledger.manager_starts(self)
                self.manager = self._new_manager()
                self._ask(self.manager.asked)
            case r.StopMessageManager(reason):
                world.trace.note(self.name, f"stops: {reason}")
                self._stop_manager()
            case r.ReadRange():
                self._read_range(command)
            case Report():
                world.trace.note(self.name, f"reports {command.code}: {command.text}")
                world.ledger.count({"replica-copies": "copies"}.get(command.code, command.code))
            case _:
                raise AssertionError(f"{command} is not for this world")

    def _new_manager(self) -> Manager:
        if self._world.is_real:
            return RealManager(self.disk.store, self._clock.now)
        return StandIn(self.disk.store, self._chance, self.incarnation + b"%d" % self.machine.epoch)

    def _tell_manager(self, told: object) -> None:
        assert self.manager is not None
        if isinstance(told, WritesBlocked | WritesUnblocked):
            self._ask(self.manager.set_blocked(told, self._clock.now))
        elif isinstance(told, FileSynced):
            self._ask(self.manager.file_synced(told))

    def _stop_manager(self) -> None:
        self.manager = None
        self._world.ledger.manager_stops(self.replica)

    def _read_range(self, command: r.ReadRange) -> None:
        """As a thread does: the position, what is there, the position again, and time passes in between."""
        start, store = self.starts, self.disk.store
        before = load_replica(store).position.number
        delays_s = [self._chance.random() * 0.002 * self.disk.slowness for _ in range(2)]

        def look() -> None:
            if start == self.starts and self.is_up:
                found = scan_range(store, command)
                self._clock.after(delays_s[1], partial(tell, found))

        def tell(found: tuple[bytes, list[tuple[bytes, bytes]]]) -> None:
            if start == self.starts and self.is_up:
                after = load_replica(store).position.number
                answer = answer_range(command, found[0], found[1], before, after, whole=rows(store))
                self._enter(partial(self._tell, answer))

        self._clock.after(delays_s[0], look)
