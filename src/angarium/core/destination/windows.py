"""What a destination remembers of messages by names that their senders gave them.

`DeduplicationWindow`: of the last so many deduplication ids; a message whose id is among them is confirmed and dropped.
`LastValues`: for each last-value key, where its last message is; the one before is settled when the new one is stored.

Both are kept on disk, in a ring and by key, and in memory: their limits are in the destination's settings.
"""
from angarium.core.destination.headers import read_map
from angarium.core.storage import Operation, Put, Table, delete_key, key_of
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import Columns

NAME_BYTES_MAX = 400  # of an id or a key, in UTF-8: so that it fits a key of the store
_NAMES = ((int(Columns.DEDUPLICATION), "deduplication_id"), (int(Columns.KEY), "last_value_key"))


class DeduplicationWindow:
    def __init__(self, destination: int, ids_max: int) -> None:
        self._destination = destination
        self._ids_max = ids_max
        self._slots: dict[bytes, int] = {}  # id -> number, the oldest first
        self._next = 0

    def __len__(self) -> int:
        return len(self._slots)

    def restore(self, records: dict[int, bytes]) -> list[Operation]:
        """By slot of the ring: its number, then the id. Returns what brings the ring to its present length."""
        found = sorted((int.from_bytes(value[:8], "big"), value[8:], slot) for slot, value in records.items())
        kept = found[-self._ids_max :]
        self._slots = {identifier: number for number, identifier, _ in kept}
        self._next = found[-1][0] + 1 if found else 0
        used = {number % self._ids_max for number, _, _ in kept}
        operations: list[Operation] = [
            delete_key(Table.DEDUPLICATION, self._key(slot)) for _, _, slot in found if slot not in used
        ]
        return operations + [self._put(number, name) for number, name, slot in kept if slot != number % self._ids_max]

    def new(self, batch: Batch) -> tuple[list[int], list[Operation]]:
        """The indices of messages that are none of the known, and what notes their ids."""
        headers = batch.headers() or [b""] * batch.count
        kept: list[int] = []
        operations: list[Operation] = []
        for index, encoded in enumerate(headers):
            identifier = read_map(encoded).get("deduplication_id")
            name = name_bytes(identifier)
            if name is not None:
                if name in self._slots:
                    continue
                operations.append(self._note(name))
            kept.append(index)
        return kept, operations

    def _note(self, name: bytes) -> Operation:
        number, self._next = self._next, self._next + 1
        self._slots[name] = number
        if len(self._slots) > self._ids_max:
            del self._slots[next(iter(self._slots))]
        return self._put(number, name)

    def _put(self, number: int, name: bytes) -> Operation:
        return Put(Table.DEDUPLICATION, self._key(number % self._ids_max), number.to_bytes(8, "big") + name)

    def _key(self, slot: int) -> bytes:
        return key_of(self._destination, slot.to_bytes(8, "big"))


class LastValues:
    def __init__(self, destination: int, keys_max: int) -> None:
        self._destination = destination
        self._keys_max = keys_max
        self._positions: dict[bytes, int] = {}  # the least recently written first

    def restore(self, positions: dict[bytes, int]) -> list[Operation]:
        """Returns what forgets those that are too many."""
        found = sorted(positions.items(), key=lambda item: item[1])
        self._positions = dict(found[-self._keys_max :])
        return [delete_key(Table.LAST_VALUE, key_of(self._destination, name)) for name, _ in found[: -self._keys_max]]

    def later(self, headers: bytes, position: int) -> int | None:
        """Where there is a later message of the key that is in the headers of the one at that position."""
        name = name_bytes(read_map(headers).get("last_value_key"))
        known = None if name is None else self._positions.get(name)
        return None if known == position else known

    def noted(self, batch: Batch, first_position: int) -> tuple[list[int], list[Operation]]:
        """The messages have these positions; returns the positions that they supersede, and what notes the new."""
        superseded: list[int] = []
        operations: list[Operation] = []
        for index, encoded in enumerate(batch.headers() or ()):
            name = name_bytes(read_map(encoded).get("last_value_key"))
            if name is None:
                continue
            before = self._positions.pop(name, None)
            if before is not None:
                superseded.append(before)
            self._positions[name] = position = first_position + index
            operations.append(Put(Table.LAST_VALUE, key_of(self._destination, name), position.to_bytes(8, "big")))
            if len(self._positions) > self._keys_max:
                oldest = next(iter(self._positions))
                del self._positions[oldest]
                operations.append(delete_key(Table.LAST_VALUE, key_of(self._destination, oldest)))
        return superseded, operations


def name_refusal(batch: Batch) -> tuple[str, str] | None:
    """Code and reason, if a message's id or key is too long to be remembered whole: two that begin alike would be
    taken for one."""
    names = [name for announced, name in _NAMES if batch.columns & announced]
    for index, encoded in enumerate(batch.headers() or ()) if names else ():
        headers = read_map(encoded)
        for name in names:
            value = headers.get(name)
            if isinstance(value, str) and len(value.encode()) > NAME_BYTES_MAX:
                reason = (
                    f"sequence {batch.sequence(index)}: {name} of {len(value.encode()):,} bytes exceeds "
                    f"{NAME_BYTES_MAX}; give a shorter one, for instance a digest of it"
                )
                return "bad-header", reason
    return None


def name_bytes(value: object) -> bytes | None:
    if not isinstance(value, str):
        return None
    encoded = value.encode()
    return encoded if len(encoded) <= NAME_BYTES_MAX else None  # refused, unless it came in another way
