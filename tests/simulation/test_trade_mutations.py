"""Goal: the audits of trade can fail. Method: plant a bug, and some seed among a few must catch it.

The machines' own invariants (`MessageManager.check`) are switched off here: it is the promises that have to notice.
"""
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.client.transaction import TransactionWindow
from angarium.core.destination import message_manager
from angarium.core.destination.consuming import Consuming
from angarium.core.destination.delays import Delays
from angarium.core.destination.events import ToSession
from angarium.core.destination.limits import Limits
from angarium.core.destination.producers import Producer
from angarium.core.destination.publishing import Publishing
from angarium.core.destination.redeliveries import Redeliveries
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.windows import DeduplicationWindow
from angarium.core.errors import Rejected
from angarium.core.storage import Put
from angarium.core.transaction.local import Transactions
from angarium.core.transaction.numbers import CommitNumbers
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.sim.trade import TradeWorld
from angarium.sim.world import draw_settings
from tests.simulation.planted import assert_noticed

SEEDS_MAX = 60

Plant = Callable[[pytest.MonkeyPatch], None]


# -- transactions ----------------------------------------------------------------------------------------


def commit_is_answered_before_durable(patch: pytest.MonkeyPatch) -> None:
    apply = Transactions._apply

    def mutant(self: Transactions, session: bytes, number: int, plan: Any, *rest: Any) -> Any:
        return [ToSession(session, frames.Committed(number)), *apply(self, session, number, plan, *rest)]

    patch.setattr(Transactions, "_apply", mutant)


def commit_is_done_again_when_sent_again(patch: pytest.MonkeyPatch) -> None:
    asked = Transactions._asked

    def mutant(self: Transactions, session: bytes, *commit: Any) -> Any:
        self.numbers.last.pop(session, None)
        return asked(self, session, *commit)

    patch.setattr(Transactions, "_asked", mutant)


def commit_gets_another_number_when_sent_again(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: TransactionWindow) -> None:
        self._is_sent = False
        self._number += self._is_active

    patch.setattr(TransactionWindow, "disconnected", mutant)


def commits_are_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitNumbers, "restore", lambda self, records: None)


def commit_forgets_to_settle(patch: pytest.MonkeyPatch) -> None:
    apply = Transactions._apply

    def mutant(self: Transactions, session: bytes, number: int, plan: Any, *rest: Any) -> Any:
        plan.settles = plan.settles[1:]
        return apply(self, session, number, plan, *rest)

    patch.setattr(Transactions, "_apply", mutant)


def commit_forgets_to_send(patch: pytest.MonkeyPatch) -> None:
    apply = Transactions._apply

    def mutant(self: Transactions, session: bytes, number: int, plan: Any, *rest: Any) -> Any:
        plan.publishes = plan.publishes[:1]
        return apply(self, session, number, plan, *rest)

    patch.setattr(Transactions, "_apply", mutant)


def commit_is_two_writes(patch: pytest.MonkeyPatch) -> None:
    apply = Transactions._apply

    def mutant(self: Transactions, session: bytes, number: int, plan: Any, *rest: Any) -> Any:
        settles, plan.settles = plan.settles, []
        sent = apply(self, session, number, plan, *rest)
        plan.publishes, plan.settles = [], settles
        return [*sent, *apply(self, session, number, plan, *rest)] if settles else sent

    patch.setattr(Transactions, "_apply", mutant)


def a_commit_is_not_recognised_over_a_later_connection(patch: pytest.MonkeyPatch) -> None:
    on_committed = TransactionWindow.on_committed

    def mutant(self: TransactionWindow, frame: frames.Committed, outlet: Any) -> None:
        self._check_answer("committed", frame.number, self._is_sent)
        on_committed(self, frame, outlet)

    patch.setattr(TransactionWindow, "on_committed", mutant)


def messages_of_a_commit_count_as_confirmed_at_once(patch: pytest.MonkeyPatch) -> None:
    committed = Publishing.committed

    def mutant(self: Publishing, producer: Producer, batch: Any, pending: Any, *, now: float) -> Any:
        producer.confirmed = batch.last_sequence
        return committed(self, producer, batch, pending, now=now)

    patch.setattr(Publishing, "committed", mutant)


# -- redelivery ------------------------------------------------------------------------------------------


def redelivery_delay_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consuming, "_redelivery_at", lambda self, now: None)


def redelivery_limit_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Redeliveries, "above", lambda self, limit, low, high: [])


def redelivery_limit_is_one_too_low(patch: pytest.MonkeyPatch) -> None:
    above = Redeliveries.above
    patch.setattr(Redeliveries, "above", lambda self, limit, low, high: above(self, limit - 1, low, high))


def rollback_redelivers_backwards(patch: pytest.MonkeyPatch) -> None:
    first_free = Subscription.first_free

    def mutant(self: Subscription, low: int, high: int) -> int | None:
        free = first_free(self, low, high)
        returned = self.returned.overlap(low, high)
        return free if not returned else returned[-1][1] - 1

    patch.setattr(Subscription, "first_free", mutant)


