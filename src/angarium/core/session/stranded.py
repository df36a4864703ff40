"""Replica groups that others may be served by, and nobody through this client manager: when to send clients elsewhere.

    out of reach --for `patience_s`--> stranded: clients that need it, and have been here for as long, are sent away
                 --in reach again----> (forgotten)

A client manager that is cut off from the rest, or from a group only, does not die: its clients would wait until the
network heals, while other client managers serve theirs. One that is sent away goes on to its next address. If all
addresses are cut off alike it comes back: then it stays for twice as long each time, up to `PATIENCE_S_MAX`, so that
thousands of clients that nobody can serve do not all connect anew every two seconds. A new primary is found sooner.
"""
from collections.abc import Collection

PATIENCE_S = 2.0
PATIENCE_S_MAX = 32.0
SENT_AWAY_MAX = 10_000  # clients that are remembered; past it the one that was sent away longest ago is as new
LOOK_EVERY_S = 0.5


class StrandedGroups:
    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._since: dict[int, float] = {}  # by group: from when on it was seen to be out of reach, every time

    def seen(self, out_of_reach: Collection[int], *, now: float) -> list[int]:
        """Those that have been out of reach for so long."""
        self._since = {group: self._since.get(group, now) for group in sorted(out_of_reach)}
        return [group for group, since in self._since.items() if now - since >= self._patience_s]


class SentAway:
    """Clients that were sent away from here, and how long they stay should they come back; forgotten after a while."""

    def __init__(self, clients_max: int = SENT_AWAY_MAX) -> None:
        self._clients_max = clients_max
        self._clients: dict[bytes, tuple[float, float]] = {}  # by identity: patience, when; the longest ago first

    def patience_s(self, client: bytes, *, now: float) -> float:
        patience_s, at = self._clients.get(client, (PATIENCE_S, now))
        return patience_s if now - at < 4 * PATIENCE_S_MAX else PATIENCE_S

    def note(self, client: bytes, *, now: float) -> None:
        patience_s = min(2 * self.patience_s(client, now=now), PATIENCE_S_MAX)
        self._clients.pop(client, None)
        self._clients[client] = (patience_s, now)
        if len(self._clients) > self._clients_max:
            del self._clients[next(iter(self._clients))]
