"""Goal: what goes wrong when a session is detached and opened again does not escape the checkers.
Method: the message manager dies alone, again and again, and nothing else does. Plant a bug: some seed must catch it.

The machines' own invariants (`MessageManager.check`) are switched off here: it is the promises that have to notice.
"""
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.client.consumer import ConsumerWindow
from angarium.core.client.producer import ProducerWindow
from angarium.core.client.streams import SessionStreams
from angarium.core.client.transaction import TransactionWindow
from angarium.core.session.client_manager import ClientManager
from angarium.core.session.connection import Connection
from angarium.core.session.detached import DetachedSessions
from angarium.core.session.session import Session
from angarium.core.wire import frames
from angarium.sim.messages import Violation
from angarium.sim.trade import TradeWorld
from angarium.sim.world import World, WorldSettings, draw_settings
from tests.simulation.test_streams import send_and_receive

SEEDS_MAX = 40
TROUBLE = ("manager-crash", "manager-crash-at-a-sync")

Plant = Callable[[pytest.MonkeyPatch], None]


def settings_of(seed: int) -> WorldSettings:
    return replace(draw_settings(seed), check_every=0, faults=TROUBLE)


# -- in the client manager -----------------------------------------------------------------------------


def answers_of_the_old_attachment_are_accepted(patch: pytest.MonkeyPatch) -> None:
    """The session goes on as the same one: whatever it had open counts as open."""
    detach = ClientManager._detach
    kept: dict[bytes, Session] = {}

    def remember(self: ClientManager, connection: Connection, session: Session, *rest: Any) -> Any:
        kept[session.identity] = session
        return detach(self, connection, session, *rest)

    add = ClientManager._add_session

    def mutant(self: ClientManager, connection: Connection, number: int, identity: bytes) -> Session:
        session = add(self, connection, number, identity)
        earlier = kept.pop(identity, None)
        if earlier is not None:
            session._attachment = earlier._attachment
        return session

    bus_frame = Session.bus_frame

    def passes(self: Session, frame: frames.Frame, payload: bytes) -> Any:
        if isinstance(frame, frames.Deliver | frames.Confirm):
            return [self._to_client(frame, payload)]
        return bus_frame(self, frame, payload)

    patch.setattr(ClientManager, "_detach", remember)
    patch.setattr(ClientManager, "_add_session", mutant)
    patch.setattr(Session, "bus_frame", passes)


def what_was_sent_before_the_client_knew_is_not_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DetachedSessions, "has", lambda self, connection, number: False)


def sessions_that_wait_for_a_destination_are_not_detached(patch: pytest.MonkeyPatch) -> None:
    depends_on = Session.depends_on

    def mutant(self: Session, group: int) -> bool:
        locating, self._locating = self._locating, {}
        depends = depends_on(self, group)
        self._locating = locating
        return depends and not locating

    patch.setattr(Session, "depends_on", mutant)


# -- in the client -------------------------------------------------------------------------------------


def held_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerWindow, "_known", lambda self: ())


def unconfirmed_is_not_resent(patch: pytest.MonkeyPatch) -> None:
    on_opened = ProducerWindow.on_opened

    def mutant(self: ProducerWindow, frame: frames.ProducerOpened, outlet: Any) -> None:
        in_flight, self._in_flight = self._in_flight, []
        on_opened(self, frame, outlet)
        self._in_flight = in_flight + self._in_flight

    patch.setattr(ProducerWindow, "on_opened", mutant)


def credit_is_given_twice(patch: pytest.MonkeyPatch) -> None:
    """What was granted before is granted once more, on top of what is counted anew."""
    limit_now = ConsumerWindow._limit_now
    opening = ConsumerWindow.open
    granted: dict[ConsumerWindow, int] = {}

    def mutant(self: ConsumerWindow, outlet: Any) -> None:
        if self._was_asked:
            granted[self] = self._prefetch
        opening(self, outlet)

    patch.setattr(ConsumerWindow, "open", mutant)
    patch.setattr(ConsumerWindow, "_limit_now", lambda self: limit_now(self) + granted.get(self, 0))


def settlements_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    opening = ConsumerWindow.open

    def mutant(self: ConsumerWindow, outlet: Any) -> None:
        unanswered = list(self._unanswered)
        self._unanswered.clear()
        opening(self, outlet)
        self._unanswered.extendleft(reversed(unanswered))

    patch.setattr(ConsumerWindow, "open", mutant)


def a_commit_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionWindow, "disconnected", lambda self: None)


def streams_do_not_notice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionStreams, "disconnected", lambda self: None)


PLAIN: Sequence[Plant] = (
    answers_of_the_old_attachment_are_accepted, what_was_sent_before_the_client_knew_is_not_dropped,
    sessions_that_wait_for_a_destination_are_not_detached, held_is_not_told, unconfirmed_is_not_resent,
    credit_is_given_twice, settlements_are_not_repeated,
)  # fmt: skip


def run_plain(seed: int) -> None:
    World(seed, settings_of(seed)).run()


def run_trade(seed: int) -> None:
    TradeWorld(seed, settings_of(seed)).run()


def run_streams(seed: int) -> None:
    send_and_receive(seed, settings_of(seed))


@pytest.mark.parametrize(
    ("plant", "run"),
    [
        *((plant, run_plain) for plant in PLAIN),
        (a_commit_is_not_repeated, run_trade),
        (streams_do_not_notice, run_streams),
    ],
    ids=lambda value: value.__name__,
)
def test_a_planted_bug_is_caught(
    plant: Plant, run: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            run(seed)
        except Violation as caught:  # anything else is a plant that no longer fits the code
            print(f"seed {seed}: {caught}")
            return
    pytest.fail(f"no promise noticed {plant.__name__} in {SEEDS_MAX} seeds")
