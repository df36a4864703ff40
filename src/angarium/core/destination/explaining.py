"""Why messages are not being delivered: one sentence for each subscription, with the figures behind it.

    what is free   --no consumer, or none that is ready--> no-consumer, no-credit, stalled, exclusive-busy, ...
                   --ready, but nobody takes it----------> in-flight-max, group-busy, selectors-exclude
                   --somebody will--------------------------> delivering
    what is not    --held, parked, delayed, dying----------> the largest of these
    nothing        --delayed, unwritten, blocked----------> delayed, disk-full, ...; else nothing-waiting

A pure look at the machines: nothing changes. What is inside messages is known only of a bounded sample.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from angarium.core.calendar import calendar_text
from angarium.core.destination.blocking import WRITE_CODES
from angarium.core.destination.consumer import Consumer
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import BatchesRead, StoredBatch
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.wanting import wanted
from angarium.core.ids import format_id
from angarium.core.wire.batch import Batch

SAMPLE_COUNT_MAX = 100
SAMPLE_BYTES_MAX = 1 << 18
SUBSCRIPTIONS_MAX = 1_000  # explained in one answer


@dataclass(frozen=True, slots=True)
class Seen:
    """A free message that was looked at."""

    fields: BatchFields
    index: int


@dataclass(frozen=True, slots=True)
class Verdict:
    code: str
    sentence: str


def explain(destination: Destination, sample: Sequence[Seen], *, now: float) -> dict[str, Any]:
    subscriptions = list(destination.subscriptions)
    told = [_told(destination, each, sample, now) for each in subscriptions[:SUBSCRIPTIONS_MAX]]
    if not told:
        overall = _of_topic_without_subscriptions(destination, now)
    else:  # of several, the one that is furthest behind speaks for all
        overall = max(told, key=lambda each: each["figures"]["waiting"])
    blocked = destination.publishing.blocked
    return {
        "name": destination.record.name,
        "kind": destination.record.kind.name.lower(),
        "code": overall["code"],
        "sentence": overall["sentence"],
        "figures": overall["figures"],
        "blocked": {"code": blocked[0], "reason": blocked[1]} if blocked else None,
        "subscriptions": [] if destination.state.is_queue else told,
        "subscription_count": len(subscriptions),
    }


# -- a sample of what is free ----------------------------------------------------------------------


def sample_position(destination: Destination) -> int | None:
    """Where a look at the messages would begin; None if that would tell nothing."""
    if not destination.state.is_queue:
        return None  # what a topic's subscription does not select, it does not keep
    (subscription,) = destination.subscriptions
    if not subscription.consumers:
        return None
    firsts = (subscription.first_free(lane.base, lane.readable) for lane in destination.log.order)
    return next((first for first in firsts if first is not None), None)


def sample(destination: Destination, position: int, event: BatchesRead) -> list[Seen]:
    (subscription,) = destination.subscriptions
    found: list[Seen] = []
    for stored in event.batches:
        if isinstance(stored, StoredBatch):
            batch = Batch.trusted(stored.data)
            base, fields = stored.end - batch.count, BatchFields(batch)
            for low, high in subscription.free_in(max(base, position), stored.end):
                found += [Seen(fields, at - base) for at in range(low, high)][: SAMPLE_COUNT_MAX - len(found)]
    return found


# -- one subscription ------------------------------------------------------------------------------


def _told(destination: Destination, subscription: Subscription, sample: Sequence[Seen], now: float) -> dict[str, Any]:
    figures = _figures(destination, subscription)
    verdict = _verdict(destination, subscription, figures, sample, now)
    sentence = verdict.sentence
    blocked = destination.publishing.blocked
    if blocked is not None and blocked[0] != verdict.code:
        sentence += f"; producers are blocked ({blocked[0]}): {blocked[1]}"
    return {"name": subscription.name, "code": verdict.code, "sentence": sentence, "figures": figures}


def _figures(destination: Destination, subscription: Subscription) -> dict[str, Any]:
    log, consumers = destination.log, subscription.consumers.values()
    return {
        "waiting": subscription.waiting_count(log),
        "free": subscription.free_count(log),
        "held": sum(consumer.held.count for consumer in consumers),
        "parked": subscription.parking.parked_count + subscription.parking.orphaned.count
        + sum(consumer.unclaimed.count for consumer in consumers if consumer.unclaimed is not None),
        "redelivery_delayed": sum(high - low for _, (low, high) in subscription.delayed),
        "locked": subscription.locks.count,
        "dying": sum(ranges.count for ranges in subscription.doom.sets()),
        "delayed": destination.publishing.delays.count,
        "unwritten": sum(lane.next - lane.readable for lane in log.order),
        "consumers": len(consumers),
        "consumers_ready": len(subscription.line),
        "consumers_stalled": sum(consumer.stalled for consumer in consumers),
        "consumers_opening": sum(consumer.opening for consumer in consumers),
        "in_flight_room": subscription.room(),
        "unselected": subscription.unselected_count(log),
    }  # fmt: skip


def _verdict(
    destination: Destination, subscription: Subscription, figures: dict[str, Any], sample: Sequence[Seen], now: float
) -> Verdict:
    if figures["waiting"] == 0:
        return _nothing_waiting(destination, subscription, figures)
    if figures["free"] == 0:
        return _nothing_free(destination, subscription, figures, now)
    if not subscription.consumers:
        return _nobody(destination, subscription, figures, now)
    if not subscription.line:
        return _nobody_ready(destination, subscription, figures)
    if wanted(subscription, destination.log) is None and not subscription.reading:
        return _nobody_takes(subscription, figures, sample)
    return Verdict("delivering", f"{_messages(figures['free'])} {_are(figures['free'])} being delivered just now")


def _nothing_waiting(destination: Destination, subscription: Subscription, figures: dict[str, Any]) -> Verdict:
    blocked, delayed = destination.publishing.blocked, figures["delayed"]
    if figures["unwritten"]:
        if blocked is not None and blocked[0] in WRITE_CODES:
            return Verdict(blocked[0], f"{_messages(figures['unwritten'])} cannot be written: {blocked[1]}")
        return Verdict("unwritten", f"{_messages(figures['unwritten'])} {_are(figures['unwritten'])} being written")
    if delayed:
        due_ms = destination.publishing.delays.next_ms
        when = f", the next until {_wall(due_ms)}" if due_ms else ""
        return Verdict("delayed", f"{_messages(delayed)} {_are(delayed)} delayed by the sender{when}")
    if blocked is not None:
        return Verdict(blocked[0], f"nothing is waiting, and producers are blocked: {blocked[1]}")
    if not (unselected := figures["unselected"]):
        return Verdict("nothing-waiting", f"nothing is waiting: {_what_became(destination)}")
    came = "that came since it subscribed, or the broker started,"
    excluded = f"{_messages(unselected)} {came} {_are(unselected)} not for it"
    them = _them(unselected)
    why = f"its selector excludes {them}" if subscription.selector else f"its own connection sent {them}"
    if any(consumer.delivered for consumer in subscription.consumers.values()):
        return Verdict("nothing-waiting", f"nothing is waiting: the rest is settled; {excluded}: {why}")
    return Verdict("selectors-exclude", f"nothing is waiting: {excluded}: {why}")


def _what_became(destination: Destination) -> str:
    """Of what was sent; counted since the broker started."""
    counters = destination.counters
    if not any(lane.next > lane.base for lane in destination.log.order):
        return "nothing was ever sent here"
    ways = {"expired": counters.expired, "rejected": counters.rejected}
    told = [f"{_messages(count)} {name}" for name, count in ways.items() if count]
    return "all that was sent is settled" + (f"; {' and '.join(told)} since the broker started" if told else "")


def _nothing_free(
    destination: Destination, subscription: Subscription, figures: dict[str, Any], now: float
) -> Verdict:
    """Everything is somebody's, or has to wait: the largest part decides."""
    part = max(("held", "parked", "redelivery_delayed", "locked", "dying"), key=lambda name: int(figures[name]))
    count = figures[part]
    share = f"all {_messages(count)}" if 1 < count == figures["waiting"] else _messages(count)
    state = destination.state
    if part == "held":
        holder = max(subscription.consumers.values(), key=lambda consumer: consumer.held.count)
        holders = sum(bool(consumer.held) for consumer in subscription.consumers.values())
        since = "" if holder.held_since is None else f", some of it since {_wall(state.wall_ms(holder.held_since))}"
        how = "in a transaction that is not committed" if holder.transacted else "unsettled"
        return Verdict(
            "in-transaction" if holder.transacted else "held",
            f"{share} {_are(count)} held by {_consumers(holders)}; session {format_id(holder.session)} "
            f"holds {holder.held.count:,} {how}{since}",
        )
    if part == "parked":
        return _awaiting(destination, subscription, f"{share} {_are(count)} kept", now)
    if part == "locked":
        return Verdict("locked", f"{share} {_are(count)} locked {_by_whom(subscription)}")
    if part == "redelivery_delayed":
        until = _wall(state.wall_ms(subscription.delayed[0][0]))
        sentence = f"{share} {_are(count)} to be delivered again, the first not before {until}"
        return Verdict("redelivery-delayed", sentence)
    return Verdict("dying", f"{share} {_are(count)} on the way to the dead message queue")


