"""What group services promise, compared with what happens.

The ledger sees what leaves the machines (messages, changes), what is on their disks, and what is committed. It objects
at once when

- two voters lead in one term, or one voter gives its vote in a term twice;
- a voter answers with what is not on its disk;
- a committed entry differs from what was committed there before, or a node that has applied an index has another state
  than the others that have;
- a node is told changes out of order, twice, or such that they do not add up to its state;
- two configurations of a replica group have the same epoch, or one has in-sync replicas that it cannot have;
- a replica becomes primary without everything that was confirmed, or something is confirmed that contradicts it.
"""
from collections.abc import Mapping

import msgspec

from angarium.core.groups import changes as c
from angarium.core.groups import protocol as p
from angarium.core.groups.configuration import GroupConfiguration, Replica
from angarium.core.groups.group_services import GroupServices
from angarium.core.groups.log import SNAPSHOT, TERM, SnapshotRecord, TermRecord, entry_key
from angarium.core.groups.messages import Message
from angarium.core.groups.records import NodeRecord, State, encode_state
from angarium.sim.messages import Violation

History = tuple[tuple[int, int], ...]  # (epoch, a number that is used once) for each write


class Listener:
    """One start of a node, as its driver sees it: everything from what it is told."""

    def __init__(self) -> None:
        self.index = 0
        self.view_id = 0
        self.views = 0
        self.nodes: tuple[NodeRecord, ...] = ()
        self.named: dict[str, tuple[object, ...]] = {}
        self.groups: dict[str, GroupConfiguration] = {}
        self.settings: dict[str, bytes] = {}
        self.settings_version = 0

    def told(self, change: c.Change) -> None:
        if change.index < self.index:
            raise Violation("changes in order", f"index {change.index} after {self.index}")
        self.index = change.index
        match change:
            case c.ViewChanged():
                self._view(change)
            case c.NamedGroupChanged(_, group, members, joined, gone):
                before = self.named.pop(group, ())
                if set(joined) & set(before) or not set(gone) <= set(before):
                    raise Violation("changes once", f"group {group}: {joined} and {gone} after {before}")
                if members:
                    self.named[group] = members
            case c.ReplicaGroupChanged(_, group):
                before_group = self.groups.get(group.group)
                if before_group is not None and (group == before_group or group.epoch < before_group.epoch):
                    raise Violation("changes once", f"group {group.group} epoch {group.epoch} again")
                self.groups[group.group] = group
            case c.SettingsChanged(_, version, changed):
                if version <= self.settings_version:
                    raise Violation("changes once", f"settings version {version} after {self.settings_version}")
                self.settings_version = version
                for key, value in changed.items():
                    self.settings.pop(key, None)
                    if value is not None:
                        self.settings[key] = value

    def _view(self, view: c.ViewChanged) -> None:
        before = {(node.name, node.incarnation): node for node in self.nodes}
        if view.view_id < self.view_id or any(before.get((n.name, n.incarnation)) == n for n in view.joined):
            raise Violation("changes once", f"view {view.view_id} after {self.view_id}")
        if any((node.name, node.incarnation) not in before for node in view.gone):
            raise Violation("changes once", f"view {view.view_id}: somebody left who was not there")
        self.view_id, self.nodes = view.view_id, view.nodes
        self.views += 1

    def compare(self, state: State) -> None:
        told = (self.nodes, self.named, self.groups, self.settings)
        is_so = (state.nodes, state.named, state.groups, {key: s.value for key, s in state.settings.items()})
        if told != is_so:
            raise Violation("changes add up", f"told {told}, but it is {is_so}")


