"""A cluster's group services in virtual time: voters, nodes that do not vote, replicas; under faults, then healed.

    GroupsWorld(seed).run()

*Safety*: some seconds of trouble, every promise of the ledger checked after every event. *Liveness*: all is healed, and
within a bounded time there is one leader, everybody is in the view and has the same state, each replica group that can
have a primary has one, and a request is decided.
"""
from dataclasses import dataclass, field
from random import Random

from angarium.core.groups import decisions as d
from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.judging import is_primary_here, live_in_sync
from angarium.core.groups.records import State
from angarium.core.groups.settings import GroupSettings
from angarium.sim.clock import Clock
from angarium.sim.groups.faults import Faults
from angarium.sim.groups.ledger import Ledger
from angarium.sim.groups.net import Net
from angarium.sim.groups.node import SimNode
from angarium.sim.groups.replicas import ReplicaMessage
from angarium.sim.messages import Violation
from angarium.sim.trace import Trace

TROUBLE_S = 8.0
HEALED_S_MAX = 15.0
MESSAGES_A_SECOND_MAX = 600.0  # of one node on average: above it is a storm
WORK_S = 0.04

# Snapshots after few decisions, and parts of few bytes: so that they happen.
SETTINGS = GroupSettings(log_entries_max=12, log_tail_entries=4, append_entries_max=8, snapshot_part_bytes=3_000)


@dataclass(frozen=True, slots=True)
class Shape:
    """Who there is."""

    voters: int = 3
    spares: int = 0  # could vote
    members: int = 2
    groups: tuple[tuple[int, ...], ...] = ()  # for each replica group the numbers of the nodes that hold it


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    digest: str
    faults: tuple[str, ...]
    tally: dict[str, int] = field(hash=False)


def draw_shape(chance: Random) -> Shape:
    voters = chance.choice((1, 3, 3, 3, 5))
    spares, members = chance.choice((0, 1)), chance.choice((1, 2, 3))
    nodes = list(range(voters + spares + members))
    groups = [tuple(chance.sample(nodes, min(chance.choice((1, 2, 3, 3, 3)), len(nodes)))) for _ in range(2)]
    return Shape(voters, spares, members, tuple(groups))


