"""Goal: whatever is cut, delayed or forgotten: each message is moved once, by a commit that did all or nothing.
Method: one seed draws everything. A transacted session moves messages from `orders` to `done`, some commits are refused
by the broker, some transactions rolled back. Faults first (safety), then peace (liveness)."""
from collections import Counter

import pytest

from angarium.core.client import events
from angarium.core.client.gathered import Gathered
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire.frames import DestinationKind
from tests.unit.client.client_world import Application, World

MOVER = 2  # the transacted session
STEPS = 400


class MovingWorld(World):
    def __init__(self, seed: int, *, expires: bool = False) -> None:
        super().__init__(seed, consumers=0, expires=expires)
        self.mover = self.applications[1] = Application()
        self.moving: list[Range] = []  # by the commit under way
        self.is_busy = False  # a commit or recovery is not answered
        self.is_aborted = False  # and what was received is to go back
        self.outcomes_seen: Counter[str] = Counter()
        self.do(events.OpenSession(MOVER, transacted=True))
        self.do(events.OpenProducer(MOVER, 1, "done", DestinationKind.ANY))
        self.do(events.OpenConsumer(MOVER, 1, "orders", DestinationKind.ANY, self.random.choice([5, 50])))

    def notify(self, command: events.Command) -> None:
        match command:
            case events.Committed():
                self.outcomes_seen["committed"] += 1
                self.is_busy = False
                for low, high in self.moving:
                    self.mover.held.remove(low, high)
                    self.mover.settled.add(low, high)
            case events.Aborted():
                self.outcomes_seen["aborted"] += 1
                self.is_aborted = True  # a notification makes no requests: more of them may follow
            case events.Recovered():
                self.outcomes_seen["recovered"] += 1
                self.is_busy = False
            case events.PositionsLost() if self.is_busy:
                self.mover.lost(command)  # whether the commit was done, its answer tells
            case events.Confirmed(session=2):
                pass
            case _:
                super().notify(command)

    def step(self) -> None:
        super().step()
        if self.is_aborted:
            self.is_aborted = False
            self.give_back()

    def fault(self) -> None:
        """Rarer than elsewhere: two sessions take longer to come back."""
        if self.random.random() < 0.4:
            super().fault()

    def settle(self, *, all_of_it: bool = False) -> None:
        """Move some, or give all back."""
        if self.is_busy or not self.mover.held:
            return
        if not all_of_it and self.random.random() < 0.2:
            self.give_back()
            return
        self.is_busy = True
        first = next(iter(self.mover.held))
        self.moving = list(self.mover.held) if all_of_it or self.random.random() < 0.3 else [first]
        messages = Gathered(timestamp_ms=0)
        for low, high in self.moving:
            for position in range(low, high):
                messages.append(b"%d" % position)
        if not all_of_it and self.random.random() < 0.2:
            messages.append(b"abort me")
        self.do(events.Commit(MOVER, [(1, [messages])], [(1, self.moving)]))

    def give_back(self) -> None:
        self.is_busy = True
        held, self.mover.held = self.mover.held, RangeSet()
        unseen = [part for part in held if self.random.random() < 0.5]
        self.do(events.Recover(MOVER, 1, unseen))

    def all_moved(self) -> bool:
        log = self.broker.log("orders")
        return self.all_confirmed() and log.subscriptions[""].durable.count == log.end and not self.is_busy


@pytest.mark.parametrize("seed", range(60))
def test_each_message_is_moved_once(seed: int) -> None:
    world = MovingWorld(seed)
    bustle(world)
    world.heal()
    world.run_until("all_moved")
    check_moved(world)
    moved = [int(body) for body in world.broker.log("done").bodies()]
    assert sorted(moved) == list(range(world.broker.log("orders").end))
    assert world.broker.violations == []
    assert world.ended == []


def bustle(world: MovingWorld) -> None:
    for _ in range(STEPS):
        if world.random.random() < 0.3:
            world.send()
        if world.random.random() < 0.4:
            world.settle()
        world.step()
        check_moved(world)


def check_moved(world: MovingWorld) -> None:
    """At any moment: what is in `done` is what is settled in `orders`, no more and no less."""
    if "orders" in world.broker.logs and "done" in world.broker.logs:
        moved = RangeSet((int(body), int(body) + 1) for body in world.broker.log("done").bodies())
        assert moved == world.broker.log("orders").subscriptions[""].settled
        assert moved.count == len(world.broker.log("done").bodies())


def test_the_seeds_reach_every_outcome() -> None:
    outcomes: Counter[str] = Counter()
    repeated = cuts = 0
    for seed in range(30):
        world = MovingWorld(seed)
        bustle(world)
        outcomes += world.outcomes_seen
        repeated += world.broker.commits_repeated
        cuts += world.cuts
    assert min(outcomes[name] for name in ("committed", "aborted", "recovered")) > 10, outcomes
    assert min(repeated, cuts) > 10, (repeated, cuts)
