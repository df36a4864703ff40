"""Goal: a very large message may be part of a transaction of several replica groups: what is prepared holds its content
until it is decided, across a restart and the sender's end, and then either the message holds it or it is deleted.
Method: a participant, told what it would hear; files are only noted."""
import msgspec
import pytest

from angarium.core.destination.events import Command
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.storage import Table
from angarium.core.stream.events import AppendBlock, DeleteFile, FileSynced, FileWritten, StoredFile, SyncFile
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_disk import FakeDisk
from tests.unit.core.core_two_phase import DECIDER, GROUP, Participant, complete

STREAM = b"s" * GLOBAL_ID_BYTES
CONTENT = b"all of it"


class Sender(Participant):
    """Has sent a stream to `out`, and not yet the message that is to hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[bytes] = []
        self._note_files()
        destination = self.producer.destination
        opening = frames.StreamOpen(1, "out", DestinationKind.ANY, identity=STREAM)
        self.world.frame(self.session, destination, opening)
        self.world.frame(self.session, destination, frames.StreamFragment(1, 0, 0, last=True), CONTENT)

    def _note_files(self) -> None:
        world, run = self.world, self.world._run

        def perform(commands: list[Command]) -> None:
            run(commands)
            for command in commands:
                match command:
                    case AppendBlock(stream, number, _):
                        world.tell(FileWritten(stream, number + 1))
                    case SyncFile(stream, blocks):
                        world.tell(FileSynced(stream, blocks))
                    case DeleteFile(stream):
                        self.deleted.append(stream)

        world._run = perform  # type: ignore[method-assign]

    def prepare_stream(self, number: int) -> None:
        header = msgspec.msgpack.encode({"stream": {"identity": STREAM, "bytes": len(CONTENT)}})
        columns = MessageColumns(headers=[header], announcements=int(Columns.STREAM))
        batch = pack(self.producer.identity, self.producer.sequence + 1, self.world.wall_ms, [b""], columns)
        publishes = [(self.producer.destination, self.producer.number, len(batch))]
        self.frame(frames.CommitPrepare(number, publishes, [], b"", DECIDER), batch)

    def restart(self, *, kept: int = 0) -> None:
        disk = self.world.disk
        state = disk.state()
        state.stream_files = {STREAM: StoredFile(1, len(CONTENT), is_ended=True)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeDisk, "state", lambda disk: state)
            super().restart(kept=kept)
        self._note_files()

    def holders(self) -> int:
        return len(self.world.disk.tables[Table.STREAM])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_committed_the_message_holds_its_stream(is_restarted: bool) -> None:
    side = Sender()
    side.prepare_stream(1)
    assert side.told() == [frames.CommitReady(1, GROUP, b"")]
    if is_restarted:
        side.restart()
    side.world.end(side.session, closed=True)
    side.world.advance(3_600.0)
    assert side.deleted == [], "in doubt it is kept, though its sender is gone"
    side.final(1)
    assert side.told()[-1] == complete(side, 1)
    assert side.counts()[1] == 1 and side.holders() == 1
    reader = side.world.consumer(side.producer.destination)
    side.world.frame(reader.session, reader.destination, frames.StreamRead(1, reader.number, 0, 0, 1))
    assert side.world.received(reader.session, frames.StreamClosed) == []
    reader.settle((0, 1))
    assert side.deleted == [STREAM] and side.holders() == 0


@pytest.mark.parametrize("is_restarted", [False, True])
def test_rolled_back_it_is_deleted(is_restarted: bool) -> None:
    side = Sender()
    side.prepare_stream(1)
    if is_restarted:
        side.restart()
    side.roll_back(1)
    assert side.told()[-1] == complete(side, 1)
    assert side.deleted == [STREAM] and side.holders() == 0


def test_what_is_not_all_there_cannot_be_prepared() -> None:
    side = Sender()
    side.prepare_stream(1)
    side.roll_back(1)
    side.told()
    side.prepare_stream(2)
    (failed,) = side.told()
    assert isinstance(failed, frames.CommitFail) and failed.code == "unknown-stream"


def test_a_destination_that_is_removed_takes_the_stream_along() -> None:
    side = Sender()
    side.prepare_stream(1)
    assert not side.world.request("destination.remove", name="out").code
    assert side.holders() == 0
    side.final(1)
    assert side.told()[-1] == complete(side, 1)
