"""What has to be said again every so often until somebody answers: in the order in which it is due."""
from collections.abc import Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)


class Repeating(Generic[_K]):
    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due: dict[_K, float] = {}  # all wait equally long, so the first is always due first

    def start(self, key: _K, now: float) -> None:
        """Or start over."""
        self._due.pop(key, None)
        self._due[key] = now + self._every_s

    def stop(self, key: _K) -> None:
        self._due.pop(key, None)

    def deadline(self) -> float | None:
        for at in self._due.values():
            return at
        return None

    def due(self, now: float) -> list[_K]:
        """Each of them is started over."""
        found: list[_K] = []
        for key, at in self._due.items():
            if at > now:
                break
            found.append(key)
        for key in found:
            self.start(key, now)
        return found
