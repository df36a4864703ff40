"""What a message manager remembers of a write or a read until its answer comes."""
from dataclasses import dataclass, field

from angarium.core.destination.events import ToSession
from angarium.core.destination.subscription import Consumer, Subscription
from angarium.core.ranges import Range


@dataclass(slots=True)
class PendingWrite:
    """What follows once a write is durable."""

    answers: list[ToSession] = field(default_factory=list)
    destination: int = 0
    created: int = 0  # a destination that exists from now on
    readable: int = -1  # the log may be read up to here
    confirmed: tuple[bytes, int] | None = None  # producer identity, sequence
    opened: Consumer | None = None  # may be told so and delivered to, unless it has gone meanwhile
    settled: tuple[Consumer, int] | None = None  # who is to be told that this settlement is durable
    noted: Subscription | None = None  # how far it has delivered is known to the disk
    lost: list[Range] = field(default_factory=list)  # what either of them claimed in vain
    gone: list[bytes] = field(default_factory=list)  # streams that no message holds any more


@dataclass(frozen=True, slots=True)
class PendingRead:
    destination: int  # 0: asked for by an administrative request
    subscription: str  # or the name of the destination that is browsed
    position: int
    end: int
