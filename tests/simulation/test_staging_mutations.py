"""Goal: the audit of what is staged can fail. Method: plant a bug, and some seed among a few must catch it.

The machines' own invariants (`MessageManager.check`) are switched off here: it is the promises that have to notice.
"""
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from angarium.core.destination import staging as module
from angarium.core.destination.events import ToSession
from angarium.core.destination.pending import PendingWrite
from angarium.core.destination.staged_parts import Part, delete_staged
from angarium.core.destination.staging import NamedParts, Staging
from angarium.core.replication.payloads import Payloads
from angarium.core.storage import Operation, Table
from angarium.sim.staging import StagingWorld, draw_staging_settings
from tests.simulation.planted import assert_noticed
from tests.simulation.test_staging import cluster_world

SEEDS_MAX = 20
CLUSTER_SEEDS_MAX = 4

Plant = Callable[[pytest.MonkeyPatch], None]


# -- what a commit names -----------------------------------------------------------------------------------


def commit_forgets_an_attempt(patch: pytest.MonkeyPatch) -> None:
    found = Staging._found

    def mutant(self: Staging, query: str, batch: int, named: NamedParts) -> list[Part]:
        parts = found(self, query, batch, named)
        return parts[:-1] if len(parts) > 1 else parts

    patch.setattr(Staging, "_found", mutant)


def an_attempt_that_lost_is_published_with_those_that_won(patch: pytest.MonkeyPatch) -> None:
    found = Staging._found

    def mutant(self: Staging, query: str, batch: int, named: NamedParts) -> list[Part]:
        found(self, query, batch, named)
        return [part for part in self.parts.values() if (part.query, part.batch) == (query, batch)]

    patch.setattr(Staging, "_found", mutant)


def what_is_missing_is_not_missed(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Staging, query: str, batch: int, named: NamedParts) -> list[Part]:
        return [part for identity, _ in named if (part := self.parts.get(identity)) is not None]

    patch.setattr(Staging, "_found", mutant)


# -- once --------------------------------------------------------------------------------------------------


def commits_are_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    restore = Staging.restore

    def mutant(self: Staging, parts: dict[bytes, bytes], commits: dict[bytes, bytes]) -> None:
        restore(self, parts, commits)
        for commit in self.commits.values():
            commit.batch = -1

    patch.setattr(Staging, "restore", mutant)


def a_batch_is_committed_as_often_as_it_is_staged(patch: pytest.MonkeyPatch) -> None:
    commit = Staging.commit

    def mutant(self: Staging, query: str, batch: int, named: NamedParts, answer: ToSession, *, now: float) -> Any:
        known = self.commits.get(query)
        if known is not None and all(identity in self.parts for identity, _ in named):
            known.batch = batch - 1
        return commit(self, query, batch, named, answer, now=now)

    patch.setattr(Staging, "commit", mutant)


def what_is_moved_stays_staged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "delete_staged", lambda destination, part, key: delete_staged(destination, part, b""))


def rows_are_moved_backwards(patch: pytest.MonkeyPatch) -> None:
    portions = module._portions
    patch.setattr(module, "_portions", lambda items: portions(items[::-1]))


# -- nothing is lost ---------------------------------------------------------------------------------------


def commit_is_answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    commit = Staging.commit

    def mutant(self: Staging, query: str, batch: int, named: NamedParts, answer: ToSession, *, now: float) -> Any:
        return [*commit(self, query, batch, named, answer, now=now), answer]

    patch.setattr(Staging, "commit", mutant)


def commit_is_answered_when_it_is_decided(patch: pytest.MonkeyPatch) -> None:
    commit = Staging.commit

    def mutant(self: Staging, query: str, batch: int, named: NamedParts, answer: ToSession, *, now: float) -> Any:
        commands = commit(self, query, batch, named, answer, now=now)
        moving = self.commits[query]
        if answer in moving.waiting:
            moving.waiting.remove(answer)
            commands.append(self._state.write([], PendingWrite(answers=[answer])))
        return commands

    patch.setattr(Staging, "commit", mutant)


def what_is_decided_is_not_moved_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    restore = Staging.restore

    def mutant(self: Staging, parts: dict[bytes, bytes], commits: dict[bytes, bytes]) -> None:
        restore(self, parts, commits)
        self._row.clear()
        for commit in self.commits.values():
            commit.moving.clear()

    patch.setattr(Staging, "restore", mutant)


