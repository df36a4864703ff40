"""The log of decisions on one disk: entries after a snapshot, and what has to be written to keep them.

    [ snapshot: the state after `snapshot_index` ][ entry ][ entry ] ... last

Records in `Table.GROUPS`, each group of operations atomic:

    i          store id, cluster           t      term, vote
    s          snapshot: index, term, state     e + index (8 bytes)   term, decision

Changing calls return the operations that make the change durable; the caller must not act on it before they are. In
memory a few entries behind the snapshot are kept for those who are a little behind; after a restart they are gone.
A voter change is in force from when it is in the log, so the log knows the voters.
"""
from collections.abc import Mapping, Sequence

import msgspec

from angarium.core.errors import StorageCorrupt
from angarium.core.groups.decisions import NodeJoined, VotersSet, decode_decision
from angarium.core.groups.protocol import Entry
from angarium.core.groups.records import NodeRecord, Voter, decode_state
from angarium.core.malformed import MALFORMED
from angarium.core.storage import DeleteRange, Operation, Put, Table

IDENTITY, TERM, SNAPSHOT, ENTRY = b"i", b"t", b"s", b"e"
_encode = msgspec.msgpack.Encoder().encode


class Identity(msgspec.Struct, frozen=True, array_like=True):
    store: bytes
    cluster: bytes = b""  # empty: bound to none yet


class TermRecord(msgspec.Struct, frozen=True, array_like=True):
    term: int = 0
    vote: bytes = b""  # store of the candidate that has it


class SnapshotRecord(msgspec.Struct, frozen=True, array_like=True):
    index: int
    term: int
    state: bytes


class EntryRecord(msgspec.Struct, frozen=True, array_like=True):
    term: int
    data: bytes


def put(key: bytes, record: msgspec.Struct) -> Put:
    return Put(Table.GROUPS, key, _encode(record))


def entry_key(index: int) -> bytes:
    return ENTRY + index.to_bytes(8, "big")


