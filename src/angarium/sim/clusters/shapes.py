"""How many nodes a simulated cluster has, and what each of them is."""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from angarium.core.destination.events import DestinationSettings
from angarium.core.replication.events import ReplicationSettings
from angarium.core.session.events import SessionSettings
from angarium.core.stream.events import StreamSettings
from angarium.node.cluster.settings import ClusterSettings
from angarium.node.config import NodeConfig, NodeSettings
from angarium.sim.clusters.node import CLIENT_PORT, LINK_PORT
from angarium.sim.world import WorldSettings

_SECRET = "nobody listens in a simulation"


@dataclass(frozen=True, slots=True)
class Shape:
    groups: dict[str, tuple[str, ...]]  # who holds a copy
    client_managers: tuple[str, ...]
    voters: tuple[str, ...]
    buses: tuple[str, ...] = ()  # several, as `cluster.buses` has them

    @property
    def nodes(self) -> list[str]:
        members = [node for group in self.groups.values() for node in group]
        return list(dict.fromkeys([*self.voters, *members, *self.client_managers]))

    def host(self, node: str) -> str:
        return f"10.0.0.{self.nodes.index(node) + 1}"


USUAL = Shape({"a": ("a1", "a2", "a3"), "b": ("b1", "b2", "b3")}, ("cm1", "cm2"), ("a1", "b1", "cm1"))

LARGE = Shape(
    {"a": ("a1", "a2", "a3"), "b": ("b1", "b2", "b3"), "c": ("c1", "c2", "c3", "c4", "c5")}, ("cm1", "cm2", "cm3"),
    ("a1", "b1", "c1", "c2", "cm1"),
)  # fmt: skip


def draw_shape(chance: Random) -> Shape:
    shape = _draw_nodes(chance)
    return replace(shape, buses=_draw_buses(shape, chance))


def _draw_buses(shape: Shape, chance: Random) -> tuple[str, ...]:
    """One, or two in one of the arrangements that the shape allows."""
    arrangements: list[tuple[str, ...]] = [(), ("red", "blue")]
    groups, managers = list(shape.groups.values()), shape.client_managers
    if set(managers).isdisjoint(node for members in groups for node in members):
        if len(groups) > 1:
            arrangements.append(_dealt([" ".join(members) for members in groups]))
        if len(managers) > 1:
            arrangements.append(_dealt(managers))
    return chance.choice(arrangements)


def _dealt(nodes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{bus}: {' '.join(nodes[at::2])}" for at, bus in enumerate(("red", "blue")))


def _draw_nodes(chance: Random) -> Shape:
    drawn = chance.random()
    if drawn < 0.4:
        return USUAL if drawn < 0.3 else LARGE
    if chance.random() < 0.5:  # every node is everything
        nodes = tuple(f"n{number + 1}" for number in range(chance.choice((1, 2, 3, 5))))
        groups = {name: nodes[: chance.randint(1, len(nodes))] for name in "abc"[: chance.randint(1, 3)]}
        return Shape(groups, nodes, _draw_voters(nodes, chance))
    groups = {
        name: tuple(f"{name}{number + 1}" for number in range(chance.choice((1, 2, 3, 3, 5))))
        for name in "abc"[: chance.randint(1, 3)]
    }
    managers = tuple(f"cm{number + 1}" for number in range(chance.randint(1, 3)))
    members = tuple(node for group in groups.values() for node in group)
    return Shape(groups, managers, _draw_voters((*members, *managers), chance))


def _draw_voters(nodes: tuple[str, ...], chance: Random) -> tuple[str, ...]:
    count = chance.choice([number for number in (1, 3, 3, 5) if number <= len(nodes)])
    return tuple(sorted(chance.sample(nodes, count)))


def configuration(shape: Shape, name: str, settings: WorldSettings, *, in_doubt_s: float) -> NodeConfig:
    destination = DestinationSettings(
        resume_grace_s=settings.grace_s, in_doubt_s=in_doubt_s, staged_keep_s=settings.staged_keep_s
    )
    return NodeConfig(
        node=NodeSettings(name=name, listen=f"{shape.host(name)}:{CLIENT_PORT}", data="/simulated"),
        session=SessionSettings(heartbeat_s=settings.heartbeat_s, connections_max=100),
        destination=destination,
        stream=StreamSettings(sync_fragments=2),
        replication=ReplicationSettings(batch_bytes_max=16 << 10),
        cluster=ClusterSettings(
            name="simulated", secret=_SECRET, listen=f"{shape.host(name)}:{LINK_PORT}",
            voters=tuple(f"{voter}={shape.host(voter)}:{LINK_PORT}" for voter in shape.voters),
            groups=tuple(f"{group}: {' '.join(members)}" for group, members in shape.groups.items()),
            client_manager=name in shape.client_managers, buses=shape.buses,
        ),
    )  # fmt: skip
