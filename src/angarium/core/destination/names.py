"""All destinations by name, a page at a time."""
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from angarium.core.destination.arguments import number, text
from angarium.core.destination.destination import Destination
from angarium.core.wire.frames import Request

LIST_COUNT_MAX = 500  # destinations in one page: some milliseconds of describing


class Names:
    def __init__(self, destinations: dict[int, Destination]) -> None:
        self._destinations = destinations
        self._sorted: list[tuple[str, int]] = []  # all destinations of that version
        self._version = (0, 0)

    def page(self, request: Request) -> Iterator[Destination]:
        """Up to `count`, of those after `after` that begin with `prefix`; an empty one is the end."""
        after, prefix = text(request, "after", ""), text(request, "prefix", "")
        count = max(1, min(number(request, "count", LIST_COUNT_MAX), LIST_COUNT_MAX))
        names = self._all()
        at = bisect_left(names, (prefix, 0)) if prefix > after else bisect_right(names, (after, 1 << 63))
        for name, identity in names[at : at + count]:
            if not name.startswith(prefix):
                return
            yield self._destinations[identity]

    def _all(self) -> list[tuple[str, int]]:
        # Numbers are never used twice: as many as before, and the same last one, are the same destinations.
        version = (len(self._destinations), next(reversed(self._destinations), 0))
        if version != self._version:
            known = self._destinations.items()
            self._sorted = sorted((destination.record.name, identity) for identity, destination in known)
            self._version = version
        return self._sorted
