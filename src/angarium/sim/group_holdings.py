"""The ledger's page on deliveries, of several replica groups, whose message managers stop and start one by one.

A manager that has a successor and has not heard of it (`delivered_late`) may deliver to clients that have not heard
either. What it delivers is durable, as ever, and it goes by all that it knew when it was replaced:
- nothing that was settled by then, and answered;
- nothing that somebody held then who was there, as long as that one cannot have been away for the grace time;
- what it is the first to send, in the order of each producer.
- what it answers was written before it was replaced, and known to all who could be its successor: settled is final.
Whoever gets it may keep it if the successor says so, when its session resumes there; until then others may get it.
"""
from collections.abc import Callable
from typing import NamedTuple

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.ids import group_of
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.sim.delivery_facts import NEVER, SubscriptionFacts
from angarium.sim.holdings import Holdings
from angarium.sim.messages import Messages, Violation


class _Replaced(NamedTuple):
    """A message manager of the past."""

    start: int  # of its successor
    at: float
    is_last: bool  # its successor is the present one


class GroupHoldings(Holdings):
    def __init__(self, messages: Messages, *, grace_s: float) -> None:
        super().__init__(messages, grace_s=grace_s)
        self._started: dict[int, list[tuple[int, float]]] = {}  # of each group its managers: start, when

    def group_stopped(self, group: int, now: float, is_fragile: Callable[[int], bool]) -> None:
        consumers = [facts for facts in self.consumers.values() if group_of(facts.destination) == group]
        for facts in consumers:
            self._note_absence(facts, now)
        for subscription in {id(facts.subscription): facts.subscription for facts in consumers}.values():
            for position, holders in subscription.holds.items():
                if is_fragile(subscription.sent[position]) or self._is_claimed_twice(holders, now):
                    for hold in holders.values():
                        hold.is_forfeited = True

    def group_started(self, group: int, now: float) -> None:
        self._start += 1
        self._started.setdefault(group, []).append((self._start, now))
        for facts in self.consumers.values():
            if group_of(facts.destination) == group:
                facts.was_here = facts.away_since is None
                facts.away_since = now

    def destination_opened(self, name: str, identity: int, now: float) -> None:
        """From what is stored, as at a start: it was moved to another group, or was to be."""
        self._start += 1
        for facts in self.consumers.values():
            if facts.subscription.log.name == name:
                self._note_absence(facts, now)  # who was away so long may have been given up before it was moved
                facts.away_since, facts.destination = now, identity

    def delivered_late(
        self, session: bytes, frame: frames.Deliver, payload: bytes, *, group: int, manager: int, now: float
    ) -> None:
        """By a manager that has a successor: of those of its group it was number `manager`, from 0."""
        key = (session, frame.consumer)
        facts, batch = self.consumers.get(key), Batch.trusted(payload)
        if facts is None:
            return  # it was opened there only, and is known to nobody else
        subscription = facts.subscription
        log, sent, first_in = subscription.log, subscription.sent, subscription.first_in
        replaced = self._replaced(group, manager)
        is_moved = group_of(facts.destination) != group  # since: what is known of its managers is of others
        for index, position in enumerate(frame.positions(batch.count)):
            if log.messages.get(position) != (batch.producer, batch.sequence(index)):
                what = f"position {position} is delivered by a manager of the past, as message {batch.sequence(index)}"
                raise Violation("only what is durable is delivered", f"{log.name}: {what}")
            if subscription.settled_in.get(position, replaced.start) < replaced.start and not is_moved:
                what = f"position {position} is delivered by a manager that answered its settlement, since replaced"
                raise Violation("settled is final", f"{log.name}{subscription.name}: {what}")
            if replaced.is_last and now - replaced.at < self._grace_s and not is_moved:
                self._check_nobodys(subscription, position, key, replaced)
            if position not in subscription.late and first_in.get(position, replaced.start) >= replaced.start:
                facts.late[position] = replaced.start
            subscription.late.add(position)
            facts.sends.setdefault(position, NEVER)
            sent.setdefault(position, 0)

    def settled_late(self, session: bytes, frame: frames.Settled, *, group: int, manager: int) -> None:
        """Answered by that manager: it has heard only now that all others have written it."""
        facts = self.consumers.get((session, frame.consumer))
        if facts is None:
            return
        subscription, start = facts.subscription, self._replaced(group, manager).start
        before = set(subscription.settled)
        self.settled(session, frame)
        for position in subscription.settled.keys() - before:
            subscription.settled_in[position] = start - 1
            if any(
                other.subscription is subscription and other.sends.get(position, NEVER).start >= start
                for other in self.consumers.values()
            ):
                what = f"position {position} is delivered again; a manager of the past answers its settlement"
                raise Violation("settled is final", f"{subscription.log.name}{subscription.name}: {what}")

    def _replaced(self, group: int, manager: int) -> _Replaced:
        started = self._started[group]
        return _Replaced(*started[manager + 1], is_last=manager + 2 == len(started))

    def _check_nobodys(
        self, subscription: SubscriptionFacts, position: int, key: ConsumerKey, replaced: _Replaced
    ) -> None:
        """Nobody who was there when the manager was replaced had it in hand then."""
        for holder, hold in subscription.holds.get(position, {}).items():
            facts = self.consumers[holder]
            is_known = facts.sends[position] > NEVER and facts.sends[position].start < replaced.start
            if not is_known or hold.is_forfeited or not facts.was_here:
                continue
            what = f"position {position} is given away by a manager of the past that knows its holder"
            promise = "nothing is delivered twice to a session" if holder == key else (
                "two sessions never hold the same position"
            )
            raise Violation(promise, f"{subscription.log.name}{subscription.name}: {what}")
