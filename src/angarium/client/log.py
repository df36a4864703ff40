"""A destination's log, read by position: what is stored, as it was published, and nothing is taken.

    log = connection.log("orders")
    described = await log.describe()
    for lane in described.lanes:
        async for piece in log.read(lane.first, lane.end):
            for position, body in zip(piece.positions, piece.batch.bodies()): ...

Each priority that was used has a lane of positions of its own; ordinary messages are in the first. Readers are
stateless: any number may read the same, and each remembers by itself how far it has come. What is settled is gone,
unless the destination retains it (`retain_s`, `retain_bytes`, `retain_messages`); what is gone, or damaged, is told by
`LogGone`.

A request that is lost with a connection or a primary is asked again: reading twice changes nothing.
"""
import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from angarium.core.errors import Rejected, RemoteProtocolError, Unavailable
from angarium.core.wire.batch import Batch
from angarium.core.wire.lanes import priority_of as priority_of

_Model = TypeVar("_Model")

ATTEMPTS_MAX = 10
PAGE_BYTES = 1 << 20
PAGES_AHEAD = 3  # fetched before they are asked for


class Answer(NamedTuple):
    """To an administration request."""

    result: Any
    payload: bytes


Request = Callable[[str, dict[str, Any]], Awaitable[Answer]]


class LogGone(Rejected):
    """Positions that were asked for are no longer stored, or cannot be read: go on from `high`."""

    def __init__(self, destination: str, low: int, high: int, *, damaged: bool = False) -> None:
        why = "damaged: no copy of the broker has them whole" if damaged else (
            "gone: settled, purged, or retained no longer; read from the lane's first, and let the destination retain "
            "more"
        )  # fmt: skip
        super().__init__("positions-gone", f"{destination!r}: positions {low} to {high - 1} are {why}")
        self.low = low
        self.high = high


class LogLane(msgspec.Struct, frozen=True, array_like=True):
    first: int  # the oldest position that is stored
    end: int  # one past the newest
    bytes: int = 0  # stored, about

    @property
    def priority(self) -> int:
        return priority_of(self.first)


class LogDescription(msgspec.Struct, frozen=True):
    name: str
    kind: str
    identity: int  # of the destination: one that is removed and made anew has another
    lanes: list[LogLane]
    retains: bool = False


class _PageAnswer(msgspec.Struct, frozen=True):
    identity: int
    parts: list[list[Any]]
    next: int
    first: int
    end: int
    missing: list[int] = []


