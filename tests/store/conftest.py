"""What all tests of the store share."""
from pathlib import Path

import pytest

from angarium.core.storage import Put, Table
from angarium.store import journal
from angarium.store.durable import DurableStore
from tests.store.disks import SMALL, crash, start


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it is the test that is kept waiting, not a kernel that is slow to begin; so is one that looks
    at the files meanwhile."""
    monkeypatch.setattr(journal, "START_S_MAX", 60.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory of a store, on a file system that can do it."""
    store = DurableStore.open(tmp_path / "probe", SMALL)
    start(store, [Put(Table.LOG, b"k", b"v")])
    is_possible = store.overlapped is not None
    crash(store)
    if not is_possible:
        pytest.skip(f"{tmp_path}: its file system has no asynchronous direct I/O")
    return tmp_path / "store"
