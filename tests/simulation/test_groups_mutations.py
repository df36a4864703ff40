"""Goal: the ledger of group services can fail. Method: plant a bug, and some seed among a few must catch it."""
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from angarium.core.groups import configuration, deciding, judging
from angarium.core.groups.configuration import EMPTY
from angarium.core.groups.feeding import Subscription
from angarium.core.groups.group_services import GroupServices
from angarium.core.groups.judging import Judge
from angarium.core.groups.leading import Leading
from angarium.core.groups.log import Log
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.raft import Raft
from angarium.sim.groups.world import GroupsWorld, Shape
from angarium.sim.messages import Violation
from tests.simulation.test_groups_scenarios import late_admission, quiet

SEEDS_MAX = 20

Plant = Callable[[pytest.MonkeyPatch], None]


# -- in the log and its elections --------------------------------------------------------------------------


def votes_twice_in_a_term(patch: pytest.MonkeyPatch) -> None:
    ask = Raft._vote_ask

    def mutant(self: Raft, sender: str, message: Any, now: float) -> None:
        if message.term == self.term and not message.is_pre:
            self.vote = b""
        ask(self, sender, message, now)

    patch.setattr(Raft, "_vote_ask", mutant)


def votes_for_shorter_logs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_is_long_enough", lambda self, ask: True)


def answers_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "send_durable", Outbox.send)


