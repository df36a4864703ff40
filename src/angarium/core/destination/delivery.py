"""Handing what was read to the consumers of a subscription: fairly, in order, whole batches where possible.

Consumers with credit take turns; each gets an equal share of what is free, at most its credit. A batch that goes
whole to one consumer is passed on as the bytes that were published. Nobody looks inside a batch unless the consumers
or the batch ask for it: selectors, message groups, expiry.

    free --expired------------------------> to be buried
         --not for this subscription----------> settled
         --there is a later value of its key--> settled
         --not for anybody who is ready-------> stays free
         --taken--> Deliver
"""
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from angarium.core.destination.consumer import Consumer
from angarium.core.destination.events import DamagedBatch, ToSession
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.log import lane_of
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.wanting import is_behind
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Deliver
from angarium.core.wire.layout import Columns

IsSuperseded = Callable[[bytes, int], bool]  # by headers and position: there is a later message of its key
_EXPIRY, _GROUP, _KEY = int(Columns.EXPIRY), int(Columns.GROUP), int(Columns.KEY)


class Piece(msgspec.Struct, frozen=True):
    """A batch that was read, or what is left of it."""

    end: int  # one past its last position
    batch: Batch | None  # None: it fails its checksum
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Damage:
    """Free positions that ought to be stored and are not, or fail their checksum."""

    positions: list[Range]
    end: int  # of the batch, by which it is filed; 0 if nothing is there
    raw: bytes


@dataclass(frozen=True, slots=True)
class Death:
    """Messages that will not be delivered, of one batch and for one reason."""

    reason: str
    batch: Batch
    base: int  # position of its first message
    positions: list[Range]
    redeliveries: list[int] = field(default_factory=list)  # of each; empty: never delivered again


class Delivery(msgspec.Struct):
    deliveries: list[ToSession] = msgspec.field(default_factory=list)
    consumers: list[Consumer] = msgspec.field(default_factory=list)  # who got them
    delivered: int = 0
    changed: bool = False  # something was settled without being delivered
    deaths: list[Death] = msgspec.field(default_factory=list)
    damaged: list[Damage] = msgspec.field(default_factory=list)


