"""One simulated world: a broker, a network, a disk, clients with applications, trouble, and a ledger of promises.

    safety:    trouble of the kinds that the seed has drawn; every promise is checked as things happen
    liveness:  all is healed, applications calm down; everything confirmed must be drained within `drain_s_max`
    the end:   clients leave; the broker must remember nothing

The seed decides everything: `World(seed).run()` twice gives the same trace to the last bit.
"""
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import PurePath
from random import Random
from typing import Protocol

from angarium.core.destination.administration import describe
from angarium.core.destination.events import DestinationSettings
from angarium.core.names import DEAD_MESSAGE_QUEUE as DMQ
from angarium.core.session.events import SessionSettings
from angarium.core.storage import Operation
from angarium.core.stream.events import StreamSettings
from angarium.core.wire.frames import DestinationKind
from angarium.sim.applications import Application, Place
from angarium.sim.broker import BrokerSettings, Node, SimBroker
from angarium.sim.checkers import Ledger, left_in_memory, left_on_disk
from angarium.sim.client import SimClient
from angarium.sim.clock import Clock
from angarium.sim.disk import SimDisk, SimDiskSettings
from angarium.sim.faults import Faults, Participant
from angarium.sim.messages import Violation
from angarium.sim.network import Network, NetworkSettings
from angarium.sim.observer import Observer
from angarium.sim.trace import Trace
from angarium.sim.witnesses import Witnesses

_LEAVE_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class WorldSettings:
    # How long there is trouble.
    trouble_s: float = 6.0
    # How soon after it everything has to be drained: reconnection, grace time and a slow start included.
    drain_s_max: float = 60.0
    # Published in all; the applications share them.
    messages: int = 300
    grace_s: float = 2.0
    # How long the broker keeps the stream of a sender that was cut off.
    stream_keep_s: float = 30.0
    # How long it keeps what is staged and not committed.
    staged_keep_s: float = 3_600.0
    # What the whole node may hold, and what happens one past it; 0: no limit.
    node_messages_max: int = 0
    node_bytes_max: int = 0
    node_over_limit: str = "block"
    heartbeat_s: float = 2.0
    network: NetworkSettings = field(default_factory=NetworkSettings)
    disk: SimDiskSettings = field(default_factory=SimDiskSettings)
    bus_delay_s_max: float = 0.02
    answer_delay_s_max: float = 0.0
    check_every: int = 16
    # Kinds of trouble; None: the seed draws them.
    faults: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    digest: str
    faults: list[str]
    messages: int
    confirmed: int
    events: int
    virtual_s: float
    tally: dict[str, int]


@dataclass(frozen=True, slots=True)
class Failure:
    seed: int
    promise: str
    what: str
    virtual_s: float


