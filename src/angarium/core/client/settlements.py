"""Settlements of one consumer that wait for their answer, and those who wait for them."""
from dataclasses import dataclass

from angarium.core.client import events
from angarium.core.client.outlet import Outlet
from angarium.core.ranges import RangeSet
from angarium.core.wire.frames import Outcome

GIVEN_BACK = (Outcome.RELEASE, Outcome.RETURN)


@dataclass(slots=True)
class Unanswered:
    number: int
    outcome: Outcome
    ranges: RangeSet


class Barrier:
    """One `Sync`: counts the consumers that still owe settlements to it."""

    __slots__ = ("remaining", "session", "token")

    def __init__(self, session: int, token: int) -> None:
        self.session = session
        self.token = token
        self.remaining = 0

    def passed(self, outlet: Outlet) -> None:
        self.remaining -= 1
        if self.remaining == 0:
            outlet.tell(events.Synced(self.session, self.token))

    def failed(self, code: str, reason: str, outlet: Outlet) -> None:
        if self.remaining > 0:
            self.remaining = 0  # never passed any more
            outlet.tell(events.Synced(self.session, self.token, code, reason))
