"""A durable subscription as it is stored, and how it is taken up after a restart.

It is a record, written with every change and always small, and pages (see `pages`), of which only those are written
that have changed: so what a settlement costs does not depend on how many others are out of order.

What consumers held, and what was free, is the same to the disk: not settled. So after a restart all of that is orphaned
if consumers were attached, and free otherwise. What is delayed is so no longer.
"""
from dataclasses import dataclass, field

import msgspec

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.log import Lane, Log
from angarium.core.destination.pages import SELECTOR_PAGE, PageRecord, page_key, positions_of
from angarium.core.destination.subscription import Subscription
from angarium.core.ranges import Range, RangeSet
from angarium.core.storage import Operation, Put, Table, delete_key


class SubscriptionRecord(msgspec.Struct, array_like=True, frozen=True):
    cursors: dict[int, int]  # by lane
    delivered: dict[int, int]  # by lane
    shared: bool = False
    no_local: str = ""  # the client whose messages it does not get


@dataclass(slots=True)
class StoredSubscription:
    record: SubscriptionRecord
    pages: dict[int, bytes] = field(default_factory=dict)


def recorded(subscription: Subscription) -> bytes:
    record = SubscriptionRecord(
        subscription.cursors, subscription.delivered, subscription.shared, subscription.no_local
    )
    return msgspec.msgpack.encode(record)


def changed_pages(subscription: Subscription, destination: int) -> list[Operation]:
    """Its pages that have changed since the last call. The caller has to write them, together with the record."""
    operations: list[Operation] = []
    if not subscription.is_described:
        subscription.is_described = True
        key = page_key(destination, subscription.name, SELECTOR_PAGE)
        operations.append(Put(Table.PAGE, key, subscription.selector.encode()))
    for page in sorted(subscription.changed_pages):
        key = page_key(destination, subscription.name, page)
        value = _page(subscription, *positions_of(page))
        operations.append(delete_key(Table.PAGE, key) if value is None else Put(Table.PAGE, key, value))
    subscription.changed_pages.clear()
    return operations


def _page(subscription: Subscription, base: int, end: int) -> bytes | None:
    settled = _moved(subscription.settled.starting_in(base, end), -base)
    redeliveries = subscription.redeliveries.starting_in(base, end)
    # What is only presumed to have been delivered will be presumed so again: stored, it would count.
    once = [part for whole in redeliveries.pop(1, []) for part in subscription.presumed.gaps(*whole)]
    redeliveries |= {1: once} if once else {}
    doomed = subscription.doom.starting_in(base, end)
    passed_over = _moved(subscription.passed_over.starting_in(base, end), -base)
    if not (settled or redeliveries or doomed or passed_over):
        return None
    counts = {count: _moved(ranges, -base) for count, ranges in redeliveries.items()}
    reasons = {reason: _moved(ranges, -base) for reason, ranges in doomed.items()}
    return msgspec.msgpack.encode(PageRecord(settled, counts, reasons, passed_over))


def _moved(ranges: list[Range], by: int) -> list[Range]:
    return [(low + by, high + by) for low, high in ranges]


def restored(
    name: str,
    stored: StoredSubscription,
    attached: dict[ConsumerKey, int],
    *,
    log: Log,
    until: float,
    in_flight_max: int = 1 << 62,
    holes_max: int = 1 << 62,
) -> Subscription:
    """As it was stored, with the consumers that were attached then, and their last recoveries: they are awaited until
    the given time. What is not as it was stored is noted as changed."""
    record = stored.record
    self = Subscription(
        name, durable=True, shared=record.shared, selector=stored.pages.get(SELECTOR_PAGE, b"").decode(),
        no_local=record.no_local, in_flight_max=in_flight_max, holes_max=holes_max,
    )  # fmt: skip
    self.is_described = True
    _read_pages(self, stored.pages)
    unsettled: list[Range] = []
    for lane in log.order:
        cursor = self.cursors[lane.number] = _cursor_in(lane, record, self.settled)
        for low, high in ((lane.base, cursor), (lane.next, lane.end)):
            self.settled.remove(low, high)
            self.redeliveries.drop(low, high)
            self.doom.remove(low, high)
            self.passed_over.remove(low, high)
        delivered = min(max(record.delivered.get(lane.number, lane.base), cursor), lane.next)
        self.fresh[lane.number], self.delivered[lane.number] = lane.next, delivered
        unsettled += [part for gap in self.settled.gaps(cursor, lane.next) for part in self.doom.gaps(*gap)]
        for part in self.settled.gaps(cursor, delivered):
            for seen in self.passed_over.gaps(*part):
                for marked in self.redeliveries.mark_delivered(*seen):
                    self.presumed.add(*marked)
    if attached:
        self.parking.orphan(unsettled, attached, until)
    else:
        self.returned = RangeSet(unsettled)
    return self


def _read_pages(self: Subscription, pages: dict[int, bytes]) -> None:
    for number, value in pages.items():
        if number == SELECTOR_PAGE:
            continue
        page, base = msgspec.msgpack.decode(value, type=PageRecord), positions_of(number)[0]
        for low, high in page.settled:
            self.settled.add(base + low, base + high)
        for count, ranges in page.redeliveries.items():
            self.redeliveries.restore(count, _moved(ranges, base))
        for reason, ranges in page.doomed.items():
            for low, high in ranges:
                self.doom.add(reason, base + low, base + high)
        for low, high in page.passed_over:
            self.passed_over.add(base + low, base + high)
    self.changed_pages.clear()


def _cursor_in(lane: Lane, record: SubscriptionRecord, settled: RangeSet) -> int:
    """It may have been saved ahead of what was then lost with a crash: it must not wait behind the log's end. And the
    log may have gone on without it, where it had nothing to settle."""
    cursor = max(record.cursors.get(lane.number, lane.base), lane.first)
    following = settled.first_in(cursor, lane.end)
    if following is not None and following[0] == cursor:
        cursor = following[1]
    return min(cursor, lane.next)
