"""The replication of one group on one node: which role this replica has, and what it has promised.

                          configuration names us                    another epoch, not ours
    WAITING ────────────────────────────────────────> PRIMARY ─────────────────────────────┐
       │  ▲     and the incarnation of this start        │  ▲                              │
       │  └── fenced: nothing of that epoch any more ────┘  │ named                        ▼
       └─────────────── configuration without us ───────────┴──────────────────────────> BACKUP

- An epoch at or below the fence is over for this replica, whatever happens: the fence is on disk before the promise is
  given, after everything that was accepted before it.
- A configuration that names our store, and an earlier start of our node, names somebody who is no more: it may have
  ordered what we do not know of. We wait for the next.
- A store in the middle of a copy promises nothing and is never primary.
- A copy that the configuration does not want any more stores nothing further: it stays as it is, and catches up if it
  is wanted again.
- Everything of a lower epoch is answered with `Stale`; who hears of a higher epoch than its own stops being primary
  at once, its message manager with it.

`handle` and `deadline` are the machine; see events.py for what a driver does.
"""
from collections.abc import Callable, Mapping
from typing import assert_never

from angarium.core.groups import messages as groups
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.ids import format_id
from angarium.core.replication import messages as m
from angarium.core.replication.backup import Backup
from angarium.core.replication.events import (
    Command,
    ConfigurationChanged,
    DiskBlocked,
    Event,
    FilesAsked,
    FromGroups,
    LocallyWritten,
    MessageReceived,
    PayloadReceived,
    RangeRead,
    ReplicationSettings,
    SendOrder,
    SendTo,
    StopMessageManager,
    Tick,
    ToGroups,
    ToManager,
    WritesAsked,
)
from angarium.core.replication.file_server import FileServer
from angarium.core.replication.files import BackupFiles, LocalFiles
from angarium.core.replication.history import StoredReplica
from angarium.core.replication.host import Host
from angarium.core.replication.local import Landed, LocalStore
from angarium.core.replication.payloads import Payloads
from angarium.core.replication.primary import Primary
from angarium.core.replication.window import Window
from angarium.core.report import Level, Report
from angarium.core.stream.events import BlocksRead, FileFailed, FilesBlocked, FileSynced, FileWritten


