"""A destination's log without async: see `client.log`."""
from collections.abc import Iterable, Iterator

from angarium.client.blocking_loop import LoopThread
from angarium.client.log import PAGE_BYTES, Log, LogDescription, LogPage, LogPiece


class BlockingLog:
    def __init__(self, thread: LoopThread, log: Log) -> None:
        self._thread = thread
        self._log = log
        self.destination = log.destination

    def describe(self, timeout_s: float | None = None) -> LogDescription:
        return self._thread.run(self._log.describe(), timeout_s, what=f"describing the log of {self.destination!r}")

    def seek(self, timestamp_ms: int, timeout_s: float | None = None) -> list[int]:
        """See `Log.seek`."""
        return self._thread.run(self._log.seek(timestamp_ms), timeout_s, what=f"searching {self.destination!r}")

    def note(
        self, reader: str, positions: Iterable[int], *, identity: int = 0, timeout_s: float | None = None
    ) -> None:
        """See `Log.note`."""
        self._thread.run(self._log.note(reader, positions, identity=identity), timeout_s, what="noting a reader")

    def page(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        selector: str = "",
        omit: Iterable[str] = (),
        identity: int = 0,
        bytes_max: int = PAGE_BYTES,
        timeout_s: float | None = None,
    ) -> LogPage:
        """See `Log.page`."""
        page = self._log.page(
            position, end, selector=selector, omit=omit, identity=identity, bytes_max=bytes_max
        )
        return self._thread.run(page, timeout_s, what=f"reading the log of {self.destination!r}")

    def pages(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        selector: str = "",
        omit: Iterable[str] = (),
        identity: int = 0,
        timeout_s: float | None = None,
    ) -> Iterator[LogPage]:
        """See `Log.pages`; `timeout_s` is for each of them."""
        pages = self._log.pages(position, end, selector=selector, omit=omit, identity=identity)

        what = f"reading the log of {self.destination!r}"

        async def following() -> LogPage | None:
            return await anext(pages, None)

        try:
            while (page := self._thread.run(following(), timeout_s, what=what)) is not None:
                yield page
        finally:
            if not self._thread.is_stopped:
                self._thread.run(pages.aclose())

    def read(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        selector: str = "",
        omit: Iterable[str] = (),
        identity: int = 0,
        timeout_s: float | None = None,
    ) -> Iterator[LogPiece]:
        """The same, piece by piece."""
        pages = self.pages(
            position, end, selector=selector, omit=omit, identity=identity, timeout_s=timeout_s
        )
        for page in pages:
            yield from page.pieces
