"""Handing what was read to the consumers of a subscription: fairly, in order, whole batches where possible.

Consumers with credit take turns; each gets an equal share of what is free, at most its credit. A batch that goes
whole to one consumer is passed on as the bytes that were published.
"""
from dataclasses import dataclass, field

from angarium.core.destination.events import DamagedBatch, StoredBatch, ToSession
from angarium.core.destination.subscription import Subscription
from angarium.core.ranges import Range
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Deliver


@dataclass(slots=True)
class Delivery:
    deliveries: list[ToSession] = field(default_factory=list)
    delivered: int = 0
    expired: int = 0
    damaged: list["Damage"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Damage:
    """Free positions that ought to be stored and are not, or fail their checksum."""

    positions: list[Range]
    end: int  # of the batch, by which it is filed; 0 if nothing is there
    raw: bytes


def deliver(
    subscription: Subscription,
    batches: list[StoredBatch | DamagedBatch],
    asked: Range,
    *,
    wall_ms: int,
) -> Delivery:
    """Deliver as much as the consumers take of the batches, which were read for the range `asked`.

    What was free when it was asked for may be gone by now: only what is still free counts, as delivered or
    as damaged.
    """
    result = Delivery()
    at, readable = asked
    # What each consumer gets in one turn: an equal part of what is free now, not of what others have left.
    share = -(-subscription.free_count(readable) // max(1, subscription.ready_count()))
    for stored in batches:
        if subscription.next_ready() is None:
            return result
        if isinstance(stored, DamagedBatch):
            _note_damage(subscription, at, min(stored.end, readable), stored, result)
        else:
            batch = Batch.trusted(stored.data)
            base = stored.end - batch.count
            _note_damage(subscription, at, base, None, result)
            for low, high in subscription.free_in(max(base, at), min(stored.end, readable)):
                for live in _without_expired(subscription, batch, base, (low, high), result, wall_ms):
                    _share_out(subscription, batch, base, live, share, result)
        at = stored.end
    if not batches:
        _note_damage(subscription, at, readable, None, result)
    return result


def _note_damage(
    subscription: Subscription, low: int, high: int, found: DamagedBatch | None, result: Delivery
) -> None:
    free = subscription.free_in(low, high) if low < high else []
    if free:
        result.damaged.append(Damage(free, found.end if found else 0, found.raw if found else b""))


def _share_out(
    subscription: Subscription, batch: Batch, base: int, free: Range, share: int, result: Delivery
) -> None:
    low, high = free
    while low < high and (consumer := subscription.next_ready()) is not None:
        upto = min(high, low + min(consumer.credit, share))
        redeliveries = subscription.take(consumer, low, upto)
        part = batch.slice(low - base, upto - base)
        frame = Deliver(consumer.number, low, redeliveries)
        result.deliveries.append(ToSession(consumer.session, frame, part.data))
        result.delivered += upto - low
        low = upto


def _without_expired(
    subscription: Subscription, batch: Batch, base: int, free: Range, result: Delivery, wall_ms: int
) -> list[Range]:
    """The parts of the free range that have not expired; those that have are settled."""
    expiries = batch.expiries_ms() if batch.columns else None
    if expiries is None:
        return [free]
    live: list[Range] = []
    for position in range(*free):
        if 0 < expiries[position - base] <= wall_ms:
            subscription.discard(position, position + 1)
            result.expired += 1
        elif live and live[-1][1] == position:
            live[-1] = (live[-1][0], position + 1)
        else:
            live.append((position, position + 1))
    return live
