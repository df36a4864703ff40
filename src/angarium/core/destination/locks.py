"""What prepared transactions are to settle: nobody else's, and not settled yet, until the transaction's end is known.

    held by a consumer --prepared--> LOCKED --committed---> settled
                                            --rolled back-> held again, by the consumer that had it and if that is away
                                                            parked for it; free if it will not come back

A lock has an owner, the consumer that would hold the positions again. A consumer that goes for good, or that comes
back and does not claim them, has no use for them: then nobody owns the lock. Locks are no part of a subscription's
record. The record of the prepared transaction has them.
"""
from collections.abc import Iterator
from dataclasses import dataclass

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.ranges import Range, RangeSet

TransactionKey = tuple[bytes, int]  # session, number of the transaction there


@dataclass(slots=True)
class Lock:
    transaction: TransactionKey
    consumer: int  # its number in that session
    positions: RangeSet
    since_ms: int
    decider: int  # the replica group that knows how it ends
    is_owned: bool = True


class Locks:
    def __init__(self) -> None:
        self._locks: dict[ConsumerKey, Lock] = {}  # a session has one transaction at a time

    def __bool__(self) -> bool:
        return bool(self._locks)

    def __iter__(self) -> Iterator[Lock]:
        return iter(self._locks.values())

    @property
    def count(self) -> int:
        """Messages that are locked."""
        return sum(lock.positions.count for lock in self._locks.values())

    def sets(self) -> list[RangeSet]:
        return [lock.positions for lock in self._locks.values()]

    def add(self, lock: Lock) -> None:
        key = (lock.transaction[0], lock.consumer)
        assert key not in self._locks, "a session has one transaction at a time"
        self._locks[key] = lock

    def take(self, transaction: TransactionKey, consumer: int) -> Lock | None:
        lock = self._locks.get((transaction[0], consumer))
        return self._locks.pop((transaction[0], consumer)) if lock and lock.transaction == transaction else None

    def claim(self, key: ConsumerKey, held: list[Range]) -> list[Range]:
        """The consumer has come back and names what it holds; return what of it is locked for it."""
        lock = self._locks.get(key)
        if lock is None:
            return []
        found = [part for low, high in held for part in lock.positions.overlap(low, high)]
        lock.is_owned = bool(found)
        return found

    def disown(self, key: ConsumerKey) -> None:
        """The consumer will not come back."""
        if key in self._locks:
            self._locks[key].is_owned = False
