"""A group of replicas in trouble: machines, disks, links, a channel, a decider, publishers, and a ledger of promises.

    safety:    trouble of the kinds that the seed has drawn; every promise is checked as things happen
    liveness:  all is healed; every replica has to be in sync and equal, and everything published confirmed

`ReplicaWorld(seed).run()` twice gives the same trace to the last bit.
"""
from collections.abc import Iterator
from functools import partial
from random import Random

from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.messages import Fenced, FromReplicaMessage
from angarium.core.replication.events import ReplicationSettings
from angarium.sim.clock import Clock
from angarium.sim.disk import SimDiskSettings
from angarium.sim.messages import Violation
from angarium.sim.replicas.checkers import Ledger
from angarium.sim.replicas.faults import Faults
from angarium.sim.replicas.groups import Decider
from angarium.sim.replicas.network import ReplicaNetwork
from angarium.sim.replicas.node import SimReplica
from angarium.sim.replicas.real import batch_of
from angarium.sim.trace import Trace
from angarium.sim.world import Outcome


class Publisher:
    """A client manager: what it sends reaches every replica that is there, each at its own time; it repeats what is not
    confirmed."""

    def __init__(self, world: "ReplicaWorld", name: str, messages: int) -> None:
        self.left = messages
        self.unconfirmed: dict[bytes, bytes] = {}  # id -> payload
        self._world = world
        self._name = name
        self._chance = world.chance(f"publisher {name}")
        self._sequence = 0
        self.published = 0
        self._latency_s = {node: self._chance.random() * world.latency_s_max for node in world.members}
        self._loss = self._chance.choice((0.0, 0.02, 0.2))
        self._mean_s = world.settings_chance.choice((0.005, 0.02, 0.05))
        world.clock.after(0.1, self._publish)
        world.clock.after(0.5, self._repeat)

    def _publish(self) -> None:
        if self.left > 0:
            if len(self.unconfirmed) < 60:
                self.left -= 1
                self.published += 1
                uid = f"{self._name}{self.published:05}".encode()
                size = self._chance.choice((5, 40, 200, 600))
                body = uid + self._chance.randbytes(size)
                self.unconfirmed[uid] = batch_of(uid, body) if self._world.is_real else body
                self._send(uid)
            self._world.clock.after(self._chance.expovariate(1 / self._mean_s), self._publish)

    def _repeat(self) -> None:
        confirmed = self._world.ledger.confirmed
        self.unconfirmed = {uid: payload for uid, payload in self.unconfirmed.items() if uid not in confirmed}
        for uid in list(self.unconfirmed)[:20]:
            self._send(uid)
        if self.left or self.unconfirmed:
            self._world.clock.after(0.4, self._repeat)

    def _send(self, uid: bytes) -> None:
        self._sequence += 1
        payload = bytes(bytearray(self.unconfirmed[uid]))  # another object each time
        for name, node in self._world.nodes.items():
            if self._chance.random() >= self._loss:
                heard = partial(node.heard, self._name.encode(), self._sequence, uid, payload)
                self._world.clock.after(self._latency_s[name], heard)


