"""A world of writers that stage: queries write to queues exactly once, beside producers of the usual kind; receivers
consume there. Queues have limits, as the seed draws, and what is staged is kept for some seconds only.

Beside the ledger it has the audit of what is staged (`staging_audit`).
"""
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from angarium.core.destination.events import FromSession, Report, ToSession
from angarium.core.wire.frames import DestinationKind
from angarium.sim.applications import Application, Place
from angarium.sim.client import SimClient
from angarium.sim.faults import Faults, Participant
from angarium.sim.staging_applications import Checkpoint, Query, Worker
from angarium.sim.staging_audit import StagingAudit
from angarium.sim.world import World, WorldSettings, draw_settings

_AT_REST_EVERY_S = 0.1
_RUNS_FOR_S = 1.0  # before it is called at rest
_SETTLE_IN_S = 0.5
_SLOW_SYNC_S = 0.1
_LIMIT_OF_A_BATCH = 60  # what refuses has to have room for a whole batch
NAMES = ("sales", "stock", "bills")


class StagingWitness:
    """Shows the audit what passes in the broker."""

    def __init__(self, world: "StagingWorld") -> None:
        self._world = world
        self._started_at = 0.0

    def to_manager(self, event: FromSession) -> None:
        self._world.staging.to_manager(event, self._world.clock.now)

    def from_manager(self, command: ToSession) -> None:
        self._world.staging.from_manager(command)

    def reported(self, report: Report) -> None: ...

    def broker_started(self) -> None:
        self._started_at = self._world.clock.now
        self._world.staging.manager_started()

    def broker_stopped(self) -> None: ...

    def look(self) -> None:
        world = self._world
        if world.broker.is_idle and world.clock.now - self._started_at > _RUNS_FOR_S:
            world.staging.at_rest(world.clock.now)
        world.clock.after(_AT_REST_EVERY_S, self.look)


class StagingWorld(World):
    confirms: tuple[str, ...] = ("disk", "disk", "memory")  # what queues promise to producers of the usual kind

    def __init__(self, seed: int, settings: WorldSettings | None = None, *, is_traced: bool = False) -> None:
        settings = settings or draw_staging_settings(seed)
        super().__init__(seed, settings, is_traced=is_traced)
        self._prepare()
        witness = StagingWitness(self)
        self.witnesses.add(witness)
        self.on_synced.append(lambda operations: self.staging.synced(operations, self.clock.now))
        witness.look()

    def _prepare(self) -> None:
        self.staging = StagingAudit(self.ledger.tally, keep_s=self.settings.staged_keep_s)
        self._workers: list[Worker] = []
        self._names: tuple[str, ...] = NAMES

    def _populate(self) -> Faults:
        chance = self.chance("staging")
        administrator = self.client("administrator")
        self._create(administrator, chance)
        self.clock.run_until(_SETTLE_IN_S)
        administrator.close()
        self._settle(chance, late_s=chance.choice((0.0, 0.0, 3.0)))
        return Faults(self, self.chance("faults"), self.settings.faults)

    def _create(self, administrator: SimClient, chance: Random) -> None:
        self._names = NAMES[: chance.randint(1, 3)]
        for name in self._names:
            administrator.request("destination.create", name=name, kind="queue", **_draw_options(chance, self.confirms))

    def _settle(self, chance: Random, *, late_s: float) -> None:
        """The people; buyers that are late find everything full."""
        for number in range(chance.randint(1, 3)):
            self._add_worker(f"worker-{number + 1}")
        for number in range(chance.randint(1, 3)):
            batches = chance.choice((1, 4, 8))
            checkpoint = Checkpoint(f"query {number + 1}", batches, self._names, f"{self.seed}")
            self._add_query(f"query-{number + 1}", checkpoint)
        if chance.random() < 0.5:
            self._add_producer("producer-1", chance.choice((20, 60)))
        for number in range(chance.randint(1, 2)):
            self.clock.after(late_s, partial(self._add_receiver, f"buyer-{number + 1}"))

    def _add_worker(self, name: str) -> None:
        worker = Worker(self.client(name))
        self._workers.append(worker)
        self.applications.append(worker)

    def _add_query(self, name: str, checkpoint: Checkpoint) -> None:
        query = Query(
            self.client(name), self.chance(f"application {name}"), self.staging, checkpoint,
            partial(self._some_worker, self.chance(f"workers of {name}")), keep_s=self.settings.staged_keep_s,
        )  # fmt: skip
        self.applications.append(query)

    def _some_worker(self, chance: Random) -> Worker | None:
        alive = [worker for worker in self._workers if worker.client.is_alive]
        return chance.choice(alive) if alive else None

    def _add_producer(self, name: str, messages: int) -> None:
        places = [Place(name, DestinationKind.QUEUE) for name in self._names]
        self.applications.append(
            Application(
                self.client(name), self.clock, self.chance(f"application {name}"), produces=places, consumes=[],
                messages=messages, serial=self._serial,
            )
        )  # fmt: skip

    def _add_receiver(self, name: str, *, is_calm: bool = False) -> None:
        places = [Place(name, DestinationKind.QUEUE) for name in self._names]
        receiver = Application(
            self.client(name), self.clock, self.chance(f"application {name}"), produces=[], consumes=places,
            messages=0, serial=self._serial,
        )  # fmt: skip
        self.applications.append(receiver)
        if is_calm:
            receiver.calm_down()

    def replace(self, application: Participant) -> None:
        self._clients += 1
        if isinstance(application, Query):
            self._add_query(f"query-{self._clients}", application.checkpoint)
        elif isinstance(application, Worker):
            self._add_worker(f"worker-{self._clients}")
        elif application.messages_left:
            self._add_producer(f"producer-{self._clients}", application.messages_left)
            application.messages_left = 0
        else:
            self._add_receiver(f"buyer-{self._clients}")

    def _add_drainer(self) -> None:
        self._add_worker("last-worker")
        self._add_receiver("last-buyer", is_calm=True)

    def _undone(self) -> Iterator[str]:
        yield from super()._undone()
        yield from self.staging.unfinished()


def draw_staging_settings(seed: int) -> WorldSettings:
    settings = draw_settings(seed)
    # On a disk that writes so little at a time a batch takes longer than some seconds, and would never be committed.
    is_slow = settings.disk.group_bytes_target == 1 and settings.disk.sync_s_max >= _SLOW_SYNC_S
    keep_s = Random(f"{seed} staged_keep_s").choice((2.0, 4.0, 20.0))
    return replace(settings, staged_keep_s=20.0 if is_slow else keep_s)


def _draw_options(chance: Random, confirms: tuple[str, ...]) -> dict[str, object]:
    options: dict[str, object] = {"confirm": chance.choice(confirms)}
    if chance.random() < 0.5:
        over_limit = chance.choice(("block", "block", "refuse", "oldest"))
        messages_max = _LIMIT_OF_A_BATCH if over_limit == "refuse" else chance.choice((5, 40))
        options |= {"messages_max": messages_max, "over_limit": over_limit}
    return options
