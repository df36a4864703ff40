"""The window of one consumer: what it holds, what it owes the broker, and how much more it takes.

    Deliver --> held --settled by the application--> gathered --Settle--> unanswered --Settled--> done
                  │                                      └───────resent under its number after a reconnection
                  └──ConsumerOpened.lost--> lost

- Credit: limit = received since ConsumerOpen + prefetch - held. So at most `prefetch` messages are held unsettled.
- A position that is held, or settled and not known to be durable, is never handed out again. A delivery of a settled
  one means that the broker lost track of the settlement, or that somebody else had it meanwhile and gave it back: it
  is settled again.
- A released position may come back once its release was sent; its coming answers the release.
- Who resumes gives credit when the broker has said what is lost: so no release of what was delivered before is taken
  for one of what is delivered after.
- On resuming, the consumer names as held also what it has settled without an answer: else the broker might give it to
  somebody else before the settlement, which follows, arrives.
- Recovery: all that is held goes back, and nothing is handed out until the broker has answered: it comes again then.
  Should the link be cut meanwhile, all of it is named as held, and the recovery asked for again.
- A commit (`core.client.transaction`) settles positions that stay held until it is answered.
- At most `UNANSWERED_MAX` settlements are unanswered; what is settled meanwhile gathers, and gives no credit.
"""
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable

from angarium.core.client import events
from angarium.core.client.outlet import Outlet
from angarium.core.client.settlements import GIVEN_BACK, Barrier, Unanswered
from angarium.core.errors import LocalProtocolError, RemoteProtocolError
from angarium.core.ranges import Range, RangeSet
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import LANE_BITS, Outcome

PREFETCH_MAX = 100_000
UNANSWERED_MAX = 64
RANGES_MAX = 4_096  # in one Settle
DISPUTED_MAX = 4_096  # ranges; beyond it the oldest positions are forgotten
_NOT_SENT = 1 << 63  # above every settlement's number
_NO_LIMIT = -1
_OUTCOMES = tuple(Outcome)  # iterating over the enumeration itself is slow