def _by_whom(subscription: Subscription) -> str:
    lock = min(subscription.locks, key=lambda lock: lock.since_ms)
    session, number = lock.transaction
    others = len({lock.transaction for lock in subscription.locks}) - 1
    more = f" and {others:,} later ones" if others else ""
    return (
        f"by transaction {number} of session {format_id(session)}{more}, which is prepared since "
        f"{_wall(lock.since_ms)} and whose end replica group {lock.decider} decides"
    )


def _awaiting(destination: Destination, subscription: Subscription, what: str, now: float) -> Verdict:
    until = subscription.parking.deadline()
    if until is None:
        return Verdict("resuming", f"{what} for consumers that have come back and have not yet asked for more")
    sessions = len({key[0] for key in subscription.parking.keys})
    cut = "a session that was" if sessions == 1 else f"{sessions:,} sessions that were"
    left_s = max(0.0, until - now)
    when = _wall(destination.state.wall_ms(until))
    return Verdict("awaiting-session", f"{what} for {cut} cut off, until {when} ({left_s:.1f} s from now)")


def _nobody(destination: Destination, subscription: Subscription, figures: dict[str, Any], now: float) -> Verdict:
    count = figures["free"]
    if subscription.parking:
        return _awaiting(destination, subscription, f"{_messages(count)} wait for a consumer; others are kept", now)
    return Verdict("no-consumer", f"{_messages(count)} {_wait(count)}, and there is no consumer")


