"""The directory of a message manager: who watches for which names, and what is found.

A watch is a session's standing question which destinations match a pattern. First it is told of those that exist, then
of each new one. Matching is done in small portions, one for each tick, in which all that is to be done takes turns: no
pattern, and no number of them, keeps the node from its work.

A topic that is created while somebody watches keeps its log for the grace time, so that what is published before the
watcher has subscribed is not missed.
"""
from collections import deque
from dataclasses import dataclass, field

from angarium.core.destination.destination import Destination
from angarium.core.destination.events import Command, DestinationSettings, ToSession
from angarium.core.destination.names import Known
from angarium.core.errors import Rejected
from angarium.core.patterns import NamePattern
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, PatternSyntax

COST_MAX = 3_000  # of one portion, in instructions of compiled patterns: 1 ms as a rule, 15 ms at worst
NAMES_MAX = 500  # in one frame
OUTDATED_MAX = 100  # of what is to be done, for watches and destinations that are gone; past it they are dropped
PAUSE_S = 0.001  # between two portions: whatever else waits is done

WatchKey = tuple[bytes, int]  # session, the client's number


@dataclass(slots=True, eq=False)
class Watch:
    session: bytes
    frame: frames.Watch
    entry: "Entry"

    def wants(self, destination: Destination) -> bool:
        return self.frame.destination_kind in (DestinationKind.ANY, destination.record.kind)


@dataclass(slots=True, eq=False)
class Entry:
    """One pattern, and all who watch for it."""

    pattern: NamePattern
    watches: dict[WatchKey, Watch] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Work:
    """Names to be matched with patterns, pair by pair: all names for one watch, or one new name for all patterns."""

    entries: list[Entry]  # one of these two lists has one item
    identities: list[int]
    watch: Watch | None = None  # whom the names are for; None: for everybody
    is_created: bool = False  # the one name is of a destination that is new
    at: int = 0

    @property
    def is_done(self) -> bool:
        return self.at >= max(len(self.entries), len(self.identities)) or not (self.entries and self.identities)

    def next(self) -> tuple[Entry, int]:
        at, self.at = self.at, self.at + 1
        return self.entries[min(at, len(self.entries) - 1)], self.identities[min(at, len(self.identities) - 1)]


