"""`create`, `alter` and `describe`: destinations and their options."""
import copy
import inspect
import math
from enum import Enum
from typing import Annotated, Any, get_args

import msgspec
import typer

from angarium.admin.administration import Administration
from angarium.admin.model import Destination
from angarium.admin.timed import Whereabouts, whereabouts
from angarium.cli import failure, options, output
from angarium.cli.blocks import with_block
from angarium.cli.durations import parse_seconds
from angarium.cli.failure import EXIT_USAGE, Failure
from angarium.cli.usage import at_most_whole


class Confirm(Enum):
    DISK = "disk"
    MEMORY = "memory"


class OverLimit(Enum):
    BLOCK = "block"
    REFUSE = "refuse"
    OLDEST = "oldest"


class SlowSubscriber(Enum):
    WAIT = "wait"
    DROP = "drop"


ConfirmOption = Annotated[
    Confirm | None,
    typer.Option(
        show_default="disk", help="When messages are confirmed; before they are on disk, a crash may lose them."
    ),
]
MessagesMax = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", show_default="0", help="Messages that may wait; 0: no limit.", callback=at_most_whole
    ),
]
BytesMax = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="BYTES", show_default="0", help="Bytes that may be stored; 0: no limit.", callback=at_most_whole
    ),
]
OverLimitOption = Annotated[
    OverLimit | None,
    typer.Option(show_default="block", help="Past a limit: block producers, refuse, or the oldest to _DMQ."),
]
SlowSubscriberOption = Annotated[
    SlowSubscriber | None,
    typer.Option(show_default="wait", help="Of a topic, past a limit: wait for it, or drop its oldest messages."),
]
RedeliveriesMax = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="N", show_default="0", help="Past it a message goes to _DMQ; 0: never.", callback=at_most_whole
    ),
]
RedeliveryDelay = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", show_default="0", help="Before a released message comes again."),
]
Retain = Annotated[
    str | None,
    typer.Option(metavar="TIME", show_default="0", help="Keep what is settled for readers of the log: 90s, 2h, 7d."),
]
RetainBytes = Annotated[
    int | None,
    typer.Option(
        min=0, metavar="BYTES", show_default="0", help="The same, as long as no more is stored; 0: no limit.",
        callback=at_most_whole,
    ),
]
RetainMessages = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", show_default="0", help="The same, in messages.", callback=at_most_whole),
]
LastValue = Annotated[
    bool | None,
    typer.Option("--last-value/--no-last-value", show_default="no", help="Of each last-value key, keep only the last."),
]
TracedOption = Annotated[
    bool | None,
    typer.Option("--traced/--no-traced", show_default="no", help="Note what becomes of messages, for an audit."),
]
DeadLetters = Annotated[
    bool | None,
    typer.Option(
        "--dead-letters/--no-dead-letters", show_default="yes",
        help="What cannot be delivered goes to _DMQ; else it is gone.",
    ),
]


def _options(
    confirm: ConfirmOption = None,
    messages_max: MessagesMax = None,
    bytes_max: BytesMax = None,
    over_limit: OverLimitOption = None,
    slow_subscriber: SlowSubscriberOption = None,
    redeliveries_max: RedeliveriesMax = None,
    redelivery_delay: RedeliveryDelay = None,
    last_value: LastValue = None,
    dead_letters: DeadLetters = None,
    retain: Retain = None,
    retain_bytes: RetainBytes = None,
    retain_messages: RetainMessages = None,
    traced: TracedOption = None,
) -> dict[str, Any]:
    """Those that were given, as the broker calls them."""
    options.check_seconds("--redelivery-delay", redelivery_delay)
    named = {
        "confirm": confirm and confirm.value,
        "messages_max": messages_max,
        "bytes_max": bytes_max,
        "over_limit": over_limit and over_limit.value,
        "slow_subscriber": slow_subscriber and slow_subscriber.value,
        "redeliveries_max": redeliveries_max,
        "redelivery_delay_ms": None if redelivery_delay is None else round(redelivery_delay * 1_000),
        "last_value": last_value,
        "buries": dead_letters,
        "retain_s": None if retain is None else math.ceil(parse_seconds("--retain", retain)),
        "retain_bytes": retain_bytes,
        "retain_messages": retain_messages,
        "traced": traced,
    }
    return {name: value for name, value in named.items() if value is not None}


