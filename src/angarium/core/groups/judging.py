"""The leader's judgement about replica groups: when one needs another primary, and which.

    the primary's incarnation is not in the view --> FENCING: every live in-sync replica is asked to accept nothing more
                                                     of the epoch, and says how far it is
        all of them answered, or fence_wait_s passed and one has --> the highest position is proposed, ties by rank
        none is alive --> the group waits for one of exactly these replicas, and says so
    move the primary, drain a node --> HANDING OVER: the primary lets everything be acknowledged and stops; then the
                                       other one is proposed. A primary that takes too long is fenced like a lost one.

Nothing here needs to be remembered: a new leader finds the same reasons and asks again. What it decides is an entry of
the log that holds only if the epoch is still the one that it was about.
"""
from collections.abc import Callable
from dataclasses import dataclass, field

from angarium.core.groups import messages as m
from angarium.core.groups import protocol as p
from angarium.core.groups.configuration import GroupConfiguration, Position, Replica, best
from angarium.core.groups.decisions import Decision, GroupFormed, GroupPromoted, SlotsDealt
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.records import State
from angarium.core.groups.settings import GroupSettings
from angarium.core.report import Level, Report


@dataclass(slots=True)
class Task:
    """One group on its way to another epoch."""

    epoch: int
    is_fencing: bool  # else handing over
    until: float
    wanted: Replica | None = None
    not_before: float = 0.0
    ask_at: float = float("-inf")
    positions: dict[Replica, Position] = field(default_factory=dict)
    proposed_at: float | None = None

    def again_at(self, settings: GroupSettings) -> float:
        """When a proposal that had no effect is made again."""
        return float("-inf") if self.proposed_at is None else self.proposed_at + settings.request_again_s


