"""Looking at the messages of all destinations whose names match a pattern, one after the other, by name.

Names are asked for in pages, as they are needed: what is created meanwhile is shown if its name is still to come, and
what is removed is passed over. Of each destination a `Browser` shows what was there when its turn came.
"""
import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

import msgspec

from angarium.client.browsing import Browser
from angarium.client.destination import PATTERN_SYNTAXES, Pattern
from angarium.client.log import Request, asked
from angarium.client.message import Message
from angarium.core.errors import Rejected, RemoteProtocolError


class _Listed(msgspec.Struct, frozen=True):
    name: str
    kind: str


class PatternBrowser:
    """Made by `Session.browse_matching`: an asynchronous iterator. There is nothing to close."""

    def __init__(self, request: Request, pattern: Pattern, browse: Callable[[str], Browser]) -> None:
        """Raises `Rejected` if the pattern is none."""
        from angarium.core.patterns import NamePattern  # only here: RE2 takes 8 ms to load, and few look for patterns

        self._pattern = NamePattern(pattern.text, PATTERN_SYNTAXES[pattern.syntax])
        self._kind = pattern.kind
        self._request = request
        self._browse = browse
        self._browser: Browser | None = None
        self._names: deque[str] = deque()  # whose turn comes
        self._after: str | None = ""  # the last name that was listed; None: there are no more
        self._ready: deque[Message] = deque()
        self._asking = asyncio.Lock()  # several tasks may share it

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        async with self._asking:
            if not self._ready:
                self._ready.extend(await self._next_page())
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def next_page(self) -> list[Message]:
        """What is left of the page at hand, or the next one, all of one destination; empty at the end."""
        async with self._asking:
            page = list(self._ready) or await self._next_page()
            self._ready.clear()
            return page

    async def _next_page(self) -> list[Message]:
        while self._browser is not None or await self._turn_to_next():
            assert self._browser is not None
            try:
                page = await self._browser.next_page()
            except Rejected as refusal:
                if refusal.code != "unknown-destination":
                    raise
                page = []  # it was removed meanwhile
            if page:
                return page
            self._browser = None
        return []

    async def _turn_to_next(self) -> bool:
        while not self._names and self._after is not None:
            await self._list()
        if self._names:
            self._browser = self._browse(self._names.popleft())
        return self._browser is not None

    async def _list(self) -> None:
        arguments = {"after": self._after, "prefix": self._pattern.prefix}
        answer = await asked(self._request, "destination.list", arguments)
        try:
            listed = msgspec.convert(answer.result, list[_Listed])
        except msgspec.ValidationError as error:
            raise RemoteProtocolError("bad-reply", f"listing destinations: {error}") from None
        if not listed or listed[-1].name <= (self._after or ""):
            self._after = None
            return
        self._after = listed[-1].name
        found = (each.name for each in listed if self._kind in (each.kind, "any") and self._pattern.matches(each.name))
        self._names.extend(dict.fromkeys(found))