class Replication:
    def __init__(
        self, me: Replica, incarnation: bytes, group: str, stored: StoredReplica, settings: ReplicationSettings,
        files: Mapping[bytes, int] | None = None, is_held: Callable[[bytes], bool] = lambda stream: True,
    ) -> None:  # fmt: skip
        """`files`: the streams that are found on the disk, and how many durable blocks each has. `is_held`: as far as
        the message manager here knows, or if there is none, a message holds that stream."""
        self.me = me
        self.group = group
        self.configuration: GroupConfiguration | None = None
        self.role: Primary | Backup | None = None
        self.local = LocalStore(stored, epochs_max=settings.epochs_max)
        self._incarnation = incarnation
        self._settings = settings
        self._payloads = Payloads(
            bytes_max=settings.payload_bytes_max, reference_bytes_min=settings.reference_bytes_min
        )
        self.window = Window(
            self.local.handed, bytes_max=settings.recent_bytes_max, orders_max=settings.recent_orders_max
        )
        self._files = LocalFiles(files or {})
        self._is_held = is_held
        self._tokens = 0
        self._host = Host(settings, self.local, self._next_token)
        self._server = FileServer(settings, self._files.is_coming, self._next_token)
        self._committed = 0  # as far as earlier roles have known
        self._disk_reason = ""
        self._promised: int | None = None  # the epoch that somebody waits for our word to be done with
        self._promise_at: float | None = None  # when it is said again

    def _next_token(self) -> int:
        self._tokens += 1
        return self._tokens

    @property
    def epoch(self) -> int:
        return 0 if self.configuration is None else self.configuration.epoch

    @property
    def unwritten_bytes(self) -> int:
        """What the message manager has asked for and was not told to be written."""
        return self.role.unwritten_bytes if isinstance(self.role, Primary) else 0

    @property
    def freeing_bytes(self) -> int:
        return self.role.freeing_bytes if isinstance(self.role, Primary) else 0

    @property
    def copied_percent(self) -> int | None:
        """How far the copy is that is being made here, about; None: there is none."""
        guest = self.role.guest if isinstance(self.role, Backup) else None
        return None if guest is None else guest.percent

    @property
    def payload_bytes(self) -> int:
        return self._payloads.size_bytes

    # -- events ----------------------------------------------------------------------------------------

    def handle(self, event: Event, *, now: float) -> list[Command]:
        role = self.role
        match event:
            case WritesAsked(writes):
                # A message manager that was stopped may have asked before it heard so.
                return role.ask(writes, now=now) if isinstance(role, Primary) else []
            case LocallyWritten(token):
                commands: list[Command] = []
                for landed in self.local.landed(token):
                    commands += self._landed(landed, now)
                return commands + self._role_landed(0, now)
            case MessageReceived(sender, message, payload):
                return self._message(sender, message, payload, now)
            case PayloadReceived(sender_id, sequence, payload):
                self._payloads.add(sender_id, sequence, payload)
                return role.payload_came(now=now) if isinstance(role, Backup) else []
            case ConfigurationChanged(configuration):
                return self._configure(configuration, now)
            case FromGroups(message):
                return self._asked(message, now)
            case DiskBlocked(reason):
                self._disk_reason = reason
                return role.disk_blocked(reason, now=now) if isinstance(role, Primary) else []
            case RangeRead():
                commands = self._host.range_read(event)
                return commands + (role.range_read(event, now=now) if isinstance(role, Backup) else [])
            case Tick():
                return self._repeat_promise(now) + ([] if role is None else role.tick(now=now))
            case FilesAsked(asked):
                return role.files.ask(asked, now=now) if isinstance(role, Primary) else []
            case FileWritten() | FileSynced():
                return self._file_answered(event, now)
            case FileFailed() | FilesBlocked():
                if isinstance(role, Primary) and role.is_started:
                    return [ToManager(event)]
                return [self._failed_file(event)] if isinstance(event, FileFailed) else []
            case BlocksRead(token, blocks, damage):
                return self._server.read(token, blocks, damage)
        assert_never(event)

    def deadline(self) -> float | None:
        times = [self._promise_at, None if self.role is None else self.role.deadline()]
        return min((at for at in times if at is not None), default=None)

    # -- configurations --------------------------------------------------------------------------------

    def _configure(self, configuration: GroupConfiguration, now: float) -> list[Command]:
        if configuration.epoch <= max(self.epoch, self.local.fence):
            return []
        self.configuration = configuration
        self._promised = self._promise_at = None
        self._host.stop()
        self._server.stop()
        commands: list[Command] = []
        if self.local.fence < configuration.epoch - 1:
            commands.append(self.local.write_fence(configuration.epoch - 1))
        if configuration.primary != self.me or configuration.incarnation != self._incarnation:
            return commands + self._follow(configuration, now)
        if self.local.is_copying:
            text = f"group {self.group!r}: named primary in epoch {configuration.epoch} in the middle of a copy"
            return [*commands, *self._stop("named without data"), Report(Level.ERROR, "replica-incomplete", text)]
        if not isinstance(self.role, Primary):
            self._leave_role()
            self.role = Primary(
                self.me, self._settings, self.local, self.window, self._payloads, self._files, self._committed,
                self._disk_reason,
            )  # fmt: skip
        return commands + self.role.configure(configuration, now=now)

    def _follow(self, configuration: GroupConfiguration, now: float) -> list[Command]:
        """Somebody else is primary; or an earlier start of this node, and we wait."""
        commands = self._stop(f"epoch {configuration.epoch}: {configuration.primary} is primary")
        if configuration.primary == self.me:
            return commands
        if self.me.node not in configuration.members:
            self._leave_role()
            return commands
        if not isinstance(self.role, Backup):
            files = BackupFiles(self._settings, self._files, self._payloads)
            self.role = Backup(
                self.me, self._settings, self.local, self.window, self._payloads, files, configuration,
                self._next_token, self._committed,
            )  # fmt: skip
        return commands + self.role.configure(configuration, now=now)

    def _stop(self, reason: str) -> list[Command]:
        """If we are primary, we are no more."""
        if not isinstance(self.role, Primary):
            return []
        was_started = self.role.is_started
        self._leave_role()
        return [StopMessageManager(reason)] if was_started else []

    def _leave_role(self) -> None:
        if self.role is not None:
            self._committed = max(self._committed, self.role.committed)
        self.role = None

    # -- group services --------------------------------------------------------------------------------

    def _asked(self, message: groups.ToReplicaMessage, now: float) -> list[Command]:
        match message:
            case groups.FenceAsk(_, epoch, replica):
                return self._fence(epoch, now) if replica == self.me else []
            case groups.HandOverAsk(_, epoch, primary):
                is_ours = epoch == self.epoch and primary == self.me and isinstance(self.role, Primary)
                return self.role.hand_over(now=now) if is_ours and isinstance(self.role, Primary) else []
            case groups.ChangeRefused(_, epoch, code, _, current):
                if isinstance(self.role, Primary) and epoch == self.epoch:
                    self.role.peers.refused(code)
                return [] if current is None else self._configure(current, now)
        assert_never(message)

    def _fence(self, epoch: int, now: float) -> list[Command]:
        """Nothing of this epoch any more. The word is given when that is on disk, behind all that was accepted."""
        if epoch < max(self.epoch, self.local.fence) or self.local.is_copying:
            return []  # a higher one is known; or there is nothing here that could be counted on
        commands = self._stop(f"epoch {epoch} is over: another primary is sought")
        self._leave_role()
        self._host.stop()
        self._promised = epoch
        if self.local.fence < epoch:
            return [*commands, self.local.write_fence(epoch)]
        return commands + (self._promise(now) if self.local.is_settled else [])

    def _promise(self, now: float) -> list[Command]:
        if self._promised is None:
            return []
        self._promise_at = now + self._settings.ask_again_s
        return [ToGroups(groups.Fenced(self.group, self._promised, self.me, self.local.written))]

    def _repeat_promise(self, now: float) -> list[Command]:
        """Who asked may be gone; nobody else would know that we stand still."""
        return self._promise(now) if self._promise_at is not None and now >= self._promise_at else []

    # -- the local disk ----------------------------------------------------------------------------------

    def _landed(self, landed: Landed, now: float) -> list[Command]:
        if landed.fence:
            return self._promise(now) if landed.fence == self._promised else []
        return self._role_landed(landed.step, now) if landed.step else []

    def _role_landed(self, step: int, now: float) -> list[Command]:
        if isinstance(self.role, Primary):
            return self.role.landed(now=now)
        return self.role.landed(step, now=now) if self.role is not None else []

    def _failed_file(self, event: FileFailed) -> Report:
        """Nobody here gives the stream up, and what a failed sync has lost is not known before the next start."""
        text = (
            f"group {self.group!r}: stream {format_id(event.stream)}: {event.reason}; this copy cannot have all "
            "that the others have: check the disk and restart this node"
        )
        return Report(Level.ERROR, "stream-failed", text)

    def _file_answered(self, event: FileWritten | FileSynced, now: float) -> list[Command]:
        if isinstance(self.role, Backup):
            return self.role.file_answered(event, now=now)
        self._files.answered(event)
        return self.role.files.advance(event.stream, now=now) if self.role is not None else []

    # -- other replicas ----------------------------------------------------------------------------------

    def _message(self, sender: Replica, message: m.ReplicaMessage, payload: bytes, now: float) -> list[Command]:
        if message.group != self.group or sender == self.me:
            return []
        if isinstance(message, m.Stale):
            return self._superseded(message.epoch)
        if message.epoch < self.epoch:
            return [SendTo(sender, m.Stale(self.group, self.epoch))]
        if message.epoch > self.epoch:
            return self._superseded(message.epoch)
        if message.epoch <= self.local.fence or self.role is None:
            return []
        if isinstance(message, m.RangeAsk):
            return self._host.ask(sender, message, is_able=self._is_able_host())
        if isinstance(message, m.BlocksAsk):
            return self._server.ask(sender, message) if self._is_able_host() else []  # it asks the primary then
        if isinstance(self.role, Primary):
            return self._for_primary(self.role, sender, message, now)
        return self._for_backup(self.role, sender, message, payload, now)

    def _superseded(self, epoch: int) -> list[Command]:
        """A higher epoch exists: its configuration is on its way. A primary stops now."""
        if epoch <= self.epoch:
            return []
        return self._stop(f"epoch {epoch} is known elsewhere")

    def _is_able_host(self) -> bool:
        if isinstance(self.role, Backup):
            in_sync = self.configuration is not None and self.me in self.configuration.in_sync
            return self.role.is_welcome and in_sync and not self.local.is_copying
        return isinstance(self.role, Primary)

    def _for_primary(
        self, role: Primary, sender: Replica, message: m.ReplicaMessage, now: float
    ) -> list[Command]:
        match message:
            case m.Ack(_, _, number):
                return role.acked(sender, number, now=now)
            case m.Hello():
                return role.hello(sender, message, now=now)
            case m.AskOrders():
                return role.ask_orders(sender, message, now=now)
            case m.FileAck():
                return role.files.acked(sender, message, now=now)
            case m.FilesAsk(group, epoch, streams) if role.is_started:
                unknown = [stream for stream in streams if stream not in self._files.states]
                strays = [stream for stream in unknown if not self._is_held(stream)]
                # In one line with blocks and orders: it may come back, and must not be deleted then.
                return [SendOrder(m.FileDelete(group, epoch, stream)) for stream in strays]
        return []

    def _for_backup(
        self, role: Backup, sender: Replica, message: m.ReplicaMessage, payload: bytes, now: float
    ) -> list[Command]:
        if isinstance(message, m.RangeSame | m.RangePart | m.RangeLater):
            return role.range_answered(sender, message, payload, now=now)
        if self.configuration is None or sender != self.configuration.primary:
            if isinstance(message, m.FileBlock | m.FileGone):
                return role.file_of_host(sender, message, payload, now=now)
            return []
        match message:
            case m.Order():
                return role.order(message, payload, now=now)
            case m.Welcome():
                return role.welcome(message, now=now)
            case m.MustCopy():
                return role.must_copy(message, now=now)
            case m.FileBlock() | m.FileSync() | m.FileDelete() | m.FileGone():
                return role.file_message(message, payload, now=now)
        return []
