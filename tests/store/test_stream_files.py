"""Goal: what a stream's file has is what was appended, or is found to be damaged; a full disk loses nothing; what a
power cut can leave of a file is recognised at the start.
Method: real files, disks that fail on request, bytes changed by hand."""
import errno
import os
import zlib
from pathlib import Path

import pytest

from angarium.core.errors import Unavailable
from angarium.core.stream.blocks import BLOCK_BYTES, FRAGMENT_BYTES, Block
from angarium.core.stream.events import StoredFile
from angarium.store.disk import DiskCalls
from angarium.store.stream_files import StreamFiles
from tests.store.disks import FaultyDisk

ONE, TWO = b"stream number 01", b"stream number 02"


def block(fill: int, length: int = FRAGMENT_BYTES, *, last: bool = False) -> Block:
    payload = bytes([fill]) * length
    return Block(zlib.crc32(payload), last, payload)


def written(directory: Path, *blocks: Block, identity: bytes = ONE) -> StreamFiles:
    files = StreamFiles(directory)
    files.append(identity, 0, blocks)
    files.sync(identity)
    return files


def path_of(directory: Path, identity: bytes = ONE) -> Path:
    return directory / "streams" / identity.hex()


def test_blocks_come_back_from_anywhere(tmp_path: Path) -> None:
    blocks = [block(1), block(2), block(3, 5, last=True)]
    files = written(tmp_path, *blocks)
    assert files.read(ONE, 0, 3) == (blocks, "")
    assert files.read(ONE, 2, 1) == (blocks[2:], "")
    assert path_of(tmp_path).stat().st_size == 2 * BLOCK_BYTES + 16 + 5
    found, damage = files.read(ONE, 2, 2)
    assert found == blocks[2:] and "block 3" in damage
    assert files.read(TWO, 0, 1)[1].endswith(os.strerror(errno.ENOENT))


@pytest.mark.parametrize("at", [0, 4, 8, 16, 1_000, BLOCK_BYTES - 1])
def test_a_flipped_bit_is_found_and_what_is_before_it_is_read(tmp_path: Path, at: int) -> None:
    blocks = [block(1), block(2), block(3, last=True)]
    files = written(tmp_path, *blocks)
    with path_of(tmp_path).open("r+b") as file:
        file.seek(BLOCK_BYTES + at)
        byte = file.read(1)[0]
        file.seek(BLOCK_BYTES + at)
        file.write(bytes([byte ^ 4]))
    found, damage = files.read(ONE, 0, 3)
    assert found == blocks[:1]
    assert "block 1 fails its checksum" in damage


def test_a_deleted_file_is_gone_in_steps_and_deleting_again_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.store.stream_files._DELETE_STEP_BYTES", BLOCK_BYTES)
    files = written(tmp_path, block(1), block(2), block(3, last=True))
    steps = 1
    while not files.delete(ONE):
        steps += 1
    assert steps == 3
    assert not path_of(tmp_path).exists()
    assert files.delete(ONE)


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_disk_that_takes_no_writes_at_all_keeps_the_file_and_says_so(tmp_path: Path, code: int) -> None:
    disk = FaultyDisk(fail={"remove": 1}, code=code)
    written(tmp_path, block(1, last=True)).close()
    files = StreamFiles(tmp_path, disk=disk)
    with pytest.raises(Unavailable, match=os.strerror(code)):
        files.delete(ONE)
    assert files.read(ONE, 0, 1)[0] == [block(1, last=True)]
    assert files.delete(ONE)
    assert not path_of(tmp_path).exists()


def test_a_full_disk_refuses_and_takes_the_same_blocks_later(tmp_path: Path) -> None:
    disk = FaultyDisk(fail={"pwritev": 1}, code=errno.ENOSPC)
    files = StreamFiles(tmp_path, disk=disk)
    with pytest.raises(Unavailable, match=os.strerror(errno.ENOSPC)):
        files.append(ONE, 0, [block(1)])
    files.append(ONE, 0, [block(1)])
    files.append(ONE, 1, [block(2, last=True)])
    assert files.read(ONE, 0, 2)[1] == ""


def test_a_write_that_is_cut_short_counts_as_none(tmp_path: Path) -> None:
    class Short(DiskCalls):
        is_short = True

        def pwritev(self, fd: int, buffers: object, offset: int) -> int:
            if self.is_short:
                return super().pwritev(fd, [b"only this"], offset)
            return super().pwritev(fd, buffers, offset)  # type: ignore[arg-type]

    disk = Short()
    files = StreamFiles(tmp_path, disk=disk)
    with pytest.raises(Unavailable):
        files.append(ONE, 0, [block(1)])
    disk.is_short = False
    files.append(ONE, 0, [block(1)])
    assert files.read(ONE, 0, 1) == ([block(1)], "")


def test_streams_leave_some_of_the_disk_to_messages(tmp_path: Path) -> None:
    class Nearly(DiskCalls):
        free = 1_000_000 + BLOCK_BYTES

        def free_bytes(self, path: Path) -> int:
            return self.free

    disk = Nearly()
    files = StreamFiles(tmp_path, free_bytes_min=1_000_000, disk=disk)
    files.append(ONE, 0, [block(1)])
    disk.free -= 1
    with pytest.raises(Unavailable, match="free_bytes_min 1,000,000"):
        files.append(ONE, 1, [block(2)])


