"""Goal: what a voter has on disk is what it gets back; and a log with a hole in it is refused."""
import pytest

from angarium.core.errors import StorageCorrupt
from angarium.core.groups.decisions import Nothing, SettingSet, VotersSet, encode_decision
from angarium.core.groups.log import Log, SnapshotRecord, entry_key
from angarium.core.groups.protocol import Entry
from angarium.core.groups.records import State, Voter, encode_state
from angarium.core.storage import Operation, Put, Table

A, B = Voter("a", b"a"), Voter("b", b"b")


class Disk:
    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}

    def write(self, operations: list[Operation]) -> None:
        for operation in operations:
            assert operation.table is Table.GROUPS
            if isinstance(operation, Put):
                self.records[operation.key] = operation.value
            else:
                kept = self.records.items()
                self.records = {k: v for k, v in kept if not operation.low <= k < operation.high}


def entry(index: int, term: int = 1) -> Entry:
    return Entry(term, index, encode_decision(SettingSet("k", b"%d" % index)))


def voters(index: int, *who: Voter) -> Entry:
    return Entry(1, index, encode_decision(VotersSet(who)))


def filled(disk: Disk, last: int = 6) -> Log:
    log = Log()
    disk.write(log.append([voters(1, A), *(entry(index) for index in range(2, last + 1))]))
    return log


def content(log: Log) -> list[tuple[int, int]]:
    return [(e.index, e.term) for e in log.slice(log.first_index, entries_max=100, bytes_max=1 << 20)]


def test_entries_come_back() -> None:
    disk = Disk()
    log = filled(disk)
    disk.write(log.truncate(5))
    disk.write(log.append([entry(5, 3)]))
    found = Log.recover(disk.records)
    assert content(found) == content(log) == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 3)]
    assert (found.last_index, found.last_term, found.voters) == (5, 3, (A,))


def test_a_snapshot_bounds_the_log_and_keeps_a_tail_in_memory() -> None:
    disk = Disk()
    log = filled(disk)
    disk.write(log.compact(5, encode_state(State(index=5, voters=(A,))), tail_entries=2))
    assert content(log) == [(4, 1), (5, 1), (6, 1)] and log.term_at(3) == 1 and log.term_at(2) is None
    found = Log.recover(disk.records)
    assert content(found) == [(6, 1)] and found.term_at(5) == 1 and found.voters == (A,)


def test_an_installed_snapshot_replaces_what_does_not_follow_from_it() -> None:
    disk = Disk()
    log = filled(disk)
    disk.write(log.install(SnapshotRecord(4, 2, encode_state(State(index=4, voters=(A, B))))))
    assert content(log) == [] and (log.last_index, log.last_term, log.voters) == (4, 2, (A, B))
    assert content(Log.recover(disk.records)) == []


def test_an_installed_snapshot_keeps_what_follows_from_it() -> None:
    disk = Disk()
    log = filled(disk)
    disk.write(log.install(SnapshotRecord(4, 1, encode_state(State(index=4, voters=(A,))))))
    assert content(log) == content(Log.recover(disk.records)) == [(5, 1), (6, 1)]


def test_voters_are_in_force_from_the_log_and_fall_back_with_it() -> None:
    disk = Disk()
    log = filled(disk)
    disk.write(log.append([voters(7, A, B)]))
    assert (log.voters, log.voters_index) == ((A, B), 7)
    disk.write(log.truncate(7))
    assert (log.voters, log.voters_index) == ((A,), 1)
    assert Log.recover(disk.records).voters == (A,)


def test_a_hole_is_not_voted_over() -> None:
    disk = Disk()
    filled(disk)
    del disk.records[entry_key(3)]
    with pytest.raises(StorageCorrupt, match="gaps after index 0"):
        Log.recover(disk.records)
    disk.records[entry_key(3)] = b"?"
    with pytest.raises(StorageCorrupt):
        Log.recover(disk.records)


def test_a_slice_has_limits_and_at_least_one_entry() -> None:
    log = Log()
    log.append([Entry(1, index, encode_decision(Nothing())) for index in range(1, 9)])
    size = len(encode_decision(Nothing()))
    assert len(log.slice(1, entries_max=3, bytes_max=1_000)) == 3
    assert len(log.slice(1, entries_max=8, bytes_max=2 * size)) == 2
    assert len(log.slice(1, entries_max=8, bytes_max=1)) == 1
    assert len(log.slice(1, entries_max=8, bytes_max=1_000, last=4)) == 4