def counts_a_minority(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Leading) -> None:
        raft = self._raft
        matches = sorted(raft.durable_index if v == raft.me else self._match_of(v) for v in raft.log.voters)
        index = matches[len(matches) // 2 + 1 :][0] if len(matches) > 2 else min(matches, default=0)
        if index > raft.commit and raft.log.term_at(index) == raft.term:
            raft.commit = index

    patch.setattr(Leading, "advance_commit", mutant)


def commits_what_does_not_match_yet(patch: pytest.MonkeyPatch) -> None:
    append = Raft._append

    def mutant(self: Raft, sender: str, message: Any, now: float) -> None:
        append(self, sender, message, now)
        if message.term == self.term:
            self.commit = max(self.commit, min(message.commit, self.log.last_index))

    patch.setattr(Raft, "_append", mutant)


def what_was_never_decided_stays_on_disk(patch: pytest.MonkeyPatch) -> None:
    truncate = Log.truncate
    patch.setattr(Log, "truncate", lambda self, first: truncate(self, first)[:0])
    append = Log.append

    def mutant(self: Log, entries: Any) -> Any:
        return append(self, entries)[:0] if len(self._entries) % 3 else append(self, entries)

    patch.setattr(Log, "append", mutant)


def a_lost_disk_is_taken_for_the_old_one(patch: pytest.MonkeyPatch) -> None:
    start = GroupServices._start

    def mutant(self: GroupServices, records: Any, fresh_store: bytes, now: float) -> None:
        start(self, records, self.name.encode().ljust(16, b"-"), now)

    patch.setattr(GroupServices, "_start", mutant)


# -- in the decided state ----------------------------------------------------------------------------------


def decisions_are_applied_twice(patch: pytest.MonkeyPatch) -> None:
    take = GroupServices._take

    def mutant(self: GroupServices, state: Any) -> None:
        take(self, state)
        if state.index % 7 == 0 and self.name[0] == "m":
            take(self, state.but(settings_version=state.settings_version + 1))

    patch.setattr(GroupServices, "_take", mutant)


def a_feed_with_a_gap_is_taken(patch: pytest.MonkeyPatch) -> None:
    receive = GroupServices._receive_other

    def mutant(self: GroupServices, sender: str, message: Any, now: float) -> None:
        if type(message).__name__ == "Feed":
            for index, data in enumerate(message.decisions, message.first_index):
                if index > self.state.index:
                    self._apply(data, index)
        receive(self, sender, message, now)

    patch.setattr(GroupServices, "_receive_other", mutant)


def snapshots_are_never_complete(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: Subscription, part: Any, applied: int) -> Any:
        return None

    patch.setattr(Subscription, "part", mutant)


def a_new_incarnation_leaves_a_ghost(patch: pytest.MonkeyPatch) -> None:
    without = deciding._without

    def mutant(state: Any, gone: Any, index: int) -> Any:
        left = without(state, gone, index)
        return left.but(named=state.named)

    patch.setattr(deciding, "_without", mutant)


# -- in the judgement of replica groups ----------------------------------------------------------------------


def an_old_epoch_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(configuration, "_check", lambda current, epoch: None)


def the_one_that_is_behind_is_promoted(patch: pytest.MonkeyPatch) -> None:
    def mutant(current: Any, positions: Any, wanted: Any) -> Any:
        return sorted(positions, key=lambda replica: positions[replica])

    patch.setattr(judging, "best", mutant)


def the_fence_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    go_on = Judge._go_on

    def mutant(self: Judge, state: Any, group: Any, task: Any, now: float) -> None:
        if task.is_fencing:
            task.positions = dict.fromkeys(judging.live_in_sync(state, group), EMPTY)
        go_on(self, state, group, task, now)

    patch.setattr(Judge, "_go_on", mutant)


def whoever_is_alive_is_promoted(patch: pytest.MonkeyPatch) -> None:
    """Also one that is not in sync."""

    def mutant(current: Any, epoch: int, in_sync: Any, incarnation: bytes) -> Any:
        return configuration._next(current, in_sync, incarnation)

    patch.setattr(configuration, "promoted", mutant)

    def live(state: Any, group: Any) -> Any:
        return [
            configuration.Replica(node.name, hosted.store)
            for node in state.nodes for hosted in node.hosts if hosted.group == group.group
        ]  # fmt: skip

    patch.setattr(judging, "live_in_sync", live)

    def best(current: Any, positions: Any, wanted: Any) -> Any:
        return sorted(positions, key=lambda replica: positions[replica], reverse=True)

    patch.setattr(judging, "best", best)
    patch.setattr(Judge, "fenced", _fenced_by_anybody)


def _fenced_by_anybody(self: Judge, state: Any, answer: Any, now: float) -> None:
    task, group = self._tasks.get(answer.group), state.groups.get(answer.group)
    if task is not None and group is not None and answer.epoch == task.epoch == group.epoch:
        task.positions[answer.replica] = answer.position
        self._go_on(state, group, task, now)


def anybody_is_admitted(patch: pytest.MonkeyPatch) -> None:
    """Without compare-and-set: under whatever epoch, for whatever primary."""

    def mutant(current: Any, epoch: int, primary: Any, replica: Any) -> Any:
        if replica in current.in_sync:
            return current
        return configuration._next(current, [*current.in_sync, replica], current.incarnation)

    patch.setattr(configuration, "admitted", mutant)


def a_restarted_primary_goes_on(patch: pytest.MonkeyPatch) -> None:
    def mutant(state: Any, group: Any) -> bool:
        node = state.node(group.primary.node)
        return node is not None and node.holds(group.group, group.primary.store)

    patch.setattr(judging, "is_primary_here", mutant)


MUTATIONS: Sequence[Plant] = (
    votes_twice_in_a_term, votes_for_shorter_logs, answers_before_it_is_durable,
    counts_a_minority, commits_what_does_not_match_yet,
    what_was_never_decided_stays_on_disk,
    a_lost_disk_is_taken_for_the_old_one, decisions_are_applied_twice, a_feed_with_a_gap_is_taken,
    snapshots_are_never_complete, a_new_incarnation_leaves_a_ghost,
    the_one_that_is_behind_is_promoted, the_fence_is_forgotten, whoever_is_alive_is_promoted,
    a_restarted_primary_goes_on,
)  # fmt: skip


# A world that is made for it, for those that take luck, and a seed that is known to notice.
REPLICAS = Shape(voters=3, members=3, groups=((3, 4, 5), (4, 5, 3)))
PRIMARIES = ("crash-of-a-primary", "isolated-primary", "weather")
DISKS = ("lost-disk", "lost-disk", "lost-disk", "isolated-leader", "one-way", "weather", "crash-of-the-leader")
LEADERS = ("weather", "crash-of-the-leader", "pause-of-the-leader", "isolated-leader")
MADE_FOR: dict[str, tuple[int, Shape, tuple[str, ...]]] = {
    "votes_twice_in_a_term": (1, Shape(voters=5, members=0), LEADERS),
    "the_one_that_is_behind_is_promoted": (4, REPLICAS, PRIMARIES),
    "the_fence_is_forgotten": (24, REPLICAS, PRIMARIES),
    "a_lost_disk_is_taken_for_the_old_one": (16, Shape(voters=3, members=1), DISKS),
}
FIRST = {
    "votes_for_shorter_logs": 15, "counts_a_minority": 15, "commits_what_does_not_match_yet": 6,
    "a_new_incarnation_leaves_a_ghost": 13, "whoever_is_alive_is_promoted": 8,
}  # fmt: skip


@pytest.mark.parametrize("plant", MUTATIONS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first, shape, kinds = MADE_FOR.get(plant.__name__, (FIRST.get(plant.__name__, 0), None, ()))
    for seed in range(first, first + SEEDS_MAX):
        try:
            GroupsWorld(seed, shape, kinds=kinds).run()
        except Violation as caught:  # anything else is a plant that no longer fits the code
            print(f"seed {seed}: {caught}")
            return
    pytest.fail(f"no promise noticed {plant.__name__} in {SEEDS_MAX} seeds")


@pytest.mark.parametrize("plant", [an_old_epoch_is_accepted, anybody_is_admitted], ids=lambda plant: plant.__name__)
def test_a_change_without_compare_and_set_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    world = quiet(Shape(voters=3, members=3, groups=((3, 4, 5),)))
    with pytest.raises(Violation, match="in sync by admission"):
        late_admission(world)