def _nobody_ready(destination: Destination, subscription: Subscription, figures: dict[str, Any]) -> Verdict:
    waiting, consumers = f"{_messages(figures['free'])} {_wait(figures['free'])}", list(subscription.consumers.values())
    sole = subscription.line.sole
    if sole is not None and len(consumers) > 1:
        others = "other is" if len(consumers) == 2 else f"{len(consumers) - 1:,} others are"
        return Verdict(
            "exclusive-busy",
            f"{waiting}; the exclusive consumer of session {format_id(sole.session)} {_why_not(sole)}, and the "
            f"{others} not served while it is here",
        )
    blocked = destination.publishing.blocked
    if all(consumer.opening for consumer in consumers) and blocked is not None and blocked[0] in WRITE_CODES:
        return Verdict(blocked[0], f"{waiting}; consumers cannot open: {blocked[1]}")
    for code, those in (
        ("no-credit", [c for c in consumers if not c.stalled and not c.opening and c.unclaimed is None]),
        ("stalled", [c for c in consumers if c.stalled]),
        ("resuming", [c for c in consumers if c.unclaimed is not None]),
        ("opening", consumers),
    ):
        if those:
            rest = f" of {len(consumers):,}" if len(those) < len(consumers) else ""
            held = f"; together they hold {figures['held']:,} unsettled" if figures["held"] else ""
            if len(those) == 1 and not rest:
                return Verdict(code, f"{waiting}; its only consumer {_why_not(those[0])}")
            return Verdict(code, f"{waiting}; {len(those):,}{rest} consumers: each {_why_not(those[0])}{held}")
    raise AssertionError("a subscription without consumers has none that are not ready")


