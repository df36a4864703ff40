"""Messages with properties, priorities and groups, for tests that read like prose."""
from collections.abc import Sequence
from typing import Any

import msgspec

from angarium.core.destination.dead_letters import HEADER
from angarium.core.destination.headers import read_map
from angarium.core.storage import Table
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World

_encode = msgspec.msgpack.encode


def columns(
    *,
    properties: Sequence[dict[str, Any]] | None = None,
    groups: Sequence[str | None] | None = None,
    priorities: Sequence[int] | None = None,
    expiries_ms: Sequence[int] | None = None,
    headers: Sequence[dict[str, Any]] | None = None,
) -> MessageColumns:
    if groups is not None:
        headers = [{} if group is None else {"group": group} for group in groups]
    return MessageColumns(
        priorities=priorities,
        expiries_ms=expiries_ms,
        headers=None if headers is None else [_encode(header) if header else b"" for header in headers],
        properties=None if properties is None else [_encode(each) if each else b"" for each in properties],
        announcements=int(Columns.GROUP) if groups is not None else 0,
    )


def colours(*values: str) -> MessageColumns:
    return columns(properties=[{"colour": value} for value in values])


def grouped(*groups: str | None) -> MessageColumns:
    return columns(groups=groups)


def dead_letters(world: World, name: str = "_DMQ") -> list[tuple[bytes, dict[str, Any]]]:
    """Body and `dead_letter` of each message in the dead message queue, as the disk has them, in order."""
    queue = world.manager.find(name)
    if queue is None:
        return []
    return [
        (batch.body(index), read_map(batch.headers_of(index))[HEADER])
        for batch in stored(world, queue.identity)
        for index in range(batch.count)
    ]


def stored(world: World, destination: int) -> list[Batch]:
    prefix = destination.to_bytes(8, "big")
    return [Batch.parse(data) for key, data in sorted(world.disk.tables[Table.BATCH].items()) if key[:8] == prefix]
