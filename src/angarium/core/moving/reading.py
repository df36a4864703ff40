"""The small tables of a destination, read one after the other while it is not, or not yet, in memory.

    begin --ReadRows, RowsRead--> the first table --> ... --> the last one --> whoever wanted them is told

A row that fails its checksum is not among them. What that costs is repaired at a start (`node/loading.py`), and only
there: a destination is never opened from rows of which some are damaged. `damaged` says which tables they are of.
"""
from collections.abc import Callable
from typing import TYPE_CHECKING

from angarium.core.destination.events import Command, ReadRows, RowsRead
from angarium.core.destination.pending import PendingRows
from angarium.core.destination.restoring import StoredState
from angarium.core.moving.records import READ
from angarium.core.storage import key_of

if TYPE_CHECKING:
    from angarium.core.destination.message_manager import MessageManager

_READ_BYTES = 1 << 20


class RowsReading:
    """`keeps`: the rows are wanted, not only whether they are whole."""

    def __init__(
        self, manager: "MessageManager", identity: int, then: Callable[["RowsReading", float], list[Command]], *,
        keeps: bool = True,
    ) -> None:  # fmt: skip
        self.state = StoredState()
        self.damaged: dict[str, int] = {}  # rows that fail their checksum, by the table's name
        self._manager = manager
        self._identity = identity
        self._then = then
        self._keeps = keeps
        self._table = 0  # of READ

    def begin(self) -> list[Command]:
        return self._read(key_of(self._identity))

    def _read(self, low: bytes) -> list[Command]:
        token = self._manager.pending_read(PendingRows(self._identity, self._rows_read))
        return [ReadRows(token, READ[self._table], low, key_of(self._identity + 1), _READ_BYTES)]

    def _rows_read(self, event: RowsRead, now: float) -> list[Command]:
        table = READ[self._table]
        if event.damaged:
            self.damaged[table.name] = self.damaged.get(table.name, 0) + event.damaged
        if self._keeps:
            self.state.tables()[table].update(event.items)
        if event.rest:
            return self._read(event.rest)
        self._table += 1
        return self._read(key_of(self._identity)) if self._table < len(READ) else self._then(self, now)

    def damage(self, name: str) -> str:
        """For people; empty if there is none."""
        tables = ", ".join(f"{count} of {table}" for table, count in self.damaged.items())
        return f"{name!r} has records that fail their checksum ({tables})" if tables else ""
