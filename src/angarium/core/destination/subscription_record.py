"""A durable subscription as it is stored, and how it is taken up after a restart.

What consumers held, and what was free, is the same to the disk: not settled. So after a restart all of that is orphaned
if consumers were attached, and free otherwise. What is delayed is so no longer.
"""
import msgspec

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.doom import Doom
from angarium.core.destination.log import Lane, Log
from angarium.core.destination.redeliveries import Redeliveries
from angarium.core.destination.subscription import Subscription
from angarium.core.ranges import Range, RangeSet


class SubscriptionRecord(msgspec.Struct, array_like=True, frozen=True):
    cursors: dict[int, int]  # by lane
    settled: list[Range]
    delivered: dict[int, int]  # by lane
    redeliveries: dict[int, list[Range]]
    shared: bool = False
    selector: str = ""
    no_local: str = ""  # the client whose messages it does not get
    doomed: dict[str, list[Range]] = {}  # by reason


def recorded(subscription: Subscription) -> bytes:
    record = SubscriptionRecord(
        subscription.cursors, list(subscription.settled), subscription.delivered, subscription.redeliveries.levels(),
        subscription.shared, subscription.selector, subscription.no_local, subscription.doom.record(),
    )  # fmt: skip
    return msgspec.msgpack.encode(record)


def restored(
    name: str,
    record: SubscriptionRecord,
    attached: list[ConsumerKey],
    *,
    log: Log,
    until: float,
    in_flight_max: int = 1 << 62,
) -> Subscription:
    """As it was stored, with the consumers that were attached then: they are awaited until the given time."""
    self = Subscription(
        name, durable=True, shared=record.shared, selector=record.selector, no_local=record.no_local,
        in_flight_max=in_flight_max,
    )  # fmt: skip
    self.settled = RangeSet(record.settled)
    self.redeliveries = Redeliveries(record.redeliveries)
    self.doom = Doom(record.doomed)
    unsettled: list[Range] = []
    for lane in log.order:
        cursor = self.cursors[lane.number] = _cursor_in(lane, record, self.settled)
        for low, high in ((lane.base, cursor), (lane.next, lane.end)):
            self.settled.remove(low, high)
            self.redeliveries.drop(low, high)
            self.doom.remove(low, high)
        delivered = min(max(record.delivered.get(lane.number, lane.base), cursor), lane.next)
        self.fresh[lane.number], self.delivered[lane.number] = lane.next, delivered
        unsettled += [part for gap in self.settled.gaps(cursor, lane.next) for part in self.doom.gaps(*gap)]
        for part in self.settled.gaps(cursor, delivered):
            self.redeliveries.mark_delivered(*part)
    if attached:
        self.parking.orphan(unsettled, attached, until)
    else:
        self.returned = RangeSet(unsettled)
    return self


def _cursor_in(lane: Lane, record: SubscriptionRecord, settled: RangeSet) -> int:
    """It may have been saved ahead of what was then lost with a crash: it must not wait behind the log's end. And the
    log may have gone on without it, where it had nothing to settle."""
    cursor = max(record.cursors.get(lane.number, lane.base), lane.first)
    following = settled.first_in(cursor, lane.end)
    if following is not None and following[0] == cursor:
        cursor = following[1]
    return min(cursor, lane.next)