@with_block("given", _options)
def create(
    name: Annotated[str, typer.Argument(help="Name of the new queue or topic.", metavar="NAME")],
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    topic: Annotated[bool, typer.Option("--topic", help="A topic; else a queue.")] = False,
    *,
    given: dict[str, Any],
    as_json: options.Json = False,
) -> None:
    """Create a queue or topic.

    One that is there already, of the same kind and with the options that are given, is left as it is.

    \b
        angarium create orders --redeliveries-max 5 --redelivery-delay 10
        angarium create prices --topic --messages-max 100000 --slow-subscriber drop
    """
    kind = "topic" if topic else "queue"
    made = options.administer(
        options.Broker(address, wait), lambda administration: administration.create(name, kind, **given)
    )
    if as_json:
        output.write_json(made)
    else:
        failure.say(f"{made.kind} {made.name!r} is there")


def _changes(**given: Any) -> dict[str, Any]:
    """The same options; one that is not given stays what it is, and has no default."""
    return _options(**given)


def _unchanged(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, option = get_args(parameter.annotation)
    option = copy.copy(option)
    option.show_default = "unchanged"
    return parameter.replace(annotation=Annotated[kind, option])


_changes.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_unchanged(parameter) for parameter in inspect.signature(_options).parameters.values()]
)


@with_block("given", _changes)
def alter(
    destination: options.Destination,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    *,
    given: dict[str, Any],
    as_json: options.Json = False,
) -> None:
    """Change options of a queue or topic while it runs. Those that are not given stay."""
    if not given:
        raise Failure("nothing to change: give at least one option", EXIT_USAGE)
    changed = options.administer(
        options.Broker(address, wait), lambda administration: administration.alter(destination, **given)
    )
    if as_json:
        output.write_json(changed)
    else:
        failure.say(f"{changed.kind} {changed.name!r}: {', '.join(notes(changed)) or 'the usual options'}")


def describe(
    destination: options.Destination,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Show all figures and options of a queue or topic."""

    async def look(requests: options.Requests) -> tuple[Destination, Whereabouts | None]:
        return await Administration(requests).describe(destination), await whereabouts(requests, destination)

    found, place = options.ask(options.Broker(address, wait), look)
    if as_json:
        output.write_json(msgspec.structs.asdict(found) | ({"group": place.group} if place is not None else {}))
        return
    group = [] if place is None else [("group", f"{place.group}, primary {place.primary or 'none'}")]
    output.write_facts([*_facts(found), *group])


def notes(destination: Destination) -> list[str]:
    """The options that are not the usual ones."""
    delay_s = destination.redelivery_delay_ms / 1_000
    told = {
        "confirm = memory": destination.confirm == "memory",
        f"messages_max = {destination.messages_max:,}": destination.messages_max,
        f"bytes_max = {destination.bytes_max:,}": destination.bytes_max,
        f"over_limit = {destination.over_limit}": destination.over_limit != "block",
        f"slow_subscriber = {destination.slow_subscriber}": destination.slow_subscriber != "wait",
        f"redeliveries_max = {destination.redeliveries_max:,}": destination.redeliveries_max,
        f"redelivery_delay = {delay_s:g} s": delay_s,
        "last_value": destination.last_value,
        f"retain_s = {destination.retain_s:,}": destination.retain_s,
        f"retain_bytes = {destination.retain_bytes:,}": destination.retain_bytes,
        f"retain_messages = {destination.retain_messages:,}": destination.retain_messages,
        "traced": destination.traced,
        f"{destination.retained:,} retained": destination.retained,
        **{f"{reader.name} reads, {reader.lag:,} behind": True for reader in destination.readers},
        "no dead letters": not destination.buries and not destination.name.startswith("_"),
    }
    return [text for text, holds in told.items() if holds]


def _facts(found: Destination) -> list[tuple[str, str]]:
    counted = ("messages", "in_flight", "delayed", "staged", "producers", "consumers", "messages_in", "messages_out",
               "settled", "rejected", "expired", "dead", "damaged", "retained")  # fmt: skip
    return [
        ("name", found.name),
        ("kind", found.kind),
        ("options", ", ".join(notes(found)) or "the usual"),
        *((name.replace("_", " "), f"{getattr(found, name):,}") for name in counted),
        ("stored", output.human_bytes(found.bytes)),
        ("held", output.human_bytes(found.bytes_held)),
        ("blocked", found.blocked or "no"),
        *(
            (
                f"subscription {each.name or '(unnamed)'}",
                f"{'durable' if each.durable else 'volatile'}{', shared' if each.shared else ''}, "
                f"{failure.plural(each.messages, 'message')}, {failure.plural(each.consumers, 'consumer')}"
                + (f", selector {each.selector}" if each.selector else "")
                + (f", {each.dropped:,} dropped" if each.dropped else ""),
            )
            for each in (found.subscriptions if found.kind == "topic" else ())
        ),
    ]
