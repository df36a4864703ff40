"""Who gets which message: the audit of selectors, priorities and message groups.

It follows deliveries and what becomes of them as they pass the message manager, and objects when
- a consumer is sent what its selector, or that of its subscription, is not true of: the oracle decides;
- a message is not in the lane of its priority;
- a message of a group is sent to one consumer while another one holds a message of that group, although each of the
  two would take either. What was held before the broker started again does not count: who owned a group is not
  remembered. Nor does what is held by somebody who has been away for the grace time.

The order within a lane and a group is for `holdings`.
"""
from collections import Counter
from dataclasses import dataclass
from functools import cache

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.events import FromSession, Report, ToSession
from angarium.core.destination.fields import BatchFields
from angarium.core.destination.log import lane_for, lane_of
from angarium.core.ranges import Range
from angarium.core.selector.fields import Fields
from angarium.core.selector.naive import matches
from angarium.core.selector.parser import parse
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.layout import PRIORITY_DEFAULT
from angarium.sim.clock import Clock
from angarium.sim.messages import Violation

_TOLERANCE_S = 1e-6
_parsed = cache(parse)
Place = tuple[int, str]  # destination, subscription


@dataclass(slots=True, eq=False)
class Chooser:
    key: ConsumerKey
    name: str  # of its destination, for people
    place: Place
    selector: str
    away_since: float | None = None

    def wants(self, fields: Fields) -> bool:
        selector = _parsed(self.selector)
        return selector is None or matches(selector, fields)


@dataclass(frozen=True, slots=True)
class Held:
    consumer: Chooser
    group: str
    fields: Fields


class ChoiceAudit:
    def __init__(self, clock: Clock, *, grace_s: float) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self.seen: Counter[str] = Counter()
        self.broker_started()

    def broker_started(self) -> None:
        self._consumers: dict[ConsumerKey, Chooser] = {}
        self._held: dict[Place, dict[int, Held]] = {}  # messages of groups, by position

    def broker_stopped(self) -> None: ...

    def reported(self, report: Report) -> None: ...

    # -- to the message manager ----------------------------------------------------------------------

    def to_manager(self, event: FromSession) -> None:
        session, frame = event.session, event.frame
        match frame:
            case frames.ConsumerOpen(number, name):
                self._open((session, number), name, event.destination, frame)
            case frames.Settle(number, ranges=ranges):
                self._let_go((session, number), ranges)
            case frames.ConsumerClose(number):
                self._forget((session, number))
            case frames.SessionEnded(closed):
                for key in [key for key in self._consumers if key[0] == session]:
                    self._ended(key, event.destination, closed)

    def _open(self, key: ConsumerKey, name: str, destination: int, frame: frames.ConsumerOpen) -> None:
        known = self._consumers.get(key)
        if known is None:
            subscription = frame.subscription or ("" if frame.destination_kind == frames.DestinationKind.QUEUE else "#")
            place = (destination, subscription if subscription != "#" else f"#{key[0].hex()}.{key[1]}")
            self._consumers[key] = Chooser(key, name, place, frame.selector)
            return
        claimed = {position for low, high in frame.held for position in range(low, high)}
        held, is_late = self._held.get(known.place, {}), self._is_given_up(known)
        for position in [at for at, hold in held.items() if hold.consumer is known]:
            if is_late or position not in claimed:  # what never reached it comes again
                del held[position]
        known.away_since = None

    def _ended(self, key: ConsumerKey, destination: int, closed: bool) -> None:
        consumer = self._consumers[key]
        if destination == consumer.place[0]:  # each of them is told, in its own time
            if closed:
                self._forget(key)
            elif consumer.away_since is None:
                consumer.away_since = self._clock.now

    def _forget(self, key: ConsumerKey) -> None:
        if (consumer := self._consumers.pop(key, None)) is not None:
            held = self._held.get(consumer.place, {})
            for position in [at for at, hold in held.items() if hold.consumer is consumer]:
                del held[position]

    def _let_go(self, key: ConsumerKey, ranges: list[Range]) -> None:
        """Settled, rejected or given back: it is no longer in anybody's hands."""
        if (consumer := self._consumers.get(key)) is None:
            return
        held = self._held.get(consumer.place, {})
        for position in (position for low, high in ranges for position in range(low, high)):
            if position in held and held[position].consumer is consumer:
                del held[position]

    def _is_given_up(self, consumer: Chooser) -> bool:
        away_since = consumer.away_since
        return away_since is not None and self._clock.now - away_since >= self._grace_s - _TOLERANCE_S

    # -- from the message manager --------------------------------------------------------------------

    def from_manager(self, command: ToSession) -> None:
        frame = command.frame
        if isinstance(frame, frames.ConsumerClosed) and frame.code:
            self._forget((command.session, frame.consumer))
        elif isinstance(frame, frames.Deliver):
            batch = Batch.trusted(command.payload)
            fields, priorities = BatchFields(batch), batch.priorities()
            consumer = self._consumers[command.session, frame.consumer]
            for index, position in enumerate(frame.positions(batch.count)):
                self._check_lane(consumer, position, PRIORITY_DEFAULT if priorities is None else priorities[index])
                self._delivered(consumer, position, fields[index], fields.group(index))

    def _check_lane(self, consumer: Chooser, position: int, priority: int) -> None:
        self.seen["urgent"] += priority > PRIORITY_DEFAULT
        if lane_for(priority) != lane_of(position):
            raise Violation(
                "a message is in the lane of its priority", f"{consumer.name}: position {position} has {priority}"
            )

    def _delivered(self, consumer: Chooser, position: int, fields: Fields, group: str | None) -> None:
        self.seen["selected"] += bool(consumer.selector)
        if not consumer.wants(fields):
            raise Violation(
                "nobody gets what a selector excludes", f"{consumer.name}: position {position} to {consumer.selector!r}"
            )
        if group is None:
            return
        self.seen["of a group"] += 1
        held = self._held.setdefault(consumer.place, {})
        for other_position, hold in held.items():
            other = hold.consumer
            if hold.group != group or other is consumer or self._is_given_up(other):
                continue
            if other.wants(fields) and consumer.wants(hold.fields):
                raise Violation(
                    "a group belongs to one consumer at a time",
                    f"{consumer.name}: {position} of {group!r} is sent while another holds {other_position} of it",
                )
            self.seen["divided by selectors"] += 1
        held[position] = Held(consumer, group, fields)
