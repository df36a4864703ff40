"""What goes wrong with a cluster, and what its administrator does meanwhile: one seed draws which, when, and how.

Each run has a few kinds of trouble only. `stop` heals everything.
"""
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from angarium.core.groups import decisions as d
from angarium.core.groups import protocol as p
from angarium.core.groups.events import JoinGroup, Leave, LeaveGroup, NeighbourLost
from angarium.sim.groups.net import NetSettings

if TYPE_CHECKING:
    from angarium.sim.groups.node import SimNode
    from angarium.sim.groups.world import GroupsWorld

KIND_CHANCE = 0.3  # that a run has a certain kind of trouble


class Faults:
    def __init__(self, world: "GroupsWorld", chance: Random, only: tuple[str, ...] = ()) -> None:
        self._world = world
        self._chance = chance
        self._is_over = False
        self.disks_lost = 0
        kinds: dict[str, tuple[Callable[[], None], float]] = {  # name -> what happens, mean seconds between
            "crash": (self._crash, 2.0),
            "power-cut": (self._power_cut, 5.0),
            "crash-of-the-leader": (self._crash_leader, 3.0),
            "crash-of-a-primary": (self._crash_primary, 2.5),
            "lost-disk": (self._lose_disk, 6.0),
            "pause": (self._pause, 2.0),
            "pause-of-the-leader": (self._pause_leader, 3.0),
            "partition": (self._partition, 3.0),
            "one-way": (self._one_way, 2.0),
            "isolated-leader": (self._isolate_leader, 3.0),
            "isolated-primary": (self._isolate_primary, 3.0),
            "weather": (self._weather, 1.5),
            "late-copies": (self._late_copies, 1.5),
            "broken-link": (self._break_link, 1.0),
            "voters": (self._change_voters, 2.5),
            "leaving": (self._leave, 3.0),
            "moving": (self._move_primary, 1.5),
            "copies": (self._change_copies, 2.0),
            "transfer": (self._transfer, 2.0),
        }
        self.kinds = list(only) or [name for name in kinds if chance.random() < KIND_CHANCE]
        for name in self.kinds:
            self._repeat(*kinds[name])
        self._repeat(self._request, 0.4)
        if chance.random() < 0.3:
            for node in world.nodes.values():
                node.rate = chance.choice((0.9, 1.0, 1.1))

    def _repeat(self, action: Callable[[], None], mean_s: float) -> None:
        def again() -> None:
            if not self._is_over:
                action()
                self._repeat(action, mean_s)

        self._world.clock.after(self._chance.expovariate(1 / mean_s), again)

    def stop(self) -> None:
        world = self._world
        self._is_over = True
        world.net.cut.clear()
        world.net.settings = NetSettings()
        for node in world.nodes.values():
            node.start()

    # -- nodes ---------------------------------------------------------------------------------------

    def _pick(self) -> "SimNode":
        return self._chance.choice(list(self._world.nodes.values()))

    def _leader(self) -> "SimNode | None":
        leaders = [n for n in self._world.nodes.values() if n.machine is not None and n.machine.is_leader]
        return self._chance.choice(leaders) if leaders else None

    def _kill(self, node: "SimNode", *, is_told: bool, loses_disk: bool = False) -> None:
        incarnation = node.incarnation
        if not node.is_alive:
            return
        node.crash(keeps_first=self._chance.random() < 0.5, loses_disk=loses_disk)
        for other in self._world.nodes.values():
            if is_told and other is not node and self._chance.random() < 0.7:
                self._notice(other, node, incarnation)
        self._world.clock.after(self._chance.choice((0.05, 0.8, 3.0)) * self._chance.random(), node.start)

    def _notice(self, other: "SimNode", node: "SimNode", incarnation: bytes) -> None:
        def notice() -> None:
            # Refused: it was looked whether the process is there, and it was not.
            is_refused = node.machine is None and self._chance.random() < 0.5
            other.tell(NeighbourLost(node.name, incarnation, is_refused))

        self._world.clock.after(self._chance.random() * 0.05, notice)

    def _crash(self) -> None:
        self._kill(self._pick(), is_told=True)

    def _crash_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            self._kill(leader, is_told=self._chance.random() < 0.5)

    def _primary(self) -> "SimNode | None":
        groups = [group for group in self._world.groups().values() if group.primary is not None]
        primary = self._chance.choice(groups).primary if groups else None
        return None if primary is None else self._world.nodes[primary.node]

    def _crash_primary(self) -> None:
        primary = self._primary()
        if primary is not None:
            self._kill(primary, is_told=self._chance.random() < 0.5)

    def _power_cut(self) -> None:
        for node in list(self._world.nodes.values()):
            if self._chance.random() < 0.8:
                self._kill(node, is_told=False)

    def _lose_disk(self) -> None:
        """Of a voter: only while all the others still have theirs, or nothing could be decided ever after."""
        node = self._pick()
        if not node.keeps_log or (self.disks_lost == 0 and self._world.may_lose_disk(node)):
            self.disks_lost += node.keeps_log
            self._kill(node, is_told=True, loses_disk=True)

    def _pause(self) -> None:
        self._pick().pause(self._chance.choice((0.3, 1.0, 4.0)) * self._chance.random())

    def _pause_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            leader.pause(self._chance.uniform(0.8, 3.0))

    # -- the network ---------------------------------------------------------------------------------

    def _cut_between(self, left: set[str], right: set[str], *, both: bool, seconds: float) -> None:
        cut = {(a, b) for a in left for b in right}
        if both:
            cut |= {(b, a) for a, b in cut}
        net = self._world.net
        net.cut |= cut
        ways = "both ways" if both else "one way"
        self._world.trace.note("network", f"{sorted(left)} cut from {sorted(right)} {ways} for {seconds:.2f} s")
        self._world.clock.after(seconds, lambda: net.cut.difference_update(cut))

    def _partition(self) -> None:
        names = list(self._world.nodes)
        left = {name for name in names if self._chance.random() < 0.5}
        self._cut_between(left, set(names) - left, both=True, seconds=self._chance.uniform(0.3, 4.0))

    def _one_way(self) -> None:
        a, b = self._pick().name, self._pick().name
        if a != b:
            self._cut_between({a}, {b}, both=False, seconds=self._chance.uniform(0.3, 4.0))

    def _isolate(self, name: str) -> None:
        others = {other for other in self._world.nodes if other != name and self._chance.random() < 0.9}
        self._cut_between({name}, others, both=self._chance.random() < 0.7, seconds=self._chance.uniform(0.5, 4.0))

    def _isolate_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            self._isolate(leader.name)

    def _isolate_primary(self) -> None:
        primary = self._primary()
        if primary is not None:
            self._isolate(primary.name)

    def _weather(self) -> None:
        chance = self._chance
        self._world.net.settings = NetSettings(
            loss=chance.choice((0.0, 0.05, 0.3)), repeat=chance.choice((0.0, 0.1, 0.3)),
            slow=chance.choice((0.0, 0.05, 0.2)), latency_s_max=chance.choice((0.004, 0.05, 0.2)),
        )  # fmt: skip

    def _late_copies(self) -> None:
        self._world.net.settings = NetSettings(repeat=0.5, slow=0.3, slow_s_max=self._chance.choice((1.5, 5.0)))

    def _break_link(self) -> None:
        node, other = self._pick(), self._pick()
        if node is not other and node.is_alive:
            other.tell(NeighbourLost(node.name, node.incarnation, False))

    # -- the administrator -----------------------------------------------------------------------------

    def _request(self) -> None:
        chance, node = self._chance, self._pick()
        match chance.randrange(4):
            case 0 | 1:
                node.request(d.SettingSet(chance.choice("klmn"), chance.randbytes(chance.choice((3, 300)))))
            case 2:
                group = chance.choice(("net1", "net2", "leaders"))
                node.wanted_groups ^= {group}
                node.tell(JoinGroup(group) if group in node.wanted_groups else LeaveGroup(group))
            case 3:
                state = self._world.latest()
                node.request(d.SettingSet("versioned", b"v", state.settings_version))

    def _change_voters(self) -> None:
        state = self._world.latest()
        able = [node.name for node in self._world.nodes.values() if node.keeps_log]
        wanted = list(state.voters_wanted)
        spare = [name for name in able if name not in wanted]
        if spare and (len(wanted) < 3 or self._chance.random() < 0.5):
            wanted.append(self._chance.choice(spare))
        elif len(wanted) > 2:
            wanted.remove(self._chance.choice(wanted))
        self._pick().request(d.VotersWanted(state.voters_wanted, tuple(wanted)))

    def _leave(self) -> None:
        self._pick().tell(Leave())

    def _move_primary(self) -> None:
        groups = [group for group in self._world.groups().values() if group.is_formed]
        if not groups:
            return
        group = self._chance.choice(groups)
        if self._chance.random() < 0.3:
            name = self._chance.choice(group.members)
            self._pick().request(d.DrainSet(name, self._chance.random() < 0.5))
        else:
            to = self._chance.choice(group.in_sync).node
            self._pick().request(p.MovePrimary(group.group, group.epoch, to))

    def _change_copies(self) -> None:
        groups = list(self._world.groups().values())
        if not groups:
            return
        group = self._chance.choice(groups)
        node = self._pick()
        if node.name in group.members and len(group.members) > 1:
            self._pick().request(d.CopyRemoved(group.group, group.epoch, node.name))
        elif group.group in node.hosts:
            self._pick().request(d.CopyAdded(group.group, group.epoch, node.name))

    def _transfer(self) -> None:
        self._pick().request(p.TransferLeadership(""))
