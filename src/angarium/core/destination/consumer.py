"""A consumer as its destination sees it: how much it takes, what it holds, and what it wants to see."""
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from angarium.core.destination.log import Lane
from angarium.core.ranges import RangeSet
from angarium.core.selector.fields import Fields

if TYPE_CHECKING:
    from angarium.core.destination.subscription import Subscription

UNSEEN_RANGES_MAX = 64  # before they are tidied for the first time
ConsumerKey = tuple[bytes, int]  # session identity, the client's number
Accepts = Callable[[Fields], bool]


@dataclass(slots=True, eq=False)
class Consumer:
    session: bytes
    number: int
    subscription: "Subscription"
    limit: int  # messages it accepts in all
    attachment: bytes = b""  # to be repeated when it is told that it is open
    delivered: int = 0
    opening: bool = False  # it has not been told yet that it is open
    cut: bool = False  # its session was cut off: should it resume, another one takes its place
    stalled: bool = False  # its connection takes no more for now
    exclusive: bool = False  # while it is here, nobody else of its subscription is served
    held: RangeSet = field(default_factory=RangeSet)
    unclaimed: RangeSet | None = None  # until its first credit after a resume
    accepts: Accepts | None = None  # its selector, if it has one of its own
    weight: int = 0  # comparisons that this takes at most
    unseen: RangeSet | None = None  # what it has not looked at and passed over; None: it has passed over nothing
    transacted: bool = False  # it settles with the commits of its session
    held_since: float | None = None  # since when it has held something all the time
    recovered: int = 0  # number of its last recovery
    unseen_ranges_max: int = UNSEEN_RANGES_MAX  # past it, those that do not matter are dropped

    @property
    def key(self) -> ConsumerKey:
        return self.session, self.number

    def position_in(self, lane: Lane) -> int:
        """Where its subscription goes on in the lane: with the first that is free, or that it left unclaimed. Not
        beyond what is durable: after a crash those positions may be those of other messages."""
        subscription = self.subscription
        ways = (subscription.returned, self.unclaimed or RangeSet())
        firsts = [first[0] for way in ways if (first := way.first_in(lane.base, lane.end)) is not None]
        return min(subscription.fresh_of(lane.number), lane.readable, *firsts)

    @property
    def credit(self) -> int:
        if self.opening or self.stalled or self.unclaimed is not None:
            return 0
        return max(0, self.limit - self.delivered)
