"""Group services of this node, driven: messages over links, the log of decisions in the node's own store.

This only connects the machine (`core/groups/group_services.py`). Changes are told in the order of decisions.
"""
import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from angarium.core.destination.events import Write
from angarium.core.groups import events as g
from angarium.core.groups.changes import Change
from angarium.core.groups.group_services import GroupServices
from angarium.core.groups.messages import FromReplicaMessage, ToReplicaMessage
from angarium.core.groups.protocol import Request, decode_message, encode_message
from angarium.core.groups.records import NodeRecord
from angarium.core.malformed import MALFORMED
from angarium.core.report import Report
from angarium.node.cluster.machinery import Machinery
from angarium.runtime.disk import DiskSettings
from angarium.store.interface import Store

_log = logging.getLogger("angarium")
_APPLIED_S_MAX = 2.0  # until a decision is known here


@dataclass(frozen=True, slots=True)
class MembershipUsers:
    """Whom to tell. All are called from the event loop."""

    send: Callable[[str, bytes], None]  # to the node of that name
    seek: Callable[[str], None]  # a node at that address
    changed: Callable[[Change], None]
    led: Callable[[], None]  # somebody else leads: what was told to the one before may be lost
    to_replica: Callable[[ToReplicaMessage], None]
    stop: Callable[[str, str], None]  # this node must not go on: code and reason
    left: Callable[[], None]
    failed: Callable[[BaseException], None]


class Answered(msgspec.Struct, frozen=True):
    code: str  # empty: done
    reason: str
    index: int = 0  # of the decision


class MembershipDriver:
    def __init__(
        self, machine: GroupServices, store: Store, users: MembershipUsers, machinery: Machinery
    ) -> None:
        self.machine = machine
        self._users = users
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._requests: dict[int, asyncio.Future[Answered]] = {}
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []  # indices that somebody waits for
        self._timer: asyncio.TimerHandle | None = None
        self._machinery = machinery
        self._disk = machinery.disk(
            store, DiskSettings(), written=self._written, read=lambda _: None, delayed=lambda _: None,
            blocked=self._blocked, failed=users.failed,
        )  # fmt: skip

    def start(self, records: Mapping[bytes, bytes]) -> None:
        self._run(g.Started(records, self._machinery.bytes_by_chance(16)))

    # -- events ------------------------------------------------------------------------------------------

    def received(self, node: str, message: bytes) -> None:
        try:
            decoded = decode_message(message)
        except MALFORMED as error:
            _log.warning("bad-message: of group services, from %s: %s", node, error)
            return
        self._run(g.MessageReceived(node, decoded))

    def lost(self, node: str, incarnation: bytes) -> None:
        self._run(g.NeighbourLost(node, incarnation))

    def refused(self, node: str) -> None:
        self._run(g.NeighbourLost(node, is_refused=True))

    def found(self, node: str) -> None:
        self._run(g.NeighbourFound(node))

    def from_replica(self, message: FromReplicaMessage) -> None:
        self._run(g.FromReplica(message))

    def record_changed(self, record: NodeRecord) -> None:
        self._run(g.RecordChanged(record))

    async def request(self, request: Request, *, timeout_s: float | None = None) -> Answered:
        """Have something decided. Raises `TimeoutError` when it was asked for in vain: it is asked no more, and may yet
        be decided if it was heard."""
        number = next(self._numbers)
        answered: asyncio.Future[Answered] = self._loop.create_future()
        self._requests[number] = answered
        self._run(g.Requested(number, request))
        try:
            return await asyncio.wait_for(answered, timeout_s)
        except TimeoutError:
            self._run(g.Withdrawn(number))
            raise
        finally:
            self._requests.pop(number, None)

    async def applied(self, index: int) -> None:
        """Until this node has heard of the decision."""
        if self.machine.state.index < index:
            known: asyncio.Future[None] = self._loop.create_future()
            self._awaited.append((index, known))
            await known

    async def applied_soon(self, index: int) -> None:
        """The same, but not for longer than a moment: what was decided is so, also if this node hears of it later."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.applied(index), _APPLIED_S_MAX)

    def join(self, group: str, label: str = "") -> None:
        """A named group: asked for until it is so, also after the node was put out of the view and came back."""
        self._run(g.JoinGroup(group, label))

    def leave_group(self, group: str, label: str = "") -> None:
        self._run(g.LeaveGroup(group, label))

    def leave(self) -> None:
        self._run(g.Leave())

    def _written(self, tokens: list[int]) -> None:
        self._run(g.Persisted(tokens[-1]))

    def _blocked(self, reason: str) -> None:
        if reason:
            _log.error("groups-blocked: the log of decisions cannot be written: %s", reason)

    def _tick(self) -> None:
        self._timer = None
        self._run(g.Tick())

    # -- commands ----------------------------------------------------------------------------------------

    def _run(self, event: g.Event) -> None:
        for command in self.machine.handle(event, now=self._loop.time()):
            self._perform(command)
        if self._awaited:
            self._tell_applied()
        self._arm()

    def _tell_applied(self) -> None:
        index = self.machine.state.index
        for awaited, known in self._awaited:
            if awaited <= index and not known.done():
                known.set_result(None)
        self._awaited = [(awaited, known) for awaited, known in self._awaited if not known.done()]

    def _perform(self, command: g.Command) -> None:
        match command:
            case g.SendMessage(to, message):
                self._users.send(to, encode_message(message))
            case g.Persist(token, operations):
                self._disk.write(Write(token, operations, freeing=True))
            case g.ToReplica(message):
                self._users.to_replica(message)
            case g.RequestAnswered(number, code, reason, index):
                waiting = self._requests.get(number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(Answered(code, reason, index))
            case g.SeekNode(address):
                self._users.seek(address)
            case g.LeaderChanged(leader, term):
                _log.info("leader: %s, term %d", leader or "none", term)
                if leader:
                    self._users.led()
            case g.Left():
                self._users.left()
            case g.StopNode(code, reason):
                self._users.stop(code, reason)
            case Report():
                _log.log(command.level, "%s: %s", command.code, command.text)
            case _:
                self._users.changed(command)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.machine.deadline()
        if at is not None:
            self._timer = self._loop.call_at(at, self._tick)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._disk.close()
