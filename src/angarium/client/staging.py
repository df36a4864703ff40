"""Messages that are staged, and published by a commit, once: for those who write the same rows again after a failure.

    stage = connection.stage("query 7", batch=12)      # in each task
    await stage.send("orders", messages)
    parts = await stage.finish()                       # durable, and in no log

    await connection.commit_stage("query 7", 12, parts)    # of all tasks that have succeeded: in their logs, once

A query numbers its batches, ascending. A batch that was committed before is dropped: that is what makes repeating safe,
whatever of it was done. What is staged and never committed goes after a time (`staged_keep_s` of the broker).
"""
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from angarium.client.buffer import SendBuffer
from angarium.client.destination import Destination
from angarium.client.log import Request, asked
from angarium.client.sending import Outbox
from angarium.core.client.gathered import Gathered
from angarium.core.errors import AngariumError


class StagedPart(NamedTuple):
    """What one task has staged for one destination."""

    destination: str
    identity: bytes
    messages: int


class Stage:
    """Of one task; made by `Connection.stage`. Nothing else is sent in its session."""

    def __init__(
        self, buffer: SendBuffer, request: Request, close: Callable[[], Awaitable[None]], query: str, batch: int
    ) -> None:
        self._buffer = buffer
        self._request = request
        self._close = close  # the session
        self._stage = (query, batch)
        self._outboxes: list[Outbox] = []

    async def send(self, destination: Destination, messages: Iterable[Gathered]) -> None:
        """In batches as they are; waits while too much is under way."""
        for gathered in messages:
            await self._buffer.room()
            outbox = self._buffer.outboxes.get(destination)
            if outbox is None:
                outbox = self._buffer.open(destination, self._stage)
                self._outboxes.append(outbox)
            self._buffer.publish(outbox, gathered)

    async def finish(self) -> list[StagedPart]:
        """Wait until all is durable; raises what was refused. Nothing more can be staged here then."""
        await self._buffer.settled()
        parts = self._parts()
        await self._close()
        return parts

    def _parts(self) -> list[StagedPart]:
        return [StagedPart(box.destination, box.identity, box.sequence) for box in self._outboxes if box.identity]

    async def abandon(self) -> None:
        """Have it dropped now, if that is possible; else it goes in time."""
        with suppress(AngariumError):
            await abort_stage(self._request, *self._stage, self._parts())


async def commit_stage(request: Request, query: str, batch: int, parts: Sequence[StagedPart]) -> None:
    """Publish what is staged in the parts; returns when all of it is in its log. Each destination commits for itself:
    if this raises, repeat it, or stage the batch again and commit that."""
    await _end(request, "stage.commit", query, batch, parts)


async def abort_stage(request: Request, query: str, batch: int, parts: Sequence[StagedPart]) -> None:
    """Drop what is staged in the parts, unless it is committed."""
    await _end(request, "stage.abort", query, batch, parts)


async def _end(request: Request, command: str, query: str, batch: int, parts: Sequence[StagedPart]) -> None:
    by_destination: dict[str, list[tuple[bytes, int]]] = {}
    for destination, identity, count in parts:
        by_destination.setdefault(destination, []).append((identity, count))
    for name, named in by_destination.items():
        await asked(request, command, {"name": name, "query": query, "batch": batch, "parts": named})
