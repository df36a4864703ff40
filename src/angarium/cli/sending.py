"""`angarium send`: one body, a file, or each line of standard input, confirmed before the command ends."""
import asyncio
import enum
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import angarium
from angarium.admin.administration import Administration
from angarium.admin.timed import TimedRequests
from angarium.cli import failure, files, options, output
from angarium.cli.blocks import with_block
from angarium.cli.failure import Failure
from angarium.cli.properties import parse_properties
from angarium.cli.sources import Source
from angarium.cli.usage import above_zero, at_most_whole, given_path
from angarium.cli.waiting import TOLD_AFTER_S, why_silent
from angarium.client.fields import TIME_S_MAX
from angarium.core.names import ADMINISTRATION

CONFIRM_S_MAX = 60.0
LOOK_S = 0.25  # how often progress is looked at


class DeliveryMode(enum.StrEnum):
    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"


class ReplyToKind(enum.StrEnum):
    QUEUE = "queue"
    TOPIC = "topic"


def fields_of(
    properties: Annotated[
        list[str], typer.Option("--property", "-p", metavar="KEY=VALUE", help="May be repeated. KEY:=JSON is exact.")
    ] = [],  # noqa: B006
    priority: Annotated[int, typer.Option(min=0, max=9, metavar="0-9", help="9 is the highest.")] = 4,
    ttl: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Expires after so long.  [x>0]", callback=above_zero)
    ] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Is not delivered before so long after now.")
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="... before this moment: 2026-11-17T08:00+01:00, or seconds since 1970."),
    ] = None,
    delivery_mode: Annotated[DeliveryMode, typer.Option(help="The header JMSDeliveryMode.")] = DeliveryMode.PERSISTENT,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Message group: all of one go to the same consumer.")
    ] = None,
    group_sequence: Annotated[
        int | None, typer.Option(min=-(1 << 31), max=(1 << 31) - 1, metavar="N", help="Its number within --group.")
    ] = None,
    deduplication_id: Annotated[
        str | None, typer.Option(metavar="ID", help="A second message with this id is dropped, for some time.")
    ] = None,
    last_value_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Replaces the message with this key, where last values are kept.")
    ] = None,
    correlation_id: Annotated[str | None, typer.Option(metavar="ID", help="What it answers, or belongs to.")] = None,
    reply_to: Annotated[str | None, typer.Option(metavar="NAME", help="Where an answer is expected.")] = None,
    reply_to_kind: Annotated[
        ReplyToKind | None, typer.Option(help="What --reply-to is; without it, whatever has the name.")
    ] = None,
    message_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The header JMSType.")] = None,
) -> dict[str, Any]:
    """What a message has besides its body, as the client calls it."""
    options.check_seconds("--ttl", ttl, TIME_S_MAX)
    options.check_seconds("--delay", delay, TIME_S_MAX)
    if delay is not None and deliver_at is not None:
        raise Failure("--delay and --deliver-at both say when to deliver; give one of them", failure.EXIT_USAGE)
    if group_sequence is not None and group is None:
        raise Failure("--group-sequence is a number within a group: say which with --group", failure.EXIT_USAGE)
    return {
        "properties": parse_properties(properties) or None, "priority": priority, "ttl_s": ttl, "delay_s": delay,
        "deliver_at": _moment(deliver_at), "delivery_mode": delivery_mode.value, "group": group,
        "group_sequence": group_sequence, "deduplication_id": deduplication_id, "last_value_key": last_value_key,
        "correlation_id": correlation_id, "reply_to": _reply_to(reply_to, reply_to_kind), "type": message_type,
    }  # fmt: skip


def _moment(text: str | None) -> datetime | float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        reason = f"--deliver-at {text!r}: use a time with its zone, as in 2026-11-17T08:00+01:00, or seconds since 1970"
        raise Failure(reason, failure.EXIT_USAGE)
    return found


def _reply_to(name: str | None, kind: ReplyToKind | None) -> angarium.Queue | angarium.Topic | str | None:
    if kind is None:
        return name
    if name is None:
        raise Failure("--reply-to-kind is of the destination that --reply-to names", failure.EXIT_USAGE)
    return angarium.Queue(name) if kind is ReplyToKind.QUEUE else angarium.Topic(name)


@with_block("fields", fields_of)
def send(
    destination: options.Target,
    body: Annotated[
        str | None, typer.Argument(help="The message; after -- if it begins with -.", metavar="BODY")
    ] = None,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Give up after so long without a confirm.")
    ] = CONFIRM_S_MAX,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="PATH", help="One message; - is stdin.", path_type=str, callback=given_path
        ),
    ] = None,
    stream: Annotated[
        Path | None,
        typer.Option(
            "--stream", metavar="PATH", help="One message of any length; - is stdin.", path_type=str,
            callback=given_path,
        ),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Send each line of stdin, or of --file.")] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="N", show_default="1",
            help="Send so many messages; in BODY, {n} becomes the number of each, {{n}} stays {n}.",
            callback=at_most_whole,
        ),
    ] = None,
    *,
    fields: dict[str, Any],
    topic: options.Topic = False,
    as_json: options.Json = False,
) -> int:
    """Send messages; end when all are confirmed.

    Exit code 0 means that the broker has confirmed every message: they are on its disk.

        angarium send orders 'hello'

        angarium send orders 'number {n}' --count 1000

        seq 1000000 | angarium send orders --lines

        angarium send backups --stream backup.tar
    """
    options.check_seconds("--timeout", timeout)
    if fields["deduplication_id"] is not None and (lines or count is not None):
        raise Failure("--deduplication-id is of one message: all others would be dropped", failure.EXIT_USAGE)
    to = angarium.Topic(destination) if topic else destination
    broker = options.Broker(address, wait)
    if stream is not None:
        if body is not None or file is not None or lines or count is not None:
            raise Failure("--stream sends one file, and nothing else", failure.EXIT_USAGE)
        size = files.send_file(broker, files.Sent(to, destination, stream, fields, timeout))
        _tell(as_json, {"destination": destination, "confirmed": 1, "bytes": size}, f"1 message of {size:,} bytes")
        return 0
    source = Source(body, file, lines, count)
    source.check()
    sent = _Sent(to, destination, fields, timeout)
    done = _send_all(broker, sent, source)
    _tell(as_json, {"destination": destination, "confirmed": done}, failure.plural(done, "message"))
    if sent.note:
        failure.say(sent.note)
    if destination == ADMINISTRATION and fields["reply_to"] is None:
        failure.say("what came of it nobody is told: 'angarium admin' shows it, or an answer goes to --reply-to")
    return 0


