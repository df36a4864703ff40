"""Options that several commands share, and the connection that they describe."""
import asyncio
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple, TypeVar

import typer

import angarium
from angarium.admin.administration import Administration
from angarium.admin.cluster import Cluster
from angarium.admin.commands import Commands
from angarium.admin.places import replica_groups
from angarium.admin.timed import TimedRequests
from angarium.cli import failure
from angarium.cli.durations import SECONDS_MAX
from angarium.cli.usage import not_empty
from angarium.client.blocking_loop import new_loop
from angarium.core.client.reconnect import parse_address
from angarium.core.names import ADMINISTRATION
from angarium.core.wire.frames import PORT_DEFAULT

VARIABLE = "ANGARIUM_ADDRESS"
ADDRESS_DEFAULT = f"angarium://localhost:{PORT_DEFAULT}"
CONNECT_S_MAX = 3.0  # for all addresses together; one that refuses is not asked again without --wait
COMPLETION_S_MAX = 1.0  # the shell waits for us at every press of the tab key
COMPLETION_COUNT_MAX = 100  # names offered: nobody reads more


def complete_destination(incomplete: str) -> list[str]:
    """Names of destinations that start so, from the broker of ANGARIUM_ADDRESS; none if it does not answer."""
    return _complete(incomplete, "")


def complete_target(incomplete: str) -> list[str]:
    """The same of those that can be sent to."""
    return [name for name in _complete(incomplete, "") if name == ADMINISTRATION or not name.startswith("_")]


def complete_topic(incomplete: str) -> list[str]:
    return _complete(incomplete, "topic")


def complete_command(incomplete: str) -> list[str]:
    """Commands of `admin`."""

    async def names(connection: angarium.Connection) -> list[str]:
        return [command.name for command in await Commands(connection).all()]

    return _offered(incomplete, names)


def complete_setting(incomplete: str) -> list[str]:
    """Keys that can be changed while brokers run."""

    async def keys(connection: angarium.Connection) -> list[str]:
        found = await Commands(connection).run("config.get", {"acquirable": True})
        told = [each["key"] for reply in found.replies for each in (reply.result or {}).get("values", [])]
        return list(dict.fromkeys(told))

    return _offered(incomplete, keys)


def complete_node(incomplete: str) -> list[str]:
    async def names(connection: angarium.Connection) -> list[str]:
        return [node.name for node in (await Cluster(connection).status()).nodes]

    return _offered(incomplete, names)


def complete_group(incomplete: str) -> list[str]:
    async def names(connection: angarium.Connection) -> list[str]:
        return list(await replica_groups(connection))

    return _offered(incomplete, names)


def _complete(incomplete: str, kind: str) -> list[str]:
    async def names(connection: angarium.Connection) -> list[str]:
        found = await Administration(connection).destinations(prefix=incomplete, count=COMPLETION_COUNT_MAX)
        return [each.name for each in found if not kind or each.kind == kind]

    return _offered(incomplete, names)


def _offered(incomplete: str, names_at: Callable[[angarium.Connection], Awaitable[list[str]]]) -> list[str]:
    async def names() -> list[str]:
        addresses = split_addresses([os.environ.get(VARIABLE, ADDRESS_DEFAULT)])
        async with angarium.connect(addresses, connect_timeout_s=COMPLETION_S_MAX) as connection:
            return await names_at(connection)

    try:
        found = asyncio.run(asyncio.wait_for(names(), COMPLETION_S_MAX))
    except (angarium.AngariumError, OSError, TimeoutError, failure.Failure):
        return []
    return [name for name in found if name.startswith(incomplete)][:COMPLETION_COUNT_MAX]


def _checked_selector(text: str | None) -> str | None:
    """Raises Rejected: where a pattern matches nothing yet, nobody else would look at it."""
    if not_empty(text) is not None:
        from angarium.core.selector.parser import parse  # most commands have none

        parse(text)
    return text


