"""Goal: on a disk that is really full, publishing is refused with a reason, settling still works, and the space it
frees lets publishing go on; nothing confirmed is lost on the way.
Method: a small tmpfs, filled by the store itself or by somebody else."""
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from angarium.core.errors import Unavailable
from angarium.core.storage import DeleteRange, Put, Table, key_of, position_key
from angarium.store.durable import DurableStore
from angarium.store.settings import StoreSettings
from tests.store.disks import crash

BODY = os.urandom(100_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", mounted], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {made.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", "--lazy", mounted], check=True)


class Publisher:
    """One destination: batches are published at the end and settled from the front."""

    def __init__(self, path: Path, settings: StoreSettings | None = None) -> None:
        self.path = path
        self.settings = settings
        self.first, self.end = 1, 0
        self.store = DurableStore.open(path, settings)

    def publish_until_refused(self) -> Unavailable:
        for _ in range(1_000):
            end = self.end + 1
            try:
                self.store.commit(
                    [Put(Table.BATCH, position_key(1, end), BODY), Put(Table.LOG, key_of(1), b"%d" % end)]
                )
            except Unavailable as refusal:
                return refusal
            self.end = end
        raise AssertionError("never refused")

    def settle(self, count: int) -> None:
        self.first += count
        self.store.commit(
            [
                Put(Table.SUBSCRIPTION, key_of(1), b"%d" % self.first),
                DeleteRange(Table.BATCH, key_of(1), position_key(1, self.first)),
            ],
            reserved=True,
        )

    def check(self) -> None:
        items = self.store.scan(Table.BATCH, key_of(1), key_of(2), limit=1_000, bytes_max=1 << 30)
        assert [item.key for item in items] == [position_key(1, end) for end in range(self.first, self.end + 1)]
        assert self.store.get(Table.LOG, key_of(1)) == (b"%d" % self.end if self.end else None)

    def crash(self) -> None:
        crash(self.store)
        self.store = DurableStore.open(self.path, self.settings)


def test_full_then_settled_then_published_again(small_disk: Path) -> None:
    publisher = Publisher(small_disk / "store")
    for _ in range(4):
        refusal = publisher.publish_until_refused()
        assert "no room for more" in str(refusal)
        assert publisher.store.blocked_reason is not None
        publisher.check()
        publisher.crash()
        publisher.check()
        confirmed = publisher.end
        while publisher.first <= publisher.end:
            publisher.settle(min(10, publisher.end + 1 - publisher.first))
            publisher.check()
        refusal = publisher.publish_until_refused()
        assert publisher.end > confirmed + 50  # several megabytes: what was settled is room again
    publisher.store.close()


def test_somebody_else_fills_the_disk_before_lmdb_ever_grew(small_disk: Path) -> None:
    """The hardest case: LMDB has no free page of its own, so that even a cursor needs the ballast."""
    publisher = Publisher(small_disk / "store")
    with (small_disk / "hog").open("wb", buffering=0) as hog:
        try:
            while hog.write(bytes(4096)):
                pass
        except OSError:
            pass
    publisher.publish_until_refused()
    published = publisher.end
    assert published > 50  # both segments
    publisher.crash()
    publisher.check()
    while publisher.first <= publisher.end:
        publisher.settle(10 if publisher.first + 10 <= publisher.end + 1 else 1)
    publisher.publish_until_refused()
    assert publisher.end > published
    publisher.check()
    (small_disk / "hog").unlink()
    publisher.store.retry()
    before = publisher.end
    publisher.publish_until_refused()
    assert publisher.end > before + 20
    publisher.check()
    publisher.store.close()


def test_what_is_settled_at_rest_makes_room_for_what_waits(small_disk: Path) -> None:
    """The oldest batches lie in LMDB, the youngest wait in the journal. Settling the oldest lets the youngest in, and
    the messages never take the space that is held back for deletes."""
    publisher = Publisher(small_disk / "store", StoreSettings(chunk_bytes=256 * 1024))
    for _ in range(3):
        publisher.publish_until_refused()
        assert publisher.store.statistics().ballast_bytes > 900_000  # of 1 MiB; deletes may have cost some pages
        published, waiting = publisher.end, publisher.end - 60
        publisher.settle(waiting - publisher.first)
        publisher.publish_until_refused()
        assert publisher.end > published + 20
        publisher.check()
    publisher.store.close()


def test_no_room_for_the_journal(small_disk: Path) -> None:
    (small_disk / "hog").write_bytes(bytes(20 << 20))
    with pytest.raises(Unavailable, match="cannot prepare a journal segment"):
        DurableStore.open(small_disk / "store")
    (small_disk / "hog").unlink()
    DurableStore.open(small_disk / "store").close()