def _why_not(consumer: Consumer) -> str:
    """What one consumer that is not ready lacks."""
    if consumer.opening:
        return "is being opened"
    if consumer.unclaimed is not None:
        return "has come back and has not yet asked for more"
    if consumer.stalled:
        return "has a connection that takes no more for now: its process does not read"
    return f"has as many as it asked for ({consumer.held.count:,} unsettled) and grants no credit"


def _nobody_takes(subscription: Subscription, figures: dict[str, Any], sample: Sequence[Seen]) -> Verdict:
    count, ready = figures["free"], figures["consumers_ready"]
    waiting = f"{_messages(count)} {_wait(count)}"
    if figures["in_flight_room"] <= 0:
        return Verdict(
            "in-flight-max",
            f"{waiting}; so many are delivered and unsettled ({figures['held']:,}) that in_flight_max is reached, or "
            f"so many runs of messages are settled behind others ({len(subscription.settled):,}) that holes_max is",
        )
    owned = [seen for seen in sample if subscription.line.owner_of(seen.fields, seen.index) is not None]
    if sample and 2 * len(owned) >= len(sample):
        owner = subscription.line.owner_of(owned[0].fields, owned[0].index)
        assert owner is not None
        group = owned[0].fields.group(owned[0].index)
        return Verdict(
            "group-busy",
            f"{waiting}; {len(owned):,} of {len(sample):,} looked at are of message groups whose consumers are not "
            f"ready: that of {group!r}, session {format_id(owner.session)}, {_owner_lacks(owner)}",
        )
    looked = f" ({len(sample):,} {'was' if len(sample) == 1 else 'were'} looked at)" if sample else ""
    busy = figures["consumers"] - ready
    one = "the one that is ready" if busy else "the only consumer"
    whom = f"the selector of {one} excludes" if ready == 1 else f"the selectors of all {ready:,} exclude"
    others = f"; {_consumers(busy)} {'is' if busy == 1 else 'are'} not ready" if busy else ""
    return Verdict("selectors-exclude", f"{waiting}; {whom} {_them(count)}{looked}{others}")


def _owner_lacks(owner: Consumer) -> str:
    return "was cut off and may come back" if owner.cut else _why_not(owner)


def _of_topic_without_subscriptions(destination: Destination, now: float) -> dict[str, Any]:
    figures = {"waiting": 0, "delayed": destination.publishing.delays.count}
    if destination.state.keep_until:
        kept_s = max(0.0, destination.state.keep_until - now)
        sentence = f"nobody subscribes yet; messages are kept for {kept_s:.1f} s more, for subscribers that come back"
    elif destination.record.retains:
        sentence = "nobody subscribes: messages that are sent to it are retained in its log only"
    else:
        sentence = "nobody subscribes: messages that are sent to it are not kept"
    return {"code": "no-subscription", "sentence": sentence, "figures": figures}


# -- words -----------------------------------------------------------------------------------------


def _messages(count: int) -> str:
    return f"{count:,} message" if count == 1 else f"{count:,} messages"


def _consumers(count: int) -> str:
    return f"{count:,} consumer" if count == 1 else f"{count:,} consumers"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _wall(wall_ms: int) -> str:
    return f"{calendar_text(wall_ms)} UTC"
