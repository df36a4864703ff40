"""Goal: the checkers can fail. Method: plant a protocol bug, and some seed among a few must catch it.

The machines' own invariants (`MessageManager.check`) are switched off here: it is the promises that have to notice.
"""
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.client.consumer import ConsumerWindow
from angarium.core.client.producer import ProducerWindow
from angarium.core.destination import delivery, dispatch
from angarium.core.destination.consuming import Consuming
from angarium.core.destination.destination import Destination
from angarium.core.destination.events import ToSession
from angarium.core.destination.log import Lane, Log
from angarium.core.destination.producers import ProducerTable
from angarium.core.destination.publishing import Publishing
from angarium.core.destination.redeliveries import Redeliveries
from angarium.core.destination.state import DestinationState
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.subscriptions import Subscriptions
from angarium.core.session.client_manager import ClientManager
from angarium.core.session.events import ToBus
from angarium.core.session.session import Session
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.sim.world import World, draw_settings
from tests.simulation.planted import assert_noticed

SEEDS_MAX = 240

Plant = Callable[[pytest.MonkeyPatch], None]


# -- in the message manager ----------------------------------------------------------------------------


def confirm_before_durable(patch: pytest.MonkeyPatch) -> None:
    publish = Publishing.publish

    def mutant(self: Publishing, session: bytes, frame: frames.Publish, payload: bytes, *, now: float) -> Any:
        commands = publish(self, session, frame, payload, now=now)
        producer = self._state.producers.get(session, frame.producer)
        if producer is not None:
            commands.append(ToSession(session, frames.Confirm(frame.producer, producer.accepted)))
        return commands

    patch.setattr(Publishing, "publish", mutant)


def forget_sequences_on_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerTable, "restore", lambda self, identity, record: None)


def deliver_before_written(patch: pytest.MonkeyPatch) -> None:
    frame_of = Destination.frame

    def mutant(self: Destination, session: bytes, frame: frames.Frame, payload: bytes, *, now: float) -> Any:
        commands = frame_of(self, session, frame, payload, now=now)
        if isinstance(frame, frames.Publish):
            for lane in self.log.order:
                lane.readable = lane.next
            for subscription in self.subscriptions:
                commands += self.dispatch.pump(subscription)
        return commands

    patch.setattr(Destination, "frame", mutant)


def do_not_park_on_cut(patch: pytest.MonkeyPatch) -> None:
    detach = Subscription.detach

    def mutant(self: Subscription, consumer: Any, *, park_until: float | None, seen: Any = None) -> None:
        detach(self, consumer, park_until=None, seen=seen)

    patch.setattr(Subscription, "detach", mutant)


def park_for_half_the_grace_time(patch: pytest.MonkeyPatch) -> None:
    expire = Subscription.expire_parked

    def mutant(self: Subscription, now: float) -> Any:
        for parked in self.parking.parked.values():
            parked.until = min(parked.until, now + 0.25)
        return expire(self, now)

    patch.setattr(Subscription, "expire_parked", mutant)
    detach = Subscription.detach

    def early(self: Subscription, consumer: Any, *, park_until: float | None, seen: Any = None) -> None:
        detach(self, consumer, park_until=None if park_until is None else park_until - 0.4, seen=seen)

    patch.setattr(Subscription, "detach", early)


def keep_nothing_for_consumers_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    restore = Destination.restore_subscription

    def mutant(self: Destination, name: str, record: Any, attached: Any, *, now: float) -> Any:
        return restore(self, name, record, {}, now=now)

    patch.setattr(Destination, "restore_subscription", mutant)


def answer_settlements_before_durable(patch: pytest.MonkeyPatch) -> None:
    settle = Consuming.settle

    def mutant(self: Consuming, session: bytes, frame: frames.Settle, *, now: float) -> Any:
        commands = settle(self, session, frame, now=now)
        if (session, frame.consumer) not in self._state.consumers:
            return commands  # nobody is there to be answered
        return [ToSession(session, frames.Settled(frame.consumer, frame.number)), *commands]

    patch.setattr(Consuming, "settle", mutant)


def do_not_store_settlements(patch: pytest.MonkeyPatch) -> None:
    write = DestinationState.write

    def mutant(self: DestinationState, operations: list[Any], pending: Any, **how: bool) -> Any:
        kept = [o for o in operations if o.table != Table.SUBSCRIPTION or pending.opened is not None]
        return write(self, kept, pending, **how)

    patch.setattr(DestinationState, "write", mutant)


def released_messages_do_not_return(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscription, "_give_back", lambda self, positions, until=None: None)


def redeliveries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Redeliveries, "raise_by_one", lambda self, low, high: None)


def dedup_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """With a client that resends all it has in flight, which is its right."""

    def mutant(self: ProducerTable, producer: Any, first: int, last: int) -> int | None:
        expected = max(1, producer.accepted)
        return None if last < expected else max(first, expected)

    patch.setattr(ProducerTable, "first_new", mutant)
    on_opened = ProducerWindow.on_opened

    def resend_all(self: ProducerWindow, frame: frames.ProducerOpened, outlet: Any) -> None:
        on_opened(self, frames.ProducerOpened(frame.producer, frame.identity, self.confirmed), outlet)

    patch.setattr(ProducerWindow, "on_opened", resend_all)


