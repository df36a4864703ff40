"""What every node of a cluster sees at the same time, as events: each writes it to its file, one of them tells all."""
import logging

from angarium.core.groups.changes import NamedGroupChanged, ViewChanged
from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.records import Member
from angarium.node.event_log import LOCAL

_log = logging.getLogger("angarium")


def tell_view(change: ViewChanged, *, is_leader: bool) -> None:
    """The leader of group services tells it to all."""
    extra = None if is_leader else LOCAL
    present = ", ".join(record.name for record in change.nodes)
    for record in change.joined:
        _log.info("joined: node %s; view %d: %s", record.name, change.view_id, present, extra=extra)
    for record in change.gone:
        _log.info("left: node %s; view %d: %s", record.name, change.view_id, present, extra=extra)


def tell_named(change: NamedGroupChanged, *, is_leader: bool) -> None:
    """As of the view: who is there now, the first of them first."""
    extra = None if is_leader else LOCAL
    members = ", ".join(_shown(member) for member in change.members) or "nobody"
    for member in change.joined:
        _log.info("named-group-joined: %s is in %r, with %s", _shown(member), change.group, members, extra=extra)
    for member in change.gone:
        _log.info("named-group-left: %s was in %r; left are %s", _shown(member), change.group, members, extra=extra)


def _shown(member: Member) -> str:
    return f"{member.node}/{member.label}" if member.label else member.node


def tell_in_sync(
    name: str, before: GroupConfiguration | None, now: GroupConfiguration, *, is_here: bool
) -> None:
    """Whoever comes into the in-sync set, or falls out of it, tells it to all; not a node that only learns now, as it
    joins, what happened while it was away."""
    was = before is not None and any(replica.node == name for replica in before.in_sync)
    is_now = any(replica.node == name for replica in now.in_sync)
    code = "in-sync" if is_now and not was else "out-of-sync" if was and not is_now else "group-changed"
    in_sync = ", ".join(member.node for member in now.in_sync)
    extra = LOCAL if code == "group-changed" or not is_here else None
    _log.info("%s: group %r, epoch %d, in sync are %s", code, now.group, now.epoch, in_sync, extra=extra)
