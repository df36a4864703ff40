"""Files of large messages, on every in-sync disk before a message may hold them.

    AppendBlock ──> local file, and FileBlock to all ──> FileWritten told when all that are required have written it
    SyncFile    ──> local sync, and FileSync to all  ──> FileSynced told when it is durable with all of them

Blocks are not orders: they have no place in the history, and none is kept in memory. They need none: a stream's block
has one content for ever, the file itself is what a replica that lacks some is served from, and a message holds a stream
only after `FileSynced`. What ties the two together is one rule, kept by every backup: an order, or a copied range, that
says that a message holds a stream is written only once the whole file is durable here. So no store ever claims a body
that it does not have, and a gap in a file is nobody's business until then.

A file that the primary has not is one whose message is gone, in a later order; nobody waits for it. Who copies asks his
host first, which is a backup where there is one: for some files at a time, so that none is passed over there, and more
than once, since a lost message is not a lost host. If nothing comes of it the primary is asked: only it can tell that
there is no such file, for that of a backup may be lost.

Who was away when a file was deleted has it still. So a backup that is in sync tells the primary, some at a time, which
it has, and is told of those that it shall delete: the primary has no such file, and no message that holds it, and that
was durable with all in sync before the file went.
"""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.replication.events import Command, LocalFile, ReplicationSettings, SendOrder, SendTo, ToManager
from angarium.core.replication.file_server import BLOCKS_MAX
from angarium.core.replication.messages import BlocksAsk, FileAck, FileBlock, FileDelete, FileGone, FilesAsk, FileSync
from angarium.core.replication.payloads import Payloads
from angarium.core.replication.peers import Peers
from angarium.core.storage import Operation, Put, Table
from angarium.core.stream.blocks import Block
from angarium.core.stream.events import AppendBlock, DeleteFile, FileSynced, FileWritten, SyncFile
from angarium.core.stream.packing import unpack_content
from angarium.core.stream.table import StreamRecord

FileMessage = FileBlock | FileSync | FileDelete | FileGone
SOURCE_ASKS_MAX = 3  # of a host, for the same blocks, with nothing coming
SOURCE_FILES_MAX = 2  # asked of a host at the same time: of those that it reads for all, `ranges_max`
_CHECKED_MAX = 1_000  # files that are told of at once
_CHECK_AFTER_S, _CHECK_EVERY_S = 1.0, 20.0  # since it is in sync; and between two times all of them
_record_decoder = msgspec.msgpack.Decoder(StreamRecord)


@dataclass(slots=True)
class LocalState:
    """One file of ours: how many blocks were given to the disk, are written, are durable."""

    handed: int = 0
    written: int = 0
    synced: int = 0
    sync_asked: int = 0
    is_there: bool = False  # perhaps without a block; else the stream was only heard of


class LocalFiles:
    """What lies on the local disk, whoever put it there. As many as there are streams: streams_max."""

    def __init__(self, blocks: Mapping[bytes, int]) -> None:
        self.states = {stream: LocalState(count, count, count, count, True) for stream, count in blocks.items()}

    def is_coming(self, stream: bytes, number: int) -> bool:
        """That block was given to the disk, and is not yet written, for all that we know."""
        state = self.states.get(stream)
        return state is not None and state.written <= number < state.handed

    def append(self, command: AppendBlock) -> LocalFile:
        state = self.states.setdefault(command.stream, LocalState())
        state.handed, state.is_there = command.number + 1, True
        return LocalFile(command)

    def sync(self, stream: bytes) -> LocalFile:
        state = self.states.setdefault(stream, LocalState())
        state.sync_asked = state.handed
        return LocalFile(SyncFile(stream, state.handed))

    def delete(self, stream: bytes) -> LocalFile:
        self.states.pop(stream, None)
        return LocalFile(DeleteFile(stream))

    def forget_unbegun(self) -> None:
        """Of a stream that was only heard of there is no file."""
        self.states = {stream: state for stream, state in self.states.items() if state.is_there}

    def answered(self, event: FileWritten | FileSynced) -> LocalState | None:
        state = self.states.get(event.stream)
        if state is None:
            return None  # deleted meanwhile
        if isinstance(event, FileWritten):
            state.written = max(state.written, event.blocks)
        else:
            state.synced = max(state.synced, event.blocks)
        return state


