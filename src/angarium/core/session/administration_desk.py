"""`_ADMIN`: commands that come as messages, and their answers as messages to whoever is named in `reply_to`.

It is no queue: a client manager takes what is sent there as it comes, and has its node do it. So administration needs
no message manager, which may be the very thing in trouble; only an answer to a queue does. A Confirm says that this
node has taken the command, not that it was done: that says the answer.

    body      {"command": "node.status", "arguments": {}, "node": ""}         as JSON; only the command is needed
    answer    {"code": "", "reason": "", "result": {...}}                     with the command's correlation id

A message without `reply_to` is done, and nobody is told how it went. If it is no command at all, it is refused: of that
its sender would never hear otherwise.
"""
from typing import Any

import msgspec

from angarium.core.errors import Rejected
from angarium.core.ids import GlobalIds, counter_of
from angarium.core.malformed import MALFORMED
from angarium.core.names import check_name
from angarium.core.session.events import AskNode, Command, OwnMessage, PublishOwn
from angarium.core.session.own_session import OwnSession
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind

COMMANDS_MAX = 1_000  # that are being done; past it a message is refused
RUN = "admin.run"  # what the node is asked
_KINDS = {1: DestinationKind.QUEUE, 2: DestinationKind.TOPIC}
_decode_headers = msgspec.msgpack.Decoder(dict[str, Any]).decode


class AdminMessage(msgspec.Struct, forbid_unknown_fields=True):
    command: str
    arguments: dict[str, Any] = {}
    node: str = ""


class _Asker(msgspec.Struct, frozen=True):
    reply_to: str
    kind: DestinationKind
    correlation: str | bytes | None


_decode = msgspec.json.Decoder(AdminMessage).decode


class AdministrationDesk:
    def __init__(self, own: OwnSession, ids: GlobalIds) -> None:
        self._own = own
        self._ids = ids
        self._askers: dict[int, _Asker] = {}  # by the number that the node is asked under

    def taken(self, producer: int, batch: Batch, *, client: bytes) -> tuple[list[frames.Refuse], list[Command]]:
        """What is refused of it, and what is to be done."""
        if len(self._askers) + batch.count > COMMANDS_MAX:
            reason = f"{len(self._askers):,} commands are being done, the most is {COMMANDS_MAX:,}; wait for answers"
            first, last = batch.first_sequence, batch.last_sequence
            return [frames.Refuse(producer, first, last, "too-many-requests", reason)], []
        refusals: list[frames.Refuse] = []
        commands: list[Command] = []
        for index in range(batch.count):
            asker, arguments = _asker(batch.headers_of(index)), _arguments(batch.body(index))
            if "unread" in arguments and not asker.reply_to:
                sequence = batch.sequence(index)
                refusals.append(frames.Refuse(producer, sequence, sequence, "bad-argument", arguments["unread"]))
                continue
            number = counter_of(self._ids.next())
            self._askers[number] = asker
            commands.append(AskNode(self._own.identity, frames.Request(number, RUN, arguments, client)))
        return refusals, commands

    def bus_frame(self, frame: frames.Frame, *, now: float) -> list[Command]:
        """For the client manager's own session."""
        if isinstance(frame, frames.Reply) and (asker := self._askers.pop(frame.number, None)) is not None:
            return self._answer(asker, frame, now) if asker.reply_to else []
        return self._own.bus_frame(frame)

    def _answer(self, asker: _Asker, reply: frames.Reply, now: float) -> list[Command]:
        body = msgspec.json.encode({"code": reply.code, "reason": reply.reason, "result": reply.result})
        headers: dict[str, Any] = {"content": "text", "type": "admin-reply"}
        if asker.correlation is not None:
            headers["correlation_id"] = asker.correlation
        return self._own.publish(PublishOwn(0, asker.reply_to, asker.kind, [OwnMessage(body, headers)]), now=now)


def _arguments(body: bytes) -> dict[str, Any]:
    try:
        message = _decode(body)
    except MALFORMED as error:
        return {"unread": f"a command is JSON with 'command', 'arguments' and 'node': {error}; see 'angarium admin'"}
    return {"command": message.command, "arguments": message.arguments, "node": message.node}


def _asker(packed: bytes) -> _Asker:
    try:
        headers = _decode_headers(packed) if packed else {}
    except MALFORMED:
        headers = {}
    reply_to, kind = headers.get("reply_to"), headers.get("reply_to_kind")
    correlation = headers.get("correlation_id")
    return _Asker(
        reply_to if isinstance(reply_to, str) and _is_allowed(reply_to) else "",
        _KINDS.get(kind, DestinationKind.ANY) if isinstance(kind, int) else DestinationKind.ANY,
        correlation if isinstance(correlation, str | bytes) else None,
    )


def _is_allowed(name: str) -> bool:
    """Where its sender could not publish, no answer of ours goes for it."""
    try:
        check_name(name)
    except Rejected:
        return False
    return True
