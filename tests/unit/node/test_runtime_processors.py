"""Goal: whoever asks how many processors there are hears what the process may really use.
Method: files as the kernel shows them, of control groups of both kinds."""
import os
from pathlib import Path

import pytest

from angarium.runtime.processors import processors


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def own_groups(directory: Path, path: str | None) -> Path:
    """What the kernel says of a process; None: of the older kind of groups only."""
    file = directory / "own"
    file.write_text("2:cpu:/old\n1:name=systemd:/old\n" + (f"0::{path}\n" if path is not None else ""))
    return file


@pytest.mark.parametrize(
    ("quotas", "path", "expected"),
    [
        ({}, "/a/b", 8.0),
        ({"a/b": "max 100000"}, "/a/b", 8.0),
        ({"a/b": "150000 100000"}, "/a/b", 1.5),
        ({"a/b": "1600000 100000"}, "/a/b", 8.0),
        ({"a": "200000 100000", "a/b": "max 100000"}, "/a/b", 2.0),
        ({"a": "200000 100000", "a/b": "100000 50000", "": "50000 100000"}, "/a/b", 0.5),
        ({"a": "400000 100000", "a/b": "300000 100000"}, "/a/b", 3.0),
        ({"a/other": "100000 100000"}, "/a/b", 8.0),
        ({"": "300000 100000"}, "/", 3.0),
        ({"a/b": "nonsense"}, "/a/b", 8.0),
        ({"a/b": "100000 100000", "old": "100000 100000"}, None, 8.0),
    ],
    ids=[
        "no-file", "no-quota", "own-quota", "more-than-there-are", "parent", "all-above", "least", "sister", "root",
        "unreadable", "older-groups",
    ],
)  # fmt: skip
def test_processors_are_those_allowed_or_as_much_time_as_the_groups_leave(
    eight: None, tmp_path: Path, quotas: dict[str, str], path: str | None, expected: float
) -> None:
    groups = tmp_path / "groups"
    for group, quota in quotas.items():
        (groups / group).mkdir(parents=True, exist_ok=True)
        (groups / group / "cpu.max").write_text(quota + "\n")
    assert processors(groups, own_groups(tmp_path, path)) == expected


def test_without_groups_processors_are_those_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 3, 5})
    assert processors(tmp_path / "groups", tmp_path / "own") == 3.0


def test_a_quota_outside_of_the_groups_is_none(eight: None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert processors(tmp_path / "groups", own_groups(tmp_path, "/a")) == 8.0


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({}, 8.0),
        ({"cpu/old": "-1"}, 8.0),
        ({"cpu/old": "50000"}, 0.5),
        ({"cpu": "300000", "cpu/old": "-1"}, 3.0),
        ({"cpu/other": "50000", "memory/old": "50000"}, 8.0),
    ],
    ids=["no-file", "no-quota", "own-quota", "above", "others"],
)
def test_quotas_of_the_older_kind_count_as_well(
    eight: None, tmp_path: Path, quotas: dict[str, str], expected: float
) -> None:
    for group, quota in quotas.items():
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / group / "cpu.cfs_quota_us").write_text(quota + "\n")
        (tmp_path / group / "cpu.cfs_period_us").write_text("100000\n")
    assert processors(tmp_path, own_groups(tmp_path, None)) == expected


def test_beside_groups_of_the_older_kind_the_newer_have_a_directory_of_their_own(eight: None, tmp_path: Path) -> None:
    (tmp_path / "unified/a").mkdir(parents=True)
    (tmp_path / "unified/a/cpu.max").write_text("150000 100000\n")
    assert processors(tmp_path, own_groups(tmp_path, "/a")) == 1.5
