"""What a node is told when the decided state moves on: in the order of decisions, each exactly once.

`changes_between` compares two states, so a single decision and a jump to a snapshot are told in the same way: whoever
listens need not know how the node came to learn it. Each change carries the index it holds for.
"""
import msgspec

from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.records import Member, NodeRecord, Placement, State, Voter


class ViewChanged(msgspec.Struct, frozen=True):
    index: int
    view_id: int
    nodes: tuple[NodeRecord, ...]  # in the order in which they joined
    joined: tuple[NodeRecord, ...]  # also with a new record of the same incarnation
    gone: tuple[NodeRecord, ...]
    draining: tuple[str, ...] = ()


class NamedGroupChanged(msgspec.Struct, frozen=True):
    index: int
    group: str
    members: tuple[Member, ...]  # in the order in which they joined; empty: the group is no more
    joined: tuple[Member, ...]
    gone: tuple[Member, ...]


class ReplicaGroupChanged(msgspec.Struct, frozen=True):
    index: int
    configuration: GroupConfiguration


class PlacementChanged(msgspec.Struct, frozen=True):
    index: int
    placement: Placement


class SettingsChanged(msgspec.Struct, frozen=True):
    """Of the acquirable configuration."""

    index: int
    version: int
    changed: dict[str, bytes | None]  # None: removed


class VotersChanged(msgspec.Struct, frozen=True):
    index: int
    voters: tuple[Voter, ...]


class EssentialChanged(msgspec.Struct, frozen=True):
    index: int
    digest: bytes


Change = (
    ViewChanged | NamedGroupChanged | ReplicaGroupChanged | PlacementChanged | SettingsChanged | VotersChanged
    | EssentialChanged
)  # fmt: skip


def changes_between(old: State, new: State) -> list[Change]:
    found: list[Change] = []
    index = new.index
    if new.voters != old.voters:
        found.append(VotersChanged(index, new.voters))
    if new.essential != old.essential:
        found.append(EssentialChanged(index, new.essential))
    if new.nodes is not old.nodes or new.draining is not old.draining:
        found += _view(old, new)
    if new.named is not old.named:
        found += _named(old, new)
    if new.groups is not old.groups:
        found += [
            ReplicaGroupChanged(index, group)
            for name, group in new.groups.items()
            if group != old.groups.get(name)
        ]
    if new.placement is not old.placement and new.placement != old.placement:
        found.append(PlacementChanged(index, new.placement))
    if new.settings_version != old.settings_version:
        changed: dict[str, bytes | None] = {
            key: setting.value for key, setting in new.settings.items() if setting != old.settings.get(key)
        }
        changed |= {key: None for key in old.settings if key not in new.settings}
        found.append(SettingsChanged(index, new.settings_version, changed))
    return found


def _view(old: State, new: State) -> list[Change]:
    before = {(node.name, node.incarnation): node for node in old.nodes}
    after = {(node.name, node.incarnation): node for node in new.nodes}
    joined = tuple(node for key, node in after.items() if before.get(key) != node)
    gone = tuple(node for key, node in before.items() if key not in after)
    if not joined and not gone and new.draining == old.draining and new.view_id == old.view_id:
        return []
    return [ViewChanged(new.index, new.view_id, new.nodes, joined, gone, new.draining)]


def _named(old: State, new: State) -> list[Change]:
    found: list[Change] = []
    for group in [*new.named, *(name for name in old.named if name not in new.named)]:
        before, after = old.named.get(group, ()), new.named.get(group, ())
        if before != after:
            joined = tuple(member for member in after if member not in before)
            gone = tuple(member for member in before if member not in after)
            found.append(NamedGroupChanged(new.index, group, after, joined, gone))
    return found
