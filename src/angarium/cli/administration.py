"""`ls`, `browse`, `purge`, `rm` and `status`: a face of `angarium.admin`, without knowledge of its own."""
from typing import Annotated

import msgspec
import typer

from angarium.admin.administration import Administration
from angarium.admin.model import BrowsedMessage, Destination, NodeStatus
from angarium.cli import destinations, failure, options, output, streams
from angarium.cli.printing import body_as_json, header_fields, printed_body
from angarium.cli.usage import at_most_whole
from angarium.core.calendar import calendar_text
from angarium.core.errors import Unavailable
from angarium.core.patterns import NamePattern, is_glob
from angarium.core.wire.frames import PatternSyntax

BODY_SHOWN_CHARACTERS = 80


def ls(
    pattern: Annotated[
        str,
        typer.Argument(help="Only those that match: 'orders.*', 'orders.**'.", metavar="PATTERN", show_default=False),
    ] = "",
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    subscriptions: Annotated[
        bool, typer.Option("--subscriptions", "-s", help="Show the subscriptions of each topic as well.")
    ] = False,
    regex: options.Regex = False,
    as_json: options.Json = False,
) -> int:
    """List queues and topics. If a replica group does not answer, those of the others, with exit code 1."""
    matching = _pattern(pattern, regex) if pattern else None
    found, groups, silent = options.administer(
        options.Broker(address, wait), lambda administration: _listed(administration, matching)
    )
    if as_json:
        output.write_json(found)
    else:
        _show(found, subscriptions, groups)
    for reason in silent:
        failure.say(f"not all are listed: {reason}")
    return failure.EXIT_FAILED if silent else 0


async def _listed(
    administration: Administration, matching: NamePattern | None
) -> tuple[list[Destination], dict[int, str], list[str]]:
    """And the names of replica groups, if there are several, and why some destinations are not there."""
    try:
        listed = await administration.destinations(matching=matching)
        groups = await administration.groups() if any(each.group for each in listed) else {}
        return listed, _numbered(groups), []
    except Unavailable:
        groups = await administration.groups()
        if not groups:
            raise
    found: list[Destination] = []
    silent: list[str] = []
    for number in groups.values():
        try:
            found += await administration.destinations(matching=matching, group=number)
        except Unavailable as error:
            silent.append(str(error))
    return sorted(found, key=lambda destination: destination.name), _numbered(groups), silent


def _numbered(groups: dict[str, int]) -> dict[int, str]:
    return {number: name for name, number in groups.items()} if len(groups) > 1 else {}


def _show(found: list[Destination], subscriptions: bool, groups: dict[int, str]) -> None:
    rows = []
    for destination in found:
        rows.append((*_row(destination), groups.get(destination.group, "")))
        if subscriptions and destination.kind == "topic":
            rows.extend((*row, "") for row in _subscription_rows(destination))
    header = ("NAME", "KIND", "MESSAGES", "IN FLIGHT", "PRODUCERS", "CONSUMERS", "NOTES", "GROUP")
    if not groups:
        output.write_table(header[:-1], [row[:-1] for row in rows], left=(0, 1, 6))
        return
    order = (0, 1, 7, 2, 3, 4, 5, 6)
    shown = [tuple(row[column] for column in order) for row in (header, *rows)]
    output.write_table(shown[0], shown[1:], left=(0, 1, 2, 7))


def _pattern(text: str, regex: bool) -> NamePattern:
    return NamePattern(text, PatternSyntax.REGEX if regex else PatternSyntax.GLOB)


def _row(destination: Destination) -> tuple[str, ...]:
    notes = [
        "temporary" if destination.temporary else "",
        *destinations.notes(destination),
        f"{destination.damaged:,} damaged" if destination.damaged else "",
        f"blocked: {destination.blocked}" if destination.blocked else "",
    ]
    counts = (destination.messages, destination.in_flight, destination.producers, destination.consumers)
    return (destination.name, destination.kind, *(f"{n:,}" for n in counts), ", ".join(filter(None, notes)))


def _subscription_rows(destination: Destination) -> list[tuple[str, ...]]:
    return [
        (
            f"  {subscription.name or '(unnamed)'}",
            "durable" if subscription.durable else "volatile",
            f"{subscription.messages:,}",
            f"{subscription.in_flight:,}",
            "",
            f"{subscription.consumers:,}",
            "",
        )
        for subscription in destination.subscriptions
    ]


