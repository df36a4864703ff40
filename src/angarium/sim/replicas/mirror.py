"""What a store holds, told from the groups that became durable on it: tables, and one hash of them at any moment."""
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from angarium.core.groups.configuration import EMPTY, Position
from angarium.core.replication.history import COPYING_KEY, POSITION_KEY
from angarium.core.storage import Operation, Put, Table


def _item_hash(table: Table, key: bytes, value: bytes) -> int:
    head = b"%d %d " % (table, len(key))
    return int.from_bytes(blake2b(head + key + value, digest_size=8).digest(), "big")


class Mirror:
    def __init__(self) -> None:
        self.items: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
        self.hash = 0  # of everything that is replicated; the order in which it came does not matter
        self.position = EMPTY
        self.is_copying = False

    def copy(self) -> "Mirror":
        other = Mirror()
        other.items = {table: dict(items) for table, items in self.items.items()}
        other.hash, other.position, other.is_copying = self.hash, self.position, self.is_copying
        return other

    def apply(self, operations: Iterable[Operation]) -> bool:
        """Whether the store says afterwards where it is."""
        is_placed = False
        for operation in operations:
            items, table = self.items[operation.table], operation.table
            is_own = table == Table.REPLICA
            if isinstance(operation, Put):
                is_placed |= is_own and operation.key == POSITION_KEY
                old = items.get(operation.key)
                if old is not None and not is_own:
                    self.hash ^= _item_hash(table, operation.key, old)
                items[operation.key] = operation.value
                if not is_own:
                    self.hash ^= _item_hash(table, operation.key, operation.value)
            else:
                for key in [key for key in items if operation.low <= key < operation.high]:
                    value = items.pop(key)
                    if not is_own:
                        self.hash ^= _item_hash(table, key, value)
        own = self.items[Table.REPLICA]
        self.is_copying = COPYING_KEY in own
        if POSITION_KEY in own:
            self.position = msgspec.msgpack.decode(own[POSITION_KEY], type=Position)
        else:
            self.position = EMPTY
        return is_placed
