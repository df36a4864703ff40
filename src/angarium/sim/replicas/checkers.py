"""What replication promises, checked as things happen. The checkers watch disks and what leaves the machines.

- *confirmed is kept*: a write that was told `Written` is on the disk of every later primary before its message manager
  starts, and of every in-sync replica once all is healed.
- *confirmed is everywhere*: when `Written` is told, every in-sync replica has the write on its disk, also of a
  configuration that is decided and not yet known to the primary; and at least `min_copies` have.
- *one history*: an order has one content for ever; a number that is committed has one order for ever.
- *a position is true*: whenever a disk says that it is at an order, its tables are what they were on the primary that
  ordered it, by hash. That holds for backups, for copies, and for a primary after a restart.
- *one primary*: only one start of one replica tells `Written` in an epoch, and only one message manager of an epoch
  runs.
- *one voice*: a backup writes only what the primary of its own epoch has in its history.
- *a promise holds*: a replica that said it is done with an epoch writes no order in that epoch any more, restart or
  not.
- *in sync*: whoever is in a configuration's in-sync set has everything that was confirmed when it is decided, and
  destroys nothing of it.
- *prefixes*: whoever is in sync when a primary begins has nothing that the primary has not.
- *a body is there*: whenever a disk says that a message holds a stream, all of that stream is durable on it.
- *bounds*: windows and buffers keep their limits.
"""
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from angarium.core.groups.configuration import GroupConfiguration, Position, Replica
from angarium.core.replication.backup import Backup
from angarium.core.replication.events import ReplicationSettings
from angarium.core.replication.history import History
from angarium.core.replication.primary import Primary
from angarium.core.replication.replication import Replication
from angarium.core.storage import Operation, Put, Table
from angarium.core.stream.blocks import Block
from angarium.core.stream.events import AppendBlock, DeleteFile, SyncFile
from angarium.core.stream.table import StreamRecord
from angarium.sim.messages import Violation
from angarium.sim.replicas.mirror import Mirror
from angarium.sim.stream_files import SimStreamFiles

UID_TABLE = Table.TRANSACTION  # each write of the stand-in notes its own id there, and nobody deletes it
UID_BYTES = 6


@dataclass(slots=True)
class Disk:
    """A store, as long as it exists, whether its node is up or not."""

    replica: Replica
    mirror: Mirror = field(default_factory=Mirror)
    promised: int = 0  # it has said that this epoch is over
    is_lost: bool = False
    had: Container[bytes] = ()  # when it began to copy over it

    @property
    def uids(self) -> Collection[bytes]:
        """What is written; of a real message manager each is a producer."""
        producers = self.mirror.items[Table.PRODUCER]
        return {key[8 : 8 + UID_BYTES] for key in producers} if producers else self.mirror.items[UID_TABLE]

    files: SimStreamFiles | None = None


class Watched(Protocol):
    @property
    def replica(self) -> Replica: ...

    @property
    def incarnation(self) -> bytes: ...

    @property
    def machine(self) -> Replication: ...