# -- messages that are not yet due -------------------------------------------------------------------------


def what_is_due_stays_in_its_table(patch: pytest.MonkeyPatch) -> None:
    due = Delays.due

    def mutant(self: Delays, event: Any, pending: Any, *, now: float) -> Any:
        batches, operations = due(self, event, pending, now=now)
        return batches, [operation for operation in operations if isinstance(operation, Put)]

    patch.setattr(Delays, "due", mutant)


def what_is_due_soon_is_due(patch: pytest.MonkeyPatch) -> None:
    due = Delays.due
    patch.setattr(Delays, "due", lambda self, event, pending, *, now: due(self, event, pending, now=now + 0.5))


def what_waits_is_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delays, "restore", lambda self, *found: None)


def what_is_not_durable_is_looked_for_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    hold = Delays.hold

    def mutant(self: Delays, batch: Any, dues_ms: list[int], pending: Any) -> Any:
        self.next_ms = min(dues_ms) if self.next_ms is None else min(self.next_ms, *dues_ms)
        return hold(self, batch, dues_ms, pending)

    patch.setattr(Delays, "hold", mutant)
    patch.setattr(Delays, "held", lambda self, due_ms: None)


# -- limits, ids -----------------------------------------------------------------------------------------


def producers_are_not_told_that_a_queue_is_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "reason", lambda self: "")


def producers_are_not_told_that_there_is_room_again(patch: pytest.MonkeyPatch) -> None:
    set_blocked = Publishing.set_blocked

    def mutant(self: Publishing, code: str, reason: str) -> Any:
        return set_blocked(self, code, reason) if reason or code == "disk-full" else []

    patch.setattr(Publishing, "set_blocked", mutant)


def a_commit_is_refused_where_producers_only_wait(patch: pytest.MonkeyPatch) -> None:
    check_room = Publishing.check_room

    def mutant(self: Publishing, batch: Batch, *, before: int) -> None:
        check_room(self, batch, before=before)
        if self.limits.is_set and (reason := self.limits.reason()):
            raise Rejected("destination-full", reason)

    patch.setattr(Publishing, "check_room", mutant)


def who_fills_a_queue_by_a_commit_is_told_after_the_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message_manager, "_is_flow", lambda command: False)


def a_commit_does_not_wait_while_a_queue_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionWindow, "_is_free", lambda self: True)


def a_full_queue_refuses_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "refuses", lambda self: False)


def refusals_are_told_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producer, "unheard", lambda self, confirmed: [])


def what_is_doomed_is_counted(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Limits, subscriptions: Iterable[Subscription]) -> Any:
        excess, touched = self._excess(self.count(), 0, 0), []
        for subscription in subscriptions if excess else ():
            for part in self._oldest_free(subscription, excess + 1):
                subscription.doom_free("limit-exceeded", *part)
                touched.append(subscription)
        return touched

    patch.setattr(Limits, "doom_oldest", mutant)


def the_oldest_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "doom_oldest", lambda self, subscriptions: [])


def ids_are_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeduplicationWindow, "restore", lambda self, records: [])


MUTATIONS: Sequence[Plant] = (
    commit_is_answered_before_durable, commit_is_done_again_when_sent_again,
    commit_gets_another_number_when_sent_again, commits_are_forgotten_on_restart, commit_forgets_to_settle,
    commit_forgets_to_send, commit_is_two_writes,
    a_commit_is_not_recognised_over_a_later_connection,
    messages_of_a_commit_count_as_confirmed_at_once, redelivery_delay_is_ignored, redelivery_limit_is_ignored,
    redelivery_limit_is_one_too_low, rollback_redelivers_backwards, what_is_due_stays_in_its_table,
    what_is_due_soon_is_due, what_waits_is_forgotten_on_restart, what_is_not_durable_is_looked_for_and_forgotten,
    producers_are_not_told_that_a_queue_is_full, producers_are_not_told_that_there_is_room_again,
    a_commit_is_refused_where_producers_only_wait, who_fills_a_queue_by_a_commit_is_told_after_the_answer,
    a_commit_does_not_wait_while_a_queue_blocks, a_full_queue_refuses_nothing, refusals_are_told_once,
    what_is_doomed_is_counted, the_oldest_stay,
    ids_are_forgotten_on_restart,
)  # fmt: skip


# Where to begin, for those that take luck: a seed that is known to notice.
FIRST = {
    "a_commit_is_not_recognised_over_a_later_connection": 21, "messages_of_a_commit_count_as_confirmed_at_once": 40,
    "what_is_doomed_is_counted": 20, "the_oldest_stay": 20, "refusals_are_told_once": 61,
    "what_is_not_durable_is_looked_for_and_forgotten": 24, "producers_are_not_told_that_there_is_room_again": 38,
}  # fmt: skip


@pytest.mark.parametrize("plant", MUTATIONS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seeds = (FIRST.get(plant.__name__, 0), *range(SEEDS_MAX))
    assert_noticed(plant.__name__, seeds, lambda seed: TradeWorld(seed, replace(draw_settings(seed), check_every=0)))