def browse(
    destination: options.Destination,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=1, metavar="N", help="At most so many messages.", callback=at_most_whole),
    ] = 20,
    position: Annotated[
        int | None, typer.Option("--from", min=0, metavar="POSITION", help="Start with the message there.")
    ] = None,
    regex: options.Regex = False,
    selector: options.Selector = None,
    as_json: options.Json = False,
) -> None:
    """Look at messages without taking them. They come in the order in which they would be received.

    With a pattern, such as 'orders.*', at those of all that match, one after the other; --count holds for each.
    """
    matching = _pattern(destination, regex) if regex or is_glob(destination) else None

    async def show(administration: Administration) -> int:
        names = [destination]
        if matching is not None:
            names = [found.name for found in await administration.destinations(matching=matching)]
        shown = 0
        for name in names:
            async for message in administration.browse(name, position=position, count=count, selector=selector or ""):
                line = _browsed_line(message) if matching is None else f"{name}  ".encode() + _browsed_line(message)
                await streams.pour(_browsed_json(message, name) if as_json else line)
                shown += 1
        return shown

    if not options.administer(options.Broker(address, wait), show) and not as_json:
        failure.say(f"{destination!r} has no message to show")


def _browsed_json(message: BrowsedMessage, destination: str) -> bytes:
    """The fields of `receive --json`, as far as a message has them that was not delivered."""
    fields = msgspec.structs.asdict(message)
    headers = fields.pop("headers")
    body = body_as_json(fields.pop("body"), headers.get("content"))
    described = header_fields(headers)
    described |= {name: headers[name] for name in ("dead_letter",) if name in headers}
    streamed = {"stream_bytes": size} if (size := _stream_bytes(message)) is not None else {}
    return output.json_line(fields | {"destination": destination} | described | body | streamed) + b"\n"


def _stream_bytes(message: BrowsedMessage) -> int | None:
    """Of a body that was sent as a stream: it is not in the message."""
    found = message.headers.get("stream")
    return found.get("bytes") if isinstance(found, dict) else None


def _browsed_line(message: BrowsedMessage) -> bytes:
    at = calendar_text(message.timestamp_ms)
    body = printed_body(message.body, message.headers.get("content"))
    if (size := _stream_bytes(message)) is not None:
        body = f"(a stream of {size:,} bytes)".encode()
    text = body[: 4 * BODY_SHOWN_CHARACTERS].decode("utf-8", "replace")
    shown = text[:BODY_SHOWN_CHARACTERS]
    more = f" ... ({len(message.body):,} bytes)" if len(text) > len(shown) else ""
    properties = " ".join(f"{key}={value}" for key, value in message.properties.items())
    parts = (f"{message.position:>8}", at, properties, f"{output.plain(shown)}{more}")
    return ("  ".join(filter(None, parts)) + "\n").encode()


def purge(
    destination: options.Destination,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Take all messages off a queue or topic, for good."""
    options.confirm(f"Discard all messages of {destination!r}?", yes)
    purged = options.administer(options.Broker(address, wait), lambda administration: administration.purge(destination))
    if as_json:
        output.write_json({"destination": destination, "purged": purged})
    else:
        failure.say(f"{failure.plural(purged, 'message')} purged from {destination!r}")


def rm(
    destination: options.Destination,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    subscription: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove only this durable subscription of a topic.")
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Remove a queue, a topic or a durable subscription."""
    what = repr(destination) if subscription is None else f"subscription {subscription!r} of {destination!r}"
    options.confirm(f"Remove {what}, with its messages?", yes)

    async def remove(administration: Administration) -> None:
        if subscription is not None:
            await administration.remove_subscription(destination, subscription)
        else:
            await administration.remove(destination)

    options.administer(options.Broker(address, wait), remove)
    if as_json:
        output.write_json({"destination": destination, "subscription": subscription, "removed": True})
    else:
        failure.say(f"{what} removed")


def status(
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Show how the broker is doing. In a cluster, the node that answers: `cluster status` shows all."""
    found = options.administer(options.Broker(address, wait), lambda administration: administration.status())
    if as_json:
        output.write_json(found)
    else:
        output.write_facts([(name, value) for name, value in _facts(found) if value])


def _facts(found: NodeStatus) -> list[tuple[str, str]]:
    facts = [
        ("node", found.name),
        *([("cluster", f"{found.cluster}, led by {found.leader or 'nobody'}")] if found.cluster else []),
        ("version", found.version),
        ("up for", output.human_seconds(found.uptime_s)),
        ("process", str(found.pid)),
        ("listens on", found.listen),
        ("data", found.data),
        ("connections", f"{found.connections:,}"),
        ("sessions", f"{found.sessions:,}"),
        ("destinations", f"{found.destinations:,}"),
        ("messages in", f"{found.messages_in:,}"),
        ("messages out", f"{found.messages_out:,}"),
        ("memory", output.human_bytes(found.rss_bytes)),
        ("blocked", found.blocked or "no"),
    ]
    facts.extend((name, f"{value:,}") for name, value in sorted(found.limits.items()))
    facts.extend(_store_fact(name, value) for name, value in sorted(found.store.items()))
    return facts


def _store_fact(name: str, value: object) -> tuple[str, str]:
    words = f"store {name.replace('_', ' ')}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return words, "" if value is None else str(value)
    if name.endswith("_bytes"):
        return words.removesuffix(" bytes"), output.human_bytes(value)
    return words, f"{value:,}"
