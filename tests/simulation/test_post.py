"""Goal: no schedule of faults gives anybody what a selector excludes, divides a message group, or breaks the order
within a priority and a group. Method: a world of post (angarium/sim/post.py), and its audit.

Replay one: python -m angarium.sim --world post --seed 17 --last 100.
"""
from collections import Counter

import pytest

from angarium.core.client.gathered import Options
from angarium.core.destination.log import Lane
from angarium.sim.post import PostWorld
from angarium.sim.world import Failure, Outcome, World, run_seed
from tests.simulation.stories import consumer_in, producer_in, quiet_world, restart, settle_on_arrival

CHUNK = 5
SEEDS = 60


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept(first: int) -> None:
    results = [run_seed(seed, PostWorld) for seed in range(first, first + CHUNK)]
    failures = [result for result in results if isinstance(result, Failure)]
    assert not failures, "\n".join(f"seed {f.seed} at {f.virtual_s:.3f} s: {f.promise}: {f.what}" for f in failures)


def test_what_was_found() -> None:
    """Seed 20045: the audit took the end of a session, as the message manager itself hears it, for the end at its
    destinations, which hear of it later."""
    assert not isinstance(run_seed(20_045, PostWorld), Failure)


def test_the_runs_are_worth_it() -> None:
    """In a few of them everything happens that the audit looks at."""
    seen: Counter[str] = Counter()
    for seed in range(30):
        world = PostWorld(seed)
        assert isinstance(world.run(), Outcome)
        seen += world.audit.seen
    assert min(seen["urgent"], seen["selected"], seen["of a group"]) > 200
    assert seen["divided by selectors"] > 20


def test_who_has_died_for_a_subscription_may_die_for_the_next_of_its_name() -> None:
    """Seed 981088: it was unsubscribed, and made anew from the oldest message."""
    assert not isinstance(run_seed(981_088, PostWorld), Failure)


def test_the_same_seed_gives_the_same_post() -> None:
    assert PostWorld(3).run() == PostWorld(3).run()


def arrivals_after_a_restart(world: World) -> list[int]:
    """Priorities, in the order in which a backlog of mixed ones arrives."""
    producer = producer_in(world)
    given = [4, 1, 9, 4, 7, 0, 9]
    producer.publish_each([(b"%d" % n, Options(priority)) for n, priority in enumerate(given)])
    world.run_until(lambda: producer.unconfirmed == 0)
    restart(world)
    consumer = consumer_in(world, "reader", prefetch=1)
    settle_on_arrival(consumer)
    for low, high in list(consumer.in_hands):
        consumer.settle(low, high)
    world.run_until(lambda: len(consumer.received) == len(given))
    log = world.ledger.messages.by_name["orders"]
    return [given[log.messages[position][1] - 1] for position in consumer.received]


def test_the_most_urgent_come_first_also_after_a_restart() -> None:
    assert arrivals_after_a_restart(quiet_world()) == [9, 9, 7, 4, 4, 1, 0]


def test_that_story_notices_when_urgency_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lane, "urgency", property(lambda lane: lane.number))
    assert arrivals_after_a_restart(quiet_world()) != [9, 9, 7, 4, 4, 1, 0]