class Directory:
    def __init__(self, destinations: Known, settings: DestinationSettings) -> None:
        self._destinations = destinations
        self.settings = settings
        self._watches: dict[WatchKey, Watch] = {}
        self._entries: dict[tuple[str, PatternSyntax], Entry] = {}
        self._work: deque[Work] = deque()
        self._identities: list[int] = []  # all destinations of that version: one list for many watches
        self._version = 0
        self._due = 0.0
        self._awaited_until = 0.0  # watchers that were cut off may come back until then

    def watch(self, session: bytes, frame: frames.Watch, *, now: float) -> list[Command]:
        try:
            if len(self._watches) >= self.settings.watches_max:
                reason = f"this node has {len(self._watches):,} watches, as many as watches_max allows; close some"
                raise Rejected("too-many-watches", reason)
            if frame.pattern.startswith("_"):
                raise Rejected("reserved-name", "well-known and temporary destinations cannot be watched")
            name = (frame.pattern, frame.syntax)
            entry = self._entries.get(name) or Entry(NamePattern(*name))
        except Rejected as refusal:
            closed = frames.WatchClosed(frame.watch, refusal.code, refusal.reason, frame.attachment)
            return [ToSession(session, closed)]
        watch = Watch(session, frame, entry)
        self._entries[name] = entry
        self._watches[session, frame.watch] = entry.watches[session, frame.watch] = watch
        self._add(Work([entry], self._all(), watch), now)
        return []

    def _all(self) -> list[int]:
        version = self._destinations.version
        if version != self._version:
            self._identities, self._version = list(self._destinations), version
        return self._identities

    def unwatch(self, session: bytes, number: int) -> None:
        watch = self._watches.pop((session, number), None)
        if watch is not None:
            del watch.entry.watches[session, number]
            if not watch.entry.watches:
                del self._entries[watch.frame.pattern, watch.frame.syntax]

    def session_ended(self, session: bytes, *, closed: bool, now: float) -> None:
        numbers = [number for owner, number in self._watches if owner == session]
        for number in numbers:
            self.unwatch(session, number)
        if numbers and not closed:
            self._awaited_until = now + self.settings.resume_grace_s

    def restarted(self, now: float) -> None:
        """Sessions that watched before the restart may come back: new topics keep their log for them until then."""
        self._awaited_until = now + self.settings.resume_grace_s

    def created(self, destination: Destination, now: float) -> None:
        if not self._entries and now >= self._awaited_until:
            return
        if not destination.state.is_queue:
            destination.state.keep_until = now + self.settings.resume_grace_s
        self._tell(destination, now, is_created=True)

    def opened(self, destination: Destination, now: float) -> None:
        """It was there before, here or in another group: who watches since then is told that it exists."""
        self._tell(destination, now, is_created=False)

    def _tell(self, destination: Destination, now: float, *, is_created: bool) -> None:
        if self._entries:
            self._add(Work(list(self._entries.values()), [destination.identity], is_created=is_created), now)

    # -- matching ------------------------------------------------------------------------------------

    def _add(self, work: Work, now: float) -> None:
        if not self._work:
            self._due = now
        self._work.append(work)
        # For each watch and for each destination there is one at most, but for those that are gone.
        if len(self._work) > 2 * (len(self._watches) + len(self._destinations)) + OUTDATED_MAX:
            self._work = deque(work for work in self._work if self._is_wanted(work))

    def _is_wanted(self, work: Work) -> bool:
        if work.watch is not None:
            return self._is_known(work.watch)
        return bool(self._entries) and work.identities[0] in self._destinations

    def deadline(self) -> float | None:
        return self._due if self._work else None

    def tick(self, now: float) -> list[Command]:
        if not self._work or now < self._due:
            return []
        self._due = now + PAUSE_S
        commands: list[Command] = []
        left = COST_MAX
        while self._work and left > 0:
            work = self._work.popleft()
            if work.watch is not None and not self._is_known(work.watch):
                continue
            left -= self._match(work, min(left, COST_MAX // 4), commands)
            if not work.is_done:
                self._work.append(work)
            elif work.watch is not None:
                commands.append(_found(work.watch, DestinationKind.ANY, [], complete=True))
        return commands

    def _is_known(self, watch: Watch) -> bool:
        return self._watches.get((watch.session, watch.frame.watch)) is watch

    def _match(self, work: Work, cost_max: int, commands: list[Command]) -> int:
        """Go on with it, for about so much; returns what it did cost."""
        found: dict[tuple[Watch, DestinationKind], list[str]] = {}
        cost = 0
        while not work.is_done and cost < cost_max:
            entry, identity = work.next()
            destination = self._destinations.get(identity)
            if destination is None or not entry.watches:
                cost += 1
                continue
            cost += entry.pattern.cost
            if entry.pattern.matches(destination.record.name):
                for watch in (work.watch,) if work.watch is not None else entry.watches.values():
                    if watch.wants(destination) and self._is_known(watch):
                        found.setdefault((watch, destination.record.kind), []).append(destination.record.name)
        for (watch, kind), names in found.items():
            for at in range(0, len(names), NAMES_MAX):
                commands.append(_found(watch, kind, names[at : at + NAMES_MAX], created=work.is_created))
        return cost


def _found(
    watch: Watch, kind: DestinationKind, names: list[str], *, created: bool = False, complete: bool = False
) -> ToSession:
    frame = frames.WatchFound(watch.frame.watch, kind, names, created, complete, watch.frame.attachment)
    return ToSession(watch.session, frame)
