"""Goal: whatever becomes of the journal's bytes, recovery keeps what was confirmed, tells damage from a torn write, and
never replays what is stale.
Method: a small journal, built with the journal's own encoder; every byte in it is flipped, every tear is tried."""
from collections.abc import Iterator
from random import Random

import pytest

from angarium.core.storage import Operation, Put, Table, delete_prefix
from angarium.store.groups import HEAD_BYTES, Head, encode, seed
from angarium.store.recovery import Recovered, find_groups, recover
from angarium.store.settings import PAGE_BYTES

IDENTITY = 0xA19A
SEGMENT_BYTES = 16 * PAGE_BYTES


class Disk:
    """Two segments as bytes, and a writer that may be told to write nonsense."""

    def __init__(self) -> None:
        self.segments = [bytearray(SEGMENT_BYTES), bytearray(SEGMENT_BYTES)]
        self.stamp = 0
        self.life = 7

    def group(self, sequence: int, operations: list[Operation], applied: int = 0) -> bytes:
        self.stamp += 1
        body = encode(operations, seed(self.life, self.stamp))
        head = Head(IDENTITY, self.life, self.stamp, sequence, applied, body.body_bytes, body.operation_count)
        return b"".join(body.finish(head))

    def put(self, segment: int, offset: int, data: bytes) -> int:
        self.segments[segment][offset : offset + len(data)] = data
        return offset + len(data)

    def recover(self, applied: int = 0) -> Recovered:
        return recover([bytes(segment) for segment in self.segments], IDENTITY, applied)


def operations(sequence: int, count: int = 3, size: int = 40) -> list[Operation]:
    return [Put(Table.BATCH, b"%d-%d" % (sequence, at), bytes([sequence]) * size) for at in range(count)]


def replayed(found: Recovered) -> list[Operation]:
    return [operation for _, groups in found.replay for group in groups for operation in group]


def written(groups: int, *, seal: bool) -> tuple[Disk, list[int]]:
    """A journal of `groups` one-page groups, the last of two pages, and where each begins."""
    disk, place, offsets = Disk(), 0, []
    for sequence in range(1, groups + 1):
        offsets.append(place)
        size = 1_600 if sequence == groups else 40
        place = disk.put(0, place, disk.group(sequence, operations(sequence, size=size)))
    offsets.append(place)
    if seal:
        disk.put(0, place, disk.group(groups + 1, []))
    return disk, offsets


def every_group(groups: int) -> list[Operation]:
    return [
        operation
        for sequence in range(1, groups + 1)
        for operation in operations(sequence, size=1_600 if sequence == groups else 40)
    ]


def flips(disk: Disk, low: int, high: int, step: int = 1) -> Iterator[int]:
    """Every byte that says something, one in 50 of the padding."""
    for at in range(low, high, step):
        if disk.segments[0][at] == 0 and at % 50:
            continue
        disk.segments[0][at] ^= 1 << at % 8
        yield at
        disk.segments[0][at] ^= 1 << at % 8


def test_whole_journal() -> None:
    disk, offsets = written(4, seal=False)
    found = disk.recover()
    assert replayed(found) == every_group(4)
    assert (found.sequence_next, found.active, found.place) == (5, 0, offsets[4])
    assert found.damages == [] and found.torn_bytes == 0
    assert found.unsure is not None and found.unsure.head.sequence == 4


def test_a_seal_makes_the_last_group_sure() -> None:
    disk, offsets = written(4, seal=True)
    found = disk.recover()
    assert found.unsure is None
    assert (found.sequence_next, found.place) == (5, offsets[4])  # the next group goes over the seal


@pytest.mark.parametrize("seal", [True, False])
def test_every_flipped_bit_in_a_confirmed_group_costs_at_most_its_operation(seal: bool) -> None:
    disk, offsets = written(4, seal=seal)
    whole = every_group(4)
    step = 1 if seal else 5
    for at in flips(disk, 0, offsets[4] if seal else offsets[3], step):
        found = disk.recover()
        kept = replayed(found)
        assert found.torn_bytes == 0
        assert found.sequence_next == 5
        if kept == whole:
            assert found.damages == []
            continue
        (lost,) = [operation for operation in whole if operation not in kept]
        assert kept == [operation for operation in whole if operation != lost], at
        (damage,) = found.damages
        assert isinstance(lost, Put)
        assert damage.raw != b""