Address = Annotated[
    list[str],
    typer.Option(
        "--address",
        "-a",
        envvar=VARIABLE,
        metavar="ADDRESS",
        help="Where the broker is: angarium://HOST:PORT. Repeat it, or separate by commas, for several.",
        show_default=ADDRESS_DEFAULT,
    ),
]
Wait = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, help="Wait so long for a broker that is not there yet.", show_default="0"),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]
Destination = Annotated[
    str,
    typer.Argument(
        help="Name of a queue or topic.",
        metavar="DESTINATION",
        show_default=False,
        autocompletion=complete_destination,
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        help="Name of a queue or topic.", metavar="DESTINATION", show_default=False, autocompletion=complete_target
    ),
]
Topic = Annotated[bool, typer.Option("--topic", help="Create a topic, not a queue, if nothing has the name.")]
Regex = Annotated[bool, typer.Option("--regex", help="It is a regular expression over whole names.")]
Selector = Annotated[
    str | None,
    typer.Option(
        "--selector", metavar="SELECTOR", help="Only messages that it is true of: \"region = 'EU'\".",
        callback=_checked_selector,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

Connection = angarium.Connection
Requests = TimedRequests
Result = TypeVar("Result")


def split_addresses(given: list[str]) -> list[str]:
    """Repeated and comma-separated addresses as one list; an environment variable may hold spaces as well."""
    parts = [text.replace(",", " ").split() for text in given]
    if not all(parts) or (not parts and VARIABLE in os.environ):  # one that was meant, and not set
        text = f"--address, or {VARIABLE}, is empty: write angarium://HOST:PORT"
        raise failure.Failure(text, failure.EXIT_USAGE)
    found = [text for each in parts for text in each]
    for text in found:
        try:
            parse_address(text)
        except angarium.LocalProtocolError as error:
            raise failure.Failure(str(error), failure.EXIT_USAGE) from None
    return found or [ADDRESS_DEFAULT]


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run a command's coroutine. Ctrl-C cancels it, so that sessions close in order, and so does SIGTERM, by which
    `timeout` and services are ended; a second one ends at once."""
    is_terminated = False

    async def main() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def terminate() -> None:
            nonlocal is_terminated
            is_terminated = True
            loop.remove_signal_handler(signal.SIGTERM)
            if task is not None:
                task.cancel()

        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # somebody before us has us ignore it
            return await work()
        loop.add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await work()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)  # a loop that is closed leaves it there, and hears nothing

    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            return runner.run(main())
        except asyncio.CancelledError:
            if is_terminated:
                raise failure.Terminated from None
            raise


class Broker(NamedTuple):
    """Where it is, and how long to wait for it."""

    addresses: list[str]
    wait_s: float


@asynccontextmanager
async def connected(broker: Broker, *, give_up_after_s: float | None = None) -> AsyncIterator[angarium.Connection]:
    """`give_up_after_s`: without a connection for so long, fail; None waits for ever. A loss is said, and its end."""
    check_seconds("--wait", broker.wait_s)
    policy = angarium.ReconnectPolicy(give_up_after_s=give_up_after_s, tries_s_max=broker.wait_s)
    addresses, is_there = split_addresses(broker.addresses), False
    try:
        async with angarium.connect(
            addresses,
            name="angarium command line",
            connect_timeout_s=max(broker.wait_s, CONNECT_S_MAX),
            reconnect=policy,
        ) as connection:
            is_there = True

            def tell() -> None:
                trying = f"connection lost, trying again: {connection.loss}"
                failure.say("connected again" if connection.is_connected else trying)

            connection.on_change = tell
            yield connection
            connection.on_change = None
    except angarium.Unavailable as error:
        if is_there or addresses != [ADDRESS_DEFAULT]:
            raise
        # Nobody said where: it is likely that none was started yet, or that it is elsewhere.
        raise failure.Failure(f"{error}; 'angarium up' starts one, --address says where another one is") from error


def check_seconds(option: str, seconds: float | None, seconds_max: float = SECONDS_MAX) -> None:
    if seconds is not None and not math.isfinite(seconds):
        raise failure.Failure(f"{option} {seconds}: use a number of seconds", failure.EXIT_USAGE)
    if seconds is not None and seconds > seconds_max:
        raise failure.Failure(f"{option} {seconds:g}: it can be at most {seconds_max:,.0f} seconds", failure.EXIT_USAGE)


def confirm(question: str, yes: bool) -> None:
    """A person is asked; a script, which has no terminal, means what it says."""
    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not typer.confirm(question, err=True):
        raise failure.Failure("nothing was changed")


def ask(broker: Broker, work: Callable[[TimedRequests], Awaitable[Result]]) -> Result:
    """Something that is done on a connection of its own; each request of it ends in time, answered or not."""

    async def main() -> Result:
        async with connected(broker, give_up_after_s=CONNECT_S_MAX) as connection:
            return await work(TimedRequests(connection))

    return run(main)


def administer(broker: Broker, work: Callable[[Administration], Awaitable[Result]]) -> Result:
    """One piece of administration."""
    return ask(broker, lambda requests: work(Administration(requests)))