def deliver(
    subscription: Subscription,
    pieces: list[Piece],
    asked: Range,
    *,
    wall_ms: int,
    is_superseded: IsSuperseded | None = None,
) -> Delivery:
    """Deliver as much as the consumers take of the pieces, which were read for the range `asked`.

    What was free when it was asked for may be gone by now: only what is still free counts, as delivered or
    as damaged.
    """
    result = Delivery()
    at, readable = asked
    # What each consumer gets in one turn: an equal part of what is free now, not of what others have left.
    consumers = len(subscription.line)
    share = readable - at if consumers == 1 else -(-subscription.free_in_lane(at, readable) // max(1, consumers))
    looks = subscription.looks
    for piece in pieces:
        looks = looks or (piece.batch is not None and bool(piece.batch.columns & _GROUP))
    behind = [consumer for consumer in subscription.line if is_behind(subscription, consumer, at)] if looks else []
    for piece in pieces:
        if subscription.line.first() is None:
            return result
        if piece.batch is None:
            result.damaged += damages(subscription, at, min(piece.end, readable), piece)
        else:
            base = piece.end - piece.batch.count
            if at < base:
                result.damaged += damages(subscription, at, base)
            free = subscription.free_in(max(base, at), min(piece.end, readable))
            free = without_expired(subscription, piece.batch, base, free, wall_ms, result)
            if is_superseded is not None and piece.batch.columns & _KEY:
                free = _without_superseded(subscription, piece.batch, base, free, is_superseded, result)
            if looks:
                _look(subscription, piece.batch, base, free, behind, result)
            else:
                _share_out(subscription, piece.batch, base, free, share, result)
        at = piece.end
    if not pieces:
        result.damaged += damages(subscription, at, readable)
    return result


def damages(subscription: Subscription, low: int, high: int, found: Piece | DamagedBatch | None = None) -> list[Damage]:
    """What is free there, where there is only `found`, which cannot be read, or nothing."""
    free = subscription.free_in(low, high) if low < high else []
    return [Damage(free, found.end, found.raw) if found else Damage(free, 0, b"")] if free else []


# -- without looking inside ------------------------------------------------------------------------


def deliver_fresh(subscription: Subscription, lane: int, end: int, batch: Batch) -> tuple[Consumer, ToSession] | None:
    """Deliver a batch that goes whole to the first consumer in line, when nothing else is free: the same as `deliver`,
    in as few steps as that takes, because a lone message waits for each. None, and nothing is done, if the case is not
    as plain as that."""
    line, low, fresh = subscription.line, end - batch.count, subscription.fresh
    consumer = line.first()
    if (
        consumer is None
        or fresh.get(lane) != low
        or batch.columns & (_EXPIRY | _GROUP)
        or (batch.count > 1 and len(line) > 1)
        or not subscription.is_plain
        or min(consumer.credit, subscription.room()) < batch.count
    ):
        return None
    fresh[lane] = subscription.delivered[lane] = end
    consumer.held.add(low, end)
    consumer.delivered += batch.count
    line.step_back(consumer)
    frame = Deliver(consumer.number, low, subscription.redeliveries.of(low, end))
    return consumer, ToSession(consumer.session, frame, batch.data)


def _share_out(
    subscription: Subscription, batch: Batch, base: int, free: list[Range], share: int, result: Delivery
) -> None:
    given: dict[Consumer, list[Range]] = {}
    for low, high in free:
        while low < high and (consumer := subscription.line.first()) is not None:
            fresh = subscription.fresh_of(lane_of(low))
            most = fresh - low if low < fresh else subscription.room()
            if most <= 0:
                break
            upto = min(high, low + min(consumer.credit, share, most))
            subscription.take(consumer, low, upto)
            given.setdefault(consumer, []).append((low, upto))
            low = upto
    _send(subscription, batch, base, given, result)


def _send(
    subscription: Subscription, batch: Batch, base: int, given: dict[Consumer, list[Range]], result: Delivery
) -> None:
    for consumer, ranges in given.items():
        low, high = ranges[0][0], ranges[-1][1]
        count = sum(b - a for a, b in ranges)
        result.delivered += count
        result.consumers.append(consumer)
        if count == high - low:
            frame = Deliver(consumer.number, low, subscription.redeliveries.of(low, high))
            part = batch.slice(low - base, high - base)
        else:
            ranges = list(RangeSet(ranges))
            counts = [subscription.redeliveries.of(a, b) or [0] * (b - a) for a, b in ranges]
            redeliveries = list(chain.from_iterable(counts))
            frame = Deliver(consumer.number, low, redeliveries if any(redeliveries) else [], ranges)
            part = batch.select([position - base for a, b in ranges for position in range(a, b)])
        result.deliveries.append(ToSession(consumer.session, frame, part.data))


# -- looking at each message -----------------------------------------------------------------------


def _look(
    subscription: Subscription, batch: Batch, base: int, free: list[Range], behind: list[Consumer], result: Delivery
) -> None:
    fields = BatchFields(batch, names=subscription.names)
    given: dict[Consumer, list[Range]] = {}
    for position in chain.from_iterable(range(*part) for part in free):
        index = position - base
        if position >= subscription.fresh_of(lane_of(position)) and subscription.room() <= 0:
            break
        if subscription.accepts is not None and not subscription.accepts(fields[index], batch.producer):
            subscription.discard(position, position + 1, "unselected")
            subscription.unselected += 1
            result.changed = True
            continue
        consumer = subscription.line.choose(position, fields, index, behind)
        if consumer is not None:
            subscription.take(consumer, position, position + 1)
            given.setdefault(consumer, []).append((position, position + 1))
        elif subscription.line.first() is None:
            break
    subscription.tidy()
    _send(subscription, batch, base, given, result)


def without_expired(
    subscription: Subscription, batch: Batch, base: int, free: list[Range], wall_ms: int, result: Delivery
) -> list[Range]:
    """The parts of the free ranges that may be delivered; what has expired is settled, and will be buried, unless it
    was not for this subscription."""
    expiries = batch.expiries_ms() if batch.columns & _EXPIRY else None
    if expiries is None or not free:
        return free
    live, expired = RangeSet(), RangeSet()
    for position in chain.from_iterable(range(*part) for part in free):
        over = 0 < expiries[position - base] <= wall_ms
        (expired if over else live).add(position, position + 1)
    if expired:
        of = subscription.redeliveries.of
        dead = _accepted(subscription, batch, base, expired)
        counts = [count for low, high in dead for count in of(low, high) or [0] * (high - low)]
        if dead:
            result.deaths.append(Death("expired", batch, base, list(dead), counts))
        result.changed = True
        for part in expired:
            subscription.discard(*part, "expired")
    return list(live)


def _without_superseded(
    subscription: Subscription,
    batch: Batch,
    base: int,
    free: list[Range],
    is_superseded: IsSuperseded,
    result: Delivery,
) -> list[Range]:
    """What was superseded while somebody held it has come back, and is settled instead of being delivered again."""
    kept = RangeSet()
    for position in chain.from_iterable(range(*part) for part in free):
        if is_superseded(batch.headers_of(position - base), position):
            subscription.discard(position, position + 1, "superseded")
            result.changed = True
        else:
            kept.add(position, position + 1)
    return list(kept)


def _accepted(subscription: Subscription, batch: Batch, base: int, positions: RangeSet) -> RangeSet:
    accepts = subscription.accepts
    if accepts is None or subscription.is_live:  # what is offered to a live one is accepted
        return positions
    fields = BatchFields(batch, names=subscription.names)
    every = chain.from_iterable(range(*part) for part in positions)
    return RangeSet((at, at + 1) for at in every if accepts(fields[at - base], batch.producer))
