"""Reading the journal after a crash: which groups count, and what became of them. Pure: bytes in, facts out.

Which groups count. Every valid head in any segment is a candidate. Taken from the latest stamp backwards, sequences
must fall strictly: a write at sequence s says that every earlier write at s or above is void (a failed attempt that was
repeated, a torn group that was dropped at an earlier recovery). Groups up to `applied` are in LMDB already: the remains
of a segment's earlier life all are, because a segment is taken again only after they became durable there. `applied` is
the larger of what LMDB says and what any head says: the first head written over a recycled segment already carries it.
Should LMDB say less than a head, its note is damaged or its file is an older one, and that is reported.

Torn or damaged. Group g + 1 (or the seal in its place) is written only after group g was durable. So:
  - a bad operation in a group that has a successor was confirmed and is damaged since: it alone is left out, reported
    with its raw bytes, and everything else counts
  - a bad operation in the last group means a write cut short that nobody was told about: the whole group is dropped,
    for groups are atomic
  - a whole last group may or may not have been confirmed. It counts, but may so far exist in the page cache only, so
    the store writes it again and syncs (`Recovered.unsure`) before anybody sees it
  - a missing sequence between two groups is a group of which both heads are damaged: reported, and reading goes on
"""
from collections.abc import Iterator
from dataclasses import dataclass, field

from angarium.core.storage import Operation
from angarium.store.disk import DiskCalls
from angarium.store.groups import HEAD_BYTES, Head, decode, parse_head
from angarium.store.interface import Damage
from angarium.store.settings import MIB, PAGE_BYTES

READ_BYTES = MIB


@dataclass(frozen=True, slots=True)
class Found:
    head: Head
    segment: int
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.head.group_bytes


@dataclass(slots=True)
class Recovered:
    """Where writing goes on, and what is to be replayed: for each segment in order, its groups' operations."""

    active: int = 0
    place: int = 0
    sequence_next: int = 1
    stamp_next: int = 1
    applied: int = 0
    replay: list[tuple[int, list[list[Operation]]]] = field(default_factory=list)  # (segment, groups), oldest first
    replay_end: dict[int, int] = field(default_factory=dict)  # segment -> its last sequence that counts
    groups_replayed: int = 0
    torn_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    unsure: Found | None = None  # the last group, when nothing tells that its sync succeeded


def read_segment(disk: DiskCalls, fd: int, size_bytes: int) -> bytes:
    """The whole segment; pages that the disk cannot read come as zeros, and so count as damaged."""
    try:
        whole = disk.pread(fd, size_bytes, 0)  # in one piece: pieces and what they are joined to take twice the memory
    except OSError:
        whole = b""
    if len(whole) == size_bytes:
        return whole
    parts: list[bytes] = []
    for offset in range(0, size_bytes, READ_BYTES):
        count = min(READ_BYTES, size_bytes - offset)
        try:
            part = disk.pread(fd, count, offset)
        except OSError:
            part = b"".join(_read_page(disk, fd, at) for at in range(offset, offset + count, PAGE_BYTES))
        parts.append(part.ljust(count, b"\0"))
    return b"".join(parts)


def _read_page(disk: DiskCalls, fd: int, offset: int) -> bytes:
    try:
        return disk.pread(fd, PAGE_BYTES, offset).ljust(PAGE_BYTES, b"\0")
    except OSError:
        return bytes(PAGE_BYTES)


def find_groups(data: bytes, segment: int, identity: int) -> Iterator[Found]:
    """Every group whose head or second head is readable, in order of place, remains of earlier lives included.

    What a group contains may look like a head: a message may hold a piece of a journal. A group that is not whole and
    has a younger head inside is the rest of something written over: a place that was given up may hold remains longer
    than what was to stand there."""
    heads: dict[int, Head] = {}
    for page in range(0, len(data), PAGE_BYTES):
        if (second := parse_head(data, page + PAGE_BYTES - HEAD_BYTES, identity)) is not None:
            heads.setdefault(page + PAGE_BYTES - second.group_bytes, second)
        if (first := parse_head(data, page, identity)) is not None:
            heads[page] = first
    offset = 0
    while offset < len(data):
        head = heads.get(offset)
        if head is not None and offset + head.group_bytes <= len(data) and not _is_overwritten(data, heads, offset):
            yield Found(head, segment, offset)
            offset += head.group_bytes
        else:
            offset += PAGE_BYTES


def _is_overwritten(data: bytes, heads: dict[int, Head], offset: int) -> bool:
    head = heads[offset]
    inside = range(offset + PAGE_BYTES, offset + head.group_bytes, PAGE_BYTES)
    is_younger_inside = any(at in heads and heads[at].stamp > head.stamp for at in inside)
    return is_younger_inside and bool(decode(data, offset, head).damages)


def those_that_count(found: list[Found], applied: int) -> list[Found]:
    """By sequence, without what is void and what is applied."""
    chosen: list[Found] = []
    for candidate in sorted(found, key=lambda group: group.head.stamp, reverse=True):
        if not chosen or candidate.head.sequence < chosen[-1].head.sequence:
            chosen.append(candidate)
    return [group for group in reversed(chosen) if group.head.sequence > applied]


def recover(segments: list[bytes], identity: int, applied: int) -> Recovered:
    found = [group for index, data in enumerate(segments) for group in find_groups(data, index, identity)]
    result = Recovered(applied=max([applied, *(group.head.applied for group in found)]))
    if applied < result.applied:
        result.damages.append(
            Damage(None, None, f"LMDB knows groups up to {applied}, but held them up to {result.applied} before")
        )
    result.stamp_next = 1 + max((group.head.stamp for group in found), default=0)
    counting = those_that_count(found, result.applied)
    sequence = result.applied
    for group in counting:
        if group.head.is_seal:
            _report_gap(result, sequence, group.head.sequence)
            sequence = max(sequence, group.head.sequence - 1)
            continue
        decoded = decode(segments[group.segment], group.offset, group.head)
        if decoded.damages and group is counting[-1]:
            result.torn_bytes = group.head.group_bytes
            _report_gap(result, sequence, group.head.sequence)
            sequence = group.head.sequence - 1
            break
        _report_gap(result, sequence, group.head.sequence)
        sequence = group.head.sequence
        result.damages += decoded.damages
        _add(result, group, decoded.operations)
        result.unsure = group if group is counting[-1] else None
    result.sequence_next = sequence + 1
    return result


def _report_gap(result: Recovered, sequence: int, following: int) -> None:
    if following > sequence + 1:
        result.damages.append(
            Damage(None, None, f"groups {sequence + 1} to {following - 1}: no readable head; their operations are lost")
        )


def _add(result: Recovered, group: Found, operations: list[Operation]) -> None:
    if not result.replay or result.replay[-1][0] != group.segment:
        result.replay.append((group.segment, []))
    result.replay[-1][1].append(operations)
    result.replay_end[group.segment] = group.head.sequence
    result.active, result.place = group.segment, group.end
    result.groups_replayed += 1
