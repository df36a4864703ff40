"""What the fake broker knows: logs, who has which position of them, and sessions."""
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from angarium.core.ranges import RangeSet
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind

Holder = tuple[bytes, int]  # session identity and consumer number


@dataclass
class Subscription:
    """Who has which position of a log."""

    waiting: RangeSet = field(default_factory=RangeSet)
    settled: RangeSet = field(default_factory=RangeSet)  # also what is not yet durable
    durable: RangeSet = field(default_factory=RangeSet)
    held: dict[int, Holder] = field(default_factory=dict)
    redeliveries: Counter[int] = field(default_factory=Counter)

    def give_back(self, position: int, *, counted: bool = True) -> None:
        del self.held[position]
        self.redeliveries[position] += counted
        self.waiting.add(position, position + 1)


@dataclass
class Log:
    kind: DestinationKind
    batches: list[tuple[int, Batch]] = field(default_factory=list)  # (position of the first message, batch)
    end: int = 0
    committed: int = 0  # batches that are durable
    sequences: dict[bytes, int] = field(default_factory=dict)
    subscriptions: dict[object, Subscription] = field(default_factory=dict)
    blocked: bool = False

    def append(self, batch: Batch) -> None:
        self.batches.append((self.end, batch))
        self.end += batch.count
        self.sequences[batch.producer] = batch.last_sequence

    def bodies(self) -> list[bytes]:
        return [body for _, batch in self.batches for body in batch.bodies()]


@dataclass
class Consumer:
    number: int
    log: Log
    subscription: Subscription
    key: object
    limit: int
    delivered: int = 0


@dataclass
class Session:
    identity: bytes
    transacted: bool = False
    producers: dict[int, tuple[Log, bytes]] = field(default_factory=dict)
    consumers: dict[int, Consumer] = field(default_factory=dict)
    unanswered: list[Callable[[], None]] = field(default_factory=list)