class Log:
    def __init__(self) -> None:
        self.snapshot = SnapshotRecord(0, 0, b"")
        self._base_index = 0  # of what comes before the first entry in memory
        self._base_term = 0
        self._entries: list[Entry] = []
        self._voters: list[tuple[int, tuple[Voter, ...]]] = [(0, ())]  # (index, in force from there), ascending

    @property
    def first_index(self) -> int:
        return self._base_index + 1

    @property
    def last_index(self) -> int:
        return self._base_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._base_term

    @property
    def is_empty(self) -> bool:
        return self.last_index == 0

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self._voters[-1][1]

    @property
    def voters_index(self) -> int:
        """Of the entry that set them."""
        return self._voters[-1][0]

    def voters_seen(self) -> list[NodeRecord]:
        """Where the voters were last, as far as is known; also what was never decided, for it only helps to find them.
        Reads the whole log: for a start."""
        state = decode_state(self.snapshot.state) if self.snapshot.state else None
        found = {} if state is None else {node.name: node for node in state.nodes}
        for entry in self._entries:
            decision = decode_decision(entry.data)
            if isinstance(decision, NodeJoined):
                found[decision.node.name] = decision.node
        return [found[voter.node] for voter in self.voters if voter.node in found]

    def term_at(self, index: int) -> int | None:
        """None: it is not here (any more, or yet)."""
        if index == self._base_index:
            return self._base_term
        return self._entries[index - self._base_index - 1].term if self._base_index < index <= self.last_index else None

    def entry(self, index: int) -> Entry:
        return self._entries[index - self._base_index - 1]

    def slice(self, first: int, *, entries_max: int, bytes_max: int, last: int | None = None) -> tuple[Entry, ...]:
        """At least one, if there is one."""
        start = first - self._base_index - 1
        end = min(start + entries_max, len(self._entries) if last is None else last - self._base_index)
        found: list[Entry] = []
        size_bytes = 0
        for entry in self._entries[start:end]:
            size_bytes += len(entry.data)
            if found and size_bytes > bytes_max:
                break
            found.append(entry)
        return tuple(found)

    # -- changes -------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> list[Operation]:
        operations: list[Operation] = []
        for entry in entries:
            assert entry.index == self.last_index + 1, f"entry {entry.index} after {self.last_index}"
            self._entries.append(entry)
            self._note_voters(entry)
            operations.append(put(entry_key(entry.index), EntryRecord(entry.term, entry.data)))
        return operations

    def _note_voters(self, entry: Entry) -> None:
        decision = decode_decision(entry.data)
        if isinstance(decision, VotersSet):
            self._voters.append((entry.index, decision.voters))

    def truncate(self, first: int) -> list[Operation]:
        """Entries from `first` on were never decided."""
        assert first > self.snapshot.index, f"entry {first} is in the snapshot"
        del self._entries[first - self._base_index - 1 :]
        while self._voters[-1][0] >= first:
            self._voters.pop()
        return [DeleteRange(Table.GROUPS, entry_key(first), ENTRY + b"\xff" * 9)]

    def compact(self, index: int, state: bytes, *, tail_entries: int) -> list[Operation]:
        """All up to `index` is in this state."""
        term = self.term_at(index)
        assert term is not None and index > self.snapshot.index
        self.snapshot = SnapshotRecord(index, term, state)
        drop = index - tail_entries - self._base_index
        if drop > 0:
            self._base_term = self._entries[drop - 1].term
            self._base_index += drop
            del self._entries[:drop]
        while len(self._voters) > 1 and self._voters[1][0] <= index:
            del self._voters[0]
        return self._snapshot_operations()

    def install(self, snapshot: SnapshotRecord) -> list[Operation]:
        """What another has. Entries behind it stay if they follow from it."""
        if self.term_at(snapshot.index) == snapshot.term:
            kept = self._entries[snapshot.index - self._base_index :]
        else:
            kept = []
        self.snapshot = snapshot
        self._take(kept)
        operations = self._snapshot_operations()
        if not kept:
            operations.append(DeleteRange(Table.GROUPS, entry_key(snapshot.index + 1), ENTRY + b"\xff" * 9))
        return operations

    def _take(self, entries: Sequence[Entry]) -> None:
        self._base_index, self._base_term = self.snapshot.index, self.snapshot.term
        state = decode_state(self.snapshot.state) if self.snapshot.state else None
        self._voters = [(self.snapshot.index, () if state is None else state.voters)]
        self._entries = []
        self.append(entries)

    def _snapshot_operations(self) -> list[Operation]:
        return [
            put(SNAPSHOT, self.snapshot),
            DeleteRange(Table.GROUPS, ENTRY, entry_key(self.snapshot.index + 1)),
        ]

    # -- the disk ------------------------------------------------------------------------------------

    @classmethod
    def recover(cls, records: Mapping[bytes, bytes]) -> "Log":
        """Raises `StorageCorrupt` if entries are missing. A voter with a damaged log must not vote from what is left:
        it may have acknowledged more. Its directory is put aside, and it comes back as another disk."""
        log = cls()
        try:
            if SNAPSHOT in records:
                log.snapshot = msgspec.msgpack.decode(records[SNAPSHOT], type=SnapshotRecord)
            entries = []
            for key in sorted(key for key in records if key[:1] == ENTRY):
                record = msgspec.msgpack.decode(records[key], type=EntryRecord)
                entries.append(Entry(record.term, int.from_bytes(key[1:], "big"), record.data))
            expected = range(log.snapshot.index + 1, log.snapshot.index + 1 + len(entries))
            if [entry.index for entry in entries] != list(expected):
                raise StorageCorrupt(f"the log of decisions has gaps after index {log.snapshot.index}")
            log._take(entries)
        except MALFORMED as error:
            raise StorageCorrupt(f"the log of decisions: {error}") from None
        return log
