"""`angarium receive` and `angarium topic tail`: messages to standard output, settled once they are written.

The order is: receive, write, flush, settle. So a message that is settled has left this process, and one that was
written twice is the price of a crash between the two. Prefetch never exceeds what is still wanted: a message that
will not be written is not taken from anybody.
"""
import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

import angarium
from angarium.admin.administration import Administration
from angarium.admin.places import names_of
from angarium.admin.timed import TimedRequests, whereabouts
from angarium.cli import failure, files, options, output, printing, streams, waiting
from angarium.cli.merging import Merged
from angarium.cli.usage import at_most_whole, given_path
from angarium.core.ids import format_id
from angarium.core.patterns import is_glob

PREFETCH_MAX = 5_000
PRINTED_MAX = 100  # at a time
TIMEOUT_S = 5.0
SETTLED_S_MAX = 30.0
POLL_S = 0.5  # how long one wait lasts; between two, the clock is looked at, and whether our output is still read


@dataclass(frozen=True, slots=True)
class Wanted:
    destination: str
    topic: bool
    durable: str | None
    oldest: bool
    count: int | None  # None: all that come
    timeout_s: float | None  # without a message; None: wait for ever
    as_json: bool
    is_tail: bool = False  # then a new topic goes without saying
    selector: str = ""
    shared: bool = False
    exclusive: bool = False
    no_local: bool = False
    directory: Path | None = None  # where bodies go; None: standard output
    pattern: angarium.Pattern | None = None  # of topics, instead of the one destination


