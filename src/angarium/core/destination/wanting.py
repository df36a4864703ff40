"""Which free message comes next: for a subscription's consumers together, and for one of them.

What a consumer has looked at and left it does not want; see `line`. Each gets what it wants in order: one that has come
into line while something later was read waits for what is before that.
"""
from angarium.core.destination.consumer import Consumer
from angarium.core.destination.log import Lane, Log, lane_of
from angarium.core.destination.subscription import Subscription


def wanted(subscription: Subscription, log: Log) -> int | None:
    """The first free position, if some consumer may take it."""
    if not subscription.line or subscription.is_pausing:
        return None
    for lane in log.order:
        if not subscription.returned and subscription.fresh_of(lane.number) >= lane.readable:
            continue  # nothing is free
        position = _wanted_in(subscription, lane)
        is_new = position is not None and position >= subscription.fresh_of(lane.number)
        if position is not None and not (is_new and subscription.room() <= 0):
            return position
    return None


def _wanted_in(subscription: Subscription, lane: Lane) -> int | None:
    unseen = subscription.line.first_unseen(lane.base, lane.readable)
    while unseen is not None:
        free = subscription.first_free(unseen, lane.readable)
        if free is None:
            return None
        unseen = subscription.line.first_unseen(free, lane.readable)
        if unseen == free:
            return free
    return None


def is_behind(subscription: Subscription, consumer: Consumer, position: int) -> bool:
    """Something before `position`, in its lane, is free, and the consumer has not looked at it."""
    low = subscription.cursor_of(lane_of(position))
    while (free := subscription.first_free(low, position)) is not None:
        unseen = (free, position) if consumer.unseen is None else consumer.unseen.first_in(free, position)
        if unseen is None:
            return False
        if unseen[0] == free:
            return True
        low = unseen[0]
    return False
