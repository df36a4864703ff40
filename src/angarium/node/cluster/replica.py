"""One replica of a group on this node: its store, its replication, and the message manager while it is primary.

    channel, links ──> replication ──> disk, files
                          │   ▲
               Start/Stop │   │ writes
                          ▼   │
                     message manager ──answers──> client managers

This only connects. A message manager that is stopped is dropped with everything it has asked for: what still comes
back for it finds nobody.
"""
import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from angarium.core.destination import events as mm
from angarium.core.destination.attendance import Attendance
from angarium.core.destination.message_manager import MessageManager
from angarium.core.destination.pending import PendingWrite
from angarium.core.errors import RemoteProtocolError
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.decisions import MoveDone, MoveEnded
from angarium.core.groups.messages import FromReplicaMessage, ToReplicaMessage
from angarium.core.groups.records import Placement
from angarium.core.ids import ANYBODY
from angarium.core.replication import events as r
from angarium.core.replication.messages import decode as decode_replica
from angarium.core.replication.messages import encode as encode_replica
from angarium.core.replication.replication import Replication
from angarium.core.report import Report
from angarium.core.storage import Table
from angarium.core.stream.events import AppendBlock, BlocksRead, DeleteFile, FileEvent, ReadBlocks, SyncFile
from angarium.core.stream.table import held_streams
from angarium.core.wire.envelope import open_envelope, seal
from angarium.node.cluster.log_reads import LogReadsBackup
from angarium.node.cluster.machinery import Machinery
from angarium.node.cluster.services import OnChannel, pack_replica, unpack_replica
from angarium.node.cluster.sizes import WRITE_BYTES_MAX
from angarium.node.cluster.store_readers import StoreReaders
from angarium.node.cluster.stores import table_records
from angarium.node.config import NodeConfig
from angarium.node.disk_room import DiskRoom
from angarium.node.loading import Loaded, load
from angarium.node.wall_clock import WallClock
from angarium.store.interface import Store
from angarium.store.replicas import load_replica, read_range, read_rows

_log = logging.getLogger("angarium")
_Asked = TypeVar("_Asked", mm.Read, mm.ReadDelayed, mm.ReadRows, ReadBlocks)
_OF_MANAGER = (mm.ToSession, mm.Write, mm.Read, mm.ReadRows, mm.DecideMove)
_REPLICATION = -1  # in place of a generation: asked by replication itself


@dataclass(frozen=True, slots=True)
class Ways:
    """Out of a replica, to the rest of the node."""

    multicast: Callable[[int, list[bytes]], None]  # on the channel of the group with that number
    send: Callable[[str, bytes, bytes], None]  # to the replica on that node: head and message, payload
    answer: Callable[[bytes, list[bytes]], None]  # to the client manager of that incarnation
    pass_on: Callable[[list[bytes]], None]  # to whichever client manager, for another group
    serving: Callable[[], None]  # its message manager runs here from now on
    pause: Callable[[int, bool], None]  # take no more of the group's channel for now, or go on
    to_groups: Callable[[FromReplicaMessage], None]
    decide: Callable[[MoveDone | MoveEnded], None]  # by group services
    failed: Callable[[BaseException], None]


