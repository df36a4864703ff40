"""The local store as replication sees it: what was given to the disk, and what is known to be on it.

Writes are durable in the order in which they were given, so what a store records of itself is always true:

    orders          their operations, and the position of the last of them, in one group
    fence           a promise that was given for an epoch holds after any restart
    begin, end copy in between the store has no position, whatever happens
"""
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from angarium.core.groups.configuration import Position
from angarium.core.replication.events import WriteLocal
from angarium.core.replication.history import (
    NOWHERE,
    Epochs,
    History,
    StoredReplica,
    copy_begun,
    copy_ended,
    put_fence,
    put_history,
    put_position,
)
from angarium.core.replication.window import Ordered, operations_bytes
from angarium.core.storage import Operation

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Landed:
    """A local write is durable: orders up to a position, the fence, or a step of copying."""

    position: Position | None = None
    fence: int = 0
    step: int = 0  # of copying


class _Underway(NamedTuple):
    token: int
    size_bytes: int
    landed: Landed


class LocalStore:
    def __init__(self, stored: StoredReplica, *, epochs_max: int) -> None:
        self.handed = self.written = stored.position
        self.fence = stored.fence
        self.is_copying = stored.is_copying
        self.history = History(stored.epochs, epochs_max=epochs_max)
        self.unwritten_bytes = 0
        self._epochs_max = epochs_max
        self._token = 0
        self._claims_after = _NEVER if stored.is_copying else 0  # an order written before this token claims nothing
        self._underway: deque[_Underway] = deque()

    @property
    def is_settled(self) -> bool:
        """Nothing is on its way to the disk."""
        return not self._underway

    # -- writing -------------------------------------------------------------------------------------

    def write_orders(self, orders: Sequence[Ordered]) -> WriteLocal:
        operations: list[Operation] = []
        is_new = False
        for order in orders:
            assert order.position.number == self.handed.number + 1, "orders are written in their order"
            operations += order.operations
            is_new |= self.history.note(order.position)
            self.handed = order.position
        if not self.is_copying:
            operations.append(put_position(self.handed))
            if is_new:
                operations.append(put_history(self.history))
        return self._write(operations, Landed(position=self.handed), sum([order.size_bytes for order in orders]))

    def write_fence(self, epoch: int) -> WriteLocal:
        self.fence = epoch
        return self._write([put_fence(epoch)], Landed(fence=epoch))

    def begin_copy(self, start: Position, epochs: Epochs, step: int) -> WriteLocal:
        """From now on orders after `start` are taken, and nothing is claimed."""
        self.is_copying = True
        self.handed = start
        self.written = NOWHERE
        self._claims_after = _NEVER
        self.history = History(epochs, epochs_max=self._epochs_max)
        return self._write(copy_begun(), Landed(step=step))

    def write_range(self, operations: list[Operation], step: int) -> WriteLocal:
        return self._write(operations, Landed(step=step), operations_bytes(operations))

    def end_copy(self, step: int) -> WriteLocal:
        self.is_copying = False
        operations = copy_ended(self.handed, self.history)
        self._claims_after = self._token
        return self._write(operations, Landed(position=self.handed, step=step))

    def _write(self, operations: list[Operation], landed: Landed, size_bytes: int = 0) -> WriteLocal:
        self._token += 1
        self._underway.append(_Underway(self._token, size_bytes, landed))
        self.unwritten_bytes += size_bytes
        return WriteLocal(self._token, operations)

    # -- durable ---------------------------------------------------------------------------------------

    def landed(self, token: int) -> list[Landed]:
        """What has become durable with this write and the earlier ones."""
        found: list[Landed] = []
        while self._underway and self._underway[0].token <= token:
            underway = self._underway.popleft()
            self.unwritten_bytes -= underway.size_bytes
            if underway.landed.position is not None and underway.token > self._claims_after:
                self.written = underway.landed.position
            found.append(underway.landed)
        return found
