"""What applications do all day: publish in bursts, consume, settle late, release, reject, close and come back.

An `Application` lives in one client and acts at random times. `calm_down` is the end of its moods: from then on it only
finishes what it began: producers publish the rest, consumers settle everything they get.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from angarium.core.client.gathered import Options
from angarium.core.wire.frames import DestinationKind, Outcome, Start
from angarium.sim.client import SimClient
from angarium.sim.clock import Clock
from angarium.sim.sessions import SimConsumer, SimProducer, SimSession

_BODY_BYTES_MAX = 400
_CALM_PREFETCH = 50


@dataclass(frozen=True, slots=True)
class Place:
    """A destination, and for who consumes there: on a topic the durable name, and what is wanted of it."""

    name: str
    kind: DestinationKind
    subscription: str = ""
    selector: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Habits:
    """How an application behaves; every figure is drawn anew for each one."""

    burst_max: int  # messages in one publish
    pause_s_max: float  # between publishes
    settle_s_max: float  # from arrival to settlement
    prefetch_max: int
    release_chance: float
    reject_chance: float
    forget_chance: float  # not settled at all until it calms down
    restless_s: float  # mean time between changes of mind: prefetch, close, new session
    expiry_chance: float


def draw_habits(chance: Random) -> Habits:
    return Habits(
        burst_max=chance.choice((1, 5, 20)),
        pause_s_max=chance.choice((0.02, 0.2, 0.8)),
        settle_s_max=chance.choice((0.0, 0.01, 0.1, 1.0)),
        prefetch_max=chance.choice((1, 5, 50)),
        release_chance=chance.choice((0.0, 0.05, 0.3)),
        reject_chance=chance.choice((0.0, 0.02)),
        forget_chance=chance.choice((0.0, 0.0, 0.05)),
        restless_s=chance.choice((0.7, 3.0, 1e9)),
        expiry_chance=chance.choice((0.0, 0.0, 0.1)),
    )


class Application:
    def __init__(
        self, client: SimClient, clock: Clock, chance: Random, *, produces: Sequence[Place], consumes: Sequence[Place],
        messages: int, serial: "count[int]", dress: Callable[[], Options | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.client = client
        self.messages_left = messages
        self._clock = clock
        self._chance = chance
        self.habits = draw_habits(chance)
        self._produces = list(produces)
        self._consumes = list(consumes)
        self._serial = serial  # makes every body its own
        self._dress = dress  # what a message has beside its body
        self._is_calm = False
        self._session = client.open_session()
        self._producers: list[SimProducer] = []
        self._begin_session()
        self._clock.after(chance.expovariate(1 / self.habits.restless_s), self._change_mind)
        self._clock.after(chance.random(), self._publish)

    @property
    def is_done(self) -> bool:
        return not self.client.is_alive or self.messages_left == 0

    def calm_down(self) -> None:
        self._is_calm = True
        if not self.client.is_alive:
            return
        for consumer in list(self._session.consumers.values()):
            consumer.set_prefetch(_CALM_PREFETCH)
            for low, high in list(consumer.in_hands):
                self._settle_later(consumer, low, high)

    # -- sessions ------------------------------------------------------------------------------------

    def _begin_session(self) -> None:
        self._producers = [self._session.produce(place.name, place.kind) for place in self._produces]
        for place in self._consumes:
            self._consume(self._session, place)

    def _renew_session(self) -> None:
        """Close the session, once what it sent is confirmed or it has waited long enough; go on in a new one."""
        self._session.close(timeout_s=self._chance.choice((0.05, 1.0, 10.0)))
        self._session = self.client.open_session()
        self._begin_session()

    def _change_mind(self) -> None:
        if self._is_calm or not self.client.is_alive:
            return
        mood = self._chance.random()
        consumers = [c for c in self._session.consumers.values() if c.is_open and not c.is_closing]
        if mood < 0.25:
            self._renew_session()
        elif mood < 0.4 and self._producers:
            self._renew_producer()
        elif mood < 0.5:
            self._session.sync()
        elif consumers and mood < 0.75:
            consumer = self._chance.choice(consumers)
            consumer.set_prefetch(self._chance.randint(0, self.habits.prefetch_max))
        elif consumers:
            consumer = self._chance.choice(consumers)
            alone = bool(consumer.subscription) and not any(place.shared for place in self._consumes)
            consumer.close(unsubscribe=alone and self._chance.random() < 0.2)
        self._clock.after(self._chance.expovariate(1 / self.habits.restless_s), self._change_mind)

    def _renew_producer(self) -> None:
        at = self._chance.randrange(len(self._producers))
        producer = self._producers[at]
        if producer.unconfirmed == 0:
            producer.close()
            place = self._produces[at]
            self._producers[at] = self._session.produce(place.name, place.kind)

    # -- producing -----------------------------------------------------------------------------------

    def _publish(self) -> None:
        if self.is_done or not self._producers:
            return
        producer = self._chance.choice(self._producers)
        burst = min(self.messages_left, self._chance.randint(1, self.habits.burst_max))
        messages = [(self._body(), self._dress()) for _ in range(burst)]
        expires = self._chance.random() < self.habits.expiry_chance
        producer.publish_each(messages, expires_after_s=self._chance.choice((0.05, 1.0, 5.0)) if expires else 0.0)
        self.messages_left -= burst
        pause_s = 0.01 if self._is_calm else self.habits.pause_s_max
        self._clock.after(self._chance.random() * pause_s, self._publish)

    def _body(self) -> bytes:
        return b"%d:" % next(self._serial) + b"x" * int(self._chance.random() ** 3 * _BODY_BYTES_MAX)

    # -- consuming -----------------------------------------------------------------------------------

    def _consume(self, session: SimSession, place: Place) -> None:
        prefetch = _CALM_PREFETCH if self._is_calm else self._chance.randint(1, self.habits.prefetch_max)
        start = self._chance.choice((Start.NEXT, Start.OLDEST))
        consumer = session.consume(
            place.name, place.kind, subscription=place.subscription, prefetch=prefetch, start=start,
            selector=place.selector, shared=place.shared,
        )  # fmt: skip
        consumer.on_arrival = self._arrived
        self._clock.after(0.5 + self._chance.random(), partial(self._reopen_if_ended, consumer, session, place))

    def _reopen_if_ended(self, consumer: SimConsumer, session: SimSession, place: Place) -> None:
        if not self.client.is_alive or session.is_closing or session.is_ended:
            return
        if consumer.is_ended:
            self._consume(session, place)
        else:
            self._clock.after(0.5 + self._chance.random(), partial(self._reopen_if_ended, consumer, session, place))

    def _arrived(self, consumer: SimConsumer, low: int, high: int) -> None:
        """Settle in parts, each after a time of its own."""
        while low < high:
            end = min(high, low + self._chance.randint(1, 10))
            if self._is_calm or self._chance.random() >= self.habits.forget_chance:
                self._settle_later(consumer, low, end)
            low = end

    def _settle_later(self, consumer: SimConsumer, low: int, high: int) -> None:
        delay_s = self._chance.random() * (0.01 if self._is_calm else self.habits.settle_s_max)
        self._clock.after(delay_s, partial(self._settle, consumer, low, high))

    def _settle(self, consumer: SimConsumer, low: int, high: int) -> None:
        drawn = self._chance.random()
        outcome = Outcome.SETTLE
        if drawn < self.habits.reject_chance:
            outcome = Outcome.REJECT
        elif not self._is_calm and drawn > 1 - self.habits.release_chance:
            outcome = Outcome.RELEASE
        consumer.settle(low, high, outcome)
