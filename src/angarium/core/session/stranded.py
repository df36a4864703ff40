"""Replica groups that others may be served by, and nobody through this client manager: when to send clients elsewhere.

    out of reach --for `patience_s`--> stranded: clients that need it, and have been here for as long, are sent away
                 --in reach again----> (forgotten)

A client manager that is cut off from the rest, or from a group only, does not die: its clients would wait until the
network heals, while other client managers serve theirs. One that is sent away goes on to its next address. If all
addresses are cut off alike it comes back, and costs a connection in every `patience_s`. A new primary is found sooner.
"""
from collections.abc import Collection

PATIENCE_S = 2.0
LOOK_EVERY_S = 0.5


class StrandedGroups:
    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._since: dict[int, float] = {}  # by group: from when on it was seen to be out of reach, every time

    def seen(self, out_of_reach: Collection[int], *, now: float) -> list[int]:
        """Those that have been out of reach for so long."""
        self._since = {group: self._since.get(group, now) for group in sorted(out_of_reach)}
        return [group for group, since in self._since.items() if now - since >= self._patience_s]