class ConsumerWindow:
    def __init__(self, request: events.OpenConsumer) -> None:
        self.session = request.session
        self.number = request.consumer
        self.place = 0  # among the session's producers and consumers, as the application opened them
        self.held = RangeSet()
        self.is_closing = False
        self._request = request
        self._prefetch = request.prefetch
        self._owed = RangeSet()  # settled or rejected here, not known to be durable there
        self._disputed = RangeSet()  # of those, settled in vain: somebody else had them, and may give them back
        self._gathered = {outcome: RangeSet() for outcome in Outcome}  # not yet sent
        self._unanswered: deque[Unanswered] = deque()
        self._settle_number = 0  # of the last Settle
        self._barriers: list[tuple[Barrier, int]] = []  # passed once that Settle is answered
        self._recover_number = 0  # of the last Recover
        self._recalled: RangeSet | None = None  # was held when Recover was asked for, until it is answered
        self._seen: list[Range] = []  # of that, what the application had in its hands
        self._is_recover_sent = False  # on the present connection
        self._committing: RangeSet = RangeSet()  # of what is held: being settled by a commit
        self._next_positions: dict[int, int] = {}  # by lane: one past the highest received ...
        self._start_positions: dict[int, int] = {}  # ... and until then, where the broker said that it begins
        self._was_asked = False  # ConsumerOpen was sent, on whatever connection
        self._is_asked = False  # ConsumerOpen was sent on the present connection
        self.is_open = False  # ... and answered
        self.end: tuple[str, str] | None = None  # code and reason, once it has ended
        self.is_close_wanted = False
        self._is_close_sent = False  # on the present connection
        self.unsubscribes = False
        self._received = 0  # since ConsumerOpen
        self._limit = 0  # last credit given
        self._limit_max = 0  # highest credit given since ConsumerOpen

    @property
    def is_clean(self) -> bool:
        """No settlement is on its way. What was returned does not count: it goes back by itself, too."""
        return not any(item.outcome is not Outcome.RETURN for item in self._unanswered) and not any(
            ranges for outcome, ranges in self._gathered.items() if outcome is not Outcome.RETURN
        )

    # -- from our side ---------------------------------------------------------------------------

    def open(self, outlet: Outlet) -> None:
        resumed, request = self._was_asked, self._request
        self._was_asked = self._is_asked = True
        self.is_open = self._is_close_sent = self._is_recover_sent = False
        self._received = 0
        # Resumed, the first credit says that all is told: it has to come, whatever it is.
        self._limit_max = 0 if resumed else self._limit_now()
        self._limit = _NO_LIMIT if resumed and not self.is_closing else self._limit_max
        following = {**self._start_positions, **self._next_positions}
        first = following.pop(0, -1)
        frame = frames.ConsumerOpen(
            self.number, request.destination, request.destination_kind, request.subscription, request.start,
            self._limit_max, resumed, list(self._known()) if resumed else [],
            first, b"", request.selector, request.shared, request.durable, request.no_local, request.exclusive,
            b"", request.existing, list(following.values()),
        )  # fmt: skip
        outlet.send(self.session, frame)
        for item in self._unanswered:
            outlet.send(self.session, frames.Settle(self.number, item.number, item.outcome, list(item.ranges)))
        self.flush(outlet)

    def disconnected(self) -> None:
        self._is_asked = self.is_open = False

    def settle(self, request: events.Settle, outlet: Outlet) -> None:
        outcomes = ((Outcome.SETTLE, request.settled), (Outcome.REJECT, request.rejected),
                    (Outcome.RELEASE, request.released), (Outcome.RETURN, request.returned))  # fmt: skip
        self.check_held([part for _, ranges in outcomes for part in ranges])
        for outcome, ranges in outcomes:
            gathered = self._gathered[outcome]
            for low, high in ranges:
                self.held.remove(low, high)
                gathered.add(low, high)
                if outcome not in GIVEN_BACK:
                    self._owed.add(low, high)
        self.flush(outlet)

    def check_held(self, ranges: Iterable[Range]) -> None:
        """Raise unless each of these positions is named once, held, and in no commit."""
        asked = RangeSet(self._committing)
        for low, high in ranges:
            if low >= high or asked.gaps(low, high) != [(low, high)] or self.held.gaps(low, high):
                raise LocalProtocolError(
                    f"consumer {self.number} on '{self._request.destination}': positions {low} to {high - 1} are "
                    "not all held; settle each message once"
                )
            asked.add(low, high)

    def commits(self, ranges: Iterable[Range]) -> None:
        """A commit is to settle these; none: it does no more."""
        self._committing = RangeSet(ranges)

    def committed(self, ranges: Iterable[Range], outlet: Outlet) -> None:
        self._committing = RangeSet()
        for low, high in ranges:
            self.held.remove(low, high)
        self.flush(outlet)

    def recover(self, unseen: Iterable[Range], outlet: Outlet) -> None:
        """Give back all that is held; what is not `unseen` with a higher redelivery count."""
        if self._recalled is not None or self._committing:
            raise LocalProtocolError(f"consumer {self.number}: a recovery or commit is not answered yet; await it")
        if not self._was_asked or self.is_closing:  # nothing is held, or it goes back with the close
            outlet.tell(events.Recovered(self.session, self.number))
            return
        seen = RangeSet(self.held)
        for low, high in unseen:
            seen.remove(low, high)
        self._recalled, self._seen, self.held = self.held, list(seen), RangeSet()
        self._recover_number += 1
        self._is_recover_sent = False
        self.flush(outlet)

    def set_prefetch(self, prefetch: int, outlet: Outlet) -> None:
        check_prefetch(prefetch)
        self._prefetch = prefetch
        self.flush(outlet)

    def stop(self, outlet: Outlet) -> None:
        """Take no more messages."""
        self.is_closing = True
        self.flush(outlet)

    def close(self, unsubscribe: bool, outlet: Outlet) -> None:
        self.is_closing = True
        self.unsubscribes = self.unsubscribes or unsubscribe
        self.is_close_wanted = True
        self.flush(outlet)

    def sync(self, barrier: Barrier) -> None:
        if self.is_clean:
            return
        barrier.remaining += 1
        number = _NOT_SENT if any(self._gathered.values()) else self._settle_number
        self._barriers.append((barrier, number))

    def flush(self, outlet: Outlet) -> None:
        """Send the gathered settlements and the credit that they make."""
        if not self._is_asked or self._is_close_sent:
            return
        sent = [item for outcome in _OUTCOMES if self._gathered[outcome] for item in self._number_gathered(outcome)]
        is_stuck = any(self._gathered.values())
        limit = self._limit_now()
        is_resuming = self._limit == _NO_LIMIT and not self.is_open
        if limit == self._limit or (is_stuck and limit > self._limit) or self._recalled is not None or is_resuming:
            limit = _NO_LIMIT
        else:
            self._limit, self._limit_max = limit, max(self._limit_max, limit)
        for item in sent:
            credit = limit if item is sent[-1] else -1
            outlet.send(self.session, frames.Settle(self.number, item.number, item.outcome, list(item.ranges), credit))
        if limit >= 0 and not sent:
            outlet.send(self.session, frames.Credit(self.number, limit))
        if is_stuck:
            return
        if self._recalled is not None and not self._is_recover_sent:
            self._is_recover_sent = True
            outlet.send(self.session, frames.Recover(self.number, self._recover_number, self._seen))
        if self._barriers:
            last = self._settle_number
            self._barriers = [(barrier, last if n == _NOT_SENT else n) for barrier, n in self._barriers]
        if self.is_close_wanted:
            self.send_close(outlet)

    def send_close(self, outlet: Outlet) -> None:
        """Nothing follows. What is on its way here has not been seen, and shall not count as delivered."""
        if self._is_asked and not self._is_close_sent:
            self._is_close_sent = True
            outlet.send(self.session, frames.ConsumerClose(self.number, self.unsubscribes, list(self.held)))

    def _number_gathered(self, outcome: Outcome) -> list[Unanswered]:
        sent: list[Unanswered] = []
        ranges = self._gathered[outcome]
        while ranges and len(self._unanswered) < UNANSWERED_MAX:
            if len(ranges) <= RANGES_MAX:
                part, ranges = ranges, RangeSet()
            else:
                part = RangeSet(list(ranges)[:RANGES_MAX])
                for low, high in part:
                    ranges.remove(low, high)
            self._settle_number += 1
            item = Unanswered(self._settle_number, outcome, part)
            self._unanswered.append(item)
            sent.append(item)
        self._gathered[outcome] = ranges
        return sent

    def _limit_now(self) -> int:
        if self.is_closing:
            return self._received
        return max(0, self._received + self._prefetch - self.held.count)

    def _known(self) -> RangeSet:
        """What the broker must take for ours when we resume. What we have released may be somebody else's by now."""
        known = RangeSet(self._recalled if self._recalled is not None else self.held)
        known_parts: list[Iterable[Range]] = [
            item.ranges for item in self._unanswered if item.outcome not in GIVEN_BACK
        ]
        known_parts += self._gathered.values()
        for ranges in known_parts:
            for low, high in ranges:
                known.add(low, high)
        return known

    # -- from the broker -------------------------------------------------------------------------

    def on_opened(self, frame: frames.ConsumerOpened, outlet: Outlet) -> None:
        if not self._is_asked or self.is_open:
            raise self._violation("unexpected-frame", "opened, and did not ask to be")
        self.is_open = True
        self._start_positions = {p >> LANE_BITS: p for p in (*frame.positions, frame.position) if p >= 0}
        # What a commit settles may be lost because it was committed: its answer will tell.
        gone = [part for low, high in frame.lost for part in self._committing.gaps(low, high)]
        lost = [part for low, high in gone for part in self.held.remove(low, high)]
        for outcome in GIVEN_BACK:
            for low, high in frame.lost:
                self._gathered[outcome].remove(low, high)
        if lost:
            outlet.tell(events.PositionsLost(self.session, self.number, lost))
        outlet.tell(events.ConsumerReady(self.session, self.number))
        self.flush(outlet)

    def on_deliver(self, frame: frames.Deliver, payload: bytes, outlet: Outlet) -> None:
        if not self.is_open:
            raise self._violation("unexpected-frame", "sent Deliver before ConsumerOpened")
        batch = Batch.parse(payload)
        low, high = frame.position, frame.position + batch.count
        is_counted = not frame.redeliveries or len(frame.redeliveries) == batch.count
        if low < 0 or not is_counted or (frame.ranges and not _are_positions(frame, batch.count)):
            raise self._violation(
                "bad-delivery",
                f"delivered {batch.count} messages at {low} in {len(frame.ranges)} ranges, "
                f"{len(frame.redeliveries)} redeliveries",
            )
        if self._received + batch.count > self._limit_max:
            raise self._violation(
                "credit-exceeded",
                f"delivered {batch.count} messages after {self._received}, with credit for {self._limit_max}",
            )
        self._received += batch.count
        if self._recalled is not None:  # they go back with the recovery
            return
        lane, asked = low >> LANE_BITS, frame.ranges or [(low, high)]
        next_position = self._next_positions.get(lane, 0)
        fresh = asked if low >= next_position else self._fresh(asked)
        if self.is_closing:  # nobody will see them
            for a, b in fresh:
                self._gathered[Outcome.RETURN].add(a, b)
            self.flush(outlet)
            return
        if asked[-1][1] > next_position:
            self._next_positions[lane] = asked[-1][1]
        for a, b in fresh:
            self.held.add(a, b)
        self._tell_arrived(frame, batch, asked, fresh, outlet)
        if fresh != asked:
            self._on_duplicates(asked, outlet)

    def _fresh(self, asked: list[Range]) -> list[Range]:
        """What of it is neither held nor settled here. Beyond what was ever received, all is."""
        fresh = [part for whole in asked for gap in self.held.gaps(*whole) for part in self._owed.gaps(*gap)]
        self._answer_releases(fresh)
        for outcome in GIVEN_BACK:
            fresh = [part for gap in fresh for part in self._gathered[outcome].gaps(*gap)]
        return fresh

    def _tell_arrived(
        self, frame: frames.Deliver, batch: Batch, asked: list[Range], fresh: list[Range], outlet: Outlet
    ) -> None:
        low = frame.position
        positions = [position for a, b in frame.ranges for position in range(a, b)] if frame.ranges else []
        if fresh == asked:
            parts = [(0, batch.count)]
        elif not positions:
            parts = [(a - low, b - low) for a, b in fresh]
        else:
            parts = [(bisect_left(positions, a), bisect_left(positions, b)) for a, b in fresh]
        for a, b in parts:
            outlet.tell(
                events.MessagesArrived(
                    self.session, self.number, batch, low, frame.redeliveries, a, b, positions
                )
            )

    def _answer_releases(self, fresh: list[Range]) -> None:
        for item in self._unanswered:
            if item.outcome in GIVEN_BACK:
                for low, high in fresh:
                    item.ranges.remove(low, high)

    def _on_duplicates(self, asked: list[Range], outlet: Outlet) -> None:
        for low, high in asked:
            for a, b in self._disputed.remove(low, high):
                self._gathered[Outcome.SETTLE].add(a, b)
            for item in self._unanswered:
                if item.outcome not in GIVEN_BACK:
                    for a, b in item.ranges.overlap(low, high):
                        self._gathered[item.outcome].add(a, b)
        self.flush(outlet)

    def on_settled(self, frame: frames.Settled, outlet: Outlet) -> None:
        if not self._is_asked:
            raise self._violation("unexpected-frame", "sent Settled before ConsumerOpened")
        if frame.number > self._settle_number:
            raise self._violation("bad-number", f"answered settlement {frame.number} of {self._settle_number}")
        lost: list[Range] = []
        while self._unanswered and self._unanswered[0].number <= frame.number:
            item = self._unanswered.popleft()
            if item.outcome not in GIVEN_BACK:  # a release that is lost was done by an earlier sending of it
                lost += [part for low, high in frame.lost for part in item.ranges.remove(low, high)]
        for low, high in lost:
            self._disputed.add(low, high)
        while len(self._disputed) > DISPUTED_MAX:
            self._disputed.remove(*(self._disputed.first() or (0, 0)))
        still = [item.ranges for item in self._unanswered if item.outcome not in GIVEN_BACK]
        still += [self._gathered[Outcome.SETTLE], self._gathered[Outcome.REJECT], self._disputed]
        self._owed = RangeSet(part for ranges in still for part in ranges)
        if lost:
            outlet.tell(events.SettlementsLost(self.session, self.number, lost))
        passed = [barrier for barrier, number in self._barriers if number <= frame.number]
        self._barriers = [item for item in self._barriers if item[1] > frame.number]
        for barrier in passed:
            barrier.passed(outlet)
        self.flush(outlet)

    def on_recovered(self, frame: frames.Recovered, outlet: Outlet) -> None:
        if frame.number > self._recover_number:
            raise self._violation("bad-number", f"answered recovery {frame.number} of {self._recover_number}")
        if self._recalled is not None and frame.number == self._recover_number:
            self._recalled, self._seen = None, []
            outlet.tell(events.Recovered(self.session, self.number))
            self.flush(outlet)

    def ended(self, code: str, reason: str, outlet: Outlet) -> None:
        """With an empty code, earlier settlements are durable; else nobody knows."""
        self.end = (code or "consumer-closed", reason or "the consumer was closed")
        for barrier, _ in self._barriers:
            if code:
                barrier.failed(code, reason, outlet)
            else:
                barrier.passed(outlet)
        self._barriers = []

    def _violation(self, code: str, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            code, f"session {self.session}, consumer {self.number} on '{self._request.destination}': broker {what}"
        )


def _are_positions(frame: frames.Deliver, count: int) -> bool:
    """Whether `ranges` ascends from `position`, in one lane, and has one position for each message."""
    at = frame.position
    for low, high in frame.ranges:
        if not at <= low < high:
            return False
        at = high
    is_in_one_lane = frame.position >> LANE_BITS == (at - 1) >> LANE_BITS
    is_counted = sum(high - low for low, high in frame.ranges) == count
    return is_in_one_lane and frame.ranges[0][0] == frame.position and is_counted


def check_prefetch(prefetch: int) -> None:
    if not 0 <= prefetch <= PREFETCH_MAX:
        raise LocalProtocolError(f"prefetch {prefetch:,} is outside 0..{PREFETCH_MAX:,}; choose one within")
