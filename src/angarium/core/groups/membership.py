"""A node's own place in the cluster: joining, staying, named groups, requests, leaving.

    SEEKING --it is in the view--> HERE --Leave--> LEAVING --it is not in the view--> LEFT
       ^                             |
       └── it was put out of it ─────┘

Everything is asked for again until the decided state shows it: what counts is the state, not an answer. So it does not
matter which voter passed it on, or which leader heard it. A node that finds another start of itself in the view stops.
"""
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from angarium.core.errors import LocalProtocolError
from angarium.core.groups import decisions as d
from angarium.core.groups import protocol as p
from angarium.core.groups.events import Left, RequestAnswered, StopNode
from angarium.core.groups.messages import Message
from angarium.core.groups.outbox import Outbox
from angarium.core.groups.records import NodeRecord, State
from angarium.core.groups.settings import GroupSettings
from angarium.core.report import Level, Report

_FATAL = ("essential-differs", "replaced")


@dataclass(slots=True)
class Pending:
    request: p.Request
    at: float  # when it is asked again


class Membership:
    def __init__(
        self, record: NodeRecord, essential: bytes, outbox: Outbox, settings: GroupSettings,
        to_leader: Callable[[Message], None],
    ) -> None:  # fmt: skip
        self.record = record
        self._essential = essential
        self._outbox = outbox
        self._settings = settings
        self._to_leader = to_leader
        self._join_at = float("-inf")
        self._join_wait_s = settings.beacon_s_min
        self._wanted: dict[tuple[str, str], None] = {}  # (named group, label): in them, and in no others
        self._unsettled: list[d.NamedJoined | d.NamedLeft] = []
        self._compared: tuple[object, object] = (None, None)  # what that is about
        self._named_at = float("-inf")
        self._requests: dict[int, Pending] = {}
        self._refusal = ""
        self._is_here = False
        self._looked_at: tuple[object, object] = (None, None)  # what that is about: asked often, changed rarely
        self.is_leaving = False
        self.is_left = False
        self.is_stopped = False

    def deadline(self, state: State) -> float | None:
        times = [pending.at for pending in self._requests.values()]
        if self.is_leaving != self.is_left or (not self.is_leaving and not self.is_here(state)):
            times.append(self._join_at)
        if self._is_unsettled(state):
            times.append(self._named_at)
        return min(times, default=None)

    def is_here(self, state: State) -> bool:
        """In the view, with this very record."""
        if self._looked_at[0] is not state.nodes or self._looked_at[1] is not self.record:
            node = state.node(self.record.name)
            self._is_here = node is not None and msgspec.structs.replace(node, replaced=()) == self.record
            self._looked_at = (state.nodes, self.record)
        return self._is_here

    def tick(self, state: State, now: float) -> None:
        if self.is_stopped:
            return
        if self.is_leaving:
            self._leave(state, now)
        elif not self.is_here(state) and now >= self._join_at:
            self._join_at = now + self._join_wait_s
            self._join_wait_s = min(2 * self._join_wait_s, self._settings.beacon_s_max)
            self._to_leader(p.JoinAsk(self.record, self._essential))
        if now >= self._named_at and self._is_unsettled(state):
            self._ask_named(state, now)
        for number, pending in self._requests.items():
            if now >= pending.at:
                pending.at = now + self._settings.request_again_s
                self._to_leader(p.Ask(number, self.record.name, self.record.incarnation, pending.request))

    def changed(self, state: State) -> None:
        """The view has changed."""
        node = state.node(self.record.name)
        if node is not None and self.record.incarnation in node.replaced:
            self._stop("replaced", f"node {node.name!r}: a later start of it has taken its place in the cluster")
        if self.is_here(state):
            self._join_wait_s = self._settings.beacon_s_min
            self._join_at = float("-inf")
            self._refusal = ""
        if self.is_leaving and not self.is_left and not state.is_here(self.record.name, self.record.incarnation):
            self.is_left = True
            self._outbox.add(Left())

    def refused(self, refusal: p.JoinRefused) -> None:
        if refusal.incarnation != self.record.incarnation or self.is_leaving:
            return
        if refusal.code in _FATAL:
            self._stop(refusal.code, refusal.reason)
        elif self._refusal != refusal.code:
            self._refusal = refusal.code
            self._outbox.add(Report(Level.ERROR, refusal.code, f"cannot join: {refusal.reason}; it is tried again"))

    def _stop(self, code: str, reason: str) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self._outbox.add(StopNode(code, reason))

    def leave(self) -> None:
        self.is_leaving = True
        self._join_at = float("-inf")

    def _leave(self, state: State, now: float) -> None:
        if not self.is_left and now >= self._join_at:
            self._join_at = now + self._settings.request_again_s
            if state.is_here(self.record.name, self.record.incarnation):
                self._to_leader(p.LeaveAsk(self.record.name, self.record.incarnation))
            else:
                self.changed(state)

    # -- named groups ----------------------------------------------------------------------------------

    def want(self, group: str, label: str, *, is_in: bool) -> None:
        key = (group, label)
        if is_in and key not in self._wanted and len(self._wanted) >= self._settings.requests_max:
            limit = self._settings.requests_max
            raise LocalProtocolError(f"group {group!r}: this node is in requests_max {limit} groups already")
        self._wanted = {present: None for present in self._wanted if present != key}
        if is_in:
            self._wanted[key] = None
        self._named_at = float("-inf")

    def _compare(self, state: State) -> list[d.NamedJoined | d.NamedLeft]:
        """What has to be decided yet. A late question may also bring us back into a group that we have left."""
        if self._compared[0] is state.named and self._compared[1] is self._wanted:
            return self._unsettled
        name, incarnation = self.record.name, self.record.incarnation
        present = {
            (group, member.label): None
            for group, members in state.named.items()
            for member in members
            if (member.node, member.incarnation) == (name, incarnation)
        }
        wanted = self._wanted
        self._unsettled = [
            *(d.NamedJoined(key[0], name, incarnation, key[1]) for key in wanted if key not in present),
            *(d.NamedLeft(key[0], name, incarnation, key[1]) for key in present if key not in wanted),
        ]
        self._compared = (state.named, self._wanted)
        return self._unsettled

    def _is_unsettled(self, state: State) -> bool:
        return not self.is_leaving and self.is_here(state) and bool(self._compare(state))

    def _ask_named(self, state: State, now: float) -> None:
        self._named_at = now + self._settings.request_again_s
        for decision in self._compare(state):
            self._to_leader(p.Ask(0, self.record.name, self.record.incarnation, decision))

    # -- requests --------------------------------------------------------------------------------------

    def request(self, number: int, request: p.Request) -> None:
        if number in self._requests or number < 1:
            raise LocalProtocolError(f"request {number}: numbers are above 0 and used once")
        if len(self._requests) >= self._settings.requests_max:
            limit = self._settings.requests_max
            raise LocalProtocolError(f"request {number}: there are requests_max {limit} unanswered ones")
        self._requests[number] = Pending(request, float("-inf"))

    def withdraw(self, number: int) -> None:
        self._requests.pop(number, None)

    def answered(self, answer: p.Answer) -> None:
        if answer.incarnation == self.record.incarnation and answer.number in self._requests and answer.code != "busy":
            del self._requests[answer.number]
            self._outbox.add(RequestAnswered(answer.number, answer.code, answer.reason, answer.index))
