"""Goal: what a new primary finds of a stream is told to its sender when every copy that is required has it: the sender
keeps nothing of it, and the next primary may be any of them. Method: the streams of a message manager, joined with the
replication of its group; the backups are played."""
from angarium.core.destination.events import ToSession
from angarium.core.groups.configuration import EMPTY, Replica
from angarium.core.replication import messages as m
from angarium.core.replication.events import (
    Command,
    FilesAsked,
    LocalFile,
    LocallyWritten,
    MessageReceived,
    ReplicationSettings,
    ToManager,
    WriteLocal,
)
from angarium.core.replication.history import StoredReplica
from angarium.core.replication.replication import Replication
from angarium.core.stream.blocks import FRAGMENT_BYTES
from angarium.core.stream.events import (
    AppendBlock,
    DeleteFile,
    FileSynced,
    FileWritten,
    StoredFile,
    StreamSettings,
    SyncFile,
)
from angarium.core.stream.streams import Command as OfStreams
from angarium.core.stream.streams import Streams
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.replication.replication_parts import A, B, C, Told, configuration

STREAM, SENDER = b"s" * 16, b"sender"


class NewPrimary:
    """It has 11 fragments of a stream; its sender is back."""

    def __init__(self) -> None:
        stored = StoredReplica(EMPTY, [])
        machine = Replication(A, b"start of " + A.store, "g", stored, ReplicationSettings(), {STREAM: 11})
        self.told = Told(machine)
        self.perform(self.told.configured(configuration(1, A, B, C)))
        for backup in (B, C):
            self.hear(backup, m.Hello("g", 1, EMPTY))
        self.streams = Streams(StreamSettings())
        self.streams.restore({}, {STREAM: StoredFile(11, 11 * FRAGMENT_BYTES, False)}, now=0.0)
        opening = frames.StreamOpen(1, "q", DestinationKind.QUEUE, STREAM, True)
        self.answers: list[frames.Frame] = []
        self.answer(self.streams.frame(SENDER, 7, opening, b""))

    def answer(self, commands: list[OfStreams]) -> None:
        self.answers += [command.frame for command in commands if isinstance(command, ToSession)]
        asked: list[AppendBlock | SyncFile | DeleteFile] = [c for c in commands if isinstance(c, SyncFile)]
        self.perform(self.told.tell(FilesAsked(asked)) if asked else [])

    def perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case WriteLocal(token):
                    self.perform(self.told.tell(LocallyWritten(token)))
                case LocalFile(SyncFile(stream, blocks)):
                    self.perform(self.told.tell(FileSynced(stream, blocks)))
                case ToManager(FileSynced() | FileWritten() as event):
                    self.answer(self.streams.file_event(event)[0])

    def hear(self, backup: Replica, message: m.ReplicaMessage) -> None:
        self.perform(self.told.tell(MessageReceived(backup, message)))


def test_the_sender_is_told_when_the_last_copy_has_what_was_found() -> None:
    primary = NewPrimary()
    primary.hear(C, m.FileAck("g", 1, STREAM, 11, 11))
    primary.hear(B, m.FileAck("g", 1, STREAM, 11, 10))
    assert not primary.answers, "one of them would have ten, if it became primary now"
    primary.hear(B, m.FileAck("g", 1, STREAM, 11, 11))
    [opened] = primary.answers
    assert isinstance(opened, frames.StreamOpened) and (opened.stored, opened.following) == (11, 11)


def test_who_is_taken_out_is_not_waited_for() -> None:
    primary = NewPrimary()
    primary.hear(C, m.FileAck("g", 1, STREAM, 11, 11))
    assert not primary.answers
    primary.perform(primary.told.configured(configuration(2, A, C)))
    [opened] = primary.answers
    assert isinstance(opened, frames.StreamOpened) and opened.stored == 11
