"""Goal: what `cluster up` shows once it is ready is how the cluster is, not how it was on its way there."""
import threading

import msgspec
import pytest

from angarium.admin.cluster import ClusterStatus
from angarium.cli import cluster

_WELL = ClusterStatus(leader="a1", expected=1, voters=["a1"])
_SEEKING = msgspec.structs.replace(_WELL, trouble=["replica group 'a' has no primary: a1 is to take over"])


def test_trouble_that_passes_is_not_shown() -> None:
    told = [_WELL, _SEEKING, _SEEKING]
    assert cluster.when_settled(told.pop, threading.Event()) == _WELL and told == []


def test_trouble_that_stays_is_shown_and_nobody_who_stops_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    stop.set()
    assert cluster.when_settled([_WELL, _SEEKING].pop, stop) == _SEEKING
    monkeypatch.setattr(cluster, "SETTLED_S_MAX", 0.0)
    assert cluster.when_settled([_WELL, _SEEKING].pop, threading.Event()) == _SEEKING
