"""Large selectors are read in portions, between what others want.

    FromSession, with a selector that would take long --> its session waits --Tick, Tick, …--> read: all that waits is
                                                                                              handled, in order

Nobody waits but the session itself: what it sends meanwhile would overtake, so it waits as well. That is bounded by
what a session may send without an answer. Of several that wait, each gets its portion in turn.
"""
from collections import deque

from angarium.core.destination.events import FromSession
from angarium.core.destination.selecting import is_read, reading
from angarium.core.selector.pace import Portions
from angarium.core.wire import frames

PAUSE_S = 0.0001  # between two portions: whoever has something to do by then comes first
LARGE_CHARACTERS = 2_000  # a selector of fewer is read within five milliseconds


class Readings:
    def __init__(self) -> None:
        self._portions: deque[tuple[bytes, Portions[None]]] = deque()  # by session
        self._waiting: dict[bytes, list[FromSession]] = {}
        self._due = 0.0

    def deadline(self) -> float | None:
        return self._due if self._portions else None

    def holds(self, event: FromSession, characters_max: int, now: float) -> bool:
        """Its turn has not come yet."""
        if (waiting := self._waiting.get(event.session)) is not None:
            waiting.append(event)
            return True
        if type(event.frame) is frames.Publish:  # the commonest has none
            return False
        selector = _selector_of(event.frame)
        if not LARGE_CHARACTERS < len(selector) <= characters_max or is_read(selector):
            return False
        self._waiting[event.session] = [event]
        self._due = self._due if self._portions else now
        self._portions.append((event.session, reading(selector)))
        return True

    def tick(self, now: float) -> list[FromSession]:
        """One portion. What can be handled now, in order: each is to be asked about again, it may be large as well."""
        if not self._portions or self._due > now:
            return []
        self._due = now + PAUSE_S
        session, portions = self._portions.popleft()
        try:
            next(portions)
        except StopIteration:
            return self._waiting.pop(session)
        self._portions.append((session, portions))
        return []


def _selector_of(frame: frames.Frame) -> str:
    if isinstance(frame, frames.ConsumerOpen):
        return frame.selector
    asked = frame.arguments.get("selector") if isinstance(frame, frames.Request) else None
    return asked if isinstance(asked, str) else ""
