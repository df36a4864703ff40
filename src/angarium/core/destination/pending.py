"""What a message manager remembers of a write or a read until its answer comes."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from angarium.core.destination.consumer import Consumer
from angarium.core.destination.events import Command, RowsRead, ToSession
from angarium.core.destination.log import Lane
from angarium.core.destination.log_pages import LogWanted
from angarium.core.destination.producers import Refusal
from angarium.core.destination.selecting import Keep
from angarium.core.destination.subscription import Subscription
from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch

TAKEN_OUT = -1  # in place of an id: the destination was taken out of memory while it was being read


class Arrival(msgspec.Struct, frozen=True):
    """Messages that can be delivered once they are durable."""

    lane: Lane
    end: int  # one past the last position
    batch: Batch | None  # None: nobody wanted them, so they were not stored


class PendingWrite(msgspec.Struct):
    """What follows once a write is durable."""

    answers: list[ToSession] = msgspec.field(default_factory=list)
    destination: int = 0
    created: int = 0  # a destination that exists from now on
    arrived: list[Arrival] = msgspec.field(default_factory=list)
    confirmed: tuple[bytes, int] | None = None  # producer identity, sequence
    refused: tuple[bytes, Refusal] | None = None  # producer identity, what is to be told before the confirm
    sent: list[tuple[bytes, int]] = msgspec.field(default_factory=list)  # the same in a transaction, which answers
    opened: Consumer | None = None  # may be told so and delivered to, unless it has gone meanwhile
    settled: tuple[Consumer, int] | None = None  # who is to be told that this settlement is durable
    noted: Subscription | None = None  # how far it has delivered is known to the disk
    lost: list[Range] = msgspec.field(default_factory=list)  # what either of them claimed in vain
    gone: list[bytes] = msgspec.field(default_factory=list)  # streams that no message holds any more
    superseded: list[int] = msgspec.field(default_factory=list)  # positions of which there is a later value
    held_ms: int | None = None  # it keeps messages until they are due; when the first of them is
    moved: bool = False  # what was due is in the log now
    committed: tuple[bytes, int] | None = None  # session, number of its transaction
    traced: list[tuple[Lane, int]] = msgspec.field(default_factory=list)  # of logs of traces: up to where
    follows: Callable[[float], list[Command]] | None = None  # what else, at that time
    others: list["PendingWrite"] = msgspec.field(default_factory=list)  # of other destinations, in the same write
    is_handed_out: bool = False  # what has arrived was, before all else that follows

    @property
    def is_plain(self) -> bool:
        """Nothing follows that would have to be known before what has arrived is handed out: a confirm, the answer to
        a settlement, a note of how far was delivered."""
        return not (
            self.answers
            or self.created
            or self.refused
            or self.sent
            or self.opened is not None
            or self.superseded
            or self.held_ms is not None
            or self.moved
            or self.committed
            or self.traced
            or self.follows is not None
            or self.others
        )


@dataclass(frozen=True, slots=True)
class PendingRead:
    destination: int
    subscription: str
    position: int
    end: int
    burying: bool = False  # to move what is doomed, not to deliver


@dataclass(frozen=True, slots=True)
class PendingSweep:
    """To see what has expired."""

    destination: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PendingRoom:
    """To make room for others."""

    destination: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PendingDelayed:
    destination: int
    parts: Sequence[bytes] = ()  # that are staged and committed, to be moved; none: what is due


@dataclass(frozen=True, slots=True)
class PendingRows:
    """Of a destination that is moved, and not in memory, or not only."""

    destination: int
    then: Callable[[RowsRead, float], list[Command]]


@dataclass(frozen=True, slots=True)
class PendingBrowse:
    destination: int
    session: bytes
    request: int
    wanted: int  # messages
    position: int
    end: int
    ends: list[int]  # places, where each lane ended for whoever browses
    keep: Keep | None = None  # None: all


@dataclass(frozen=True, slots=True)
class PendingDead:
    """An administrator looks after dead messages."""

    destination: int
    session: bytes
    request: int
    command: str
    count: int  # messages at most
    position: int
    end: int
    keep: Keep
    to: str  # where to redrive to; empty: to where each came from
    leave: frozenset[str]  # destinations where nothing is redriven to: something earlier stays


@dataclass(frozen=True, slots=True)
class PendingExplain:
    """An administrator wants to know why nothing is delivered: the first free messages are looked at."""

    destination: int
    session: bytes
    request: int
    position: int


@dataclass(frozen=True, slots=True)
class PendingLogRead:
    """Somebody reads the log."""

    destination: int
    session: bytes
    request: int
    wanted: LogWanted


@dataclass(frozen=True, slots=True)
class PendingSeek:
    """Where do the messages of that time begin?"""

    destination: int
    session: bytes
    request: int
    timestamp_ms: int
    stretches: list[Range]  # of each lane: it lies between these, or at the first if they are the same


PendingAdministration = PendingBrowse | PendingDead | PendingExplain | PendingLogRead | PendingSeek
