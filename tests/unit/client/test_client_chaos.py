"""Goal: no pattern of cuts, crashes and delays loses a confirmed message, repeats a settled one, or breaks the order.
Method: one seed draws everything. Faults run first (safety), then the link heals and everything must drain
(liveness). Replay one: pytest -k 'one_consumer[17]'."""
import pytest

from angarium.core.client import events
from angarium.core.ranges import RangeSet
from tests.unit.client.client_world import World

STEPS = 150


def run(world: World) -> None:
    """Faults, then peace; then compare what was sent with what is stored."""
    for step in range(STEPS):
        if world.random.random() < 0.3:
            world.send()
        if world.random.random() < 0.4:
            world.settle()
        world.step()
        if step % 5 == 0:
            check_log(world)
    world.heal()
    world.run_until("all_settled")
    check_log(world)
    bodies = world.broker.logs["orders"].bodies()
    for producer, sent in world.sent.items():
        assert [body for body in bodies if body.startswith(b"%d:" % producer)] == sent
    assert world.broker.violations == []
    assert world.ended == []
    world.do(events.CloseSession(1, 30.0))
    world.run_until("is_closed")
    assert world.ended == [events.SessionEnded(1, "", "")]


def check_log(world: World) -> None:
    """At any moment each producer's messages are stored without gaps or repeats, and at least those confirmed."""
    if "orders" not in world.broker.logs:
        return
    log = world.broker.logs["orders"]
    next_sequence: dict[bytes, int] = {}
    for _, batch in log.batches:
        assert batch.first_sequence == next_sequence.get(batch.producer, 1)
        next_sequence[batch.producer] = batch.last_sequence + 1
    stored = sum(sequence - 1 for sequence in next_sequence.values())
    assert stored >= sum(world.confirmed.values())


@pytest.mark.parametrize("seed", range(100))
def test_one_consumer_gets_everything_once(seed: int) -> None:
    world = World(seed)
    run(world)
    [application] = world.applications.values()
    log = world.broker.logs["orders"]
    assert application.settled == RangeSet([(0, log.end)] if log.end else [])
    assert [application.bodies[position] for position in range(log.end)] == log.bodies()
    assert application.lost_count == 0


@pytest.mark.parametrize("crashes", [False, True], ids=["", "crashes"])
@pytest.mark.parametrize("seed", range(40))
def test_sessions_that_are_detached_lose_and_repeat_nothing(seed: int, crashes: bool) -> None:
    world = World(seed, crashes=crashes, detaches=True)
    run(world)
    [application] = world.applications.values()
    log = world.broker.logs["orders"]
    assert application.settled == RangeSet([(0, log.end)] if log.end else [])
    assert application.lost_count == 0
    assert world.detached


@pytest.mark.parametrize("seed", range(30))
def test_two_consumers_share_everything(seed: int) -> None:
    world = World(seed, consumers=2, crashes=False)
    run(world)
    one, two = world.applications.values()
    log = world.broker.logs["orders"]
    assert one.settled.count + two.settled.count == log.end
    both = RangeSet(one.settled)
    for low, high in two.settled:
        both.add(low, high)
    assert both.count == log.end


@pytest.mark.parametrize("seed", range(40))
def test_what_a_session_loses_by_being_away_too_long_is_reported_and_goes_to_others(seed: int) -> None:
    world = World(seed, consumers=2, crashes=False, expires=True)
    run(world)
    settled = RangeSet(part for application in world.applications.values() for part in application.settled)
    for low, high in world.broker.settled_by_rival:
        settled.add(low, high)
    assert settled == RangeSet([(0, world.broker.log("orders").end)])


def test_the_worlds_are_worth_it() -> None:
    """The seeds do cut links in the middle of things, and do provoke resending and loss."""
    worlds = [World(seed, consumers=2, expires=True) for seed in range(20)]
    for world in worlds:
        run(world)
    assert sum(world.cuts for world in worlds) > 20
    assert sum(world.bytes_lost for world in worlds) > 1_000
    assert sum(world.broker.resent for world in worlds) > 0
    assert sum(a.lost_count for world in worlds for a in world.applications.values()) > 0


def test_one_seed_one_trace() -> None:
    first, second = World(7), World(7)
    run(first)
    run(second)
    assert first.broker.logs["orders"].bodies() == second.broker.logs["orders"].bodies()
    assert (first.now, first.cuts, first.broker.settles) == (second.now, second.cuts, second.broker.settles)
