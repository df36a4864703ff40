"""The configuration of a replica group, and the rules by which one follows from another.

A replica group is one logical message manager. Which replicas hold everything that was confirmed, and which of them
orders, is its configuration: decided by group services alone, each one under the next epoch.

    epoch 0: not formed --formed--> epoch 1 --promoted, handed over, shrunk, admitted, member removed--> 2, 3, ...

- A replica is (node, store): the store's id is drawn when its data directory is made. A node that comes back with an
  empty disk is another replica, and can never be taken for one that is in sync.
- `in_sync` is in order of rank, the primary first. Every replica in it holds every write that was ever confirmed. So
  any of them may be promoted, and nobody else.
- A rule takes the configuration that it changes together with the epoch that its caller believes in, and raises
  `Rejected("stale-epoch")` if that is not the current one: compare-and-set.
- A primary is named together with the incarnation of its node. One that restarts is primary no more: it may have lost
  orders that its backups have, and must not order anew under the same epoch.
"""
from collections.abc import Mapping, Sequence

import msgspec

from angarium.core.errors import Rejected


class Replica(msgspec.Struct, frozen=True, array_like=True, order=True):
    node: str
    store: bytes

    def __str__(self) -> str:
        return f"{self.node}/{self.store.hex()[-6:]}"


class Position(msgspec.Struct, frozen=True, array_like=True, order=True):
    """How far a store is: the last write that it holds, and the epoch in which that was ordered."""

    epoch: int
    number: int


EMPTY = Position(0, 0)


class GroupConfiguration(msgspec.Struct, frozen=True, array_like=True):
    group: str
    number: int  # unique in the cluster; the high bits of the ids of its destinations
    epoch: int  # 0: not formed yet, nobody orders
    primary: Replica | None  # None only at epoch 0
    in_sync: tuple[Replica, ...]  # in order of rank, the primary first
    members: tuple[str, ...]  # names of the nodes that shall hold a copy
    copies: int  # wanted
    min_copies: int  # with fewer in sync the primary confirms nothing
    incarnation: bytes = b""  # of the primary's node when it was named

    @property
    def is_formed(self) -> bool:
        return self.epoch > 0


def min_copies_of(copies: int) -> int:
    """A majority of the copies, rounded down for two: 1 -> 1, 2 -> 1, 3 -> 2, 5 -> 3."""
    if copies < 1:
        raise ValueError(f"a group of {copies} copies: at least 1")
    return 1 if copies == 2 else copies // 2 + 1


def configured(group: str, number: int, members: Sequence[str]) -> GroupConfiguration:
    """A group that is to be formed."""
    copies = len(members)
    return GroupConfiguration(group, number, 0, None, (), tuple(members), copies, min_copies_of(copies))


def formed(current: GroupConfiguration, replicas: Sequence[Replica], incarnation: bytes) -> GroupConfiguration:
    """Of all members, whose stores are all empty: the first configured one is primary."""
    if current.is_formed:
        raise Rejected("stale-epoch", f"group {current.group!r} is formed already: epoch {current.epoch}")
    if tuple(replica.node for replica in replicas) != current.members:
        raise Rejected("bad-members", f"group {current.group!r} is formed of {current.members}, in this order")
    return _next(current, replicas, incarnation)


def promoted(
    current: GroupConfiguration, epoch: int, in_sync: Sequence[Replica], incarnation: bytes
) -> GroupConfiguration:
    """The first of `in_sync` becomes primary: also when it was before, and has restarted."""
    _check(current, epoch)
    strangers = [str(replica) for replica in in_sync if replica not in current.in_sync]
    if strangers or not in_sync or len(set(in_sync)) != len(in_sync):
        listed = ", ".join(map(str, in_sync)) or "nobody"
        raise Rejected("not-in-sync", f"group {current.group!r} epoch {epoch}: {listed} cannot be its in-sync replicas")
    return _next(current, in_sync, incarnation)


def shrunk(
    current: GroupConfiguration, epoch: int, primary: Replica, gone: Sequence[Replica]
) -> GroupConfiguration:
    """The primary goes on without some backups; or without any change, which voids what it asked for before."""
    _check(current, epoch)
    _check_primary(current, primary)
    if primary in gone:
        raise Rejected("is-primary", f"group {current.group!r} epoch {epoch}: the primary cannot take itself out")
    return _next(current, [r for r in current.in_sync if r not in gone], current.incarnation)


def admitted(current: GroupConfiguration, epoch: int, primary: Replica, replica: Replica) -> GroupConfiguration:
    """The primary vouches for a replica: it has all, and from now on nothing is confirmed without it."""
    _check(current, epoch)
    _check_primary(current, primary)
    if replica.node not in current.members:
        raise Rejected("not-a-member", f"group {current.group!r}: {replica.node!r} is none of {current.members}")
    if any(present.node == replica.node for present in current.in_sync):
        raise Rejected("in-sync-already", f"group {current.group!r}: a replica of {replica.node!r} is in sync already")
    return _next(current, [*current.in_sync, replica], current.incarnation)


def with_members(
    current: GroupConfiguration, epoch: int, members: Sequence[str], in_sync: Sequence[Replica]
) -> GroupConfiguration:
    """The administrator adds or removes copies. Whoever is no member is not in sync either; the primary stays."""
    _check(current, epoch)
    copies = len(members)
    if not members or len(set(members)) != copies:
        raise Rejected("bad-members", f"group {current.group!r}: {tuple(members)} is no list of different nodes")
    changed = msgspec.structs.replace(
        current, members=tuple(members), copies=copies, min_copies=min_copies_of(copies)
    )
    if not current.is_formed:
        return changed
    if in_sync[:1] != current.in_sync[:1]:
        primary = current.in_sync[0].node
        raise Rejected("is-primary", f"group {current.group!r}: node {primary!r} is primary; move the primary first")
    return _next(changed, in_sync, current.incarnation)


def best(current: GroupConfiguration, positions: Mapping[Replica, Position], wanted: Replica | None) -> list[Replica]:
    """Those that answered, the next primary first: the highest position, ties by rank.

    `wanted`, to whom the primary is to be moved, wins if nobody is ahead of it."""
    answered = [replica for replica in current.in_sync if replica in positions]
    highest = max(positions[replica] for replica in answered)
    ahead = [replica for replica in answered if positions[replica] == highest]
    primary = wanted if wanted in ahead else ahead[0]
    assert primary is not None
    return [primary, *(replica for replica in answered if replica != primary)]


def _check(current: GroupConfiguration, epoch: int) -> None:
    if epoch != current.epoch:
        raise Rejected("stale-epoch", f"group {current.group!r} is at epoch {current.epoch}, not {epoch}")


def _check_primary(current: GroupConfiguration, primary: Replica) -> None:
    if primary != current.primary:
        raise Rejected("not-primary", f"group {current.group!r}: the primary is {current.primary}, not {primary}")


def _next(current: GroupConfiguration, in_sync: Sequence[Replica], incarnation: bytes) -> GroupConfiguration:
    return msgspec.structs.replace(
        current, epoch=current.epoch + 1, primary=in_sync[0], in_sync=tuple(in_sync), incarnation=incarnation
    )
