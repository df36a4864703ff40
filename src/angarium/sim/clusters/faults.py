"""What goes wrong in a cluster, and when: one seed draws which kinds of trouble a run has, how often, and every detail.

Each run has a few kinds only (all kinds at once hide each other). `stop` heals everything: all machines run, all get
through to all, disks have room and are quick, and no more trouble comes.

What a cluster does not promise to survive does not happen: that all copies of a group lose their disks, or that
a voter forgets what it has promised.
"""
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from angarium.sim.clusters.checkers import latest
from angarium.sim.clusters.wires import AirSettings

if TYPE_CHECKING:
    from angarium.sim.client import SimClient
    from angarium.sim.clusters.node import Machine
    from angarium.sim.clusters.world import ClusterWorld

KINDS_CHANCE = 0.17
_NOTICE_S_MAX = 6.0
_REVIVE_TIMES, _REVIVE_EVERY_S = 40, 0.2


class Troubles:
    def __init__(
        self, world: "ClusterWorld", chance: Random, kinds_wanted: Sequence[str] | None = None, *,
        spared: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`kinds_wanted`: these kinds of trouble; None: the seed draws them, but for those that are `spared`."""
        self._world = world
        self._chance = chance
        self._is_over = False
        self._administrator: SimClient | None = None
        self._voter_disks_lost = 0
        self._removed: list[tuple[str, str]] = []  # group, node: copies that are to come back
        self._kinds: dict[str, tuple[Callable[[], None], float]] = {  # name -> what happens, mean seconds between
            "kill": (self._kill_one, 2.0),
            "kill-primary": (self._kill_primary, 2.5),
            "kill-at-a-sync": (self._kill_at_a_sync, 2.0),
            "new-disk": (self._new_disk, 3.0),
            "power-cut": (self._cut_power, 3.0),
            "power-cut-of-all": (self._cut_all_power, 4.0),
            "restart": (self._restart, 3.0),
            "pause": (self._pause, 2.0),
            "partition": (self._partition, 2.5),
            "one-way": (self._one_way, 2.5),
            "cut-link": (self._cut_link, 1.0),
            "cut-client": (self._cut_client, 1.0),
            "loss": (self._lose_datagrams, 2.0),
            "disk-slow": (self._slow_disk, 2.0),
            "disk-full": (self._fill_disk, 3.0),
            "move-primary": (self._move_primary, 1.5),
            "drain": (self._drain, 3.0),
            "copies": (self._remove_copy, 2.0),
            "clock-set": (self._set_clock, 1.5),
            "client-crash": (self._crash_client, 2.0),
        }
        drawn = [name for name in self._kinds if chance.random() < KINDS_CHANCE]
        self._kinds["move-destination"] = (self._move_destination, 1.0)
        drawn += ["move-destination"] if world.chance("moves").random() < KINDS_CHANCE else []
        self._kinds["voters"] = (self._set_voters, 1.5)
        drawn += ["voters"] if world.chance("voters").random() < KINDS_CHANCE else []
        self._elsewhere = world.chance("copies elsewhere")
        self._kinds["copies-elsewhere"] = (self._add_copy, 2.0)
        drawn += ["copies-elsewhere"] if self._elsewhere.random() < KINDS_CHANCE else []
        self.kinds = [name for name in drawn if name not in spared] if kinds_wanted is None else list(kinds_wanted)

    @property
    def known(self) -> list[str]:
        return list(self._kinds)

    def begin(self) -> None:
        for name in self.kinds:
            self._schedule(*self._kinds[name])

    def stop(self) -> None:
        world = self._world
        self._is_over = True
        self._note("all is healed")
        world.wires.unblock_all()
        world.air.settings = AirSettings()
        world.air.is_multicast_dead = world.air.is_one_bus_dead = False
        for machine in world.machines.values():
            for disk in machine.disks.values():
                disk.before_sync = disk.after_sync = None
                disk.fill(False)
                disk.slowness = 1.0
            if machine.loop is not None:
                machine.loop.resume()
        self._revive(_REVIVE_TIMES)
        if self._administrator is not None:
            for name in world.machines:
                self._administrator.request("cluster.undrain", node=name)
            for group, name in self._removed:
                self._administrator.request("cluster.add-copy", group=group, node=name)
            world.clock.after(5.0, self._administrator.close)

    def _revive(self, times: int) -> None:
        """Some are still about to stop, as somebody has asked them to."""
        for machine in self._world.machines.values():
            if machine.must_run:
                machine.start()
        if times:
            self._world.clock.after(_REVIVE_EVERY_S, partial(self._revive, times - 1))

    def _schedule(self, happen: Callable[[], None], mean_s: float) -> None:
        self._world.clock.after(self._chance.expovariate(1 / mean_s), partial(self._happen, happen, mean_s))

    def _happen(self, happen: Callable[[], None], mean_s: float) -> None:
        if not self._is_over:
            happen()
            self._schedule(happen, mean_s)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._world.clock.after(delay_s, lambda: None if self._is_over else action())

    def _note(self, text: str) -> None:
        self._world.trace.note("faults", text)

    def _down_s(self) -> float:
        return self._chance.choice((0.01, 0.3, 3.0)) * self._chance.random()

    def _machine(self) -> "Machine":
        return self._chance.choice(list(self._world.machines.values()))

    # -- processes -------------------------------------------------------------------------------------

    def _kill(self, machine: "Machine") -> None:
        machine.kill(keeps_staged=self._chance.random() < 0.5)
        self._later(self._down_s(), machine.start)

    def _kill_one(self) -> None:
        self._kill(self._machine())

    def _kill_primary(self) -> None:
        serving = [
            machine
            for machine in self._world.machines.values()
            if machine.node is not None and any(host.manager is not None for host in machine.node.replicas.values())
        ]
        if serving:
            self._kill(self._chance.choice(serving))

    def _kill_at_a_sync(self) -> None:
        machine = self._machine()
        disk = machine.disks[self._chance.choice(sorted(machine.disks))]
        if self._chance.random() < 0.5:
            disk.before_sync = partial(self._kill, machine)
        else:
            disk.after_sync = partial(self._kill, machine)

    def _new_disk(self) -> None:
        """Of somebody who is nobody's primary, while the others of its groups are in sync and run; and of one voter."""
        world = self._world
        voters = world.shape.nodes if "voters" in self.kinds else world.shape.voters
        is_one_spare = len(world.shape.voters) > 1 and not self._voter_disks_lost  # whoever else is made to vote
        could = [
            machine
            for name, machine in world.machines.items()
            if machine.is_up and all(map(partial(self._is_safe, name), machine.disks))
            if name not in voters or is_one_spare
        ]
        if not could:
            return
        machine = self._chance.choice(could)
        self._voter_disks_lost += machine.name in voters
        machine.kill()
        machine.lose_disk()
        self._later(self._down_s(), machine.start)

    def _is_safe(self, name: str, group: str) -> bool:
        """What the copy on that machine holds of the group is held elsewhere, whatever is being decided just now."""
        if not group:
            return True
        configuration = latest(group, list(self._world.nodes()))
        if configuration is None or configuration.primary is None or configuration.primary.node == name:
            return False
        others = [replica.node for replica in configuration.in_sync if replica.node != name]
        return len(others) > 1 and all(self._world.machines[other].is_up for other in others)

    def _cut_power(self) -> None:
        machine = self._machine()
        machine.kill(keeps_staged=self._chance.random() < 0.5, is_power_cut=True)
        self._later(self._down_s(), machine.start)

    def _cut_all_power(self) -> None:
        for machine in self._world.machines.values():
            machine.kill(keeps_staged=self._chance.random() < 0.5, is_power_cut=True)
            self._later(self._down_s(), machine.start)

    def _restart(self) -> None:
        machine = self._machine()
        if machine.stop():
            self._start_again(machine)

    def _start_again(self, machine: "Machine") -> None:
        if machine.is_up:
            self._later(0.1, partial(self._start_again, machine))
        else:
            machine.start()

    def _set_clock(self) -> None:
        self._machine().set_clock(self._chance.choice((-3_600_000.0, -300.0, 300.0, 3_600_000.0)))

    def _pause(self) -> None:
        self._machine().pause(self._chance.choice((0.1, 1.0, 3.0, 8.0)) * self._chance.random())

    # -- networks --------------------------------------------------------------------------------------

    def _partition(self) -> None:
        """Some from all others: one, a few, or most."""
        world, chance = self._world, self._chance
        names = list(world.machines)
        apart = chance.sample(names, chance.randint(1, max(1, len(names) - 1)))
        self._note(f"{', '.join(apart)} cannot be reached")
        for name in apart:
            for other in names:
                if other not in apart:
                    self._block(name, other)
                    self._block(other, name)
        self._later(chance.choice((0.3, 2.0, 8.0)) * chance.random(), self._heal_network)

    def _one_way(self) -> None:
        names = list(self._world.machines)
        if len(names) < 2:
            return
        chance = self._chance
        name = chance.choice(names)
        others = [other for other in names if other != name]
        deaf = chance.sample(others, chance.randint(1, len(others)))
        self._note(f"nothing gets from {name} to {', '.join(deaf)}")
        for other in deaf:
            self._block(name, other)
        self._later(chance.choice((0.3, 2.0, 8.0)) * chance.random(), self._heal_network)

    def _block(self, name: str, other: str) -> None:
        machines = self._world.machines
        self._world.wires.block(machines[name].host, machines[other].host)

    def _heal_network(self) -> None:
        self._note("all get through to all")
        self._world.wires.unblock_all()

    def _cut_link(self) -> None:
        links = list(self._world.wires.links.values())
        if links:
            self._world.wires.cut(self._chance.choice(links), "cut")

    def _cut_client(self) -> None:
        links = list(self._world.network.links.values())
        if links:
            delays = [self._chance.random() * 0.05, self._chance.random() * self._chance.choice((0.05, _NOTICE_S_MAX))]
            self._chance.shuffle(delays)
            self._chance.choice(links).cut("cut", client_after_s=delays[0], broker_after_s=delays[1])

    def _lose_datagrams(self) -> None:
        chance, air = self._chance, self._world.air
        drawn = chance.random()
        air.is_multicast_dead, air.is_one_bus_dead = drawn < 0.2, 0.2 <= drawn < 0.5
        air.settings = AirSettings(
            chance.choice((0.0, 0.02, 0.3)), chance.choice((0.0, 0.1)), chance.choice((0.0, 0.1, 0.5))
        )
        dead = f"no multicast: {air.is_multicast_dead}, on one bus: {air.is_one_bus_dead}"
        self._note(f"datagrams: {air.settings}, {dead}")

    # -- disks -----------------------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        machine, slowness = self._machine(), self._chance.choice((1.0, 10.0, 50.0))
        self._note(f"the disk of {machine.name} is {slowness:g} times slower")
        for disk in machine.disks.values():
            disk.slowness = slowness

    def _fill_disk(self) -> None:
        machine = self._machine()
        self._note(f"the disk of {machine.name} is full")
        for disk in machine.disks.values():
            disk.fill(True)
        self._later(self._chance.choice((0.1, 1.0, 3.0)) * self._chance.random(), partial(self._make_room, machine))

    def _make_room(self, machine: "Machine") -> None:
        for disk in machine.disks.values():
            disk.fill(False)

    # -- the administrator -----------------------------------------------------------------------------

    def _ask(self, command: str, **arguments: object) -> None:
        if self._administrator is None:
            self._administrator = self._world.client("administrator")
        self._note(f"{command} {arguments}")
        self._administrator.request(command, **arguments)

    def _move_primary(self) -> None:
        group = self._chance.choice(sorted(self._world.shape.groups))
        self._ask("cluster.move-primary", group=group, node=self._chance.choice(self._world.shape.groups[group]))

    def _move_destination(self) -> None:
        names = sorted(name for name in self._world.ledger.messages.by_name if not name.startswith("_"))
        if names and len(self._world.shape.groups) > 1:
            name, group = self._chance.choice(names), self._chance.choice(sorted(self._world.shape.groups))
            self._ask("cluster.move-destination", name=name, group=group)
            if self._chance.random() < 0.3:
                self._later(self._chance.random() * 0.1, partial(self._ask, "cluster.cancel-move", name=name))

    def _set_voters(self) -> None:
        """Others decide; at least three, so that one of them may be lost."""
        nodes = self._world.shape.nodes
        counts = [count for count in (3, 5) if count <= len(nodes)]
        if counts:
            self._ask("cluster.set-voters", nodes=sorted(self._chance.sample(nodes, self._chance.choice(counts))))

    def _drain(self) -> None:
        name = self._machine().name
        self._ask("cluster.drain", node=name)
        self._later(self._chance.random() * 3.0, partial(self._ask, "cluster.undrain", node=name))

    def _remove_copy(self) -> None:
        """Of a group that has more than one; it comes back."""
        group = self._chance.choice(sorted(self._world.shape.groups))
        configuration = latest(group, list(self._world.nodes()))
        members = list(configuration.members) if configuration is not None else []
        if len(members) < 2:
            return
        name = self._chance.choice(members)
        self._removed.append((group, name))
        self._ask("cluster.remove-copy", group=group, node=name)
        self._later(self._chance.random() * 3.0, partial(self._ask, "cluster.add-copy", group=group, node=name))

    def _add_copy(self) -> None:
        """On a node that no file names for it. It goes again, perhaps, or stays."""
        world, chance = self._world, self._elsewhere
        group = chance.choice(sorted(world.shape.groups))
        configuration = latest(group, list(world.nodes()))
        others = [name for name in world.machines if configuration is not None and name not in configuration.members]
        if not others or world.shape.buses:  # who holds a copy has to be on its group's bus
            return
        name = chance.choice(others)
        self._ask("cluster.add-copy", group=group, node=name)
        if chance.random() < 0.7:
            self._later(chance.random() * 3.0, partial(self._ask, "cluster.remove-copy", group=group, node=name))

    # -- clients ---------------------------------------------------------------------------------------

    def _crash_client(self) -> None:
        alive = [application for application in self._world.applications if application.client.is_alive]
        if alive:
            application = self._chance.choice(alive)
            notice_s = self._chance.choice((0.0, 0.1, _NOTICE_S_MAX)) * self._chance.random()
            application.client.crash(broker_after_s=notice_s)
            self._later(self._chance.random(), partial(self._world.replace, application))