class GroupsWorld:
    def __init__(
        self, seed: int, shape: Shape | None = None, *, settings: GroupSettings = SETTINGS, is_traced: bool = False,
        has_faults: bool = True, kinds: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """`kinds` of trouble; none: the seed draws them."""
        chance = Random(f"groups {seed}")
        self.seed = seed
        self.settings = settings
        self.clock = Clock(Random(chance.random()))
        self.trace = Trace(self.clock, is_read=is_traced)
        self.ledger = Ledger()
        self.net = Net(self.clock, self.trace, Random(chance.random()), self._deliver, self._deliver_replica)
        self._chance = Random(chance.random())
        self.jitter = Random(chance.random()).random
        self.shape = shape or draw_shape(Random(chance.random()))
        names = self._make_nodes(self.shape)
        self.seeds = tuple(names[: self.shape.voters])
        self._numbers = 0
        for name in names:
            self.clock.after(self._chance.random() * 0.3, self.nodes[name].start)
        self.clock.after(0.6, self._configure_groups)
        self.clock.after(WORK_S, self._work)
        self.faults = Faults(self, Random(chance.random()), kinds) if has_faults else None

    def _make_nodes(self, shape: Shape) -> list[str]:
        names = [f"v{n}" for n in range(shape.voters)] + [f"s{n}" for n in range(shape.spares)]
        able = len(names)
        names += [f"m{n}" for n in range(shape.members)]
        self.nodes: dict[str, SimNode] = {}
        for number, name in enumerate(names):
            hosts = tuple(f"g{g}" for g, nodes in enumerate(shape.groups) if number in nodes)
            self.nodes[name] = SimNode(self, name, keeps_log=number < able, hosts=hosts)
        return names

    def _configure_groups(self) -> None:
        """As often as it takes: whoever was asked may have crashed."""
        names = list(self.nodes)
        known = self.latest().groups
        for number, nodes in enumerate(self.shape.groups):
            if f"g{number}" not in known:
                members = tuple(names[n] for n in nodes)
                self._chance.choice(list(self.nodes.values())).request(d.GroupConfigured(f"g{number}", members))
                self.clock.after(1.0, self._configure_groups)

    # -- what the parts need ---------------------------------------------------------------------------

    def draw_id(self) -> bytes:
        return self._chance.randbytes(16)

    def draw_sync_s(self) -> float:
        return self._chance.uniform(0.0005, 0.006)

    def _deliver(self, sender: str, to: str, data: bytes) -> None:
        node = self.nodes.get(to)
        if node is not None:
            node.receive(sender, data)

    def _deliver_replica(self, to: str, message: ReplicaMessage) -> None:
        self.nodes[to].receive_replica(message)

    def configured(self, group: GroupConfiguration) -> None:
        histories = {}
        for replica in group.in_sync:
            disk = self.nodes[replica.node].replica_disks.get(group.group)
            if disk is not None and disk.store == replica.store:
                histories[replica] = disk.history
        self.ledger.configured(group, histories)

    def latest(self) -> State:
        """The newest state that any node has."""
        states = [node.machine.state for node in self.nodes.values() if node.machine is not None]
        return max(states, key=lambda state: state.index, default=State())

    def groups(self) -> dict[str, GroupConfiguration]:
        return self.latest().groups

    def may_lose_disk(self, node: SimNode) -> bool:
        """All other voters run and have caught up, so that they are enough; and a single voter has nobody else. Those
        count who vote by somebody's log: a change is in force before it is decided."""
        rafts = [other.machine.raft for other in self.nodes.values() if other.machine is not None]
        sets = [self.latest().voters, *(raft.log.voters for raft in rafts if raft is not None)]
        others = {voter.node for voters in sets for voter in voters if voter.node != node.name}
        is_enough = all(self.nodes[name].is_alive and not self.nodes[name].is_paused for name in others)
        return is_enough and min(map(len, sets)) > 2

    def _work(self) -> None:
        for node in self.nodes.values():
            if node.is_alive and not node.is_paused:
                for replica in node.replicas.values():
                    self._numbers += 1
                    replica.work(self._numbers if self._chance.random() < 0.3 else None)
        self.clock.after(WORK_S, self._work)

    # -- a run -----------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        self.clock.run_until(TROUBLE_S)
        self.check_storm()
        if self.faults is not None:
            self.faults.stop()
        self.settle()
        return Outcome(self.seed, self.trace.digest(), tuple(self.faults.kinds if self.faults else ()), self.tally())

    def check_storm(self) -> None:
        for node in self.nodes.values():
            if node.messages_sent > MESSAGES_A_SECOND_MAX * self.clock.now:
                raise Violation("no storm", f"{node.name} sent {node.messages_sent} messages in {self.clock.now:g} s")

    def settle(self) -> None:
        until = self.clock.now + HEALED_S_MAX
        while True:
            self.clock.run_until(self.clock.now + 0.25)
            reason = self.unsettled()
            if not reason:
                break
            if self.clock.now >= until:
                raise Violation("healed in time", reason)
        self._decide_one_more()

    def _decide_one_more(self) -> None:
        node = self.nodes[min(self.nodes)]
        number = node.request(d.SettingSet("last", b"word"))
        start = self.clock.now
        while self.clock.now < start + 4.0:
            self.clock.run_until(self.clock.now + 0.1)
            if number in node.answers and all("last" in n.machine.state.settings for n in self.alive()):  # type: ignore[union-attr]
                return
        raise Violation("healed in time", "a request was not decided everywhere within 4 s")

    def alive(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.machine is not None]

    def unsettled(self) -> str:
        """Why the cluster is not yet as it should be; empty if it is."""
        machines = [node.machine for node in self.nodes.values() if node.machine is not None]
        if len(machines) < len(self.nodes) or any(node.is_paused for node in self.nodes.values()):
            return "a node does not run, or stands still"
        leaders = [machine.name for machine in machines if machine.is_leader]
        if len(leaders) != 1:
            return f"leaders: {leaders}"
        if {machine.leader for machine in machines} != set(leaders):
            return f"not everybody knows the leader {leaders[0]}: {[(m.name, m.leader) for m in machines]}"
        states = {machine.state.index for machine in machines}
        if len(states) > 1:
            return f"indexes {sorted((machine.state.index, machine.name) for machine in machines)}"
        state = machines[0].state
        if self.ledger.committed and state.index < max(self.ledger.committed):
            return f"index {state.index}, but {max(self.ledger.committed)} was committed"
        here = {(node.name, node.incarnation) for node in state.nodes}
        missing = [node.name for node in self.nodes.values() if (node.name, node.incarnation) not in here]
        if missing or len(here) != len(self.nodes):
            return f"not in the view: {missing}"
        return self._voters_unsettled(state) or self._named_unsettled(state) or self._groups_unsettled(state)

    def _voters_unsettled(self, state: State) -> str:
        stores = {voter.node: voter.store for voter in state.voters}
        for name in state.voters_wanted:
            if stores.pop(name, b"") != self.nodes[name].store:
                return f"voter {name} is wanted, voters are {state.voters}"
        return f"voters {stores} are not wanted" if stores else ""

    def _named_unsettled(self, state: State) -> str:
        for node in self.nodes.values():
            inside = {group for group, members in state.named.items() for m in members if m.node == node.name}
            if inside != node.wanted_groups:
                return f"{node.name} is in {sorted(inside)}, and wants to be in {sorted(node.wanted_groups)}"
        return ""

    def _groups_unsettled(self, state: State) -> str:
        for group in state.groups.values():
            if not group.is_formed:
                may_form = all(group.group in self.nodes[name].replicas for name in group.members)
                if may_form and not any(self.nodes[n].replica_disks[group.group].epoch for n in group.members):
                    return f"group {group.group} is not formed"
                continue
            if not live_in_sync(state, group):
                continue  # it waits for disks that are lost
            if not is_primary_here(state, group):
                return f"group {group.group}: no primary in {group}"
            others = [replica for replica in live_in_sync(state, group) if replica.node not in state.draining]
            if others and group.primary not in others:
                return f"group {group.group} is not drained from {group.primary}"
            if self.clock.now > TROUBLE_S and not self.ledger.confirmed.get(group.group):
                return f"group {group.group} has confirmed nothing"
            if len(group.in_sync) < len([n for n in group.members if group.group in self.nodes[n].replicas]):
                return f"group {group.group}: not all members are in sync in {group}"
        return ""

    def tally(self) -> dict[str, int]:
        return {
            "decisions": self.latest().index,
            "terms": len(self.ledger.leaders),
            "promotions": self.ledger.promotions,
            "confirmed": sum(len(history) for history in self.ledger.confirmed.values()),
            "messages": self.net.sent,
            "snapshots": sum(1 for node in self.nodes.values() if b"s" in node.disk),
            "starts": sum(node.start_number for node in self.nodes.values()),
        }


