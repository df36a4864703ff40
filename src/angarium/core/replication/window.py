"""The last orders, in memory with all their content: for those who lack some of them.

What is not known to be on every in-sync disk is always kept; of the rest as much as the limits allow.
"""
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from angarium.core.groups.configuration import Position
from angarium.core.storage import Operation, Put

_OPERATION_BYTES = 16


def operations_bytes(operations: Sequence[Operation]) -> int:
    """What operations weigh against limits, in memory and in a store's group."""
    total = 0
    for operation in operations:
        if isinstance(operation, Put):
            total += _OPERATION_BYTES + len(operation.key) + len(operation.value)
        else:
            total += _OPERATION_BYTES + len(operation.low) + len(operation.high)
    return total


class Ordered(NamedTuple):
    position: Position
    operations: Sequence[Operation]
    size_bytes: int


class Window:
    def __init__(self, base: Position, *, bytes_max: int, orders_max: int) -> None:
        self.base = base  # what follows it is here
        self.size_bytes = 0
        self._orders: deque[Ordered] = deque()
        self._bytes_max = bytes_max
        self._orders_max = orders_max

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def last(self) -> Position:
        return self._orders[-1].position if self._orders else self.base

    def append(self, orders: Iterable[Ordered]) -> None:
        for order in orders:
            assert order.position.number == self.last.number + 1, "orders follow one another"
            self._orders.append(order)
            self.size_bytes += order.size_bytes

    def trim(self, committed: int) -> None:
        """Forget the oldest of those that are everywhere, past the limits."""
        orders = self._orders
        while orders and (len(orders) > self._orders_max or self.size_bytes > self._bytes_max):
            if orders[0].position.number > committed:
                return
            gone = orders.popleft()
            self.base = gone.position
            self.size_bytes -= gone.size_bytes

    def reaches(self, number: int) -> bool:
        """Whether everything after this number is here."""
        return self.base.number <= number <= self.last.number

    def after(self, number: int, last: int | None = None) -> Iterator[Ordered]:
        """What follows this number, up to `last`."""
        start = number - self.base.number
        end = len(self._orders) if last is None else last - self.base.number
        for index in range(start, end):
            yield self._orders[index]

    def clear(self, base: Position) -> None:
        self.base = base
        self.size_bytes = 0
        self._orders.clear()
