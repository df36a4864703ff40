"""Goal: a destination of a cluster that confirms from memory loses, with its primary, what was not written, and nothing
else. Method: whole clusters whose queue does so, in trouble and without."""
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.destination.events import Command
from angarium.core.destination.publishing import Publishing
from angarium.core.wire.batch import Batch
from angarium.sim.clusters import world as module
from angarium.sim.clusters.world import ClusterWorld
from angarium.sim.messages import Violation
from angarium.sim.world import draw_settings
from tests.simulation.stories import consumer_in, publish, settle_on_arrival
from tests.simulation.test_cluster import small_world
from tests.simulation.test_cluster_late import SHAPE, client_at, cut_off, serves

SEEDS = range(3)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MEMORY_CHANCE", 1.0)


def forgiven_in(world: ClusterWorld) -> int:
    log = world.ledger.messages.by_name["orders"]
    assert log.confirm == "memory"
    return sum(len(facts.forgiven) for facts in world.ledger.messages.producers)


def test_without_trouble_nothing_is_lost() -> None:
    world = small_world(1)
    outcome = world.run()
    assert outcome.confirmed == outcome.messages > 0
    assert forgiven_in(world) == 0


def test_in_trouble_nothing_else_is_lost() -> None:
    for seed in SEEDS:
        world = small_world(seed, "kill-primary", "partition", "disk-slow")
        world.run()
        forgiven_in(world)


def test_what_a_primary_confirms_that_is_cut_off_is_lost_with_it() -> None:
    world = ClusterWorld(1, replace(draw_settings(1), faults=(), grace_s=1.0), shape=SHAPE)
    world.start()
    world._create_hasty()
    primary = next(machine for machine in world.machines.values() if serves(machine))
    producer = client_at(world, primary, "producer").open_session().produce("orders")
    world.run_until(lambda: producer.facts.identity)
    publish(world, producer, b"1", b"2", b"3")
    world.run_for(1.0)
    cut_off(world, primary)
    publish(world, producer, b"4", b"5")
    world.run_until(lambda: any(serves(other) for other in world.machines.values() if other is not primary))
    publish(world, producer, b"6")
    world.wires.unblock_all()
    consumer = consumer_in(world, "consumer")
    settle_on_arrival(consumer)
    publish(world, producer, b"7")
    world.run_for(5.0)
    assert forgiven_in(world) == 3
    assert len(consumer.received) == 4
    assert not list(world.ledger.unfinished())


def test_what_is_never_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Confirmed, and forgotten by a primary that lives."""
    publish = Publishing.publish

    def mutant(self: Publishing, session: bytes, frame: Any, payload: bytes, *, now: float) -> list[Command]:
        producer = self._state.producers.get(session, frame.producer)
        batch = Batch.trusted(payload)
        if producer is None or self._state.record.confirm != "memory" or batch.first_sequence != 1 + producer.accepted:
            return publish(self, session, frame, payload, now=now)
        if batch.first_sequence < 3:
            return publish(self, session, frame, payload, now=now)
        producer.accepted = batch.last_sequence
        return self.confirmed(producer.identity, producer.accepted)

    monkeypatch.setattr(Publishing, "publish", mutant)
    with pytest.raises(Violation, match="drain"):
        small_world(1).run()
