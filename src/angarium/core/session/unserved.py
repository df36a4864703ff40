"""Requests to replica groups that have no message manager: refused when that has lasted for a while, not kept for ever.

    asked --the group answers--> (gone)
          --another message manager serves--> (gone: its session is told that the request was lost)
          --nobody has served the group for `patience_s`--> refused

A new primary is found within a second; whoever asks meanwhile waits for it. A group that has been without one for
longer waits for an administrator, and he is the one who asks.
"""
from collections import defaultdict

PATIENCE_S = 5.0


class UnservedRequests:
    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._since: dict[int, float] = {}  # groups that nobody serves, and from when on that is known
        # By group and session: numbers of those that are not yet answered. Sessions limit how many they ask.
        self._asked: defaultdict[int, dict[bytes, dict[int, None]]] = defaultdict(dict)

    def asked(self, group: int, session: bytes, number: int, *, is_served: bool, now: float) -> None:
        if not is_served:
            self._since.setdefault(group, now)
        self._asked[group].setdefault(session, {})[number] = None

    def answered(self, group: int, session: bytes, number: int) -> None:
        numbers = self._asked[group].get(session, {})
        numbers.pop(number, None)
        if not numbers:
            self._asked[group].pop(session, None)

    def ended(self, session: bytes) -> None:
        """Nobody waits for its answers any more."""
        for sessions in self._asked.values():
            sessions.pop(session, None)

    def served(self, group: int) -> None:
        """From now on, by another message manager: it was asked nothing yet."""
        self._since.pop(group, None)
        self._asked.pop(group, None)

    def lost(self, group: int, *, now: float) -> None:
        self._since.setdefault(group, now)

    def deadline(self) -> float | None:
        times = [since + self._patience_s for group, since in self._since.items() if self._asked.get(group)]
        return min(times, default=None)

    def refused(self, *, now: float) -> list[tuple[int, bytes, int]]:
        """Group, session and number of those that wait no longer."""
        found: list[tuple[int, bytes, int]] = []
        for group, since in self._since.items():
            if now >= since + self._patience_s:
                asked = self._asked.pop(group, {})
                found += [(group, session, number) for session, numbers in asked.items() for number in numbers]
        return found
