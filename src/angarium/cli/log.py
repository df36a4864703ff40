"""`log`: the events of all nodes, the latest of each from its memory, and those that follow from `_LOG`."""
import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

import angarium
from angarium.admin.commands import Commands
from angarium.admin.timed import TimedRequests
from angarium.cli import failure, options, output, streams, waiting
from angarium.cli.admin import Node, tell_incomplete
from angarium.cli.usage import at_most_whole

_LEVELS = ("info", "warning", "error", "critical")
LOOK_S = 0.5  # between two looks whether our output is still read
_SHOWN_MAX = 10_000  # events remembered, so that none is shown twice


def log(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    node: Node = None,
    level: Annotated[
        str, typer.Option("--level", metavar="LEVEL", help="The least severe: info, warning, error or critical.")
    ] = "info",
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="The latest of each node.", callback=at_most_whole)
    ] = 50,
    address: options.Address = [],  # noqa: B006
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> int:
    """Show the events of all nodes. Who came and went, what was promoted, blocked, damaged, changed."""
    if level not in _LEVELS:
        raise failure.Failure(f"--level {level!r}: use one of {', '.join(_LEVELS)}", failure.EXIT_USAGE)
    shown = _Shown(as_json)

    async def work() -> int:
        async with options.connected(options.Broker(address, wait)) as connection:
            if not follow:
                return await _recent(connection, shown, node or "", level, count)
            async with connection.session(acknowledge="auto") as session:
                # Subscribed first, so that nothing falls between: what comes twice is shown once.
                consumer = session.consume(angarium.Topic("_LOG"), selector=_selector(node or "", level))
                opening = asyncio.ensure_future(waiting.until_opened(connection, consumer.opened(), "_LOG", None))
                await asyncio.wait([opening], timeout=waiting.OPENED_S_MIN)  # what is in memory needs no topic
                await _recent(connection, shown, node or "", level, count)
                await opening
                while True:
                    streams.check_reader()
                    if (message := await consumer.receive(LOOK_S)) is not None:
                        await shown.show([json.loads(message.body)])

    return options.run(work)


async def _recent(
    connection: options.Connection, shown: "_Shown", node: str, level: str, count: int
) -> int:
    commands = Commands(TimedRequests(connection))
    composite = await commands.run("events.recent", {"count": count, "level": level}, node=node)
    found = [event for reply in composite.replies for event in reply.result or []]
    await shown.show(sorted(found, key=lambda event: (event["time_ms"], event["node"], event["number"])))
    return tell_incomplete(composite)


def _selector(node: str, level: str) -> str:
    levels = ", ".join(f"'{each}'" for each in _LEVELS[_LEVELS.index(level) :])
    quoted = node.replace("'", "''")
    return f"level IN ({levels})" + (f" AND node = '{quoted}'" if node else "")


class _Shown:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._known: dict[tuple[str, int, int], None] = {}

    async def show(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            key = (event["node"], event["time_ms"], event["number"])
            if key in self._known:
                continue
            self._known[key] = None
            if len(self._known) > _SHOWN_MAX:
                del self._known[next(iter(self._known))]
            await streams.pour(output.json_line(event) + b"\n" if self._as_json else _line(event))


def _line(event: dict[str, Any]) -> bytes:
    at = datetime.fromtimestamp(event["time_ms"] / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    head = f"{at}  {event['node']:<8}  {event['level']:<8}  {event['code']}"
    return f"{head}: {output.plain(event['text'])}\n".encode()
