"""Bit flips in a store at rest, as a disk may bring them about. The broker must not be running."""
from pathlib import Path

import lmdb

from angarium.core.storage import Table

_PAGE_BYTES, _FLAGS_AT, _LEAF, _USED_FROM_AT = 4096, 10, 2, 14  # of LMDB


def flip_bit(path: Path, pattern: bytes, at: int) -> int:
    """Flip a bit of byte `at` of the pattern wherever it stands in the file; how often that was."""
    data = bytearray(path.read_bytes())
    found = data.find(pattern)
    count = 0
    while found >= 0:
        data[found + at] ^= 0x10
        count += 1
        found = data.find(pattern, found + len(pattern))
    if count:
        with path.open("r+b") as file:  # in place: the file keeps its identity
            file.write(data)
    return count


def flip_in_journal(data: Path, pattern: bytes, at: int = 0) -> int:
    return sum(flip_bit(path, pattern, at) for path in sorted(data.glob("journal-*.seg")))


def flip_in_tables(data: Path, pattern: bytes, at: int = 0) -> int:
    return flip_bit(data / "data.mdb", pattern, at)


def table_records(data: Path, table: Table) -> dict[bytes, bytes]:
    """Key to stored value (with its checksum) as LMDB has them."""
    opened = lmdb.open(str(data), max_dbs=32, readonly=True, lock=False, map_size=1 << 40)
    with opened as environment, environment.begin() as transaction:
        database = environment.open_db(table.name.encode(), transaction, create=False)
        return dict(transaction.cursor(database))


def flip_record(data: Path, table: Table, key: bytes) -> None:
    """Flip a bit in the last byte of one record's value. LMDB keeps key and value side by side."""
    pattern = key + table_records(data, table)[key]
    assert flip_in_tables(data, pattern, len(pattern) - 1) > 0


def ruin_leaves(data: Path, pattern: bytes) -> int:
    """Zero the leaf pages of LMDB's file that hold the pattern; how many that were."""
    path = data / "data.mdb"
    pages = bytearray(path.read_bytes())
    count = 0
    for page in range(0, len(pages), _PAGE_BYTES):
        used_from = page + int.from_bytes(pages[page + _USED_FROM_AT : page + _USED_FROM_AT + 2], "little")
        if pages[page + _FLAGS_AT] & _LEAF and pattern in pages[used_from : page + _PAGE_BYTES]:
            pages[page : page + _PAGE_BYTES] = bytes(_PAGE_BYTES)
            count += 1
    with path.open("r+b") as file:
        file.write(pages)
    return count
