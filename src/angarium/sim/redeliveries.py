"""When and how often what was given back is delivered again: the audit of redelivery delays and limits.

It follows each position of a queue from the delivery to the release or recovery by its holder, as they pass the
message manager, and objects when
- it is delivered again before its delay is over (unless the broker has started again: delays are not durable);
- it is delivered although the releases that were answered, and the recoveries since the broker started, are more than
  the limit, or with a count that is more than the limit;
- it dies of the limit and was not delivered so often;
- what was given back by one recovery comes again in another order.

What a session held when it was cut off is not followed further: whether it comes back in time is for `holdings`.
"""
from collections import Counter
from dataclasses import dataclass, field

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.events import FromSession, ToSession
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import Outcome
from angarium.sim.durable import Change, DurableState, Place
from angarium.sim.messages import Messages, Violation

_TOLERANCE_S = 0.002  # milliseconds are rounded


@dataclass(slots=True, eq=False)
class Rollback:
    """What one recovery gave back, and what of it has been delivered since, to whom."""

    waiting: set[int]
    last: dict[ConsumerKey, int] = field(default_factory=dict)


class RedeliveryAudit:
    def __init__(self, messages: Messages, durable: DurableState) -> None:
        self._messages = messages
        self._durable = durable
        self._names: dict[ConsumerKey, str] = {}  # consumers of queues
        self._answered: Counter[Place] = Counter()  # releases that were answered
        self._deliveries: Counter[Place] = Counter()
        self._numbers: set[tuple[ConsumerKey, str, int]] = set()  # settlements and recoveries that were seen before
        self.broker_started()

    def broker_started(self) -> None:
        self._holders: dict[Place, ConsumerKey] = {}
        self._not_before: dict[Place, float] = {}
        self._recovered: Counter[Place] = Counter()
        self._releases: dict[ConsumerKey, dict[int, list[Place]]] = {}  # not answered, by number
        self._rollbacks: dict[str, list[Rollback]] = {}

    def to_manager(self, event: FromSession, now: float) -> None:
        frame, session = event.frame, event.session
        match frame:
            case frames.ConsumerOpen(number, name):
                self._names[session, number] = name
            case frames.SessionEnded():
                self._forget([key for key in self._releases.keys() | set(self._holders.values()) if key[0] == session])
            case frames.ConsumerClose(number):
                self._forget([(session, number)])
            case frames.Settle(number, outcome=Outcome.RELEASE):
                given = self._give_back((session, number), "settle", frame.number, frame.ranges, now)
                self._releases.setdefault((session, number), {})[frame.number] = given
            case frames.Settle(number):
                self._take((session, number), frame.ranges)
            case frames.Recover(number):
                key = (session, number)
                given = self._give_back(key, "recover", frame.number, frame.seen, now)
                self._recovered.update(given)
                if given:
                    rollback = Rollback({position for _, position in given})
                    self._rollbacks.setdefault(self._names[key], []).append(rollback)

    def _forget(self, keys: list[ConsumerKey]) -> None:
        for key in keys:
            self._releases.pop(key, None)
        self._holders = {place: key for place, key in self._holders.items() if key not in keys}

    def _take(self, key: ConsumerKey, ranges: list[tuple[int, int]]) -> list[Place]:
        """What of the ranges is this consumer's, and no longer."""
        places = [(self._names[key], position) for low, high in ranges for position in range(low, high)]
        own = [place for place in places if self._holders.get(place) == key]
        for place in own:
            del self._holders[place]
        return own

    def _give_back(
        self, key: ConsumerKey, what: str, number: int, ranges: list[tuple[int, int]], now: float
    ) -> list[Place]:
        if key not in self._names or (key, what, number) in self._numbers:
            return []  # sent again: it may have been done before
        self._numbers.add((key, what, number))
        given = self._take(key, ranges)
        record = self._durable.records.get(self._names[key])
        if record is not None and record.redelivery_delay_ms:
            self._not_before.update(dict.fromkeys(given, now + record.redelivery_delay_ms / 1000))
        return given

    def from_manager(self, command: ToSession, now: float) -> None:
        frame, session = command.frame, command.session
        if isinstance(frame, frames.Settled):
            releases = self._releases.get((session, frame.consumer), {})
            for number in [number for number in releases if number <= frame.number]:
                self._answered.update(releases.pop(number))
        elif isinstance(frame, frames.Deliver):
            positions = frame.positions(Batch.trusted(command.payload).count)
            for index, position in enumerate(positions):
                counted = frame.redeliveries[index] if frame.redeliveries else 0
                self._delivered((session, frame.consumer), position, counted, now)

    def _delivered(self, key: ConsumerKey, position: int, counted: int, now: float) -> None:
        queue = self._names[key]
        place = (queue, position)
        early_s = self._not_before.pop(place, 0.0) - now
        if early_s > _TOLERANCE_S:
            raise Violation("a redelivery waits for its delay", f"{queue}: {position} comes {early_s:.3f} s too early")
        record = self._durable.records[queue]
        limit, given_back = record.redeliveries_max, self._answered[place] + self._recovered[place]
        if limit and max(counted, given_back) > limit:
            raise Violation(
                "nothing is delivered more often than its limit allows",
                f"{queue}: {position} comes with count {counted}, was given back {given_back} times, limit {limit}",
            )
        self._holders[place] = key
        self._deliveries[place] += 1
        for rollback in self._rollbacks.get(queue, ()):
            if position in rollback.waiting:
                rollback.waiting.discard(position)
                if rollback.last.get(key, -1) > position:
                    raise Violation(
                        "rollback redelivers in order", f"{queue}: {position} comes after {rollback.last[key]}"
                    )
                rollback.last[key] = position

    def changed(self, change: Change, now: float) -> None:
        for queue, position in change.buried:
            reason = self._messages.dead.get((queue, "", position))
            limit = self._durable.records[queue].redeliveries_max
            if reason == "redelivery-limit" and (not limit or self._deliveries[queue, position] <= limit):
                delivered = self._deliveries[queue, position]
                raise Violation("nobody dies too early", f"{queue}: {position} was delivered {delivered} times only")

    def unfinished(self) -> list[str]:
        """What was given back too often, and the answers left the broker, is in the dead message queue."""
        return [
            f"{queue}: position {position} was given back {times} times and is not dead"
            for (queue, position), times in self._answered.items()
            if 0 < self._durable.records[queue].redeliveries_max < times
            and (queue, "", position) not in self._messages.dead
            and position not in self._messages.by_name[queue].damaged
        ]
