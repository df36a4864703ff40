"""Dead messages of a broker, or a cluster: look at them, send them back, discard them.

Each request does one bounded page; this loops over the pages, up to what was the end when it began. So it may be
interrupted at any time, and what is done is done. In a cluster each replica group has dead messages of its own: one
group comes after the other.
"""
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from angarium.admin.administration import PAGE_BYTES, PAGE_COUNT, read_page
from angarium.admin.model import BrowsedMessage, DeadGroup, DeadPage, Discarded, Redriven, Staying, convert
from angarium.admin.places import replica_groups
from angarium.admin.requests import Requests
from angarium.admin.timed import whereabouts
from angarium.core.errors import RemoteProtocolError

Progress = Callable[[int], None]  # told how many more were done


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead messages are meant; what is left out does not matter."""

    destination: str | None = None  # where they died
    subscription: str | None = None
    reason: str | None = None
    died_before_ms: int | None = None
    died_after_ms: int | None = None
    selector: str | None = None  # over their properties and header fields
    ids: Sequence[str] = field(default=())

    def arguments(self) -> dict[str, Any]:
        names = ("destination", "subscription", "reason", "died_before_ms", "died_after_ms", "selector")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return given | ({"ids": list(self.ids)} if self.ids else {})


EVERYTHING = DeadFilter()


class DeadMessages:
    def __init__(self, connection: Requests) -> None:
        self._connection = connection

    async def summary(self, which: DeadFilter = EVERYTHING) -> list[DeadGroup]:
        """How many there are, by where they died and of what; the most first."""
        groups: dict[tuple[str, str, str], DeadGroup] = {}
        async for page in self._pages("dmq.summary", which.arguments(), None):
            for group in page.groups:
                key = (group.destination, group.subscription, group.reason)
                groups[key] = groups[key] + group if key in groups else group
        return sorted(groups.values(), key=lambda group: -group.count)

    async def messages(self, which: DeadFilter = EVERYTHING, *, count: int) -> AsyncIterator[BrowsedMessage]:
        """Up to `count`, in the order in which they died; in a cluster, group by group."""
        for group in await self._groups():
            place, end = 0, None
            while count > 0 and (end is None or place < end):
                arguments = which.arguments() | group | {
                    "place": place, "count": min(count, PAGE_COUNT), "bytes_max": PAGE_BYTES
                }  # fmt: skip
                page = await read_page(self._connection, "dmq.list", arguments, count=min(count, PAGE_COUNT))
                end = page.end if end is None else end
                for message in page.messages:
                    yield message
                count -= len(page.messages)
                _check_advance("dmq.list", place, page.next, end)
                place = page.next

    async def redrive(
        self,
        which: DeadFilter = EVERYTHING,
        *,
        to: str = "",
        count: int | None = None,
        progress: Progress | None = None,
    ) -> Redriven:
        """Back to where each died, or all to one destination; in their order, and with their ids. Once something for a
        destination has to stay, all that follows it stays as well, also if there is room again."""
        moved = held = 0
        staying: dict[str, Staying] = {}  # by destination
        elsewhere = await self._elsewhere(which, to) if to else []
        arguments = which.arguments() | {"to": to, "leave": []}
        async for page in self._pages("dmq.redrive", arguments, count, to=to):
            moved, held = moved + page.moved, held + page.held
            for one in page.staying:
                before = staying.get(one.destination)
                staying[one.destination] = one if before is None else before + one
            arguments["leave"] = list(staying)  # read by the next request
            if progress is not None:
                progress(page.moved)
        return Redriven(moved=moved, held=held, staying=[*staying.values(), *elsewhere])

    async def discard(
        self, which: DeadFilter = EVERYTHING, *, count: int | None = None, progress: Progress | None = None
    ) -> Discarded:
        discarded = held = 0
        async for page in self._pages("dmq.discard", which.arguments(), count):
            discarded, held = discarded + page.discarded, held + page.held
            if progress is not None:
                progress(page.discarded)
        return Discarded(discarded=discarded, held=held)

    async def _groups(self, to: str = "") -> list[dict[str, int]]:
        """What is asked with: each replica group, or only the one that has `to`; nothing of a broker that is alone."""
        groups = await replica_groups(self._connection)
        if len(groups) <= 1:
            return [{}]
        place = await whereabouts(self._connection, to) if to else None
        return [{"group": number} for number in sorted(groups.values()) if place is None or number == place.number]

    async def _elsewhere(self, which: DeadFilter, to: str) -> list[Staying]:
        """Those that died in another replica group than the one that has `to`: there is no way from one to another."""
        here = await self._groups(to)
        count = 0
        for group in await self._groups():
            if group not in here:
                async for page in self._pages_of(group, "dmq.summary", which.arguments(), None):
                    count += sum(each.count for each in page.groups)
        reason = "they died in another replica group; receive them from _DMQ, and send them"
        return [Staying(destination=to, code="other-group", reason=reason, count=count)] if count else []

    async def _pages(
        self, command: str, arguments: dict[str, Any], count: int | None, *, to: str = ""
    ) -> AsyncIterator[DeadPage]:
        for group in await self._groups(to):
            async for page in self._pages_of(group, command, arguments, count):
                yield page
                if count is not None:
                    count -= page.moved + page.discarded

    async def _pages_of(
        self, group: dict[str, int], command: str, arguments: dict[str, Any], count: int | None
    ) -> AsyncIterator[DeadPage]:
        position, end = 0, None
        while (count is None or count > 0) and (end is None or position < end):
            asked = arguments | group | {"position": position} | ({} if count is None else {"count": count})
            page = convert(command, (await self._connection.request(command, asked)).result, DeadPage)
            end = page.end if end is None else end
            yield page
            if count is not None:
                count -= page.moved + page.discarded
            _check_advance(command, position, page.next, end)
            position = page.next


def _check_advance(command: str, place: int, following: int, end: int) -> None:
    if following <= place and following < end:
        raise RemoteProtocolError("bad-reply", f"{command} does not get past {place}")
