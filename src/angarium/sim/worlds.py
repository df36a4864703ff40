"""Every world of the simulator, by name; and which of them a seed belongs to when all of them are run.

A seed of a survey of all worlds is run in one of them: `world_of`. Those in which a seed takes long are run less often.
"""
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple, Protocol

from angarium.sim.bus_world import BusWorld
from angarium.sim.clock import Clock
from angarium.sim.clusters.staging import ClusterStagingWorld
from angarium.sim.clusters.streams import ClusterStreamsWorld
from angarium.sim.clusters.trade import ClusterTradeWorld
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.crowded import CrowdedPostWorld, CrowdedTradeWorld
from angarium.sim.groups.world import GroupsWorld
from angarium.sim.messages import Violation
from angarium.sim.post import PostWorld
from angarium.sim.replicas.world import ReplicaWorld
from angarium.sim.spanning import SpanningWorld
from angarium.sim.staging import StagingWorld
from angarium.sim.trace import Trace
from angarium.sim.trade import TradeWorld
from angarium.sim.world import Failure, Outcome, World, run_seed

ALL = "all"
_SEED_S_MAX = 300.0  # of the processor's time: a run that takes more will never end


class Simulated(Protocol):
    @property
    def clock(self) -> Clock: ...
    @property
    def trace(self) -> Trace: ...
    def run(self) -> Outcome: ...


class Maker(Protocol):
    def __call__(self, seed: int, *, is_traced: bool = False) -> Simulated: ...


class _GroupServices:
    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self._world = world = GroupsWorld(seed, is_traced=is_traced)
        self.clock, self.trace = world.clock, world.trace

    def run(self) -> Outcome:
        done, clock = self._world.run(), self.clock
        return Outcome(done.seed, done.digest, list(done.faults), 0, 0, clock.happened, clock.now, done.tally)


class _Bus:
    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self._seed = seed
        self._world = world = BusWorld(seed, is_traced=is_traced)
        self.clock, self.trace = world.clock, world.trace

    def run(self) -> Outcome:
        world, clock = self._world.run(), self.clock
        faults, tally = list(world.settings.faults), dict(world.ledger.tally)
        return Outcome(self._seed, world.trace.digest(), faults, 0, 0, clock.happened, clock.now, tally)


WORLDS: dict[str, Maker] = {
    "bus": _Bus,
    "cluster": ClusterWorld,
    "cluster-staging": ClusterStagingWorld,
    "cluster-streams": ClusterStreamsWorld,
    "cluster-trade": ClusterTradeWorld,
    "crowded-post": CrowdedPostWorld,
    "crowded-trade": CrowdedTradeWorld,
    "groups": _GroupServices,
    "plain": World,
    "post": PostWorld,
    "replicas": ReplicaWorld,
    "spanning": SpanningWorld,
    "staging": StagingWorld,
    "trade": TradeWorld,
}

_SHARES = {
    "bus": 3, "cluster": 1, "cluster-staging": 1, "cluster-streams": 1, "cluster-trade": 1, "groups": 3, "plain": 3,
    "post": 1, "replicas": 3, "spanning": 2, "staging": 1, "trade": 1, "crowded-post": 1, "crowded-trade": 1,
}  # fmt: skip
_ROTATION = [world for turn in range(max(_SHARES.values())) for world, share in _SHARES.items() if turn < share]


def world_of(seed: int) -> str:
    return _ROTATION[seed % len(_ROTATION)]


class Task(NamedTuple):
    world: str
    seed: int

    @property
    def command(self) -> str:
        return f"python -m angarium.sim --world {self.world} --seed {self.seed} --last 100"


def run_task(task: Task) -> tuple[Task, Outcome | Failure]:
    with _time_limit():
        return task, run_seed(task.seed, WORLDS[task.world])


@contextmanager
def _time_limit() -> Iterator[None]:
    def too_long(number: int, frame: FrameType | None) -> None:
        raise Violation("a run comes to its end", f"not within {_SEED_S_MAX:g} s of the processor's time")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SEED_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
