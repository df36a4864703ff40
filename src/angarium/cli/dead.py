"""`angarium dmq`: what cannot be delivered, and what to do with it."""
import time
from typing import Annotated, Any

import msgspec
import typer

from angarium.admin.dead_messages import DeadFilter, DeadMessages
from angarium.admin.model import BrowsedMessage
from angarium.cli import failure, options, output, streams
from angarium.cli.blocks import with_block
from angarium.cli.durations import parse_seconds
from angarium.cli.printing import body_as_json, kind_in_words, printed_body
from angarium.cli.usage import at_most_whole, not_empty
from angarium.core.calendar import calendar_text
from angarium.core.ids import parse_id

BODY_SHOWN_BYTES = 200

From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="NAME", help="Those that died in this queue or topic.",
        autocompletion=options.complete_destination,
    ),
]
OfSubscription = Annotated[
    str | None, typer.Option("--subscription", metavar="NAME", help="Those that died in this subscription.")
]
Reason = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="expired, rejected, redelivery-limit, limit-exceeded, ...: see `dmq ls`."),
]
OlderThan = Annotated[str | None, typer.Option(metavar="TIME", help="Died longer ago than that: 90s, 15min, 2h.")]
NewerThan = Annotated[str | None, typer.Option(metavar="TIME", help="Died less long ago; a number alone is seconds.")]
Ids = Annotated[list[str], typer.Option("--id", metavar="ID", help="The message of this id. May be repeated.")]
Count = Annotated[
    int | None,
    typer.Option(
        "--count", "-n", min=1, metavar="N", show_default="all", help="At most so many.", callback=at_most_whole
    ),
]


def _filter(
    source: From = None,
    subscription: OfSubscription = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    selector: options.Selector = None,
    ids: Ids = [],  # noqa: B006
) -> DeadFilter:
    now_ms = int(time.time() * 1_000)

    def ago_ms(option: str, text: str | None) -> int | None:
        return None if text is None else max(0, now_ms - int(parse_seconds(option, text) * 1_000))

    for text in ids:
        try:
            parse_id(text)
        except ValueError as error:
            raise failure.Failure(f"--id: {error}", failure.EXIT_USAGE) from None
    return DeadFilter(
        source,
        subscription,
        reason,
        died_before_ms=ago_ms("--older-than", older_than),
        died_after_ms=ago_ms("--newer-than", newer_than),
        selector=selector,
        ids=ids,
    )


@with_block("which", _filter)
def ls(
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    *,
    which: DeadFilter,
    as_json: options.Json = False,
) -> None:
    """Count dead messages, by where they died and why."""
    found = options.ask(options.Broker(address, wait), lambda requests: DeadMessages(requests).summary(which))
    if as_json:
        output.write_json(found)
        return
    if not found:
        failure.say(_none(which))
        return
    rows = [
        (
            group.destination, group.subscription, group.reason, f"{group.count:,}", output.human_bytes(group.bytes),
            calendar_text(group.first_ms), calendar_text(group.last_ms),
        )
        for group in found
    ]  # fmt: skip
    header = ("DESTINATION", "SUBSCRIPTION", "REASON", "MESSAGES", "BODIES", "FIRST", "LAST")
    output.write_table(header, rows, left=(0, 1, 2, 5, 6))


@with_block("which", _filter)
def show(
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    *,
    which: DeadFilter,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="At most so many.", callback=at_most_whole)
    ] = 20,
    as_json: options.Json = False,
) -> None:
    """Show dead messages, without taking them."""

    async def pour(requests: options.Requests) -> int:
        shown = 0
        async for message in DeadMessages(requests).messages(which, count=count):
            await streams.pour(as_json_line(message) if as_json else as_text(message))
            shown += 1
        return shown

    if not options.ask(options.Broker(address, wait), pour) and not as_json:
        failure.say(_none(which))


@with_block("which", _filter)
def redrive(
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    *,
    which: DeadFilter,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="All to this destination, not back to where each died.", callback=not_empty
        ),
    ] = None,
    count: Count = None,
    as_json: options.Json = False,
) -> int:
    """Send dead messages back to where they died.

    They keep their ids and their order, and do not expire again. It may be interrupted and repeated: nothing is lost or
    doubled. What a consumer of _DMQ holds is left to it; what has nowhere to go stays, and the exit code is 1.

        angarium dmq redrive --from orders --reason redelivery-limit

        angarium dmq redrive --selector "region = 'EU'" --to orders.eu
    """
    with output.Watch("redriving", count) as watch:
        found = options.ask(
            options.Broker(address, wait),
            lambda requests: DeadMessages(requests).redrive(which, to=to or "", count=count, progress=watch.advance),
        )
    if as_json:
        output.write_json(found)
    else:
        failure.say(f"{failure.plural(found.moved, 'message')} redriven{_held(found.held)}")
        for staying in found.staying:
            those = failure.plural(staying.count, "message")
            failure.say(f"{those} for {staying.destination!r} left where they are: {staying.reason}")
    return failure.EXIT_FAILED if found.staying else 0