def trim_one_too_far(patch: pytest.MonkeyPatch) -> None:
    slowest = Subscriptions.slowest_cursor

    def mutant(self: Subscriptions, lane: Lane) -> int | None:
        cursor = slowest(self, lane)
        return None if cursor is None else cursor + 1

    patch.setattr(Subscriptions, "slowest_cursor", mutant)


def unsubscribing_is_answered_and_not_done(patch: pytest.MonkeyPatch) -> None:
    close = Consuming.close

    def mutant(self: Consuming, session: bytes, number: int, **how: Any) -> Any:
        return close(self, session, number, **{**how, "unsubscribe": False})

    patch.setattr(Consuming, "close", mutant)


def deliver_what_has_expired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(delivery, "without_expired", lambda subscription, batch, base, free, wall_ms, result: free)


def new_overtakes_old_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    def wanted(self: Subscription, log: Log) -> int | None:
        first, fresh = self.returned.first(), self.fresh_of(0)
        if not self.line:
            return None
        return first[0] if first is not None else (fresh if fresh < log.lanes[0].readable else None)

    def free_in(self: Subscription, low: int, high: int) -> list[tuple[int, int]]:
        parts, fresh = self.returned.overlap(low, high), self.fresh_of(0)
        return [*parts, (max(low, fresh), high)] if high > fresh else parts

    patch.setattr(dispatch, "wanted", wanted)
    patch.setattr(Subscription, "free_in", free_in)


# -- in the client manager -----------------------------------------------------------------------------


def old_answers_are_taken_for_new_ones(patch: pytest.MonkeyPatch) -> None:
    opened = Session._opened

    def mutant(self: Session, frame: Any) -> Any:
        frame = type(frame)(*(getattr(frame, name) for name in frame.__struct_fields__))
        self._attachment = frame.attachment
        return opened(self, frame)

    patch.setattr(Session, "_opened", mutant)


def destinations_are_not_told_of_a_takeover(patch: pytest.MonkeyPatch) -> None:
    take_over, take_up = ClientManager._take_over, ClientManager._take_up
    patch.setattr(ClientManager, "_take_over", lambda self, identity: take_over(self, identity)[:1])

    def mutant(self: ClientManager, connection: Any, identity: bytes) -> Any:
        commands = take_up(self, connection, identity)
        return [c for c in commands if not (isinstance(c, ToBus) and isinstance(c.frame, frames.SessionEnded))]

    patch.setattr(ClientManager, "_take_up", mutant)


# -- in the client -------------------------------------------------------------------------------------


def client_does_not_resend(patch: pytest.MonkeyPatch) -> None:
    on_opened = ProducerWindow.on_opened

    def mutant(self: ProducerWindow, frame: frames.ProducerOpened, outlet: Any) -> None:
        in_flight, self._in_flight = self._in_flight, []
        on_opened(self, frame, outlet)
        self._in_flight = in_flight + self._in_flight

    patch.setattr(ProducerWindow, "on_opened", mutant)


def client_does_not_repeat_settlements(patch: pytest.MonkeyPatch) -> None:
    opening = ConsumerWindow.open

    def mutant(self: ConsumerWindow, outlet: Any) -> None:
        unanswered = list(self._unanswered)
        self._unanswered.clear()
        opening(self, outlet)
        self._unanswered.extendleft(reversed(unanswered))

    patch.setattr(ConsumerWindow, "open", mutant)


def client_ignores_what_it_lost(patch: pytest.MonkeyPatch) -> None:
    on_opened = ConsumerWindow.on_opened

    def mutant(self: ConsumerWindow, frame: frames.ConsumerOpened, outlet: Any) -> None:
        on_opened(self, frames.ConsumerOpened(frame.consumer, [], frame.attachment, frame.position), outlet)

    patch.setattr(ConsumerWindow, "on_opened", mutant)


def client_claims_nothing_when_it_resumes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerWindow, "_known", lambda self: ())


MUTATIONS: Sequence[Plant] = (
    confirm_before_durable, forget_sequences_on_restart, deliver_before_written, do_not_park_on_cut,
    park_for_half_the_grace_time, keep_nothing_for_consumers_after_a_restart, answer_settlements_before_durable,
    do_not_store_settlements, released_messages_do_not_return, redeliveries_are_not_counted, dedup_off_by_one,
    trim_one_too_far, unsubscribing_is_answered_and_not_done, deliver_what_has_expired,
    new_overtakes_old_after_a_restart,
    old_answers_are_taken_for_new_ones, destinations_are_not_told_of_a_takeover,
    client_does_not_resend, client_does_not_repeat_settlements, client_ignores_what_it_lost,
    client_claims_nothing_when_it_resumes,
)  # fmt: skip
# It takes luck: seeds that are known to notice.
FIRST = {"client_ignores_what_it_lost": 148, "unsubscribing_is_answered_and_not_done": 74}


@pytest.mark.parametrize("plant", MUTATIONS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seeds = (FIRST.get(plant.__name__, 0), *range(SEEDS_MAX))
    assert_noticed(plant.__name__, seeds, lambda seed: World(seed, replace(draw_settings(seed), check_every=0)))
