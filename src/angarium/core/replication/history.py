"""How far a store is, and in which epochs its history was ordered: what decides whether one is part of another.

    number    1  2  3  4  5  6  7  8
    epoch     1  1  1  2  2  2  4  4     epochs: (1, 1) (2, 4) (4, 7)

One order only ever has a given epoch and number: an epoch has one primary, and a primary that restarts gets a new one.
So two stores that both hold (2, 5) are equal up to there, and one that holds (2, 7) has something that the history
above has not: it diverged. One of (3, 7) did, too. That is all there is to know; nothing is ever undone.
"""
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from angarium.core.errors import StorageCorrupt
from angarium.core.groups.configuration import EMPTY, Position
from angarium.core.malformed import MALFORMED
from angarium.core.storage import Operation, Put, Table, delete_key

Epochs = list[tuple[int, int]]  # epoch, number of its first order; ascending

POSITION_KEY = b"position"  # absent: nothing yet, or a copy was begun and not ended
HISTORY_KEY = b"history"
FENCE_KEY = b"fence"  # nothing of this epoch or a lower one is accepted
COPYING_KEY = b"copying"  # the tables are a mixture, of no position at all
NOWHERE = Position(0, -1)  # where such a store is: part of nobody's history


class History:
    def __init__(self, epochs: Epochs, *, epochs_max: int) -> None:
        self.epochs = list(epochs)
        self._epochs_max = epochs_max

    def note(self, position: Position) -> bool:
        """An order follows; whether it is the first of its epoch."""
        if self.epochs and self.epochs[-1][0] == position.epoch:
            return False
        self.epochs.append((position.epoch, position.number))
        del self.epochs[: -self._epochs_max]
        return True

    def holds(self, position: Position, last: int) -> bool:
        """Whether the store at `position` is what this history was then; `last` is where this history ends."""
        if position == EMPTY:
            return True
        end = last
        for epoch, first in reversed(self.epochs):
            if epoch == position.epoch:
                return first <= position.number <= end
            end = first - 1
        return False


@dataclass(slots=True)
class StoredReplica:
    """What table REPLICA says at the start."""

    position: Position = EMPTY
    epochs: Epochs = field(default_factory=list)
    fence: int = 0
    is_copying: bool = False


def stored_replica(records: Mapping[bytes, bytes]) -> StoredReplica:
    stored = StoredReplica(is_copying=COPYING_KEY in records)
    try:
        if POSITION_KEY in records:
            stored.position = msgspec.msgpack.decode(records[POSITION_KEY], type=Position)
        if HISTORY_KEY in records:
            stored.epochs = msgspec.msgpack.decode(records[HISTORY_KEY], type=Epochs)
        if FENCE_KEY in records:
            stored.fence = msgspec.msgpack.decode(records[FENCE_KEY], type=int)
    except MALFORMED as error:
        raise StorageCorrupt(f"what this replica knows of itself: {error}; remove its data, it copies anew") from None
    if stored.is_copying:
        stored.position, stored.epochs = NOWHERE, []
    return stored


def put_position(position: Position) -> Put:
    return Put(Table.REPLICA, POSITION_KEY, msgspec.msgpack.encode(position))


def put_history(history: History) -> Put:
    return Put(Table.REPLICA, HISTORY_KEY, msgspec.msgpack.encode(history.epochs))


def put_fence(epoch: int) -> Put:
    return Put(Table.REPLICA, FENCE_KEY, msgspec.msgpack.encode(epoch))


def copy_begun() -> list[Operation]:
    return [
        Put(Table.REPLICA, COPYING_KEY, b""),
        delete_key(Table.REPLICA, POSITION_KEY),
        delete_key(Table.REPLICA, HISTORY_KEY),
    ]


def copy_ended(position: Position, history: History) -> list[Operation]:
    return [delete_key(Table.REPLICA, COPYING_KEY), put_position(position), put_history(history)]