def _tell(as_json: bool, facts: dict[str, Any], what: str) -> None:
    if as_json:
        output.write_json(facts)
    else:
        failure.say(f"{what} confirmed")


def _send_all(broker: options.Broker, sent: "_Sent", source: Source) -> int:
    """How many were confirmed: all of them, or `Failure` says how many."""
    with output.Watch(f"sending to {sent.name}", source.total, reads_input=source.reads_input) as watch:
        try:
            options.run(lambda: sent.send(broker, source, watch))
        except (KeyboardInterrupt, failure.Terminated):
            failure.say(f"interrupted; {_confirmed(watch.done)}, others may be stored")
            raise
        except (angarium.AngariumError, OSError, Failure) as error:
            if not watch.done and (sent.tried < 2 or failure.exit_code_of(error) == failure.EXIT_USAGE):
                raise
            text = failure.describe(error) if isinstance(error, OSError) else str(error)
            raise Failure(f"{text}; {_confirmed(watch.done)} before") from error
        return watch.done


def _confirmed(count: int) -> str:
    return f"{failure.plural(count, 'message')} {'was' if count == 1 else 'were'} confirmed"


class _Sent:
    """What goes to one destination."""

    def __init__(self, to: angarium.Topic | str, name: str, fields: dict[str, Any], timeout_s: float) -> None:
        self._to = to
        self.name = name
        self._fields = fields
        self._timeout_s = timeout_s
        self.tried = 0
        self.note = ""  # what became of it, for a person who watches: a name that was mistyped looks like any other
        self._is_told_blocked = False

    async def send(self, broker: options.Broker, source: Source, watch: output.Watch) -> None:
        async with (
            options.connected(broker, give_up_after_s=self._timeout_s) as connection,
            connection.session() as session,
        ):
            session.on_blocked(self._blocked)
            is_watched = sys.stderr.isatty()
            is_new = is_watched and await _is_new(connection, self.name)
            async for chunk in source.chunks(connection.limits.body_bytes_max):
                self.tried += len(chunk)
                await self._confirmed(connection, session, chunk, watch)
            if is_watched:
                self.note = await _noteworthy(connection, self.name, is_new)

    def _blocked(self, name: str, reason: str) -> None:
        """What is full now may have taken all that there was to send: only who waits for it is told."""
        if not reason and self._is_told_blocked:
            self._is_told_blocked = False
            failure.say(f"{name!r} takes more again")

    def _tell_blocked(self, reason: str) -> None:
        if reason and not self._is_told_blocked:
            self._is_told_blocked = True
            failure.say(f"{self.name!r} takes no more for now, waiting: {reason}")

    async def _confirmed(
        self, connection: options.Connection, session: angarium.Session, chunk: list[bytes], watch: output.Watch
    ) -> None:
        """Send, and wait as long as confirms come; in silence for a moment only."""
        sending = asyncio.ensure_future(session.send_many(self._to, chunk, **self._fields))
        heard, is_told = time.monotonic(), False
        try:
            while not sending.done():
                await asyncio.wait([sending], timeout=LOOK_S)
                if (more := session.confirmed_count(self._to) - watch.done) > 0:
                    watch.advance(more)
                    heard, is_told = time.monotonic(), False
                silent_s = time.monotonic() - heard
                if not sending.done():
                    self._tell_blocked(session.blocked_reason(self._to))
                if sending.done() or silent_s < min(TOLD_AFTER_S, self._timeout_s):
                    continue
                why = session.blocked_reason(self._to) or await why_silent(connection, self.name)
                if silent_s >= self._timeout_s:
                    text = f"not confirmed within {self._timeout_s:g} s, and may be stored: {why}"
                    raise Failure(f"{self.name!r}: {text}")
                if not is_told and not session.is_blocked(self._to):
                    failure.say(f"waiting for {self.name!r}: {why}")
                    is_told = True
            await sending
        finally:
            sending.cancel()
            watch.advance(max(0, session.confirmed_count(self._to) - watch.done))


async def _is_new(connection: options.Connection, name: str) -> bool:
    try:
        await Administration(TimedRequests(connection, TOLD_AFTER_S)).describe(name)
    except angarium.Rejected as error:
        return error.code == "unknown-destination"
    except angarium.Unavailable:
        pass  # sending tells why
    return False


async def _noteworthy(connection: options.Connection, name: str, is_new: bool) -> str:
    with suppress(angarium.AngariumError):  # it is confirmed all the same
        found = await Administration(TimedRequests(connection, TOLD_AFTER_S)).explain(name)
        if found.code == "no-subscription":
            return f"topic {name!r}: {found.sentence}"
        if is_new:
            return f"{found.kind} {name!r} was not there; it has been created"
    return ""
