"""Goal: files that come with destinations stay as long as one of them waits for them, and hold no more in memory than
was asked for; a file goes when the last release of it is durable.
Method: the tables alone, told what they would hear."""
from typing import cast

import pytest

from angarium.core.checksum import crc32
from angarium.core.moving.files import WINDOW_FRAGMENTS, ArrivingFiles
from angarium.core.stream.blocks import FRAGMENT_BYTES
from angarium.core.stream.events import AppendBlock, DeleteFile, FileSynced, StoredFile, SyncFile
from angarium.core.stream.streams import Streams
from angarium.core.stream.table import StreamRecord, StreamTable
from angarium.core.wire.frames import MoveBlock

STREAM = b"s" * 16
CONTENT = bytes(FRAGMENT_BYTES)


class NoStreams:
    def __init__(self, found: StoredFile | None = None) -> None:
        self.table = StreamTable()
        self._found = found

    def check_room(self, more: int) -> None: ...

    def adopt(self, identity: bytes) -> StoredFile | None:
        return self._found


def block(name: str, fragment: int) -> MoveBlock:
    return MoveBlock(2, 1, name, 7, 3, STREAM, fragment, crc32(CONTENT), False)


def test_a_file_stays_as_long_as_another_destination_waits_for_it() -> None:
    files = ArrivingFiles(cast(Streams, NoStreams()))
    assert files.lacking("one", {STREAM: 9}) is files.lacking("two", {STREAM: 9})
    assert files.drop("one") == [] and STREAM in files
    assert files.drop("two") == [DeleteFile(STREAM)] and STREAM not in files


def test_what_was_not_asked_for_is_not_kept() -> None:
    files = ArrivingFiles(cast(Streams, NoStreams()))
    copy = files.lacking("one", {STREAM: 100})
    assert copy is not None and files.wanted(copy, again=True) == (0, WINDOW_FRAGMENTS)
    assert files.block(block("one", WINDOW_FRAGMENTS), CONTENT) == [] and not copy.early
    assert files.block(block("two", 0), CONTENT) == [], "nobody of that name waits for it"
    [appended] = files.block(block("one", 0), CONTENT)
    assert isinstance(appended, AppendBlock) and appended.number == 0
    assert files.block(block("one", 0), CONTENT) == [], "it is there"


@pytest.mark.parametrize("fragments", [3, 2], ids=["all of it", "more than all"])
def test_a_file_that_was_found_whole_counts_when_every_copy_has_it(fragments: int) -> None:
    """A new primary of the target has more than others, perhaps; the source deletes what it hears to have arrived."""
    files = ArrivingFiles(cast(Streams, NoStreams(StoredFile(3, 3 * FRAGMENT_BYTES, False))))
    copy = files.lacking("one", {STREAM: fragments})
    assert copy is not None and files.wanted(copy, again=True) is None
    assert files.settle(copy) == [SyncFile(STREAM, 3)]
    assert files.settle(copy) == [], "it was asked for"
    files.answered(FileSynced(STREAM, 1))
    assert files.lacking("one", {STREAM: fragments}) is copy
    files.answered(FileSynced(STREAM, 3))
    assert files.lacking("one", {STREAM: fragments}) is None


def test_of_a_file_that_was_found_the_rest_is_asked_for_and_then_all_of_it_synced() -> None:
    files = ArrivingFiles(cast(Streams, NoStreams(StoredFile(1, FRAGMENT_BYTES, False))))
    copy = files.lacking("one", {STREAM: 2})
    assert copy is not None and files.settle(copy) == [] and files.wanted(copy, again=True) == (1, 2)
    appended, synced = files.block(block("one", 1), CONTENT)
    assert isinstance(appended, AppendBlock) and synced == SyncFile(STREAM, 2)
    assert files.settle(copy) == []


def test_a_file_that_was_released_twice_goes_when_both_are_durable() -> None:
    table = StreamTable()
    for _ in range(2):
        table.bind(1, 0, StreamRecord(STREAM, 2, 10))
        table.release_all(1, 0, 1)
    assert table.take_gone() == [STREAM, STREAM]
    assert not table.left(STREAM) and table.is_stored(STREAM), "the second is not durable: a crash brings it back"
    assert table.left(STREAM) and not table.is_stored(STREAM)