class Ledger:
    def __init__(self) -> None:
        self.committed: dict[int, tuple[int, bytes]] = {}  # index -> term, decision
        self.states: dict[int, bytes] = {}  # index -> encoded
        self.leaders: dict[int, bytes] = {}  # term -> store
        self._votes: dict[tuple[bytes, int], bytes] = {}  # (voter, term) -> candidate
        self._looked_at: dict[tuple[bytes, int], int] = {}  # (store, start) -> committed up to here
        self.configurations: dict[tuple[str, int], GroupConfiguration] = {}
        self.confirmed: dict[str, History] = {}
        self.admissions: set[tuple[str, int, Replica]] = set()  # (group, epoch, replica) that a primary asked for
        self.promotions = 0

    # -- voters --------------------------------------------------------------------------------------

    def sends(self, store: bytes, message: Message, disk: Mapping[bytes, bytes], candidate: bytes) -> None:
        """A voter says this; `disk` is what it has durably, `candidate` for whom it votes, if it does."""
        term = msgspec.msgpack.decode(disk[TERM], type=TermRecord) if TERM in disk else TermRecord()
        match message:
            case p.VoteAnswer(asked, _, True, False):
                first = self._votes.setdefault((store, asked), candidate)
                if candidate != first:
                    raise Violation("one vote in a term", f"term {asked}: for {candidate!r} after {first!r}")
                if term.term < asked or (term.term == asked and term.vote != candidate):
                    raise Violation("durable before said", f"a vote in term {asked}, on disk is {term}")
            case p.AppendAnswer(asked, _, True, index):
                self._check_durable(asked, index, term, disk)
            case p.VoteAsk(asked, candidate_voter, is_pre=False):
                if term.term < asked or (term.term == asked and term.vote != candidate_voter.store):
                    raise Violation("durable before said", f"stands in term {asked}, on disk is {term}")

    def _check_durable(self, asked: int, index: int, term: TermRecord, disk: Mapping[bytes, bytes]) -> None:
        snapshot = msgspec.msgpack.decode(disk[SNAPSHOT], type=SnapshotRecord).index if SNAPSHOT in disk else 0
        if term.term < asked or (index > snapshot and entry_key(index) not in disk):
            raise Violation("durable before said", f"has entry {index} of term {asked}; on disk it has not")

    def look(self, machine: GroupServices, start: int) -> None:
        """After each event."""
        raft = machine.raft
        if raft is not None:
            if raft.is_leader and self.leaders.setdefault(raft.term, raft.me.store) != raft.me.store:
                raise Violation("one leader in a term", f"{raft.me} in term {raft.term}")
            key = (raft.me.store, start)
            for index in range(max(self._looked_at.get(key, 0) + 1, raft.log.first_index), raft.commit + 1):
                entry = raft.log.entry(index)
                if self.committed.setdefault(index, (entry.term, entry.data)) != (entry.term, entry.data):
                    raise Violation("committed is final", f"entry {index} at {raft.me}")
            self._looked_at[key] = raft.commit

    def compare(self, machine: GroupServices) -> None:
        """When its state has changed."""
        state = machine.state
        if state.index:
            encoded = encode_state(state)
            if self.states.setdefault(state.index, encoded) != encoded:
                raise Violation("one history", f"the state after {state.index} differs at {machine.name}")

    # -- replica groups ------------------------------------------------------------------------------

    def configured(self, group: GroupConfiguration, histories: Mapping[Replica, History]) -> None:
        """`histories`: what the disks of its replicas hold, as far as they are there."""
        key = (group.group, group.epoch)
        first = self.configurations.get(key)
        if first is not None:
            if first != group and group.epoch:
                raise Violation("one configuration in an epoch", f"{group} and {first}")
            return
        self.configurations[key] = group
        before = self.configurations.get((group.group, group.epoch - 1))
        if group.epoch < 2 or before is None:
            return
        new = [replica for replica in group.in_sync if replica not in before.in_sync]
        if any((group.group, before.epoch, replica) not in self.admissions for replica in new) or len(new) > 1:
            raise Violation("in sync by admission", f"{group} after {before}")
        confirmed = self.confirmed.get(group.group, ())
        if group.primary != before.primary:
            self.promotions += 1
        history = None if group.primary is None else histories.get(group.primary)
        if history is None:
            return
        for replica in group.in_sync:
            other = histories.get(replica, ())
            if history[: len(other)] != other:
                raise Violation("the primary has all", f"{replica} has {other}, {group.primary} has {history}")
        if history[: len(confirmed)] != confirmed:
            raise Violation("confirmed is kept", f"{group.primary} is primary with {history}, not with {confirmed}")

    def confirm(self, group: str, history: History) -> None:
        before = self.confirmed.get(group, ())
        shorter = min(len(before), len(history))
        if before[:shorter] != history[:shorter]:
            raise Violation("confirmed is kept", f"group {group}: confirms {history} after {before}")
        if len(history) > len(before):
            self.confirmed[group] = history
