"""What every node of a cluster sees at the same time, as events: each writes it to its file, one of them tells all.

A node that starts hears of every decision that its log still has, or that of whoever feeds it: that is no news, and
would be told with the wrong time. So a node tells nothing before it has come into the view itself (`is_news`).
"""
import logging
from collections.abc import Collection

from angarium.core.groups.changes import NamedGroupChanged, ViewChanged
from angarium.core.groups.configuration import GroupConfiguration
from angarium.core.groups.records import Member
from angarium.node.event_log import LOCAL

_log = logging.getLogger("angarium")


def tell_view(change: ViewChanged, known: Collection[bytes], *, is_leader: bool, is_news: bool) -> None:
    """The leader of group services tells it to all. `known`: the incarnations that were in the view before; if one of
    them has another record, that is no news. One that has started again has left before it joined."""
    if not is_news:
        return
    extra = None if is_leader else LOCAL
    present = ", ".join(record.name for record in change.nodes)
    for record in change.gone:
        _log.info("left: node %s; view %d: %s", record.name, change.view_id, present, extra=extra)
    for record in change.joined:
        if record.incarnation not in known:
            _log.info("joined: node %s; view %d: %s", record.name, change.view_id, present, extra=extra)


def tell_named(change: NamedGroupChanged, *, is_leader: bool, is_news: bool) -> None:
    """As of the view: who is there now, the first of them first."""
    if not is_news:
        return
    extra = None if is_leader else LOCAL
    members = ", ".join(_shown(member) for member in change.members) or "nobody"
    for member in change.joined:
        _log.info("named-group-joined: %s is in %r, with %s", _shown(member), change.group, members, extra=extra)
    for member in change.gone:
        _log.info("named-group-left: %s was in %r; left are %s", _shown(member), change.group, members, extra=extra)


def _shown(member: Member) -> str:
    return f"{member.node}/{member.label}" if member.label else member.node


def tell_in_sync(
    name: str, before: GroupConfiguration | None, now: GroupConfiguration, *, is_here: bool, is_news: bool
) -> None:
    """Whoever comes into the in-sync set, or falls out of it, tells it to all; not a node that only learns, as it comes
    back, what happened while it was away."""
    if not is_news:
        return
    was = before is not None and any(replica.node == name for replica in before.in_sync)
    is_now = any(replica.node == name for replica in now.in_sync)
    code = "in-sync" if is_now and not was else "out-of-sync" if was and not is_now else "group-changed"
    in_sync = ", ".join(member.node for member in now.in_sync)
    extra = LOCAL if code == "group-changed" or not is_here else None
    _log.info("%s: group %r, epoch %d, in sync are %s", code, now.group, now.epoch, in_sync, extra=extra)