class ReplicaHost:
    def __init__(
        self, group: str, me: Replica, incarnation: bytes, store: Store, data: Path, config: NodeConfig,
        ways: Ways, machinery: Machinery,
    ) -> None:  # fmt: skip
        self.group = group
        self.number = 0
        self.me = me
        self._config = config
        self._readers = StoreReaders(store, machinery)
        self._is_stopping = False
        self._ways = ways
        self._machinery = machinery
        self._loop = asyncio.get_running_loop()
        self._files = machinery.stream_files(data, free_bytes_min=config.stream.free_bytes_min)
        found = self._files.scan(
            held_streams(table_records(store, Table.STREAM)), unsynced_blocks_max=4 * config.stream.sync_fragments
        )
        ahead_bytes_max = config.replication.ahead_bytes_max
        self.replication = Replication(
            me, incarnation, group, load_replica(store),
            replace(config.replication, ahead_bytes_max=min(ahead_bytes_max, store.reserve_bytes // 2)),
            {stream: file.fragments for stream, file in found.items()}, self._is_held,
        )  # fmt: skip
        self._disk = machinery.disk(
            store, config.disk, written=self._written, read=self._read, delayed=self._read,
            blocked=lambda reason: self._run(r.DiskBlocked(reason)), failed=ways.failed,
        )  # fmt: skip
        self._stream_disk = machinery.stream_disk(self._files, told=self._files_told, failed=ways.failed)
        self.log_reads = LogReadsBackup(self._readers, self.replication)
        self.manager: MessageManager | None = None
        self._wall_clock: WallClock | None = None  # while there is a message manager
        self._disk_room: DiskRoom | None = None  # the same
        self._store = store
        self.started_epoch = 0
        self._decided_epoch = 0  # of the group's latest configuration among the decisions that this node knows
        self._decided = asyncio.Event()  # there is a later one, or nobody starts any more
        self._placement = Placement()
        self._attendance = Attendance()
        self._generation = 0  # of message managers
        self._commands: deque[r.Command | mm.Command] = deque()
        self._asked: list[mm.Write] = []
        self._files_asked: list[AppendBlock | SyncFile | DeleteFile] = []
        self._background: set[asyncio.Task[None]] = set()
        self._reads = 0
        self._reading: dict[int, tuple[int, int]] = {}  # under way: generation and token of who asked
        self._running = False
        self._is_paused = self._is_blocked = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None

    def _is_held(self, stream: bytes) -> bool:
        """By a message of the message manager here, if there is one: when in doubt it is."""
        return self.manager is None or stream in self.manager.streams.table

    # -- events in -------------------------------------------------------------------------------------

    def configured(self, configuration: GroupConfiguration) -> None:
        self.number = configuration.number
        self._decided_epoch = configuration.epoch
        self._decided.set()
        self._run(r.ConfigurationChanged(configuration))

    def placed(self, placement: Placement) -> None:
        self._placement = placement
        if self.manager is not None:
            self._run_manager(mm.Placed(placement, self.started_epoch))

    def change_settings(self, config: NodeConfig) -> None:
        self._config = config
        if self.manager is not None:
            self._run_manager(mm.SettingsChanged(_fitted(config.destination), config.stream))

    def from_groups(self, message: ToReplicaMessage) -> None:
        self._run(r.FromGroups(message))

    def from_replica(self, node: str, data: bytes) -> None:
        store, message, payload = unpack_replica(data)
        self._run(r.MessageReceived(Replica(node, store), decode_replica(message), payload))

    def from_channel(self, node: str, incarnation: bytes, number: int, message: bytes) -> None:
        """A message of somebody's stream on the group's channel."""
        if message[0] == OnChannel.REPLICA:
            store, order, payload = unpack_replica(message, 1)
            self._run(r.MessageReceived(Replica(node, store), decode_replica(order), payload))
            return
        if message[0] == OnChannel.ANEW:
            self._end_sessions(self._attendance.begins_anew(incarnation))
            return
        envelope = open_envelope(message[1:])
        if envelope.payload:
            self._run(r.PayloadReceived(incarnation, number, envelope.payload))
        if self.manager is None or envelope.epoch != self.started_epoch:
            return  # for an earlier message manager, whose sessions are being detached; or we are a backup
        before: list[mm.FromSession] | None = []
        if envelope.session != ANYBODY:
            before = self._attendance.heard(
                incarnation, envelope.session, envelope.destination, envelope.frame, turn=envelope.turn
            )
        if before is None:
            return
        event = mm.FromSession(envelope.session, envelope.destination, envelope.frame, envelope.payload)
        for told in (*before, event):
            self._run_manager(told)

    def client_manager_gone(self, incarnation: bytes) -> None:
        self._end_sessions(self._attendance.gone(incarnation))

    def _end_sessions(self, events: list[mm.FromSession]) -> None:
        for event in events:
            if self.manager is not None:
                self._run_manager(event)

    def client_manager_stalled(self, incarnation: bytes, stalled: bool) -> None:
        """It reads too slowly (or does no more): its sessions are passed over."""
        for event in self._attendance.stall(incarnation, stalled):
            if self.manager is not None:
                self._run_manager(event)

    def _written(self, tokens: list[int]) -> None:
        self._run(r.LocallyWritten(tokens[-1]))

    def _read(self, event: mm.BatchesRead | mm.DelayedRead | mm.RowsRead) -> None:
        generation, token = self._reading.pop(event.token)
        if self.manager is not None and generation == self._generation:
            self._run_manager(msgspec.structs.replace(event, token=token))

    def _files_told(self, events: list[FileEvent]) -> None:
        for event in events:
            if not isinstance(event, BlocksRead):
                self._run(event)
                continue
            generation, token = self._reading.pop(event.token)
            event = msgspec.structs.replace(event, token=token)
            if generation == _REPLICATION:
                self._run(event)
            elif self.manager is not None and generation == self._generation:
                self._run_manager(event)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        self._run(r.Tick())
        if self.manager is not None:
            self._run_manager(mm.Tick())

    # -- commands out ------------------------------------------------------------------------------------

    def _run(self, event: r.Event) -> None:
        try:
            self._perform(self.replication.handle(event, now=self._loop.time()))
        except RemoteProtocolError as error:
            _log.warning("bad-message: group %r: %s", self.group, error.reason)

    def _run_manager(self, event: mm.Event) -> None:
        assert self.manager is not None
        self._perform(self.manager.handle(event, now=self._loop.time()))

    def _perform(self, commands: list[r.Command] | list[mm.Command]) -> None:
        """In the order in which they were given, also when performing one leads to more."""
        self._commands += commands
        if self._running:
            return
        self._running = True
        while self._commands or self._asked or self._files_asked:
            if self._commands:
                self._one(self._commands.popleft())
                continue
            # Writes of a whole turn are one order. A file is asked for before the message that holds it.
            files, self._files_asked = self._files_asked, []
            asked, self._asked = self._asked, []
            now = self._loop.time()
            self._commands += self.replication.handle(r.FilesAsked(files), now=now) if files else []
            self._commands += self.replication.handle(r.WritesAsked(asked), now=now) if asked else []
        self._running = False
        self._keep_pace()
        self._arm()

    def _keep_pace(self) -> None:
        """More is unwritten than should be: what comes on the channel waits until half of it is written. Not when
        nothing can be written: then settlements must come, and sending is bounded by each session's window."""
        unwritten_bytes, limit = self.replication.unwritten_bytes, self._config.node.unwritten_bytes_max // 2
        paused = unwritten_bytes > (limit // 2 if self._is_paused else limit) and not self._is_blocked
        if paused != self._is_paused:
            self._is_paused = paused
            self._ways.pause(self.number, paused)

    def _one(self, command: r.Command | mm.Command) -> None:
        match command:
            case mm.ToSession():
                self._answer(command)
            case mm.Write():
                self._asked.append(command)
            case r.WriteLocal(token, operations):
                self._disk.write(mm.Write(token, operations, freeing=True))
            case r.SendOrder(message, payload):
                head = bytes([OnChannel.REPLICA]) + pack_replica(self.me.store, encode_replica(message))
                self._ways.multicast(self.number, [head, payload] if payload else [head])
            case r.SendTo(replica, message, payload):
                self._ways.send(replica.node, pack_replica(self.me.store, encode_replica(message)), payload)
            case r.Written(tokens):
                self._tell(*(mm.Written(token) for token in tokens))
            case r.ToManager(event):
                if isinstance(event, mm.WritesBlocked | mm.WritesUnblocked):
                    self._is_blocked = isinstance(event, mm.WritesBlocked)
                self._tell(event)
            case r.ToGroups(message):
                self._ways.to_groups(message)
            case mm.Read():
                if (answer := self._disk.read(self._renumbered(command))) is not None:
                    self._read(answer)
            case mm.ReadDelayed():
                self._disk.read_delayed(self._renumbered(command))
            case r.ReadRange() | mm.ReadRows() if self._is_stopping:
                pass  # whoever copies from here finds that this node is gone
            case mm.ReadRows():
                self._in_the_background(self._read_rows(self._renumbered(command)))
            case mm.DecideMove(name, number, code, reason):
                done = MoveDone(name, number, self.replication.epoch)
                self._ways.decide(MoveEnded(name, number, code, reason) if code else done)
            case r.ReadRange():
                self._in_the_background(self._read_range(command))
            case r.StartMessageManager(epoch):
                self._start(epoch)
            case r.StopMessageManager(reason):
                self._stop_manager(reason)
            case AppendBlock() | SyncFile() | DeleteFile():
                self._files_asked.append(command)
            case r.LocalFile(ReadBlocks() as read):
                self._stream_disk.read(self._renumbered(read, _REPLICATION))
            case r.LocalFile(written) if not isinstance(written, ReadBlocks):
                self._stream_disk.write(written)
            case ReadBlocks():
                self._stream_disk.read(self._renumbered(command))
            case Report():
                _log.log(command.level, "%s: %s", command.code, command.text)
            case _:
                raise AssertionError(f"nobody performs {type(command).__name__}")

    def _tell(self, *events: mm.Event) -> None:
        for event in events:
            if self.manager is not None:
                self._commands += self.manager.handle(event, now=self._loop.time())

    def _renumbered(self, command: _Asked, generation: int | None = None) -> _Asked:
        """Two message managers, one after the other, number their reads alike; and so does replication."""
        self._reads += 1
        self._reading[self._reads] = (self._generation if generation is None else generation, command.token)
        return msgspec.structs.replace(command, token=self._reads)

    def _answer(self, command: mm.ToSession) -> None:
        parts = seal(self.number, self.started_epoch, command.session, 0, command.frame, command.payload)
        if command.session == ANYBODY:
            self._ways.pass_on(parts)
        elif (client_manager := self._attendance.client_manager_of(command.session)) is not None:
            self._ways.answer(client_manager, parts)

    def _in_the_background(self, work: Coroutine[None, None, None]) -> None:
        self._background.add(task := self._loop.create_task(work))
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ways.failed(error)

    async def _read_range(self, command: r.ReadRange) -> None:
        self._run(await self._readers.read(read_range, command))

    async def _read_rows(self, command: mm.ReadRows) -> None:
        self._read(await self._readers.read(read_rows, command))

    # -- the message manager -----------------------------------------------------------------------------

    def _start(self, epoch: int) -> None:
        self._stop_manager("it starts anew")
        if self._is_stopping:  # the last of the others that left made it primary
            return
        self._in_the_background(self._start_loaded(epoch, self._generation))

    async def _start_loaded(self, epoch: int, generation: int) -> None:
        loaded = await self._readers.read(load)
        while self._decided_epoch < epoch and generation == self._generation:
            self._decided.clear()
            await self._decided.wait()  # heard from somebody else: decisions before it, as moves, have to be known
        if generation != self._generation:
            return  # stopped meanwhile
        self._restore(loaded, epoch)

    def _restore(self, loaded: Loaded, epoch: int) -> None:
        state, config = loaded.state, self._config
        state.stream_files = self._files.scan(
            held_streams(state.streams), unsynced_blocks_max=4 * config.stream.sync_fragments, in_use=True
        )
        now = self._loop.time()
        self._wall_clock = WallClock(lambda ms: self._run_manager(mm.ClockStepped(ms)), self._machinery.wall_ms)
        self.manager = manager = self._machinery.message_manager(
            _fitted(config.destination), config.stream, wall_ms_at_zero=self._wall_clock.ms_at_zero,
            number=self.number,
        )
        self.started_epoch = epoch
        self._attendance = Attendance()
        repairs = [manager.write(loaded.operations, PendingWrite(), freeing=True)] if loaded.operations else []
        self._perform([*repairs, *manager.restore(state, now=now)])
        self._run_manager(mm.Placed(self._placement, epoch))
        self._disk_room = DiskRoom(
            self._store, lambda: manager.settings.node_disk_free_bytes_min,
            lambda room_bytes: self._run_manager(mm.DiskMeasured(room_bytes)),
        )  # fmt: skip
        count = len(manager.destinations)
        _log.info("promoted: primary of group %r, epoch %d, %d destinations", self.group, epoch, count)
        self._ways.serving()

    def _stop_manager(self, reason: str) -> None:
        self._generation += 1
        self._decided.set()
        if self._wall_clock is not None:
            self._wall_clock.stop()
            self._wall_clock = None
        if self._disk_room is not None:
            self._disk_room.stop()
            self._disk_room = None
        if self.manager is not None:
            _log.warning("demoted: no longer primary of group %r: %s", self.group, reason)
        self.manager = None
        self._asked.clear()
        self._files_asked.clear()
        self._attendance = Attendance()
        self._commands = deque(c for c in self._commands if not isinstance(c, _OF_MANAGER))

    # -- time ----------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        times = [self.replication.deadline(), None if self.manager is None else self.manager.deadline()]
        at = min((t for t in times if t is not None), default=None)
        if at is None or self._is_stopping or (self._timer_at is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._tick)

    async def stop(self) -> bool:
        self._is_stopping = True
        self._stop_manager("the node stops")
        if self._timer is not None:
            self._timer.cancel()
        await self._stream_disk.close()
        written = await self._disk.close()
        await self._readers.close_store()
        return written


def _fitted(settings: mm.DestinationSettings) -> mm.DestinationSettings:
    return replace(settings, write_bytes_max=min(settings.write_bytes_max, WRITE_BYTES_MAX))