@dataclass(slots=True)
class _Sent:
    """A stream that the message manager writes."""

    written_told: int
    synced_told: int
    sync_wanted: int
    since: float  # when it was last complete everywhere
    is_ended: bool = False  # its last block is there


class PrimaryFiles:
    def __init__(self, settings: ReplicationSettings, local: LocalFiles, peers: Peers, payloads: Payloads) -> None:
        self._settings = settings
        self._local = local
        self._peers = peers
        self._payloads = payloads
        self._sent: dict[bytes, _Sent] = {}
        self._acked: dict[tuple[Replica, bytes], tuple[int, int]] = {}  # written, durable
        local.forget_unbegun()  # as a backup: others may have files of them, and ask

    @property
    def has_any(self) -> bool:
        return bool(self._local.states)

    def ask(
        self, commands: Iterable[AppendBlock | SyncFile | DeleteFile], *, now: float
    ) -> list[Command]:
        done: list[Command] = []
        configuration = self._peers.configuration
        group, epoch = configuration.group, configuration.epoch
        for command in commands:
            stream = command.stream
            if isinstance(command, DeleteFile):
                self._forget(stream)
                done += [self._local.delete(stream), SendOrder(FileDelete(group, epoch, stream))]
                continue
            sent = self._sent.get(stream)
            if sent is None:
                count = command.number if isinstance(command, AppendBlock) else command.blocks
                sent = self._sent[stream] = _Sent(count, 0, 0, now)
            if isinstance(command, AppendBlock):
                sent.is_ended = command.block.is_last
                message, payload = self._packed(command)
                done += [self._local.append(command), SendOrder(message, payload)]
            else:
                sent.sync_wanted = command.blocks
                sync = FileSync(group, epoch, stream, command.blocks, command.blocks)
                done += [self._local.sync(stream), SendOrder(sync)]
        return done

    def _packed(self, command: AppendBlock) -> tuple[FileBlock, bytes]:
        configuration, block = self._peers.configuration, command.block
        reference = self._payloads.references.get(id(block.payload))
        group, epoch = configuration.group, configuration.epoch
        message = FileBlock(group, epoch, command.stream, command.number, block.crc, block.is_last, reference)
        return message, b"" if reference is not None else block.payload

    def _forget(self, stream: bytes) -> None:
        self._sent.pop(stream, None)
        for key in [key for key in self._acked if key[1] == stream]:
            del self._acked[key]

    def acked(self, sender: Replica, message: FileAck, *, now: float) -> list[Command]:
        if message.stream not in self._sent:
            return []
        written, synced = self._acked.get((sender, message.stream), (0, 0))
        self._acked[sender, message.stream] = (max(written, message.written), max(synced, message.synced))
        return self.advance(message.stream, now=now)

    def advance(self, stream: bytes, *, now: float) -> list[Command]:
        """Tell what all that are required have of it."""
        sent, state = self._sent.get(stream), self._local.states.get(stream)
        if sent is None or state is None:
            return []
        written, synced = state.written, state.synced
        for peer in self._peers.required():
            theirs = self._acked.get((peer.replica, stream), (0, 0))
            written, synced = min(written, theirs[0]), min(synced, theirs[1])
        told: list[Command] = []
        if written > sent.written_told:
            sent.written_told = written
            told.append(ToManager(FileWritten(stream, written)))
        if synced > sent.synced_told:
            sent.synced_told = synced
            told.append(ToManager(FileSynced(stream, synced)))
        if written == state.handed and synced >= sent.sync_wanted:
            sent.since = now
        if sent.is_ended and synced == state.handed:
            self._forget(stream)  # from here on the orders that name it take care of it
        return told

    def advance_all(self, *, now: float) -> list[Command]:
        return [command for stream in list(self._sent) for command in self.advance(stream, now=now)]

    def lagging(self) -> list[tuple[Replica, bytes]]:
        """Who lacks what the local disk has."""
        found: list[tuple[Replica, bytes]] = []
        for stream, sent in self._sent.items():
            state = self._local.states[stream]
            for peer in self._peers.required():
                written, synced = self._acked.get((peer.replica, stream), (0, 0))
                if written < state.written or synced < min(sent.sync_wanted, state.synced):
                    found.append((peer.replica, stream))
        return found

    def excuse(self, now: float) -> None:
        for sent in self._sent.values():
            sent.since = now

    def tick(self, *, now: float) -> tuple[list[Command], list[Replica]]:
        """Remind those who lag; who is late."""
        configuration = self._peers.configuration
        commands: list[Command] = []
        late: list[Replica] = []
        for replica, stream in self.lagging():
            state, sent = self._local.states[stream], self._sent[stream]
            sync = FileSync(configuration.group, configuration.epoch, stream, state.written, sent.sync_wanted)
            commands.append(SendTo(replica, sync))
            if now - sent.since >= self._settings.ack_within_s and replica in configuration.in_sync:
                late.append(replica)
        return commands, [replica for replica in configuration.in_sync if replica in late]