def test_more_files_than_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("angarium.store.stream_files._OPEN_FILES_MAX", 2)
    files = StreamFiles(tmp_path)
    identities = [bytes([number]) * 16 for number in range(5)]
    for number in range(2):
        for identity in identities:
            files.append(identity, number, [block(identity[0], last=number == 1)])
    for identity in identities:
        files.sync(identity)
        assert files.read(identity, 0, 2)[1] == ""
    files.close()


# -- at the start --------------------------------------------------------------------------------------


def test_files_of_messages_are_only_measured_and_others_looked_into(tmp_path: Path) -> None:
    written(tmp_path, block(1), block(2, 7, last=True)).close()
    written(tmp_path, block(1), identity=TWO).close()
    (tmp_path / "streams" / "notes.txt").write_text("not ours")
    path_of(tmp_path).write_bytes(b"\0" * path_of(tmp_path).stat().st_size)  # nobody looks
    found = StreamFiles(tmp_path).scan({ONE}, unsynced_blocks_max=8)
    assert found == {
        ONE: StoredFile(2, FRAGMENT_BYTES + 7, True),
        TWO: StoredFile(1, FRAGMENT_BYTES, False),
    }


class Noting(DiskCalls):
    def __init__(self) -> None:
        self.durable: list[str] = []

    def fsync(self, fd: int) -> None:
        self.durable.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        super().fsync(fd)


def test_what_is_found_of_an_unfinished_stream_is_durable_with_its_name(tmp_path: Path) -> None:
    """A killed node leaves in the system's memory what it had not synced, and it is told as stored from now on."""
    disk = Noting()
    files = StreamFiles(tmp_path, disk=disk)
    assert disk.durable == [tmp_path.name]
    files.append(ONE, 0, [block(1)])
    files.close()
    disk.durable.clear()
    files = StreamFiles(tmp_path, disk=disk)
    files.scan({ONE}, unsynced_blocks_max=8)
    assert disk.durable == []
    files.scan(set(), unsynced_blocks_max=8)
    assert disk.durable == [ONE.hex(), "streams"]


@pytest.mark.parametrize(("lost", "kept"), [(0, 0), (1, 1), (3, 3)])
def test_the_torn_tail_of_an_unfinished_stream_is_cut_off(tmp_path: Path, lost: int, kept: int) -> None:
    written(tmp_path, block(1), block(2), block(3), block(4)).close()
    with path_of(tmp_path).open("r+b") as file:
        file.seek(lost * BLOCK_BYTES + 100)
        file.write(b"\0" * 50)
    found = StreamFiles(tmp_path).scan(set(), unsynced_blocks_max=8)
    assert found == {ONE: StoredFile(kept, kept * FRAGMENT_BYTES, False)}
    assert path_of(tmp_path).stat().st_size == kept * BLOCK_BYTES


def test_a_file_in_use_is_left_as_it_is(tmp_path: Path) -> None:
    """Who becomes primary looks at files that were still being written for the primary before it."""
    files = written(tmp_path, block(1), block(2))
    with path_of(tmp_path).open("ab") as file:
        file.write(b"the beginning of a block")
    size = path_of(tmp_path).stat().st_size
    assert files.scan(set(), unsynced_blocks_max=8, in_use=True) == {ONE: StoredFile(2, 2 * FRAGMENT_BYTES, False)}
    assert path_of(tmp_path).stat().st_size == size
    files.append(ONE, 2, [block(3, 9, last=True)])
    assert files.scan(set(), unsynced_blocks_max=8) == {ONE: StoredFile(3, 2 * FRAGMENT_BYTES + 9, True)}
    files.close()


def test_a_file_that_is_deleted_while_they_are_looked_at_is_passed_over(tmp_path: Path) -> None:
    files = written(tmp_path, block(1))
    path_of(tmp_path).with_name(TWO.hex()).symlink_to("gone")  # it is listed, and not there
    assert list(files.scan(set(), unsynced_blocks_max=8, in_use=True)) == [ONE]
    assert list(files.scan({TWO}, unsynced_blocks_max=8, in_use=True)) == [ONE]
    files.close()


def test_an_unfinished_stream_is_gone_on_with_after_a_restart(tmp_path: Path) -> None:
    written(tmp_path, block(1), block(2)).close()
    files = StreamFiles(tmp_path)
    files.scan(set(), unsynced_blocks_max=8)
    files.append(ONE, 2, [block(3, 9, last=True)])
    files.sync(ONE)
    assert files.read(ONE, 0, 3)[1] == ""
    assert files.scan(set(), unsynced_blocks_max=1) == {ONE: StoredFile(3, 2 * FRAGMENT_BYTES + 9, True)}


def test_damage_where_all_was_synced_ends_an_unfinished_stream(tmp_path: Path) -> None:
    written(tmp_path, *(block(number) for number in range(6))).close()
    with path_of(tmp_path).open("r+b") as file:
        file.seek(4 * BLOCK_BYTES + 100)
        file.write(b"\xff" * 50)
    assert StreamFiles(tmp_path).scan(set(), unsynced_blocks_max=2) == {}
    assert not path_of(tmp_path).exists()
