"""What goes wrong, and when: one seed draws which kinds of trouble a run has, how often, and every detail.

Each run has a few kinds only (all kinds at once hide each other). `stop` heals everything: the broker runs, the disk
has room and is quick, connections are accepted, and no more faults come.
"""
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol

from angarium.sim.broker import SimBroker
from angarium.sim.client import SimClient
from angarium.sim.clock import Clock
from angarium.sim.disk import SimDisk
from angarium.sim.network import Link, Network
from angarium.sim.trace import Trace

KINDS_CHANCE = 0.35  # that a run has a certain kind of trouble
_NOTICE_S_MAX = 6.0  # until an end notices that the other one is silent


class Participant(Protocol):
    """An application, as the world and its troubles see it."""

    client: SimClient
    messages_left: int

    @property
    def is_done(self) -> bool: ...

    def calm_down(self) -> None: ...


class Afflicted(Protocol):
    """What faults need of the world."""

    clock: Clock
    trace: Trace
    network: Network
    disk: SimDisk
    broker: SimBroker
    applications: list[Participant]

    def spoil_batch(self, key: bytes) -> None: ...

    def replace(self, application: Participant) -> None: ...


class Faults:
    def __init__(self, world: Afflicted, chance: Random, kinds_wanted: Sequence[str] | None = None) -> None:
        """`kinds_wanted`: these kinds of trouble; None: the seed draws them."""
        self._world = world
        self._chance = chance
        self._is_over = False
        kinds: dict[str, tuple[Callable[[], None], float]] = {  # name -> what happens, mean seconds between
            "cut": (self._cut, 1.0),
            "cut-at-a-byte": (self._cut_at_a_byte, 0.8),
            "half-open": (self._half_open, 2.0),
            "stall": (self._stall, 1.0),
            "swallow": (self._swallow, 3.0),
            "broker-crash": (self._crash_broker, 3.0),
            "crash-at-a-sync": (self._crash_at_a_sync, 2.5),
            "broker-restart": (self._restart_broker, 4.0),
            "broker-pause": (self._pause_broker, 3.0),
            "disk-full": (self._fill_disk, 3.0),
            "disk-slow": (self._slow_disk, 3.0),
            "disk-error": (self._fail_disk, 1.5),
            "damage": (self._damage, 2.5),
            "client-crash": (self._crash_client, 2.0),
            "manager-crash": (self._crash_manager, 1.5),
            "manager-crash-at-a-sync": (self._crash_manager_at_a_sync, 2.0),
        }
        drawn = [name for name in kinds if chance.random() < KINDS_CHANCE]
        self.kinds = drawn if kinds_wanted is None else list(kinds_wanted)
        for name in self.kinds:
            self._schedule(*kinds[name])

    def stop(self) -> None:
        self._is_over = True
        world = self._world
        world.trace.note("faults", "all is healed")
        world.disk.before_sync = world.disk.after_sync = None
        world.disk.fill(False)
        world.disk.fail_next(0)
        world.disk.slowness = 1.0
        world.network.swallows_until = 0.0
        world.broker.start()
        world.broker.start_manager()

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

    # -- the network ---------------------------------------------------------------------------------

    def _some_link(self) -> Link | None:
        links = list(self._world.network.links.values())
        return self._chance.choice(links) if links else None

    def _cut(self) -> None:
        if (link := self._some_link()) is not None:
            link.cut(
                "cut", client_after_s=self._chance.random() * 0.1, broker_after_s=self._chance.random() * 0.1
            )

    def _cut_at_a_byte(self) -> None:
        if (link := self._some_link()) is not None:
            stream = self._chance.choice((link.to_broker, link.to_client))
            stream.break_after_bytes = self._chance.choice((1, 20, 300, 3_000)) + self._chance.randrange(100)

    def _half_open(self) -> None:
        """One end notices at once, the other one much later or by its own heartbeat."""
        if (link := self._some_link()) is not None:
            delays = [self._chance.random() * 0.05, self._chance.random() * _NOTICE_S_MAX]
            self._chance.shuffle(delays)
            link.cut("half open", client_after_s=delays[0], broker_after_s=delays[1])

    def _stall(self) -> None:
        if (link := self._some_link()) is not None:
            stream = self._chance.choice((link.to_broker, link.to_client))
            seconds = self._chance.choice((0.05, 0.5, 3.0)) * self._chance.random()
            self._note(f"link {link.number} stalls for {seconds:.3f} s")
            stream.stall(seconds)

    def _swallow(self) -> None:
        self._world.network.swallows_until = self._world.clock.now + self._chance.random()

    # -- the broker ----------------------------------------------------------------------------------

    def _crash_broker(self) -> None:
        broker, chance = self._world.broker, self._chance
        broker.crash(keeps_staged=chance.random() < 0.5, is_power_cut=chance.random() < 0.3)
        self._later(self._down_s(), broker.start)

    def _crash_at_a_sync(self) -> None:
        """Die when the next group is about to be durable, or when it is and nobody has been told."""
        self._at_a_sync(self._crash_broker)

    def _at_a_sync(self, happen: Callable[[], None]) -> None:
        disk = self._world.disk
        if self._chance.random() < 0.5:
            disk.before_sync = happen
        else:
            disk.after_sync = happen

    def _crash_manager(self) -> None:
        """The message manager alone: clients keep their connections, and some sessions are opened again."""
        broker, chance = self._world.broker, self._chance
        broker.crash_manager(keeps_staged=chance.random() < 0.5)
        notice_s = chance.choice((0.0, 0.01, 0.2)) * chance.random()
        self._later(self._down_s(), partial(broker.start_manager, notice_s=notice_s))

    def _crash_manager_at_a_sync(self) -> None:
        self._at_a_sync(self._crash_manager)

    def _restart_broker(self) -> None:
        self._world.broker.shut_down()
        self._later(self._down_s(), self._world.broker.start)

    def _pause_broker(self) -> None:
        if self._world.broker.node is not None:
            self._world.broker.node.pause(self._chance.choice((0.1, 1.0, 8.0)) * self._chance.random())

    def _down_s(self) -> float:
        return self._chance.choice((0.01, 0.3, 3.0)) * self._chance.random()

    # -- the disk ------------------------------------------------------------------------------------

    def _fill_disk(self) -> None:
        self._note("the disk is full")
        self._world.disk.fill(True)
        self._later(self._chance.choice((0.1, 1.0, 3.0)) * self._chance.random(), self._make_room)

    def _make_room(self) -> None:
        self._note("the disk has room")
        self._world.disk.fill(False)

    def _slow_disk(self) -> None:
        self._world.disk.slowness = self._chance.choice((1.0, 10.0, 100.0))
        self._note(f"the disk is {self._world.disk.slowness:g} times slower")

    def _fail_disk(self) -> None:
        self._world.disk.fail_next(self._chance.randint(1, 3))

    def _damage(self) -> None:
        keys = self._world.disk.sound_batches()
        if keys:
            self._world.spoil_batch(self._chance.choice(keys))

    # -- clients -------------------------------------------------------------------------------------

    def _crash_client(self) -> None:
        alive = [application for application in self._world.applications if application.client.is_alive]
        if alive:
            application = self._chance.choice(alive)
            self._crash(application.client)
            self._later(self._chance.random(), partial(self._world.replace, application))

    def _crash(self, client: SimClient) -> None:
        client.crash(broker_after_s=self._chance.choice((0.0, 0.1, _NOTICE_S_MAX)) * self._chance.random())