class ReplicaWorld:
    def __init__(self, seed: int, *, replicas: int = 0, is_traced: bool = False, calm: bool = False) -> None:
        self.seed = seed
        chance = self.settings_chance = self.chance("settings")
        self.clock = Clock(self.chance("clock"))
        self.trace = Trace(self.clock, is_read=is_traced)
        self.replication = draw_settings(chance)
        self.ledger = Ledger(self.replication, self._decided)
        self.latency_s_max = chance.choice((0.0005, 0.002, 0.02))
        self.network = ReplicaNetwork(
            self.clock, self.trace, self.chance("network"), latency_s_max=self.latency_s_max, channel_messages_max=30
        )
        self.disk_settings = SimDiskSettings(
            sync_s_max=chance.choice((0.001, 0.005, 0.03)), group_bytes_target=chance.choice((1, 2_000, 1 << 20)),
            checkpoint_groups=chance.choice((4, 32)), retry_after_s=0.1,
        )  # fmt: skip
        self.is_real = chance.random() < 0.3  # real message managers, rather than stand-ins
        self.members = list("abcde"[: replicas or chance.choice((1, 2, 2, 3, 3, 3, 4, 5))])
        self.decider = Decider(self, self.chance("decider"), self.members)
        self.nodes = {name: SimReplica(self, name) for name in self.members}
        for node in self.nodes.values():
            node.start()
        self.decider.form()
        messages = chance.choice((60, 120, 240))
        self.publishers = [Publisher(self, name, messages // 2) for name in ("p", "q")]
        self.trouble_s = chance.choice((3.0, 6.0))
        self.faults = None if calm else Faults(self, self.chance("faults"))

    def chance(self, purpose: str) -> Random:
        """A source of its own for each purpose: one more draw here changes nothing there."""
        return Random(f"{self.seed} replicas {purpose}")

    def _decided(self) -> GroupConfiguration:
        return self.decider.current

    def to_groups(self, node: SimReplica, message: FromReplicaMessage) -> None:
        self.decider.received(node, message)
        if isinstance(message, Fenced) and self.faults is not None:
            self.faults.promised(node)

    def node_started(self, node: SimReplica) -> None:
        self.decider.node_started(node)

    # -- running ---------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        self.clock.run_until(self.trouble_s)
        if self.faults is not None:
            self.faults.stop()
        self.settle()
        published = sum(publisher.published for publisher in self.publishers)
        self.ledger.count(f"groups of {len(self.members)}")
        self.ledger.count("real message managers" if self.is_real else "stand-ins")
        return Outcome(
            self.seed, self.trace.digest(), self.faults.kinds if self.faults else [], published,
            len(self.ledger.confirmed), self.clock.happened, self.clock.now, dict(self.ledger.tally),
        )  # fmt: skip

    def settle(self, *, within_s: float = 60.0) -> None:
        """Wait until every replica is in sync and equal, and everything is confirmed."""
        until = self.clock.now + within_s
        while True:
            self.clock.run_until(self.clock.now + 0.25)
            missing = next(self._undone(), None)
            if missing is None:
                break
            if self.clock.now >= until:
                raise Violation("a healed group is whole", "; ".join(list(self._undone())[:6]))
        self.ledger.check_healed(self.decider.current)

    def _undone(self) -> Iterator[str]:
        configuration = self.decider.current
        for node in self.nodes.values():
            if not node.is_up:
                yield f"{node.name} is down"
            elif node.replica not in configuration.in_sync:
                yield f"{node.replica} is not in sync"
            elif not node.disk.is_idle:
                yield f"the disk of {node.name} is busy"
        assert configuration.primary is not None
        if self.nodes[configuration.primary.node].manager is None:
            yield f"{configuration.primary} has no message manager"
        for publisher in self.publishers:
            if publisher.left or publisher.unconfirmed:
                yield f"{publisher.left} to publish, {len(publisher.unconfirmed)} not confirmed"
        mirrors = [self.ledger.disks[replica].mirror for replica in configuration.in_sync]
        if len({mirror.position for mirror in mirrors}) != 1:
            yield f"positions {[mirror.position.number for mirror in mirrors]}"


def draw_settings(chance: Random) -> ReplicationSettings:
    return ReplicationSettings(
        window_bytes_max=chance.choice((2_000, 20_000)),
        window_orders_max=chance.choice((3, 50)),
        waiting_bytes_max=chance.choice((5_000, 100_000)),
        recent_bytes_max=chance.choice((1_000, 10_000, 50_000)),
        recent_orders_max=chance.choice((5, 1_000)),
        batch_bytes_max=chance.choice((300, 3_000)),
        payload_bytes_max=chance.choice((1_000, 20_000)),
        reference_bytes_min=30,
        inbox_bytes_max=chance.choice((2_000, 20_000)),
        range_bytes=chance.choice((500, 5_000)),
        range_within_s=0.5,
        ranges_max=chance.choice((1, 4)),
        ack_within_s=chance.choice((0.4, 1.0)),
        ask_again_s=chance.choice((0.1, 0.3)),
        readmit_after_s=chance.choice((0.1, 0.5)),
        epochs_max=chance.choice((3, 50)),
    )
