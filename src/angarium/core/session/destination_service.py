"""Where in the cluster a destination is, and the way there and back: between a client manager and the replica groups.

A session speaks to destinations by id, and to "the message manager" by destination 0. Ids tell their group by
themselves; what is for the message manager goes

    by name      Locate, a Request that names a destination, a stream that is read by name: to the group of its slot,
                 or where the administrator has moved it; the dead message queue of a group to that group
    to all       what concerns the whole session or connection, watches, and lists

and what several groups answer becomes one answer: a list is merged by name, a watch is complete when it is in all of
them. A Request may ask for one group with the argument `group`.

Whatever a group has not answered when it is lost is forgotten: sessions that wait for it are detached, and ask again.
"""
from dataclasses import dataclass, field
from typing import Any

import msgspec

from angarium.core.errors import LocalProtocolError
from angarium.core.groups.records import Placement
from angarium.core.ids import group_of
from angarium.core.names import group_named, group_traced
from angarium.core.session.events import DestinationsMoved, FromBus, ToBus
from angarium.core.wire import frames

_LISTS = ("destination.list", "log.list")  # all groups together
_BY_NAME = "name"  # the argument that names the destination a request is about
_BROADCAST = (
    frames.SessionEnded, frames.ClientHere, frames.ClientEnded, frames.Watch, frames.WatchClose,
    frames.StreamCredit, frames.StreamReadEnd,
)  # fmt: skip


class Posted(msgspec.Struct, frozen=True):
    """For the message manager of that group."""

    group: int
    command: ToBus


@dataclass(slots=True)
class _Merging:
    """A request that several groups have been asked."""

    waiting_for: set[int]
    pages: list[list[dict[str, Any]]] = field(default_factory=list)


class DestinationService:
    def __init__(self) -> None:
        self._placement = Placement()
        self._groups: list[int] = []
        self._requests: dict[tuple[bytes, int], _Merging] = {}  # one for each session at most: it asks one at a time
        self._watches: dict[tuple[bytes, int, bytes], set[int]] = {}  # groups that have not yet told all they have

    @property
    def groups(self) -> list[int]:
        return self._groups

    def placed(self, placement: Placement) -> DestinationsMoved | None:
        """Whom to tell that destinations are elsewhere than before, or may have been meanwhile; None: nobody."""
        before, self._placement = self._placement, placement
        self._groups = sorted({*placement.slots, *placement.exceptions.values()})
        if not before.slots:
            return None
        names = sorted({*before.exceptions, *placement.exceptions})
        groups = {name: placement.group_of(name) for name in names}
        moved = {name: group for name, group in groups.items() if group != before.group_of(name)}
        # Of several changes at once only the last is seen: something may have gone and come back.
        is_unsure = placement.version > before.version + 1 and placement.moves_begun > before.moves_begun
        return DestinationsMoved(moved, is_unsure) if moved or is_unsure else None

    @property
    def is_placed(self) -> bool:
        return bool(self._placement.slots)

    def group_of_name(self, name: str) -> int:
        if not self._placement.slots:
            raise LocalProtocolError("nothing can be located before slots are dealt to groups")
        for numbered in (group_named(name), group_traced(name)):
            if numbered in self._groups:
                return numbered
        return self._placement.group_of(name)

    # -- towards the groups --------------------------------------------------------------------------------

    def route(self, command: ToBus) -> list[Posted]:
        if command.destination:
            return [Posted(group_of(command.destination), command)]
        frame = command.frame
        match frame:
            case frames.Locate(name):
                return [Posted(self.group_of_name(name), command)]
            case frames.Request():
                return self._request(command, frame)
            case frames.StreamRead():
                return [Posted(self.group_of_name(frame.destination), command)]
        if not isinstance(frame, _BROADCAST):
            raise LocalProtocolError(f"{type(frame).__name__} is for no message manager")
        if isinstance(frame, frames.Watch):
            self._watches[command.session, frame.watch, frame.attachment] = set(self._groups)
        if isinstance(frame, frames.SessionEnded | frames.WatchClose):
            self._forget_watches(command.session, frame)
        return [Posted(group, command) for group in self._groups]

    def _request(self, command: ToBus, frame: frames.Request) -> list[Posted]:
        asked = frame.arguments.get("group")
        name = frame.arguments.get(_BY_NAME)
        if isinstance(asked, int) and asked in self._groups:
            return [Posted(asked, command)]
        if isinstance(name, str) and name:
            return [Posted(self.group_of_name(name), command)]
        if frame.command not in _LISTS or len(self._groups) == 1:
            return [Posted(self._groups[0], command)]
        self._requests[command.session, frame.number] = _Merging(set(self._groups))
        return [Posted(group, command) for group in self._groups]

    def _forget_watches(self, session: bytes, frame: frames.SessionEnded | frames.WatchClose) -> None:
        closed = frame.watch if isinstance(frame, frames.WatchClose) else None
        for key in [key for key in self._watches if key[0] == session and closed in (None, key[1])]:
            del self._watches[key]

    # -- and back ------------------------------------------------------------------------------------------

    def answered(self, group: int, event: FromBus) -> FromBus | None:
        """What the session is told, if anything yet."""
        frame = event.frame
        if isinstance(frame, frames.Reply):
            return self._reply(group, event, frame)
        if isinstance(frame, frames.WatchFound) and frame.complete:
            return self._watch_complete(group, event, frame)
        return event

    def _reply(self, group: int, event: FromBus, frame: frames.Reply) -> FromBus | None:
        key = (event.session, frame.number)
        merging = self._requests.get(key)
        if merging is None:
            return event
        if group not in merging.waiting_for:
            return None
        merging.waiting_for.discard(group)
        if frame.code:
            del self._requests[key]
            return event
        merging.pages.append(frame.result)
        if merging.waiting_for:
            return None
        del self._requests[key]
        return FromBus(event.session, msgspec.structs.replace(frame, result=merge_pages(merging.pages)))

    def _watch_complete(self, group: int, event: FromBus, frame: frames.WatchFound) -> FromBus | None:
        waiting_for = self._watches.get((event.session, frame.watch, frame.attachment))
        if waiting_for is None:
            return event
        waiting_for.discard(group)
        if waiting_for:
            return None
        del self._watches[event.session, frame.watch, frame.attachment]
        return event

    def give_up(self, session: bytes, number: int) -> None:
        """One of the groups that were asked will not answer: so there is no whole answer."""
        self._requests.pop((session, number), None)

    def group_lost(self, group: int) -> None:
        """It will not answer what it was asked."""
        for key in [key for key, merging in self._requests.items() if group in merging.waiting_for]:
            del self._requests[key]
        for watch in [watch for watch, waiting_for in self._watches.items() if group in waiting_for]:
            del self._watches[watch]


def merge_pages(pages: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One page, by name. A page that is not empty may be continued after its last name: beyond the least of those
    nothing can be told yet."""
    filled = [page for page in pages if page]
    if not filled:
        return []
    known_to = min(page[-1][_BY_NAME] for page in filled)
    described = [described for page in filled for described in page if described[_BY_NAME] <= known_to]
    return sorted(described, key=lambda described: described[_BY_NAME])