class Judge:
    def __init__(
        self, term: int, outbox: Outbox, settings: GroupSettings, propose: Callable[[Decision], None], *, now: float
    ) -> None:
        self._term = term
        self._outbox = outbox
        self._settings = settings
        self._propose = propose
        self._tasks: dict[str, Task] = {}
        self._waiting: dict[str, int] = {}  # groups without a live in-sync replica, and their epoch
        self._complained: set[str] = set()  # about groups that cannot be formed
        self._forming: dict[str, float] = {}  # proposed at
        self._dealt_at: float | None = None

    def deadline(self) -> float | None:
        settings = self._settings
        times = [at + settings.request_again_s for at in self._forming.values()]
        for task in self._tasks.values():
            is_proposed = task.proposed_at is not None
            times.append(task.again_at(settings) if is_proposed else task.ask_at + settings.ask_again_s)
        return min(times, default=None)

    def tick(self, state: State, now: float) -> None:
        for group in state.groups.values():
            if group.is_formed:
                self._judge(state, group, now)
            else:
                self._form(state, group, now)
        for name in [name for name in self._tasks if name not in state.groups]:
            del self._tasks[name]
        self._deal(state, now)

    # -- reasons -----------------------------------------------------------------------------------------

    def _judge(self, state: State, group: GroupConfiguration, now: float) -> None:
        task = self._tasks.get(group.group)
        if task is not None and task.epoch != group.epoch:
            del self._tasks[group.group]
            task = None
        if task is None:
            task = self._reason(state, group, now)
        if task is not None:
            self._go_on(state, group, task, now)

    def _reason(self, state: State, group: GroupConfiguration, now: float) -> Task | None:
        assert group.primary is not None
        if not is_primary_here(state, group):
            if not live_in_sync(state, group):
                self._wait(group)
                return None
            task = Task(group.epoch, is_fencing=True, until=now + self._settings.fence_wait_s)
            if self._waiting.pop(group.group, None) == group.epoch:
                task.not_before = now + self._settings.return_wait_s
            self._tasks[group.group] = task
            return task
        if group.primary.node in state.draining:
            for replica in live_in_sync(state, group):
                if replica.node not in state.draining:
                    return self._hand_over(group, replica, now)
        return None

    def _wait(self, group: GroupConfiguration) -> None:
        if self._waiting.get(group.group) != group.epoch:
            self._waiting[group.group] = group.epoch
            listed = ", ".join(map(str, group.in_sync))
            text = f"group {group.group!r} waits: it needs one of {listed}, which alone have all that was confirmed"
            self._outbox.add(Report(Level.ERROR, "group-waits", text))

    def _hand_over(self, group: GroupConfiguration, to: Replica, now: float) -> Task:
        task = Task(group.epoch, is_fencing=False, until=now + self._settings.hand_over_s, wanted=to)
        self._tasks[group.group] = task
        return task

    def move_primary(self, state: State, request: p.MovePrimary, now: float) -> tuple[str, str]:
        """Code and reason why it cannot be; empty if it has begun."""
        group = state.groups.get(request.group)
        if group is None or not group.is_formed:
            return "no-such-group", f"replica group {request.group!r} is not there or not formed"
        if group.epoch != request.epoch:
            return "stale-epoch", f"group {request.group!r} is at epoch {group.epoch}, not {request.epoch}"
        to = next((r for r in live_in_sync(state, group) if r.node == request.node), None)
        if to is None:
            return "not-in-sync", f"node {request.node!r} has no live in-sync replica of group {request.group!r}"
        if to != group.primary and group.group not in self._tasks:
            self._hand_over(group, to, now)
        return "", ""

    # -- the way ---------------------------------------------------------------------------------------------

    def _go_on(self, state: State, group: GroupConfiguration, task: Task, now: float) -> None:
        if now < task.again_at(self._settings):
            return
        task.proposed_at = None
        if not task.is_fencing and (now >= task.until or not is_primary_here(state, group)):
            task.is_fencing, task.until = True, now + self._settings.fence_wait_s
        if task.is_fencing and self._decide(state, group, task, now):
            return
        if now >= task.ask_at + self._settings.ask_again_s:
            task.ask_at = now
            self._ask(state, group, task)

    def _ask(self, state: State, group: GroupConfiguration, task: Task) -> None:
        if task.is_fencing:
            for replica in live_in_sync(state, group):
                if replica not in task.positions:
                    self._tell(replica.node, m.FenceAsk(group.group, group.epoch, replica))
        elif group.primary is not None:
            self._tell(group.primary.node, m.HandOverAsk(group.group, group.epoch, group.primary))

    def _tell(self, node: str, message: m.FenceAsk | m.HandOverAsk) -> None:
        self._outbox.send(node, p.FromLeader(self._term, message))

    def _decide(self, state: State, group: GroupConfiguration, task: Task, now: float) -> bool:
        """Whether a decision has been proposed."""
        live = live_in_sync(state, group)
        answered = {replica: task.positions[replica] for replica in live if replica in task.positions}
        if not live:
            del self._tasks[group.group]
            self._wait(group)
            return True
        is_complete = len(answered) == len(live) and (now >= task.not_before or len(live) == len(group.in_sync))
        if not is_complete and now < max(task.until, task.not_before):
            return False
        if not answered:
            task.until = now + self._settings.fence_wait_s
            return False
        self._promote(state, group, task, best(group, answered, task.wanted), now)
        return True

    def _promote(self, state: State, group: GroupConfiguration, task: Task, in_sync: list[Replica], now: float) -> None:
        node = state.node(in_sync[0].node)
        assert node is not None
        task.proposed_at = task.ask_at = now
        self._propose(GroupPromoted(group.group, group.epoch, tuple(in_sync), node.incarnation))

    def fenced(self, state: State, answer: m.Fenced, now: float) -> None:
        task, group = self._tasks.get(answer.group), state.groups.get(answer.group)
        if task is None or group is None or not answer.epoch == task.epoch == group.epoch:
            return
        if answer.replica in group.in_sync and task.is_fencing:
            task.positions[answer.replica] = answer.position
            self._go_on(state, group, task, now)

    def handed_over(self, state: State, answer: m.HandOverReady, now: float) -> None:
        group = state.groups.get(answer.group)
        if group is None or answer.epoch != group.epoch or answer.replica != group.primary:
            return
        task = self._tasks.get(answer.group)
        if task is None:  # of an earlier leader: the group stands still, so it goes on with whoever is furthest
            task = Task(group.epoch, is_fencing=True, until=now + self._settings.fence_wait_s)
            self._tasks[answer.group] = task
            self._go_on(state, group, task, now)
        elif not task.is_fencing and task.proposed_at is None and task.wanted in live_in_sync(state, group):
            # All in-sync replicas have all: everyone stays, and the wanted one leads.
            assert task.wanted is not None
            in_sync = [task.wanted, *(replica for replica in group.in_sync if replica != task.wanted)]
            self._promote(state, group, task, in_sync, now)

    # -- the first time --------------------------------------------------------------------------------------

    def _form(self, state: State, group: GroupConfiguration, now: float) -> None:
        """Of all members, all empty. A member that holds something while we know of no epoch means that the voters have
        lost what they had decided: forming anew would lose what the replicas hold."""
        replicas: list[Replica] = []
        for name in group.members:
            node = state.node(name)
            hosted = None if node is None else next((h for h in node.hosts if h.group == group.group), None)
            if hosted is None:
                return
            if not hosted.is_empty:
                self._complain(group, name)
                return
            replicas.append(Replica(name, hosted.store))
        at = self._forming.get(group.group)
        if at is None or now >= at + self._settings.request_again_s:
            self._forming[group.group] = now
            primary = state.node(replicas[0].node)
            assert primary is not None
            self._propose(GroupFormed(group.group, tuple(replicas), primary.incarnation))

    def _complain(self, group: GroupConfiguration, node: str) -> None:
        if group.group not in self._complained:
            self._complained.add(group.group)
            text = (
                f"group {group.group!r} is not formed: node {node!r} holds a replica with a history, of which group "
                "services know nothing; bring back the voters' disks, or give it an empty directory"
            )
            self._outbox.add(Report(Level.ERROR, "group-has-history", text))

    def _deal(self, state: State, now: float) -> None:
        self._forming = {name: at for name, at in self._forming.items() if not state.groups[name].is_formed}
        if state.placement.slots or not state.groups or not all(group.is_formed for group in state.groups.values()):
            return
        if any(wanted not in state.groups for wanted in self._settings.groups_wanted):
            return  # one that is asked for later would get nothing
        if self._dealt_at is None or now >= self._dealt_at + self._settings.request_again_s:
            self._dealt_at = now
            self._propose(SlotsDealt(tuple(state.groups)))


def is_primary_here(state: State, group: GroupConfiguration) -> bool:
    """In the same incarnation in which it was named: a primary that restarts is none any more."""
    primary = group.primary
    node = None if primary is None else state.node(primary.node)
    if primary is None or node is None:
        return False
    return node.incarnation == group.incarnation and node.holds(group.group, primary.store)


def live_in_sync(state: State, group: GroupConfiguration) -> list[Replica]:
    """In order of rank."""
    found: list[Replica] = []
    for replica in group.in_sync:
        node = state.node(replica.node)
        if node is not None and node.holds(group.group, replica.store):
            found.append(replica)
    return found