def receive(
    destination: options.Destination,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="N", help="So many, or exit code 1.", show_default=False,
            callback=at_most_whole,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, show_default="5", help="Give up after so long without one; 0: what is there."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    durable: Annotated[
        str | None, typer.Option(metavar="NAME", help="Use the durable subscription of this name on a topic.")
    ] = None,
    topic: options.Topic = False,
    oldest: Annotated[
        bool, typer.Option("--oldest", help="A new subscription starts with the oldest message that is stored.")
    ] = False,
    selector: options.Selector = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Let several consumers divide the durable subscription.")
    ] = False,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="While this consumer is here, no other is served.")
    ] = False,
    no_local: Annotated[
        bool, typer.Option("--no-local", help="A topic's subscription that leaves out what its own connection sends.")
    ] = False,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir", metavar="DIR", help="Write each body to a file there (it is made); print names.",
            path_type=str, callback=given_path,
        ),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Receive messages: one body a line, settled once it is written.

    Without --count, takes what is there and what comes until --timeout passes without a message. Say --count if you
    want few: with `receive | head -1` thousands are written to the pipe, and so taken, before head ends.

        angarium receive orders --count 10 --timeout 3

        angarium receive orders --follow --json | jq .body

        angarium receive backups --output-dir /tmp/backups --count 1
    """
    options.check_seconds("--timeout", timeout)
    if output_dir is not None:
        files.make_directory("--output-dir", output_dir)
    timeout_s = timeout if timeout is not None else None if follow else TIMEOUT_S
    is_topic = topic or durable is not None
    if shared and durable is None:
        raise failure.Failure("--shared is of a durable subscription: say which with --durable", failure.EXIT_USAGE)
    wanted = Wanted(
        destination, is_topic, durable, oldest, count, timeout_s, as_json,
        selector=selector or "", shared=shared, exclusive=exclusive, no_local=no_local, directory=output_dir,
    )  # fmt: skip
    return _take(options.Broker(address, wait), wanted)


def tail(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a topic, or a pattern: 'orders.*'.", metavar="NAME", autocompletion=options.complete_topic
        ),
    ],
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    regex: options.Regex = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="N", help="End after so many.", show_default=False, callback=at_most_whole
        ),
    ] = None,
    selector: options.Selector = None,
    as_json: options.Json = False,
) -> int:
    """Print what is published to a topic from now on. Or to all that match a pattern.

    Ends with Ctrl-C, or after --count messages. The topic is created if there is none; one that matches a pattern is
    followed from its creation on. Other subscribers do not notice.

        angarium topic tail 'orders.**' --json
    """
    pattern = angarium.Pattern(name, "regex" if regex else "glob") if regex or is_glob(name) else None
    wanted = Wanted(
        name, True, None, False, count, None, as_json, is_tail=True, selector=selector or "", pattern=pattern
    )
    return _take(options.Broker(address, wait), wanted)


def _take(broker: options.Broker, wanted: Wanted) -> int:
    with output.Watch(f"receiving from {wanted.destination}", wanted.count) as watch:
        why = options.run(lambda: _receive(broker, wanted, watch))
    if wanted.count is None or watch.done >= wanted.count:
        if why and not watch.done:
            failure.say(f"no message came from {wanted.destination!r}: {why}")
        return 0
    came = "no message" if not watch.done else f"{watch.done:,} of {wanted.count:,} messages"
    because = f"; {why}" if why else ""
    nothing = f"nothing for {wanted.timeout_s:g} s" if wanted.timeout_s else "there is nothing more now"
    failure.say(f"{came} came from {wanted.destination!r}: {nothing}{because}")
    return failure.EXIT_FAILED


AnyConsumer = angarium.Consumer | angarium.PatternConsumer | Merged


async def _receive(broker: options.Broker, wanted: Wanted, watch: output.Watch) -> str:
    """Why no more came, if that is known and was not said before."""
    async with (
        options.connected(broker, give_up_after_s=wanted.timeout_s) as connection,
        connection.session() as session,
    ):
        names = [wanted.destination]
        if wanted.pattern is None:
            names = await _served(connection, wanted)
        is_new = await _is_new(connection, wanted)
        consumer = _consumer(session, wanted, names)
        await waiting.until_opened(connection, consumer.opened(), wanted.destination, wanted.timeout_s)
        async with consumer:
            if is_new:
                kind = "topic" if wanted.topic else "queue"
                failure.say(f"{kind} {wanted.destination!r} was not there; it has been created, and is empty")
            told = await _pass_on(connection, consumer, wanted, watch)
            if wanted.timeout_s is not None and not connection.is_connected:
                came = failure.plural(watch.done, "message")
                raise failure.Failure(f"{came} came from {wanted.destination!r}; connection lost: {connection.loss}")
            await _until_settled(session, wanted)
            is_over = wanted.count is not None and watch.done >= wanted.count
            if is_over or (wanted.count is None and watch.done):
                return ""
            why = await _why(connection, wanted)
            return "" if why.code == told else why.sentence


async def _why(connection: options.Connection, wanted: Wanted) -> waiting.Why:
    if wanted.pattern is not None:  # each destination has a reason of its own
        return waiting.Why()
    return await waiting.why_nothing_comes(connection, wanted.destination, wanted.durable)


async def _served(connection: options.Connection, wanted: Wanted) -> list[str]:
    """The destinations that are meant, as soon as they can be opened. Of several those that can: others are named."""
    names = await names_of(TimedRequests(connection), wanted.destination)
    if len(names) == 1:
        await waiting.until_served(connection, names[0], wanted.timeout_s)
        return names
    places = {name: await whereabouts(connection, name) for name in names}
    for place in places.values():
        if place is not None and not place.is_served:
            failure.say(f"left out: what is there of {wanted.destination!r} in {place.trouble}")
    served = [name for name, place in places.items() if place is None or place.is_served]
    if not served:
        raise failure.Failure(f"{wanted.destination!r}: no replica group has a primary")
    return served


def _consumer(session: angarium.Session, wanted: Wanted, names: list[str]) -> AnyConsumer:
    if wanted.pattern is not None:
        return session.consume_matching(wanted.pattern, prefetch=_prefetch(wanted, 0), selector=wanted.selector)
    start: Literal["next", "oldest"] = "oldest" if wanted.oldest else "next"
    consumers = [
        session.consume(
            angarium.Topic(name) if wanted.topic else name, prefetch=_prefetch(wanted, 0), durable=wanted.durable,
            start=start, selector=wanted.selector, shared=wanted.shared, exclusive=wanted.exclusive,
            no_local=wanted.no_local,
        )
        for name in names
    ]  # fmt: skip
    return consumers[0] if len(consumers) == 1 else Merged(consumers)


async def _until_settled(session: angarium.Session, wanted: Wanted) -> None:
    """Of what was written nothing is lost; but whoever comes next must know that it may come again."""
    try:
        await asyncio.wait_for(session.sync(), SETTLED_S_MAX)
    except TimeoutError:
        text = f"{wanted.destination!r}: what was received is not settled after {SETTLED_S_MAX:g} s; it may come again"
        raise failure.Failure(text) from None


async def _is_new(connection: angarium.Connection, wanted: Wanted) -> bool:
    """Waiting at a name that was mistyped looks like waiting at an empty queue."""
    if wanted.pattern is not None or wanted.destination.startswith("_"):
        return False
    timeout_s = waiting.TOLD_AFTER_S if wanted.timeout_s is None else max(wanted.timeout_s, waiting.OPENED_S_MIN)
    try:
        await Administration(TimedRequests(connection, timeout_s)).describe(wanted.destination)
    except angarium.Rejected as error:
        return error.code == "unknown-destination"
    except angarium.Unavailable:
        if wanted.timeout_s is None:
            return False  # who waits for ever waits for the broker as well
        why = await waiting.why_silent(connection, wanted.destination)
        raise failure.Failure(f"{wanted.destination!r} cannot be received from: {why}") from None
    return False


async def _pass_on(
    connection: angarium.Connection,
    consumer: AnyConsumer,
    wanted: Wanted,
    watch: output.Watch,
) -> str:
    """Until enough came, or nothing for too long; the code of the reason for that which was said."""
    heard, is_asked, told = time.monotonic(), False, ""
    while wanted.count is None or watch.done < wanted.count:
        left_s = POLL_S if wanted.timeout_s is None else wanted.timeout_s - (time.monotonic() - heard)
        room = _prefetch(wanted, watch.done)
        streams.check_reader()
        # When the time is over the broker is asked for what is there.
        messages = await consumer.receive_batch(room, max(0.0, min(left_s, POLL_S)))
        if not messages and left_s <= 0:
            return told
        if not messages:
            if not is_asked and time.monotonic() - heard >= waiting.TOLD_AFTER_S:
                is_asked, why = True, await _why(connection, wanted)
                if why.code and why.code != told:
                    told = why.code
                    failure.say(f"waiting for {wanted.destination!r}: {why.sentence}")
            continue
        shown, others = _before_stream(messages, wanted)
        _give_back(others)
        await _print(shown, wanted)
        if not others:  # before settling: each settlement makes room for another message, which must still be wanted
            consumer.set_prefetch(_prefetch(wanted, watch.done + len(shown)))
        for message in shown:
            message.settle()
        watch.advance(len(shown))
        if others:
            identity, size = format_id(others[0].id), printing.stream_bytes(others[0])
            raise failure.Failure(f"message {identity} is a stream of {size:,} bytes; receive it with --output-dir")
        heard, is_asked = time.monotonic(), False
    return told


def _prefetch(wanted: Wanted, done: int) -> int:
    # Of files one at a time: whoever shares the queue gets the next one while this one is written.
    limit = PREFETCH_MAX if wanted.directory is None else 1
    return limit if wanted.count is None else min(limit, wanted.count - done)


def _before_stream(
    messages: list[angarium.Message], wanted: Wanted
) -> tuple[list[angarium.Message], list[angarium.Message]]:
    """What can be printed, and the others from the first one on that cannot: to print a stream without its body, and to
    settle it, would lose it."""
    if wanted.directory is None:
        for index, message in enumerate(messages):
            if printing.stream_bytes(message) is not None:
                return messages[:index], messages[index:]
    return messages, []


def _give_back(messages: list[angarium.Message]) -> None:
    """Nobody has seen them: they shall not count as delivered, nor die of having been fetched too often."""
    for consumer in dict.fromkeys(message.delivery.consumer for message in messages):
        consumer.give_back([message for message in messages if message.delivery.consumer is consumer])


async def _print(messages: list[angarium.Message], wanted: Wanted) -> None:
    """Whatever ends it, Ctrl-C too: what was not begun goes back. Of what was, nobody knows who has seen it."""
    if wanted.directory is not None:
        [message] = messages  # see `_prefetch`
        await _save(message, wanted.directory, as_json=wanted.as_json)
        return
    as_bytes = printing.as_json if wanted.as_json else printing.as_text
    for low in range(0, len(messages), PRINTED_MAX):
        try:
            lines = [as_bytes(message) for message in messages[low : low + PRINTED_MAX]]
            await streams.pour(b"\n".join(lines) + b"\n")
        except BaseException:
            _give_back(messages[low + PRINTED_MAX :])
            raise


async def _save(message: angarium.Message, directory: Path, *, as_json: bool) -> None:
    try:
        path = await files.save(message, directory)
    except (failure.Failure, asyncio.CancelledError):  # it is not the message's fault, and no file has appeared
        _give_back([message])
        raise
    await streams.pour(printing.as_saved(message, path, as_json=as_json))
