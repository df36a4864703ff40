"""All destinations by name, a page at a time."""
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from angarium.core.destination.arguments import number, text
from angarium.core.destination.destination import Destination
from angarium.core.wire.frames import Request

LIST_COUNT_MAX = 500  # destinations in one page: some milliseconds of describing


class Known(dict[int, Destination]):
    """The destinations of a message manager, by id."""

    version = 0  # ascends whenever there is one more, or one less

    def __setitem__(self, identity: int, destination: Destination) -> None:
        self.version += 1
        super().__setitem__(identity, destination)

    def __delitem__(self, identity: int) -> None:
        self.version += 1
        super().__delitem__(identity)


class Names:
    def __init__(self, destinations: Known) -> None:
        self._destinations = destinations
        self._sorted: list[tuple[str, int]] = []  # all destinations of that version
        self._version = 0

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
        version = self._destinations.version
        if version != self._version:
            known = self._destinations.items()
            self._sorted = sorted((destination.record.name, identity) for identity, destination in known)
            self._version = version
        return self._sorted
