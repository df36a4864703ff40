"""Packing messages into a batch: what a client does, and whoever takes a part of one."""
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from angarium.core.checksum import crc32
from angarium.core.wire.layout import (
    AFTER_CRC,
    DUE,
    EXPIRY,
    HEADER,
    HEADERS,
    MAGIC,
    OFFSET_PAIR,
    PRIORITY,
    PROPERTIES,
    SEQUENCE,
    SUM,
)


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The optional columns on their way into a batch; None means that no message has the field."""

    priorities: Sequence[int] | None = None
    expiries_ms: Sequence[int] | None = None
    headers: Sequence[bytes] | None = None
    properties: Sequence[bytes] | None = None
    dues_ms: Sequence[int] | None = None
    announcements: int = 0  # bits of Columns
    sequences: Sequence[int] | None = None  # when they are not consecutive


NO_COLUMNS = MessageColumns()


def pack(
    producer: bytes,
    sequence: int,
    timestamp_ms: int,
    bodies: Sequence[bytes],
    columns: MessageColumns = NO_COLUMNS,
) -> bytes:
    """Pack at least one message. The caller has checked sizes and priorities."""
    if len(bodies) == 1:
        offsets = OFFSET_PAIR.pack(0, len(bodies[0]))
    else:
        offsets = array("i", accumulate(map(len, bodies), initial=0)).tobytes()
    blocks = [] if columns is NO_COLUMNS else _column_blocks(columns)
    announced = columns.announcements
    return seal(producer, sequence, timestamp_ms, len(bodies), announced, offsets, blocks, b"".join(bodies))


def seal(
    producer: bytes,
    sequence: int,
    timestamp_ms: int,
    count: int,
    announced: int,
    offsets: bytes,
    blocks: list[tuple[int, bytes]],
    bodies: bytes,
) -> bytes:
    parts: list[bytes] = [offsets]
    at = HEADER.size + len(offsets)
    present = announced
    for flag, block in blocks:
        padding = -at % 8
        parts.append(b"\0" * padding + block)
        at += padding + len(block)
        present |= flag
    length = at + len(bodies)
    after_crc = AFTER_CRC.pack(length, count, producer, sequence, timestamp_ms, present, at, 0)
    crc = crc32(after_crc)
    for part in parts:
        crc = crc32(part, crc)
    crc = crc32(bodies, crc)
    return b"".join((SUM.pack(MAGIC, crc), after_crc, *parts, bodies))


def _column_blocks(columns: MessageColumns) -> list[tuple[int, bytes]]:
    blocks: list[tuple[int, bytes]] = []
    if columns.priorities is not None:
        blocks.append((PRIORITY, bytes(columns.priorities)))
    if columns.expiries_ms is not None:
        blocks.append((EXPIRY, array("q", columns.expiries_ms).tobytes()))
    for flag, values in ((HEADERS, columns.headers), (PROPERTIES, columns.properties)):
        if values is not None:
            offsets = array("i", accumulate(map(len, values), initial=0))
            blocks.append((flag, offsets.tobytes() + b"".join(values)))
    if columns.sequences is not None:
        blocks.append((SEQUENCE, array("q", columns.sequences).tobytes()))
    if columns.dues_ms is not None:
        blocks.append((DUE, array("q", columns.dues_ms).tobytes()))
    return blocks
