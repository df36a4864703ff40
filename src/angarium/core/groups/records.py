"""What group services agree about, piece by piece: values that are decided, stored and sent."""
import zlib
from typing import Any

import msgspec

from angarium.core.groups.configuration import GroupConfiguration

SLOTS = 1024  # of the placement table: slot = crc32(name) % SLOTS


class Voter(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A voter is its disk: a node that lost it comes back under another store id, and votes only if it is taken in."""

    node: str
    store: bytes

    def __str__(self) -> str:
        return f"{self.node}/{self.store.hex()[-6:]}"


class Hosted(msgspec.Struct, frozen=True, array_like=True):
    """A replica that a node holds."""

    group: str
    store: bytes
    is_empty: bool  # when the node announced it: no epoch was ever seen there


class NodeRecord(msgspec.Struct, frozen=True, array_like=True):
    name: str
    incarnation: bytes  # fresh at each start; an address is never an identity
    addresses: tuple[str, ...]
    roles: tuple[str, ...]
    hosts: tuple[Hosted, ...] = ()
    voter_store: bytes = b""  # of its log of decisions; empty: it cannot vote
    replaced: tuple[bytes, ...] = ()  # earlier incarnations of this name: they never come back

    def holds(self, group: str, store: bytes) -> bool:
        return any(hosted.group == group and hosted.store == store for hosted in self.hosts)


class Member(msgspec.Struct, frozen=True, array_like=True):
    """Of a named group. A node may be in it several times under different labels (one for each adapter)."""

    node: str
    incarnation: bytes
    label: str = ""


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A destination is being moved: see core/moving. Numbers ascend, and are never used twice."""

    number: int
    source: int  # numbers of groups
    target: int


class MoveEnd(msgspec.Struct, frozen=True, array_like=True):
    """The move of that number came to nothing."""

    number: int
    code: str
    reason: str


class Placement(msgspec.Struct, frozen=True, array_like=True):
    version: int = 0
    slots: tuple[int, ...] = ()  # numbers of groups; empty until they are dealt
    exceptions: dict[str, int] = msgspec.field(default_factory=dict)  # destination's name -> number of its group
    moves: dict[str, Move] = msgspec.field(default_factory=dict)  # by name: under way
    moves_begun: int = 0  # the number of the last one
    moves_ended: dict[str, MoveEnd] = msgspec.field(default_factory=dict)  # by name: the last few that were given up

    def group_of(self, name: str) -> int:
        """Where the administrator has moved it, or else where its slot is; to be asked once slots are dealt."""
        moved = self.exceptions.get(name)
        return self.slot_of(name) if moved is None else moved

    def slot_of(self, name: str) -> int:
        """The group to which its name belongs: the same for ever, since slots are dealt once."""
        return self.slots[zlib.crc32(name.encode()) % len(self.slots)]


class Setting(msgspec.Struct, frozen=True, array_like=True):
    """A value of the acquirable configuration."""

    version: int  # of the whole configuration when it was set
    value: bytes


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """Of what is decided. One past a limit the decision is refused with `too-many` or `too-long`."""

    nodes_max: int = 1_000
    voters_max: int = 5  # more would make every decision slower, and nothing safer
    addresses_max: int = 16  # of one node
    roles_max: int = 16  # of one node
    hosts_max: int = 64  # replicas of one node
    named_groups_max: int = 4_000
    members_max: int = 1_000  # of one named group
    replica_groups_max: int = 256
    copies_max: int = 9  # of one replica group
    exceptions_max: int = 10_000  # destinations that were moved
    settings_max: int = 4_000  # keys of the acquirable configuration
    setting_bytes_max: int = 64 << 10  # one value
    settings_bytes_max: int = 4 << 20  # all of them
    name_characters_max: int = 255  # of a node, group, label, key, address or role
    moves_max: int = 16  # destinations that are being moved at once


class State(msgspec.Struct, frozen=True, array_like=True):
    """Everything decided so far. Equal on all nodes that have applied the same index."""

    index: int = 0
    cluster: bytes = b""
    essential: bytes = b""  # digest of the parameters that all nodes must share
    voters: tuple[Voter, ...] = ()
    voters_wanted: tuple[str, ...] = ()  # nodes
    view_id: int = 0  # index of the decision that last changed `nodes`
    nodes: tuple[NodeRecord, ...] = ()  # in the order in which they joined
    draining: tuple[str, ...] = ()
    named: dict[str, tuple[Member, ...]] = msgspec.field(default_factory=dict)  # in the order in which they joined
    groups: dict[str, GroupConfiguration] = msgspec.field(default_factory=dict)
    placement: Placement = Placement()
    limits: Limits = Limits()
    settings_version: int = 0
    settings: dict[str, Setting] = msgspec.field(default_factory=dict)

    def node(self, name: str) -> NodeRecord | None:
        return _by_name(self.nodes).get(name)

    def is_here(self, name: str, incarnation: bytes) -> bool:
        node = self.node(name)
        return node is not None and node.incarnation == incarnation

    def with_index(self, index: int) -> "State":
        return msgspec.structs.replace(self, index=index)

    def but(self, **changes: Any) -> "State":
        return msgspec.structs.replace(self, **changes)


# Views that were looked into lately, by name: a judge asks for many nodes of one view. Holds the views themselves, so
# that an id is not given to another one meanwhile.
_LOOKED_INTO_MAX = 64
_looked_into: dict[int, tuple[tuple[NodeRecord, ...], dict[str, NodeRecord]]] = {}


def _by_name(nodes: tuple[NodeRecord, ...]) -> dict[str, NodeRecord]:
    found = _looked_into.get(id(nodes))
    if found is None:
        if len(_looked_into) >= _LOOKED_INTO_MAX:
            del _looked_into[next(iter(_looked_into))]
        found = _looked_into[id(nodes)] = (nodes, {node.name: node for node in nodes})
    return found[1]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(State).decode


def encode_state(state: State) -> bytes:
    return _encode(state)


def decode_state(data: bytes) -> State:
    return _decode(data)