def staged_rows_are_forgotten_on_restart(patch: pytest.MonkeyPatch) -> None:
    restore = Staging.restore
    patch.setattr(Staging, "restore", lambda self, parts, commits: restore(self, {}, commits))


# -- time --------------------------------------------------------------------------------------------------


def staged_rows_are_dropped_too_early(patch: pytest.MonkeyPatch) -> None:
    hold = Staging.hold

    def mutant(self: Staging, producer: Any, batch: Any, pending: PendingWrite, *, now: float) -> list[Operation]:
        before_s = self._state.settings.staged_keep_s * 0.9
        return hold(self, producer, batch, pending, now=now - before_s)

    patch.setattr(Staging, "hold", mutant)


def staged_rows_are_as_old_as_their_publishing(patch: pytest.MonkeyPatch) -> None:
    """What was on its way for long is kept for a shorter time."""
    hold = Staging.hold

    def mutant(self: Staging, producer: Any, batch: Any, pending: PendingWrite, *, now: float) -> list[Operation]:
        late_s = max(0.0, (self._state.wall_ms(now) - batch.timestamp_ms) / 1000)
        return hold(self, producer, batch, pending, now=now - late_s)

    patch.setattr(Staging, "hold", mutant)


def staged_rows_are_never_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staging, "deadline", lambda self: None)
    patch.setattr(Staging, "tick", lambda self, now: [])


def staged_rows_are_not_dropped_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    restore = Staging.restore

    def mutant(self: Staging, parts: dict[bytes, bytes], commits: dict[bytes, bytes]) -> None:
        restore(self, parts, commits)
        for part in self.parts.values():
            part.used_ms += 3_600_000

    patch.setattr(Staging, "restore", mutant)


def an_abort_drops_only_the_record_of_a_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staging, "_deletes", lambda self, part: [part.delete(self._state.identity)])


MUTATIONS: Sequence[Plant] = (
    commit_forgets_an_attempt, an_attempt_that_lost_is_published_with_those_that_won, what_is_missing_is_not_missed,
    commits_are_forgotten_on_restart, a_batch_is_committed_as_often_as_it_is_staged, what_is_moved_stays_staged,
    rows_are_moved_backwards, commit_is_answered_before_it_is_durable, commit_is_answered_when_it_is_decided,
    what_is_decided_is_not_moved_after_a_restart, staged_rows_are_forgotten_on_restart,
    staged_rows_are_dropped_too_early, staged_rows_are_as_old_as_their_publishing, staged_rows_are_never_dropped,
    staged_rows_are_not_dropped_after_a_restart, an_abort_drops_only_the_record_of_a_part,
)  # fmt: skip


@pytest.mark.parametrize("plant", MUTATIONS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def world(seed: int) -> StagingWorld:
        return StagingWorld(seed, replace(draw_staging_settings(seed), check_every=0))

    assert_noticed(plant.__name__, range(SEEDS_MAX), world)


# -- in a cluster ------------------------------------------------------------------------------------------


def _without(patch: pytest.MonkeyPatch, table: Table) -> None:
    """Backups do not write what is put into the table."""
    resolve = Payloads.resolve

    def mutant(self: Payloads, operations: Any) -> list[Operation] | None:
        resolved = resolve(self, operations)
        return None if resolved is None else [each for each in resolved if each.table != table]

    patch.setattr(Payloads, "resolve", mutant)


def a_replica_does_not_get_staged_rows(patch: pytest.MonkeyPatch) -> None:
    _without(patch, Table.STAGED)


def a_replica_does_not_get_staged_parts(patch: pytest.MonkeyPatch) -> None:
    _without(patch, Table.STAGE_PART)


def a_replica_does_not_hear_of_commits(patch: pytest.MonkeyPatch) -> None:
    _without(patch, Table.STAGE_COMMIT)


@pytest.mark.parametrize(
    "plant",
    [
        a_replica_does_not_get_staged_rows, a_replica_does_not_get_staged_parts, a_replica_does_not_hear_of_commits,
        commit_is_answered_before_it_is_durable, commits_are_forgotten_on_restart,
    ],
    ids=lambda plant: plant.__name__,
)  # fmt: skip
def test_a_bug_planted_in_a_cluster_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seeds = range(CLUSTER_SEEDS_MAX)
    assert_noticed(plant.__name__, seeds, lambda seed: cluster_world(seed, "kill-primary", "client-crash"))