class Ledger:
    def __init__(self, settings: ReplicationSettings, decided: Callable[[], GroupConfiguration]) -> None:
        self._decided = decided  # the latest configuration, whoever has heard of it
        self.disks: dict[Replica, Disk] = {}
        self.confirmed: dict[bytes, int] = {}  # id of the write -> epoch in which it was confirmed
        self.tally: dict[str, int] = {}
        self._settings = settings
        self._hash_at: dict[Position, int] = {Position(0, 0): 0}
        self._committed: dict[int, Position] = {}
        self._checked: dict[bytes, int] = {}  # incarnation of a primary -> how far its commits were looked at
        self._tellers: dict[int, tuple[Replica, bytes]] = {}  # epoch -> who told Written
        self._managers: dict[int, Replica] = {}  # epoch -> whose message manager ran
        self._ordering: dict[Replica, Mirror] = {}  # of those whose message manager runs: what their orders have made
        self._histories: dict[int, tuple[History, int]] = {}  # epoch -> its primary's, and where that ends
        self._content: dict[bytes, list[Block]] = {}  # stream -> what was sent
        self._deleted: set[bytes] = set()
        self._running: dict[Replica, int] = {}  # message managers that run, and in which epoch

    def count(self, what: str) -> None:
        self.tally[what] = self.tally.get(what, 0) + 1

    def new_disk(self, replica: Replica) -> None:
        self.disks[replica] = Disk(replica)

    # -- disks ---------------------------------------------------------------------------------------

    def synced(self, replica: Replica, operations: list[Operation]) -> None:
        disk = self.disks[replica]
        was_copying = disk.mirror.is_copying
        if disk.mirror.apply(operations):
            self._check_position(disk)
        if disk.mirror.is_copying and not was_copying and replica in self._decided().in_sync:
            raise Violation("in sync", f"{replica} is, and begins to copy over what it has")
        if disk.mirror.is_copying and not was_copying:
            disk.had = frozenset(disk.uids)
        for operation in operations:
            if isinstance(operation, Put) and operation.table == Table.STREAM:
                self._check_file(disk, msgspec.msgpack.decode(operation.value, type=StreamRecord))

    def files_asked(self, commands: Sequence[AppendBlock | SyncFile | DeleteFile]) -> None:
        """What a message manager wants of files."""
        for command in commands:
            if isinstance(command, AppendBlock):
                self._content.setdefault(command.stream, []).append(command.block)
            elif isinstance(command, DeleteFile):
                self._deleted.add(command.stream)

    def _check_file(self, disk: Disk, record: StreamRecord) -> None:
        assert disk.files is not None
        self.count("files")
        if record.identity in self._deleted:
            return
        if disk.files.durable_blocks(record.identity) < record.fragments:
            raise Violation("a body is there", f"{disk.replica} has a message, and not its stream")
        if disk.files.blocks[record.identity][: record.fragments] != self._content[record.identity]:
            raise Violation("a body is there", f"{disk.replica} has another stream than was sent")

    def _check_position(self, disk: Disk) -> None:
        position, found = disk.mirror.position, self._hash_at.get(disk.mirror.position)
        if disk.mirror.is_copying:
            raise Violation("a position is true", f"{disk.replica} says {position} in the middle of a copy")
        if found is None:
            raise Violation("a position is true", f"{disk.replica} says {position}, which nobody has ordered")
        if found != disk.mirror.hash:
            raise Violation("a position is true", f"{disk.replica} says {position}, and its tables differ")

    # -- machines ------------------------------------------------------------------------------------

    def writes_orders(self, node: Watched) -> None:
        """A replica gives orders to its disk."""
        disk = self.disks[node.replica]
        if node.machine.epoch <= disk.promised:
            what = f"{node.replica} writes an order of epoch {node.machine.epoch}, having promised {disk.promised}"
            raise Violation("a promise holds", what)
        if isinstance(node.machine.role, Backup):
            self._check_voice(node.replica, node.machine)

    def _check_voice(self, replica: Replica, machine: Replication) -> None:
        position = machine.local.handed
        history, last = self._histories.get(machine.epoch, (None, 0))
        if history is None or not history.holds(position, last):
            raise Violation("one voice", f"{replica} in epoch {machine.epoch} writes {position}")

    def promised(self, replica: Replica, epoch: int, position: Position) -> None:
        disk = self.disks[replica]
        if disk.mirror.position != position:
            raise Violation("a promise holds", f"{replica} said {position}, its disk is at {disk.mirror.position}")
        disk.promised = max(disk.promised, epoch)

    def handled(self, node: Watched) -> None:
        """After every event of a machine."""
        machine = node.machine
        role = machine.role
        if isinstance(role, Primary):
            self._ordered(node, machine, role)
        self._check_bounds(node, machine)

    def _ordered(self, node: Watched, machine: Replication, role: Primary) -> None:
        if machine.epoch not in self._histories:
            assert machine.configuration is not None
            self._check_prefixes(node, machine.configuration)
        self._histories[machine.epoch] = (machine.local.history, machine.local.handed.number)
        mirror = self._ordering.get(node.replica)
        if mirror is not None:
            for order in machine.window.after(mirror.position.number):
                mirror.apply(order.operations)
                mirror.position = order.position
                known = self._hash_at.setdefault(order.position, mirror.hash)
                if known != mirror.hash:
                    raise Violation("one history", f"{order.position} was ordered twice")
        first = max(self._checked.get(node.incarnation, 0), machine.window.base.number)
        for order in machine.window.after(first, role.committed):
            known_as = self._committed.setdefault(order.position.number, order.position)
            if known_as != order.position:
                raise Violation("one history", f"{known_as} was committed, and {order.position} is in its place")
        self._checked[node.incarnation] = max(first, role.committed)

    def _check_bounds(self, node: Watched, machine: Replication) -> None:
        settings, slack = self._settings, 4_096
        kept = machine.window.size_bytes
        if kept > settings.recent_bytes_max + settings.window_bytes_max + slack:
            raise Violation("bounds", f"{node.replica} keeps {kept} bytes of orders")
        if isinstance(machine.role, Backup) and machine.role.inbox_bytes > settings.inbox_bytes_max + slack:
            raise Violation("bounds", f"{node.replica} has {machine.role.inbox_bytes} bytes of early orders")
        if machine.payload_bytes > settings.payload_bytes_max:
            raise Violation("bounds", f"{node.replica} has {machine.payload_bytes} bytes of payloads")

    # -- the message manager -------------------------------------------------------------------------

    def manager_starts(self, node: Watched) -> None:
        epoch, disk = node.machine.epoch, self.disks[node.replica]
        other = self._managers.setdefault(epoch, node.replica)
        if other != node.replica:
            raise Violation("one primary", f"{node.replica} starts in epoch {epoch}, as {other} did")
        held = disk.uids
        # One that stood still may start when there is a later primary: of what that has confirmed it need not know.
        lost = [uid for uid, confirmed_in in self.confirmed.items() if confirmed_in <= epoch and uid not in held]
        if lost:
            raise Violation("confirmed is kept", f"{node.replica} starts without {len(lost)}, such as {lost[0].hex()}")
        if disk.mirror.position != node.machine.local.handed:
            raise Violation("a position is true", f"{node.replica} starts at {disk.mirror.position}")
        self._ordering[node.replica] = disk.mirror.copy()
        self._running[node.replica] = epoch
        self.count("promotions")

    def _check_prefixes(self, node: Watched, configuration: GroupConfiguration) -> None:
        history, last = node.machine.local.history, node.machine.local.handed.number
        for replica in configuration.in_sync:
            position = self.disks[replica].mirror.position
            is_later = position.epoch > configuration.epoch  # we stood still, and there is a later primary
            if not is_later and not self.disks[replica].is_lost and not history.holds(position, last):
                raise Violation("prefixes", f"{replica} is in sync at {position}, not a part of {history.epochs}")

    def decided(self, configuration: GroupConfiguration) -> None:
        """Whoever is in sync has everything that was confirmed."""
        for replica in configuration.in_sync:
            disk = self.disks[replica]
            uids = disk.uids
            lost = [uid for uid in self.confirmed if uid not in uids]
            if lost and not disk.is_lost:
                raise Violation("in sync", f"{replica} is, in epoch {configuration.epoch}, without {lost[0].hex()}")

    def manager_stops(self, replica: Replica) -> None:
        self._running.pop(replica, None)
        self._ordering.pop(replica, None)

    def written(self, node: Watched, uids: list[bytes], *, is_repeated: bool = False) -> None:
        """`is_repeated`: an answer to what was sent again; when it was committed, there were copies enough."""
        configuration = node.machine.configuration
        assert configuration is not None
        epoch, who = configuration.epoch, (node.replica, node.incarnation)
        if self._tellers.setdefault(epoch, who) != who:
            raise Violation("one primary", f"{node.replica} and another tell Written in epoch {epoch}")
        for uid in uids:
            self._check_copies(configuration, uid, 0 if is_repeated else configuration.min_copies)
            for replica, later in self._running.items():
                if later > epoch and uid not in self.disks[replica].uids:
                    what = f"{uid.hex()} is confirmed in epoch {epoch}, and unknown in {later}"
                    raise Violation("confirmed is kept", what)
            self.confirmed[uid] = epoch
            self.count("confirmed")

    def _check_copies(self, configuration: GroupConfiguration, uid: bytes, copies_min: int) -> None:
        holders = [
            replica for replica, disk in self.disks.items()
            if not disk.is_lost and uid in disk.uids and not disk.mirror.is_copying
        ]  # fmt: skip
        counted = (*configuration.in_sync, *self._decided().in_sync)
        missing = [r for r in counted if r not in holders and not self._is_excused(r, uid)]
        if missing:
            raise Violation("confirmed is everywhere", f"{uid.hex()} is confirmed, and not on {missing[0]}")
        lost = [r for r in configuration.in_sync if self.disks[r].is_lost]
        if len(holders) + len(lost) < copies_min:
            raise Violation("confirmed is everywhere", f"{uid.hex()}: {len(holders)} copies of {copies_min}")

    def _is_excused(self, replica: Replica, uid: bytes) -> bool:
        """It was lost; or it had this, was put out, and copies by now: its old primary stood still, and tells late."""
        disk = self.disks[replica]
        has_left = replica not in self._decided().in_sync
        return disk.is_lost or (has_left and disk.mirror.is_copying and uid in disk.had)

    # -- the end -------------------------------------------------------------------------------------

    def check_healed(self, configuration: GroupConfiguration) -> None:
        mirrors = {replica: self.disks[replica].mirror for replica in configuration.in_sync}
        if len({(mirror.position, mirror.hash) for mirror in mirrors.values()}) != 1:
            listed = ", ".join(f"{replica}: {mirror.position}" for replica, mirror in mirrors.items())
            raise Violation("replicas are equal", listed)
        for replica, mirror in mirrors.items():
            for record in mirror.items[Table.STREAM].values():
                self._check_file(self.disks[replica], msgspec.msgpack.decode(record, type=StreamRecord))
            uids = self.disks[replica].uids
            lost = [uid for uid in self.confirmed if uid not in uids]
            if lost:
                raise Violation("confirmed is kept", f"{replica} has not {lost[0].hex()}")