def test_a_flipped_bit_in_a_value_names_its_key() -> None:
    disk, _ = written(3, seal=True)
    at = disk.segments[0].index(bytes([2]) * 40)
    disk.segments[0][at] ^= 1
    (damage,) = disk.recover().damages
    assert (damage.table, damage.key) == (Table.BATCH, b"2-0")
    assert bytes([2]) * 39 in damage.raw


def test_every_flipped_bit_in_the_last_unsealed_group_counts_as_torn() -> None:
    disk, offsets = written(4, seal=False)
    before = every_group(4)[:9]
    body_end = offsets[3] + HEAD_BYTES + 3 * (16 + 3 + 1_600)
    for at in flips(disk, offsets[3], offsets[4], 7):
        found = disk.recover()
        if offsets[3] + HEAD_BYTES <= at < body_end:
            assert replayed(found) == before
            assert found.torn_bytes == offsets[4] - offsets[3]
            assert (found.sequence_next, found.place) == (4, offsets[3])
        else:  # a head, of which there are two, or the padding between
            assert replayed(found) == every_group(4)
        assert found.damages == []


@pytest.mark.parametrize("stale", [False, True])
def test_every_tear_of_the_last_group_drops_it_whole(stale: bool) -> None:
    """With `stale` the unwritten part still holds a group of the same shape from the segment's earlier life."""
    disk, offsets = written(4, seal=False)
    last = offsets[4] - offsets[3]
    new = bytes(disk.segments[0][offsets[3] : offsets[4]])
    old = bytes(last)
    if stale:
        old = Disk().group(1, [Put(Table.BATCH, b"s-%d" % at, b"stale" * 320) for at in range(3)])
        assert len(old) == len(new)
    content_end = HEAD_BYTES + 3 * (16 + 3 + 1_600)
    for cut in (*range(0, last, 13), *range(80), *range(content_end - 20, content_end + 20), last):
        disk.put(0, offsets[3], new[:cut] + old[cut:])
        found = disk.recover()
        kept = replayed(found)
        if cut >= content_end:
            assert kept == every_group(4)
        else:
            assert kept == every_group(4)[:9], cut
            assert found.sequence_next == 4
            assert found.place == offsets[3]
        assert found.damages == []


@pytest.mark.parametrize("seed_", range(20))
def test_pages_of_the_last_group_that_survive_by_chance(seed_: int) -> None:
    random = Random(seed_)
    disk, offsets = written(2, seal=False)
    size = [random.randrange(1, 6_000) for _ in range(5)]
    group: list[Operation] = [Put(Table.BATCH, b"3-%d" % at, random.randbytes(count)) for at, count in enumerate(size)]
    data = disk.group(3, group)
    pages = range(0, len(data), PAGE_BYTES)
    survivors = [page for page in pages if random.random() < 0.7]
    for page in survivors:
        disk.put(0, offsets[2] + page, data[page : page + PAGE_BYTES])
    found = disk.recover()
    if len(survivors) == len(pages):
        assert replayed(found) == every_group(2) + group
    else:
        assert replayed(found) == every_group(2)
    assert found.damages == []


def test_both_heads_damaged_in_the_middle_is_reported_and_reading_goes_on() -> None:
    disk, offsets = written(4, seal=True)
    disk.segments[0][offsets[1]] ^= 1
    disk.segments[0][offsets[2] - 1] ^= 1
    found = disk.recover()
    assert replayed(found) == [operation for operation in every_group(4) if operation not in operations(2)]
    (damage,) = found.damages
    assert damage.reason.startswith("groups 2 to 2:")


def test_both_heads_of_a_sealed_last_group_damaged_is_reported() -> None:
    disk, offsets = written(3, seal=True)
    disk.segments[0][offsets[2]] ^= 1
    disk.segments[0][offsets[3] - 1] ^= 1
    found = disk.recover()
    assert len(found.damages) == 1
    assert found.sequence_next == 4


def test_remains_of_an_earlier_life_are_not_replayed() -> None:
    disk, _ = written(6, seal=True)  # segment 0: groups 1 to 6, all applied
    place = disk.put(1, 0, disk.group(7, operations(7), applied=0))
    disk.put(1, place, disk.group(8, operations(8), applied=6))
    disk.put(0, 0, disk.group(9, [delete_prefix(Table.BATCH, 0)], applied=6))  # segment 0 again, over group 1
    for lmdb_says, damages in ((6, 0), (0, 1)):  # 0: LMDB's note is lost; the heads still tell, and it is reported
        found = disk.recover(applied=lmdb_says)
        assert replayed(found) == [*operations(7), *operations(8), delete_prefix(Table.BATCH, 0)]
        assert len(found.damages) == damages
        assert [segment for segment, _ in found.replay] == [1, 0]
        assert (found.active, found.place, found.sequence_next) == (0, PAGE_BYTES, 10)