@with_block("which", _filter)
def discard(
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    *,
    which: DeadFilter,
    count: Count = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Discard dead messages, for good."""
    options.confirm("Discard these dead messages?" if which.arguments() else "Discard all dead messages?", yes)
    with output.Watch("discarding", count) as watch:
        found = options.ask(
            options.Broker(address, wait),
            lambda requests: DeadMessages(requests).discard(which, count=count, progress=watch.advance),
        )
    if as_json:
        output.write_json(found)
    else:
        failure.say(f"{failure.plural(found.discarded, 'message')} discarded{_held(found.held)}")


def explain(
    destination: options.Destination,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Say in one sentence why messages are not being delivered. Of a topic, one for each subscription."""
    found = options.administer(
        options.Broker(address, wait), lambda administration: administration.explain(destination)
    )
    if as_json:
        output.write_json(found)
        return
    if not found.subscriptions:
        output.write(f"{output.plain(f'{found.name}: {found.sentence}')}\n".encode())
        return
    lines = [f"{found.name}, {each.name or '(unnamed)'}: {each.sentence}" for each in found.subscriptions]
    output.write("".join(f"{output.plain(line)}\n" for line in lines).encode())
    if (more := found.subscription_count - len(lines)) > 0:
        failure.say(f"{more:,} more subscriptions are not shown")


def _none(which: DeadFilter) -> str:
    return "there are no such dead messages" if which.arguments() else "there are no dead messages"


def _held(count: int) -> str:
    return f"; {count:,} more {'is' if count == 1 else 'are'} held by consumers of _DMQ" if count else ""


def _death(message: BrowsedMessage) -> dict[str, Any]:
    found = message.headers.get("dead_letter")
    return found if isinstance(found, dict) else {}


def _headers(message: BrowsedMessage) -> dict[str, Any]:
    """The others, with words for what is a number on the wire."""
    found = {name: value for name, value in message.headers.items() if name != "dead_letter"}
    if "reply_to_kind" in found:
        found["reply_to_kind"] = kind_in_words(found["reply_to_kind"])
    return found


def as_json_line(message: BrowsedMessage) -> bytes:
    fields = msgspec.structs.asdict(message)
    headers = fields.pop("headers")
    body = body_as_json(fields.pop("body"), headers.get("content"))
    return output.json_line(fields | {"dead_letter": _death(message), "headers": _headers(message)} | body) + b"\n"


def as_text(message: BrowsedMessage) -> bytes:
    death = _death(message)
    where = str(death.get("destination", "?"))
    if death.get("subscription"):
        where += f", subscription {death['subscription']}"
    facts = [
        ("died in", where),
        ("reason", str(death.get("reason", "?"))),
        ("died at", calendar_text(int(death.get("died_ms", 0)))),
        ("sent at", calendar_text(message.timestamp_ms)),
        ("expired at" if death.get("reason") == "expired" else "expires at", _expiry(int(death.get("expiry_ms", 0)))),
        ("deliveries", str(death.get("deliveries", 0))),
        ("priority", str(message.priority)),
        *((f"header {name}", str(value)) for name, value in _headers(message).items()),
        *((f"property {name}", str(value)) for name, value in message.properties.items()),
        ("body", _body(printed_body(message.body, message.headers.get("content")))),
    ]
    lines = [f"  {name:<12} {output.plain(value)}" for name, value in facts if value]
    return "\n".join([message.id, *lines, "", ""]).encode()


def _expiry(wall_ms: int) -> str:
    return calendar_text(wall_ms) if wall_ms else ""


def _body(body: bytes) -> str:
    """Text, or hexadecimal; shortened."""
    more = f" ... ({len(body):,} bytes)" if len(body) > BODY_SHOWN_BYTES else ""
    shown = body[:BODY_SHOWN_BYTES]
    try:
        return shown.decode("utf-8", "strict" if not more else "ignore") + more
    except UnicodeDecodeError:
        return f"hex {shown.hex(' ')}{more}"