@dataclass(slots=True)
class _Wanted:
    """A stream of which we know that there is more."""

    written: int = 0
    synced: int = 0
    asked_at: float = 0.0  # or when the last of them came
    asked_until: int = 0  # blocks before this one were asked for
    asks: int = 0  # since the last of them came
    source: Replica | None = None  # whom we ask: the host that a range was copied from; None: the primary


class BackupFiles:
    def __init__(self, settings: ReplicationSettings, local: LocalFiles, payloads: Payloads) -> None:
        self._settings = settings
        self._local = local
        self._payloads = payloads
        self._wanted: dict[bytes, _Wanted] = {}
        self._sourced: set[bytes] = set()  # those of which a host was asked for blocks that have not come
        self._gone: set[bytes] = set()  # that the primary has not: forgotten with the configuration
        self._unchecked: list[bytes] = []  # files that the primary is still to be told of
        self._check_at: float | None = None  # None: not in sync

    def configure(self, *, is_in_sync: bool, now: float) -> None:
        self._wanted.clear()
        self._sourced.clear()
        self._gone.clear()
        self._unchecked.clear()
        self._local.forget_unbegun()
        self._check_at = now + _CHECK_AFTER_S if is_in_sync else None

    def message(self, given: GroupConfiguration, message: FileMessage, payload: bytes, *, now: float) -> list[Command]:
        stream = message.stream
        if isinstance(message, FileDelete):
            self._forget(stream)
            return [self._local.delete(stream)] if stream in self._local.states else []
        if isinstance(message, FileGone):
            self._forget(stream)
            self._gone.add(stream)
            return []
        content = self._content(message, payload) if isinstance(message, FileBlock) else None
        self._gone.discard(stream)  # it has come back
        state = self._local.states.setdefault(stream, LocalState())
        wanted = self._wanted.setdefault(stream, _Wanted())
        commands: list[Command] = []
        if isinstance(message, FileSync):
            wanted.written, wanted.synced = max(wanted.written, message.written), max(wanted.synced, message.synced)
            if state.written >= wanted.written and state.synced >= wanted.synced:
                commands.append(self._ack(given, stream, state))  # said before, and not heard
        else:
            wanted.written = max(wanted.written, message.number + 1)
            if message.number == state.handed and content is not None:
                block = Block(message.crc, message.is_last, content)
                commands.append(self._local.append(AppendBlock(stream, message.number, block)))
                wanted.asked_at, wanted.asks = now, 0  # what was asked for is coming
        return commands + self._go_on(given, stream, now)

    def _content(self, message: FileBlock, payload: bytes) -> bytes | None:
        """None if it is not here, or nobody wants it now. Raises `RemoteProtocolError` for what nobody has packed."""
        state = self._local.states.get(message.stream)
        if message.number != (0 if state is None else state.handed):
            return None
        if message.content is not None:
            return self._payloads.find(message.content)
        return unpack_content(payload, message.crc) if message.is_packed else payload

    def _forget(self, stream: bytes) -> None:
        self._wanted.pop(stream, None)
        self._sourced.discard(stream)

    def from_host(
        self, given: GroupConfiguration, sender: Replica, message: FileBlock | FileGone, payload: bytes, *, now: float
    ) -> list[Command]:
        """What a host says that is not the primary. That it has no such file proves nothing."""
        wanted = self._wanted.get(message.stream)
        if wanted is None or wanted.source != sender:
            return []
        if isinstance(message, FileBlock):
            return self.message(given, message, payload, now=now)
        wanted.source, wanted.asked_until = None, 0
        self._sourced.discard(message.stream)
        return self._go_on(given, message.stream, now)

    def lacks(
        self, given: GroupConfiguration, operations: Sequence[Operation], host: Replica | None = None, *, now: float
    ) -> list[Command] | None:
        """None if every file that these records name is durable here; else what there is to do about it. `host`: who
        has told us these records, if that was not the primary."""
        commands: list[Command] = []
        is_lacking = False
        for operation in operations:
            if not isinstance(operation, Put) or operation.table != Table.STREAM:
                continue
            record = _record_decoder.decode(operation.value)
            state = self._local.states.get(record.identity)
            if record.identity in self._gone or (state is not None and state.synced >= record.fragments):
                continue
            is_lacking = True
            self._local.states.setdefault(record.identity, LocalState())
            wanted = self._wanted.setdefault(record.identity, _Wanted(source=host))
            wanted.written = wanted.synced = max(wanted.synced, wanted.written, record.fragments)
            commands += self._go_on(given, record.identity, now)
        return commands if is_lacking else None

    def answered(self, given: GroupConfiguration, event: FileWritten | FileSynced, *, now: float) -> list[Command]:
        state = self._local.answered(event)
        if state is None or event.stream not in self._wanted:
            return []
        return [self._ack(given, event.stream, state), *self._go_on(given, event.stream, now)]

    def _ack(self, given: GroupConfiguration, stream: bytes, state: LocalState) -> SendTo:
        assert given.primary is not None
        return SendTo(given.primary, FileAck(given.group, given.epoch, stream, state.written, state.synced))

    def _go_on(self, given: GroupConfiguration, stream: bytes, now: float) -> list[Command]:
        state, wanted = self._local.states[stream], self._wanted[stream]
        if state.handed >= wanted.written:
            self._sourced.discard(stream)
            if state.handed >= wanted.synced > state.sync_asked:
                return [self._local.sync(stream)]
            if state.synced >= wanted.synced and state.written >= wanted.written:
                del self._wanted[stream]
            return []
        if state.handed < wanted.asked_until:
            if now < wanted.asked_at + self._settings.ask_again_s:
                return []  # the answer is on its way
            if wanted.source is not None and wanted.asks >= SOURCE_ASKS_MAX:
                self._give_up(wanted.source)  # or it is not: the primary has it, if anybody has
        if wanted.source is not None:
            files_max = min(SOURCE_FILES_MAX, self._settings.ranges_max)
            if stream not in self._sourced and len(self._sourced) >= files_max:
                return []  # its turn comes
            self._sourced.add(stream)
        wanted.asks += 1
        wanted.asked_at, wanted.asked_until = now, min(state.handed + BLOCKS_MAX, wanted.written)
        ask = BlocksAsk(given.group, given.epoch, stream, state.handed, wanted.asked_until)
        asked = wanted.source or given.primary
        assert asked is not None
        return [SendTo(asked, ask)]

    def _give_up(self, source: Replica) -> None:
        """For all that we want now: who waits for its turn would only find the same."""
        for stream, wanted in self._wanted.items():
            if wanted.source == source:
                wanted.source, wanted.asked_until = None, 0
                self._sourced.discard(stream)

    def tick(self, given: GroupConfiguration, *, now: float) -> list[Command]:
        commands = [command for stream in list(self._wanted) for command in self._go_on(given, stream, now)]
        return commands + self._check(given, now)

    def _check(self, given: GroupConfiguration, now: float) -> list[Command]:
        """Tell the primary which files are here: some may have been deleted while we were away."""
        if self._check_at is None or now < self._check_at or given.primary is None:
            return []
        told = self._unchecked or sorted(self._local.states)
        told, self._unchecked = told[:_CHECKED_MAX], told[_CHECKED_MAX:]
        self._check_at = now + (_CHECK_AFTER_S if self._unchecked else _CHECK_EVERY_S)
        return [SendTo(given.primary, FilesAsk(given.group, given.epoch, told))] if told else []

    def deadline(self) -> float | None:
        asked = [w for stream, w in self._wanted.items() if self._local.states[stream].handed < w.asked_until]
        times = [wanted.asked_at + self._settings.ask_again_s for wanted in asked]
        if self._check_at is not None and self._local.states:
            times.append(self._check_at)
        return min(times, default=None)