class World:
    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.settings = settings = settings or draw_settings(seed)
        self.clock = Clock(self.chance("clock"))
        self.trace = Trace(self.clock, is_read=is_traced)
        self.ledger = Ledger(self.clock, grace_s=settings.grace_s)
        self.witnesses = Witnesses(self.ledger)
        self.on_synced: list[Callable[[Sequence[Operation]], None]] = [self.ledger.messages.synced]
        self.network = Network(self.clock, self.trace, self.chance("network"), settings.network)
        self.disk = SimDisk(
            self.clock, self.trace, self.chance("disk"), settings.disk, self._synced,
            self.chance("stream files"),
        )
        self.broker = SimBroker(
            self.clock, self.trace, self.chance("broker"), self.network, self.disk,
            BrokerSettings(
                SessionSettings(heartbeat_s=settings.heartbeat_s),
                DestinationSettings(
                    resume_grace_s=settings.grace_s, staged_keep_s=settings.staged_keep_s,
                    node_messages_max=settings.node_messages_max, node_bytes_max=settings.node_bytes_max,
                    node_over_limit=settings.node_over_limit,
                ),
                StreamSettings(sync_fragments=2, unfinished_keep_s=settings.stream_keep_s),
                settings.bus_delay_s_max,
                settings.answer_delay_s_max,
                settings.check_every,
            ),
            self.witnesses,
        )  # fmt: skip
        self.ledger.is_unsynced = self.disk.is_unsynced_up_to
        self.ledger.last_token = lambda: self.disk.last_token
        self.applications: list[Participant] = []
        self._clients = 0
        self._places: list[Place] = []
        self._observer: SimClient | None = None
        self._serial = count(1)
        self.broker.start()

    def chance(self, purpose: str) -> Random:
        """A source of its own for each purpose: one more draw here changes nothing there."""
        return Random(f"{self.seed} {purpose}")

    def _synced(self, operations: Sequence[Operation]) -> None:
        for look in self.on_synced:
            look(operations)

    def client(self, name: str = "") -> SimClient:
        self._clients += 1
        name = name or f"client-{self._clients}"
        return SimClient(self, name, self.chance(name))

    def spoil_batch(self, key: bytes) -> None:
        self.trace.note("faults", f"batch {key.hex()} rots")
        self.ledger.messages.damaged(key, self.disk.damage(key))

    # -- a random run --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        faults = self._populate()
        self.clock.run_until(self.settings.trouble_s)
        faults.stop()
        for application in self.applications:
            application.calm_down()
        self._add_drainer()
        self.drain()
        self.leave()
        produced = self.ledger.messages.producers
        return Outcome(
            self.seed, self.trace.digest(), faults.kinds, sum(len(facts.bodies) for facts in produced),
            sum(facts.confirmed for facts in produced), self.clock.happened, self.clock.now,
            dict(self.ledger.tally),
        )  # fmt: skip

    def _populate(self) -> Faults:
        chance = self.chance("population")
        self._populate_places(chance)
        if chance.random() < 0.2:
            administrator = self.client("administrator")
            administrator.request("destination.create", name="orders", kind="queue", confirm="memory")
            self.clock.run_until(0.5)
            administrator.close()
        if chance.random() < 0.3:
            self._observer = self.client("observer")
            Observer(self._observer, self.chance("observer"), [place.name for place in self._places])
        clients = chance.randint(2, 5)
        for number in range(clients):
            self._add_application(f"client-{number + 1}", self.settings.messages // clients)
        return Faults(self, self.chance("faults"), self.settings.faults)

    def _populate_places(self, chance: Random) -> None:
        self._places = [Place("orders", DestinationKind.QUEUE)]
        if chance.random() < 0.4:
            self._places.append(Place("jobs", DestinationKind.QUEUE))
        if chance.random() < 0.5:
            self._places.append(Place("news", DestinationKind.TOPIC))

    def _add_application(self, name: str, messages: int) -> None:
        chance = self.chance(f"application {name}")
        produces = [place for place in self._places if chance.random() < 0.6]
        consumes = [
            Place(place.name, place.kind, chance.choice(("", "", "archive", f"own-{name}")))
            if place.kind == DestinationKind.TOPIC
            else place
            for place in self._places
            for _ in range(chance.choice((0, 1, 1, 2 if place.kind == DestinationKind.QUEUE else 1)))
        ]
        application = Application(
            self.client(name), self.clock, chance, produces=produces, consumes=consumes,
            messages=messages if produces else 0, serial=self._serial,
        )  # fmt: skip
        self.applications.append(application)

    def replace(self, application: Participant) -> None:
        """After a crash: a new process takes over what was left to publish."""
        self._clients += 1
        self._add_application(f"client-{self._clients}", application.messages_left)
        application.messages_left = 0

    def _add_drainer(self) -> None:
        """Somebody has to consume what the dead have left."""
        subscriptions = [
            Place(facts.log.name, facts.log.kind, facts.name, facts.selector, facts.is_shared)
            for facts in self.ledger.holdings.subscriptions.values()
            if facts.is_durable and facts.log.kind == DestinationKind.TOPIC
        ]
        # A client that died before it was answered does not try again: what it wanted to end may still be there.
        holdings = self.ledger.holdings
        perhaps_ended = set(holdings.unsubscribing.values()) - holdings.subscriptions.keys()
        subscriptions += [Place(name, DestinationKind.TOPIC, of) for name, of in sorted(perhaps_ended)]
        queues = [place for place in self._places if place.kind == DestinationKind.QUEUE]
        drainer = Application(
            self.client("drainer"), self.clock, self.chance("drainer"), produces=[], consumes=queues + subscriptions,
            messages=0, serial=self._serial,
        )  # fmt: skip
        self.applications.append(drainer)
        drainer.calm_down()

    # -- for random runs and scenarios ---------------------------------------------------------------

    def run_for(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def run_until(self, happened: Callable[[], object], *, within_s: float = 10.0) -> None:
        """Event by event, until it has happened; that it does is part of the scenario."""
        until = self.clock.now + within_s
        while not happened():
            if not self.clock.step(until):
                raise Violation("it happens in time", f"not within {within_s:g} s")

    def drain(self) -> None:
        """Wait until everything confirmed is where it belongs."""
        until = self.clock.now + self.settings.drain_s_max
        while True:
            self.run_for(0.25)
            missing = next(self._undone(), None)
            if missing is None:
                return
            if self.clock.now >= until:
                listed = [missing, *self._undone()]
                raise Violation("what is confirmed is drained", f"{'; '.join(listed[:8])} ({len(listed)} in all)")

    def _undone(self) -> Iterator[str]:
        yield from (f"{a.client.name} has {a.messages_left} to publish" for a in self.applications if not a.is_done)
        yield from self.ledger.unfinished()
        if self.broker.node is None or not self.broker.is_idle:
            yield "the broker is busy"
            return
        for destination in self.broker.node.message_manager.destinations.values():
            described = describe(destination)
            if described["messages"] and described["name"] != DMQ:
                yield f"{described['name']}: the broker has {described['messages']} messages"

    def leave(self) -> None:
        """Every client closes its sessions and goes; then nothing may be left, in memory, on disk, after a restart."""
        for application in self.applications:
            for session in list(application.client.sessions.values()):
                session.close(timeout_s=_LEAVE_S_MAX)
        self.run_for(3 * self.settings.heartbeat_s)
        for application in self.applications:
            application.client.close()
        if self._observer is not None:
            self._observer.close()
        self._check_nothing_left(left_in_memory)
        self.broker.shut_down()
        self.broker.start()
        self._check_nothing_left(left_in_memory)
        self._check_nothing_left(lambda _: left_on_disk(self.disk, producers_max=len(self.ledger.messages.producers)))

    def _check_nothing_left(self, look: Callable[[Node], Iterator[str]]) -> None:
        self.run_for(self.settings.grace_s + 1.0)
        node = self.broker.node
        assert node is not None
        until = self.clock.now + _LEAVE_S_MAX
        while self.clock.now < until and (node.message_manager.deadline() is not None or not self.broker.is_idle):
            self.run_for(0.5)
        node.check()
        left = list(look(node))
        if left:
            raise Violation("nothing is left over", "; ".join(left[:8]))


class Runnable(Protocol):
    @property
    def clock(self) -> Clock: ...
    def run(self) -> Outcome: ...


def run_seed(seed: int, kind: Callable[[int], Runnable] = World) -> Outcome | Failure:
    """One random run. Whatever is raised in it is a finding: a broken promise, a broken invariant, a plain bug."""
    world = kind(seed)
    try:
        return world.run()
    except Violation as violation:
        return Failure(seed, violation.promise, violation.what, world.clock.now)
    except Exception as error:
        return Failure(seed, f"raised {type(error).__name__}", f"{error} ({_place(error)})", world.clock.now)


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{PurePath(frame.filename).name}:{frame.lineno}"


def draw_settings(seed: int) -> WorldSettings:
    chance = Random(f"{seed} settings")
    network = NetworkSettings(
        latency_s_max=chance.choice((0.001, 0.005, 0.05)),
        chop_chance=chance.choice((0.0, 0.2, 0.6)),
        buffer_bytes_high=chance.choice((4_096, 16_384, 1 << 20)),
        buffer_bytes_low=2_048,
    )
    disk = SimDiskSettings(
        sync_s_max=chance.choice((0.001, 0.01, 0.1)),
        group_bytes_target=chance.choice((1, 4_096, 1 << 20)),
        checkpoint_groups=chance.choice((1, 8, 64)),
    )
    return WorldSettings(
        messages=chance.choice((100, 300, 500)),
        grace_s=chance.choice((0.5, 2.0)),
        network=network,
        disk=disk,
        bus_delay_s_max=chance.choice((0.0, 0.005, 0.1)),
        answer_delay_s_max=chance.choice((0.0, 0.0, 0.005, 0.1)),
    )
