"""Consumers, and watches for destinations to consume from."""
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind, PatternSyntax, Start


@dataclass(frozen=True, slots=True)
class OpenConsumer:
    session: int
    consumer: int
    destination: str
    destination_kind: DestinationKind
    prefetch: int  # messages held unsettled at most
    subscription: str = ""
    start: Start = Start.NEXT
    selector: str = ""
    shared: bool = False
    durable: bool = True  # of a named subscription
    no_local: bool = False
    exclusive: bool = False
    existing: bool = False  # refused if the destination does not exist


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Ends in `WatchFound`, again and again, or in `WatchEnded`."""

    session: int
    watch: int
    pattern: str
    syntax: PatternSyntax
    destination_kind: DestinationKind


@dataclass(frozen=True, slots=True)
class CloseWatch:
    """Nothing follows."""

    session: int
    watch: int


@dataclass(frozen=True, slots=True)
class SetPrefetch:
    session: int
    consumer: int
    prefetch: int


class Settle(msgspec.Struct, frozen=True):
    """What the application has settled since the last time. It must hold all of it."""

    session: int
    consumer: int
    settled: Sequence[Range] = ()
    rejected: Sequence[Range] = ()
    released: Sequence[Range] = ()
    returned: Sequence[Range] = ()  # as if they had never been delivered


@dataclass(frozen=True, slots=True)
class Recover:
    """Give back all that the consumer holds. Ends in `Recovered`; until then nothing arrives."""

    session: int
    consumer: int
    unseen: Sequence[Range] = ()  # not yet in the application's hands: goes back as if never delivered


@dataclass(frozen=True, slots=True)
class CloseConsumer:
    """Ends in `ConsumerEnded` with an empty code, when earlier settlements are durable."""

    session: int
    consumer: int
    unsubscribe: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerReady:
    session: int
    consumer: int


class MessagesArrived(msgspec.Struct, frozen=True):
    """Messages `low` to `high` - 1 of the batch, whose first has `position`; the others were here before."""

    session: int
    consumer: int
    batch: Batch
    position: int
    redeliveries: list[int]
    low: int
    high: int
    positions: Sequence[int] = ()  # of all messages of the batch, when they are not consecutive


@dataclass(frozen=True, slots=True)
class MessagesDropped:
    """The subscription was too far behind: so many of its oldest messages will not come."""

    session: int
    consumer: int
    count: int


@dataclass(frozen=True, slots=True)
class PositionsLost:
    """Held, and no longer this consumer's: somebody else will get or got them. They need no settling."""

    session: int
    consumer: int
    ranges: list[Range]


@dataclass(frozen=True, slots=True)
class SettlementsLost:
    """Settled here, but not this consumer's to settle any more: somebody else may have got them as well."""

    session: int
    consumer: int
    ranges: list[Range]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was held has gone back; it may arrive again from now on."""

    session: int
    consumer: int


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """Empty code: as asked."""

    session: int
    consumer: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchFound:
    session: int
    watch: int
    destination_kind: DestinationKind
    names: list[str]  # some may have been told before
    created: bool  # since the watch was opened, or opened again
    complete: bool  # all that existed then have been told


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """Refused."""

    session: int
    watch: int
    code: str
    reason: str