class _SeekAnswer(msgspec.Struct, frozen=True):
    identity: int
    positions: list[int]


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Messages of one batch, and where each of them is."""

    positions: Sequence[int]
    batch: Batch


@dataclass(frozen=True, slots=True)
class LogPage:
    identity: int
    pieces: list[LogPiece]
    next: int  # where to go on
    first: int  # the oldest position of the lane that was stored then
    end: int  # one past the newest
    missing: tuple[tuple[int, int], ...] = ()  # positions that should be here and are damaged: low, and one past them

    def before(self, position: int) -> "LogPage":
        """As much of it; a batch lies wholly before or behind what is missing."""
        pieces = [piece for piece in self.pieces if piece.positions[0] < position]
        return replace(self, pieces=pieces, next=position, missing=())


class Log:
    def __init__(self, request: Request, destination: str) -> None:
        self._request = request
        self.destination = destination

    async def describe(self) -> LogDescription:
        return _converted((await self._ask("log.describe", {})).result, LogDescription)

    async def seek(self, timestamp_ms: int) -> list[int]:
        """For each lane where the messages sent at that time or later begin. Their senders' clocks tell: where those
        disagree, some that lie before were sent later."""
        return _converted((await self._ask("log.seek", {"timestamp_ms": timestamp_ms})).result, _SeekAnswer).positions

    async def note(self, reader: str, positions: Iterable[int], *, identity: int = 0) -> None:
        """Tell administrators how far a reader of that name is: one past the last position, in each lane. Without any
        positions: it reads no more."""
        arguments: dict[str, Any] = {"reader": reader, "positions": list(positions)}
        await self._ask("log.note", arguments | ({"identity": identity} if identity else {}))

    async def page(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        selector: str = "",
        omit: Iterable[str] = (),
        identity: int = 0,
        bytes_max: int = PAGE_BYTES,
    ) -> LogPage:
        """One page of the lane of `position`: messages from there on, before `end`, that the selector is true of. What
        `omit` names ("body", "headers", "properties") is left out. A page may be empty: go on from its `next`.

        Raises `Rejected` (`destination-removed`) if the destination is no longer the one with that identity.
        """
        arguments: dict[str, Any] = {"position": position, "bytes_max": bytes_max}
        if end is not None:
            arguments["end"] = end
        if selector:
            arguments["selector"] = selector
        if identity:
            arguments["identity"] = identity
        if omitted := list(omit):
            arguments["omit"] = omitted
        answer = await self._ask("log.read", arguments)
        told = _converted(answer.result, _PageAnswer)
        if told.next < position:
            raise RemoteProtocolError("bad-reply", f"{self.destination!r}: {told.next} follows position {position}")
        pieces = _pieces(told.parts, answer.payload)
        return LogPage(told.identity, pieces, told.next, told.first, told.end, _missing(told.missing))

    def pages(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        selector: str = "",
        omit: Iterable[str] = (),
        identity: int = 0,
    ) -> AsyncGenerator[LogPage, None]:
        """Page after page of one lane up to `end`, or where the log ended when the first was read; `PAGES_AHEAD` of
        them are fetched while you look at one. It ends early if the log does. Raises `LogGone` if what a page was to
        begin with is gone, or when it comes to what is damaged."""
        omitted = list(omit)

        async def following() -> AsyncGenerator[LogPage, None]:
            at, until = position, end
            while True:
                page = await self.page(at, until, selector=selector, omit=omitted, identity=identity)
                until = page.end if until is None else until
                if page.first > at and at < until:
                    raise LogGone(self.destination, at, min(page.first, until))
                if page.missing:
                    low, high = page.missing[0]
                    if at < low:
                        yield page.before(low)
                    raise LogGone(self.destination, low, high, damaged=True)
                yield page
                if not at < page.next < until:
                    return
                at = page.next

        return _ahead(following())

    async def read(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        selector: str = "",
        omit: Iterable[str] = (),
        identity: int = 0,
    ) -> AsyncIterator[LogPiece]:
        """The same, piece by piece."""
        async for page in self.pages(position, end, selector=selector, omit=omit, identity=identity):
            for piece in page.pieces:
                yield piece

    async def _ask(self, command: str, arguments: dict[str, Any]) -> Answer:
        return await asked(self._request, command, {"name": self.destination, **arguments})


async def asked(request: Request, command: str, arguments: dict[str, Any]) -> Answer:
    """For what may be done twice: again if the answer is lost."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await request(command, arguments)
        except Unavailable:
            continue
    return await request(command, arguments)


async def _ahead(pages: AsyncGenerator[LogPage, None]) -> AsyncGenerator[LogPage, None]:
    """The same pages, and the same error at their end, fetched before they are asked for."""
    ready: asyncio.Queue[LogPage | Exception | None] = asyncio.Queue(PAGES_AHEAD - 1)  # and one waits to be put there

    async def fetch() -> None:
        async with aclosing(pages):
            try:
                async for page in pages:
                    await ready.put(page)
            except Exception as error:
                await ready.put(error)
            else:
                await ready.put(None)

    fetching = asyncio.ensure_future(fetch())
    try:
        while (found := await ready.get()) is not None:
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        fetching.cancel()


async def list_logs(request: Request, prefix: str = "") -> list[LogDescription]:
    """The logs of all destinations whose names begin with `prefix`."""
    found: list[LogDescription] = []
    while True:
        arguments = {"after": found[-1].name if found else "", "prefix": prefix}
        page = _converted((await asked(request, "log.list", arguments)).result, list[LogDescription])
        if not page:
            return found
        found += page


def _pieces(parts: list[list[Any]], payload: bytes) -> list[LogPiece]:
    pieces: list[LogPiece] = []
    at = 0
    for position, count, size_bytes, *runs in parts:
        batch = Batch.intact(payload[at : at + size_bytes])
        at += size_bytes
        positions: Sequence[int] = range(position, position + count)
        if runs:
            pairs = zip(runs[0][::2], runs[0][1::2], strict=True)
            positions = [position + place for low, high in pairs for place in range(low, high)]
        if batch.count != count or len(positions) != count:
            raise RemoteProtocolError("bad-reply", f"a part of {count} messages holds a batch of {batch.count}")
        pieces.append(LogPiece(positions, batch))
    if at != len(payload):
        raise RemoteProtocolError("bad-reply", f"{len(payload) - at} bytes follow the last part")
    return pieces


def _missing(told: list[int]) -> tuple[tuple[int, int], ...]:
    try:
        return tuple(zip(told[::2], told[1::2], strict=True))
    except ValueError:
        raise RemoteProtocolError("bad-reply", f"{len(told)} ends of what is missing") from None


def _converted(result: object, model: type[_Model]) -> _Model:
    try:
        return msgspec.convert(result, model)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError("bad-reply", f"the broker's answer about a log is not understood: {error}") from None