def test_crash_in_the_middle_of_taking_a_segment_again() -> None:
    """The first group over the remains is torn: neither it nor the remains count."""
    for cut in range(0, PAGE_BYTES + 1, 64):
        disk, _ = written(6, seal=True)
        disk.put(1, 0, disk.group(7, operations(7), applied=6))
        new = disk.group(8, operations(8, size=1_000), applied=6)
        disk.put(0, 0, new[:cut])
        found = disk.recover(applied=6)
        whole = cut > HEAD_BYTES + 3 * (16 + 3 + 1_000)
        assert replayed(found) == operations(7) + (operations(8, size=1_000) if whole else [])
        assert found.damages == []


def test_of_two_attempts_at_one_sequence_the_later_counts() -> None:
    disk, offsets = written(2, seal=False)
    place = disk.put(0, offsets[2], disk.group(3, [Put(Table.LOG, b"k", b"refused")]))
    disk.put(0, place, disk.group(3, [Put(Table.LOG, b"k", b"repeated")]))
    assert replayed(disk.recover())[6:] == [Put(Table.LOG, b"k", b"repeated")]


def test_a_seal_behind_a_refused_group_makes_it_void() -> None:
    disk, offsets = written(2, seal=False)
    place = disk.put(0, offsets[2], disk.group(3, [Put(Table.LOG, b"k", b"refused")]))
    disk.put(0, place, disk.group(3, []))
    found = disk.recover()
    assert replayed(found) == every_group(2)
    assert (found.sequence_next, found.place) == (3, offsets[2])


def test_groups_of_another_journal_do_not_count() -> None:
    disk, _ = written(3, seal=True)
    assert list(find_groups(bytes(disk.segments[0]), 0, IDENTITY + 1)) == []


def test_a_value_that_looks_like_a_journal_is_only_a_value() -> None:
    """A message may well contain a page of a journal, even of this one."""
    disk, _ = written(3, seal=True)
    copy = bytes(disk.segments[0])
    other = Disk()
    group: list[Operation] = [Put(Table.BATCH, b"k", copy[HEAD_BYTES + 17 :]), Put(Table.LOG, b"l", copy)]
    other.stamp, other.segments = 50, [bytearray(SEGMENT_BYTES * 4), bytearray(SEGMENT_BYTES)]
    place = other.put(0, 0, other.group(1, group))
    other.put(0, place, other.group(2, []))
    assert replayed(other.recover()) == group


def test_remains_at_a_place_that_was_given_up_hide_nothing_behind_it() -> None:
    """Nothing came of the write that was given up, and what stands there is longer than that would have been."""
    disk = Disk()
    disk.put(0, PAGE_BYTES, disk.group(1, operations(1, size=3_000)))  # three pages, of an earlier life
    applied = 1
    place = disk.put(0, 0, disk.group(2, operations(2), applied))
    disk.stamp += 1  # the group that never came, of one page
    disk.put(0, place + PAGE_BYTES, disk.group(3, operations(3), applied))
    found = disk.recover(applied)
    assert replayed(found) == operations(2) + operations(3)
    assert (found.damages, found.sequence_next) == ([], 4)


def test_a_value_that_looks_like_a_younger_group_is_only_a_value() -> None:
    disk, other = Disk(), Disk()
    other.stamp = 100
    forged = other.group(50, operations(50))
    whole: list[Operation] = [Put(Table.BATCH, b"k", bytes(PAGE_BYTES - HEAD_BYTES - 13) + forged)]
    place = disk.put(0, 0, disk.group(1, whole))
    assert bytes(disk.segments[0][PAGE_BYTES : PAGE_BYTES + 4]) == b"AgG1", "it stands where a head would"
    disk.put(0, place, disk.group(2, operations(2)))
    assert replayed(disk.recover()) == [*whole, *operations(2)]


def test_an_unknown_table_counts_as_damage() -> None:
    disk = Disk()
    data = disk.group(1, operations(1))
    disk.put(0, disk.put(0, 0, data), disk.group(2, []))
    disk.segments[0][HEAD_BYTES + 5] = 99
    assert len(disk.recover().damages) == 1
