"""What all tests of the store share."""
import pytest

from angarium.store import journal


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it is the test that is kept waiting, not a kernel that is slow to begin; so is one that looks
    at the files meanwhile."""
    monkeypatch.setattr(journal, "START_S_MAX", 60.0)
