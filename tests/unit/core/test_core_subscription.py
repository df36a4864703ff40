"""Goal: every position of a log is settled, free, or in the hands of exactly one consumer, through any history.
Method: the model keeps one word for each position and a count of redeliveries; hypothesis draws the operations, and
after each the subscription must say the same as the model. Restarts go through `record` and `restored`."""
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from angarium.core.destination import pages
from angarium.core.destination.consumer import Consumer, ConsumerKey
from angarium.core.destination.log import Log
from angarium.core.destination.pages import parse_page_key
from angarium.core.destination.subscription import Subscription
from angarium.core.destination.subscription_record import (
    StoredSubscription,
    SubscriptionRecord,
    changed_pages,
    recorded,
    restored,
)
from angarium.core.destination.wanting import wanted
from angarium.core.ranges import Range, RangeSet
from angarium.core.storage import Put
from tests.unit.core.core_settings import THOROUGH

GRACE_S = 2.0
_KEYS: list[ConsumerKey] = [(b"s", 1), (b"s", 2), (b"t", 1)]
_FREE, _SETTLED, _ORPHANED = "free", "settled", "orphaned"
_keys = st.sampled_from(_KEYS)
_fractions = st.floats(0, 1)


class SubscriptionAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._page_bits, pages.PAGE_BITS = pages.PAGE_BITS, 3  # many pages, with few positions
        self.record = b""
        self.pages: dict[int, bytes] = {}  # as they are stored
        self.passed_over: set[int] = set()
        self.now = 0.0
        self.readable = 0
        self.log = Log(1)
        self.subscription = Subscription("s", durable=True)
        self.words: list[object] = []  # for each position: free, settled, orphaned, or (how, by whom)
        self.counts: dict[int, int] = {}
        self.presumed: set[int] = set()  # of those, counted only because it may have been delivered before a restart
        self.next_fresh = 0
        self.delivered = 0  # one past the highest position ever taken by a consumer
        self.consumers: dict[ConsumerKey, Consumer] = {}
        self.resuming: set[ConsumerKey] = set()
        self.parked_until: dict[ConsumerKey, float] = {}
        self.awaited: set[ConsumerKey] = set()
        self.awaited_until = 0.0
        self.line: list[ConsumerKey] = []  # consumers with credit, in turn

    def teardown(self) -> None:
        pages.PAGE_BITS = self._page_bits

    # -- the model's vocabulary ----------------------------------------------------------------------

    def _where(self, *words: object, within: Range | None = None) -> list[int]:
        low, high = within or (0, self.readable)
        return [p for p in range(max(low, 0), min(high, self.readable)) if self.words[p] in words]

    def _become(self, positions: list[int], word: object, *, redelivered: bool = False) -> None:
        for position in positions:
            self.words[position] = word
            if word == _SETTLED:
                self.counts.pop(position, None)
            elif redelivered:
                self.counts[position] = self.counts.get(position, 0) + 1

    def _update_line(self, key: ConsumerKey) -> None:
        if self.consumers[key].credit > 0:
            if key not in self.line:
                self.line.append(key)
        elif key in self.line:
            self.line.remove(key)

    def _range(self, low: float, high: float) -> Range:
        at = sorted((int(low * self.readable), int(high * self.readable)))
        return at[0], at[1] + 1

    def _free(self) -> list[int]:
        """What may be delivered now. What is new waits until it is known who holds what was there before a restart."""
        everything = not self._where(_ORPHANED)
        return [p for p in self._where(_FREE) if everything or p < self.next_fresh]

    def _taken_by(self, key: ConsumerKey) -> list[object]:
        return [("held", key), ("unclaimed", key)] if key in self.resuming else [("held", key)]

    def _orphans_for(self, key: ConsumerKey) -> list[object]:
        """Who was given up before the restart has no claim: others may hold it since."""
        return [_ORPHANED] if key in self.awaited or not self.awaited else []

    # -- what happens --------------------------------------------------------------------------------

    @rule(count=st.integers(1, 8))
    def publish(self, count: int) -> None:
        self.readable += count
        self.log.lanes[0].next = self.log.lanes[0].readable = self.readable
        self.words += [_FREE] * count

    @rule(key=_keys, limit=st.integers(0, 6))
    def attach(self, key: ConsumerKey, limit: int) -> None:
        if key in self.consumers:
            return
        consumer = Consumer(*key, self.subscription, limit)
        assert self.subscription.attach(consumer, [], resumed=False) == []
        self._give_up({key})  # an earlier consumer of that number does not come back
        self.consumers[key] = consumer
        self._update_line(key)

    @rule(key=_keys, cuts=st.lists(_fractions, max_size=6, unique=True), limit=st.integers(0, 6))
    def resume(self, key: ConsumerKey, cuts: list[float], limit: int) -> None:
        if key in self.consumers:
            return
        ends = sorted({int(cut * (self.readable + 2)) for cut in cuts})
        claims = list(zip(ends[::2], ends[1::2], strict=False))
        consumer = Consumer(*key, self.subscription, limit)
        lost = self.subscription.attach(consumer, claims, resumed=True)
        mine = [("parked", key), *self._orphans_for(key)]
        got = [p for claim in claims for p in self._where(*mine, within=claim)]
        expected = {p for claim in claims for p in range(*claim)} - set(got)
        assert {p for part in lost for p in range(*part)} == expected
        self.passed_over -= {p for p in got if self.words[p] == _ORPHANED}  # it was delivered after that
        for position in self.presumed.intersection(got):  # it has never left its consumer
            if self.words[position] == _ORPHANED:
                self.presumed.remove(position)
                del self.counts[position]
        self._become(got, ("held", key))
        self._become(self._where(("parked", key)), ("unclaimed", key))
        self.parked_until.pop(key, None)
        self.consumers[key] = consumer
        self.resuming.add(key)
        assert consumer.credit == 0, "nothing is delivered before it has said what it holds"

    @rule(key=_keys, limit=st.integers(0, 20))
    def credit(self, key: ConsumerKey, limit: int) -> None:
        if key not in self.consumers:
            return
        self.subscription.credit(self.consumers[key], limit)
        if key in self.resuming:
            self.resuming.remove(key)
            self._become(self._where(("unclaimed", key)), _FREE)
            self.awaited.discard(key)
            self._free_orphans_if_nobody_is_awaited()
        self._update_line(key)

    def _free_orphans_if_nobody_is_awaited(self) -> None:
        if not self.awaited:
            self._become(self._where(_ORPHANED), _FREE)

    @rule(count=st.integers(1, 5), skip=st.sampled_from([0, 0, 0, 1, 3]))
    def deliver(self, count: int, skip: int) -> None:
        free = self._free()
        assert wanted(self.subscription, self.log) == (free[0] if free and self.line else None)
        if not free or not self.line:
            return
        consumer = self.subscription.line.first()
        assert consumer is not None
        key = self.line.pop(0)
        assert (consumer.session, consumer.number) == key, "consumers take turns"
        low, high = self.subscription.free_in(free[min(skip, len(free) - 1)], self.readable)[0]
        high = min(high, low + min(count, consumer.credit))
        self.subscription.take(consumer, low, high)
        counts = self.subscription.redeliveries.of(low, high)
        assert (counts or [0] * (high - low)) == [self.counts.get(p, 0) for p in range(low, high)]
        assert all(self.words[p] == _FREE for p in range(low, high))
        self._become(list(range(low, high)), ("held", key))
        self.passed_over |= {p for p in self._where(_FREE) if self.delivered <= p < low}
        self.passed_over -= set(range(low, high))
        self.next_fresh = max(self.next_fresh, high)
        self.delivered = max(self.delivered, high)
        self._update_line(key)

    @rule(key=_keys, low=_fractions, high=_fractions)
    def settle(self, key: ConsumerKey, low: float, high: float) -> None:
        if key not in self.consumers or not self.readable:
            return
        within = self._range(low, high)
        orphans = self._orphans_for(key) if key in self.resuming else []
        got = self._where(*self._taken_by(key), *orphans, within=within)
        others = set(range(within[0], min(within[1], self.readable))) - set(got) - set(self._where(_SETTLED))
        settled, lost = self.subscription.settle(self.consumers[key], within[0], min(within[1], self.readable))
        assert settled == len(got)
        assert {p for part in lost for p in range(*part)} == others, "what is settled already is no loss"
        self._become(got, _SETTLED)

    @rule(key=_keys, low=_fractions, high=_fractions)
    def release(self, key: ConsumerKey, low: float, high: float) -> None:
        if key not in self.consumers or not self.readable:
            return
        within = self._range(low, high)
        got = self._where(*self._taken_by(key), within=within)
        lost = self.subscription.release(self.consumers[key], *within)
        assert {p for part in lost for p in range(*part)} == set(range(*within)) - set(got)
        self._become(got, _FREE, redelivered=True)

    @rule(key=_keys, low=_fractions, high=_fractions)
    def hand_back(self, key: ConsumerKey, low: float, high: float) -> None:
        if key not in self.consumers or not self.readable:
            return
        within = self._range(low, high)
        got = self._where(*self._taken_by(key), within=within)
        lost = self.subscription.hand_back(self.consumers[key], *within)
        assert {p for part in lost for p in range(*part)} == set(range(*within)) - set(got)
        self.passed_over |= {p for p in got if p not in self.counts}  # nobody has seen it
        self._become(got, _FREE)

    @rule(key=_keys, parking=st.booleans())
    def detach(self, key: ConsumerKey, parking: bool) -> None:
        if key not in self.consumers:
            return
        self.subscription.detach(self.consumers.pop(key), park_until=self.now + GRACE_S if parking else None)
        if parking:
            self._become(self._where(("held", key), ("unclaimed", key)), ("parked", key))
            self.parked_until[key] = self.now + GRACE_S
            self.awaited.discard(key)
            self._free_orphans_if_nobody_is_awaited()
        else:
            self._become(self._where(("held", key)), _FREE, redelivered=True)
            self._become(self._where(("unclaimed", key)), _FREE)  # it never reached the application
        self.resuming.discard(key)
        if key in self.line:
            self.line.remove(key)

    @rule(low=_fractions, high=_fractions)
    def discard(self, low: float, high: float) -> None:
        within = self._range(low, high)
        free = [p for p in self._free() if within[0] <= p < within[1]]
        parts = self.subscription.free_in(within[0], min(within[1], self.readable))
        assert [p for part in parts for p in range(*part)] == free
        for part in parts:
            self.subscription.discard(*part, "expired")
            self.next_fresh = max(self.next_fresh, part[1])
        self._become(free, _SETTLED)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [key for key, until in self.parked_until.items() if until <= self.now]
        awaited = self.awaited if self.awaited_until <= self.now else set()
        gone = {*due, *awaited}
        assert set(self.subscription.expire_parked(self.now)) == gone - self.consumers.keys()
        self._give_up(gone)

    @rule(session=st.sampled_from([b"s", b"t"]))
    def forget_session(self, session: bytes) -> None:
        gone = {key for key in (*self.parked_until, *self.awaited) if key[0] == session}
        assert set(self.subscription.forget_session(session)) == gone - self.consumers.keys()
        self._give_up(gone)

    def _give_up(self, keys: set[ConsumerKey]) -> None:
        for key in keys:
            self._become(self._where(("parked", key)), _FREE, redelivered=True)
            self.parked_until.pop(key, None)
            self.awaited.discard(key)
        self._free_orphans_if_nobody_is_awaited()

    @rule()
    def save(self) -> None:
        """What has changed since the last time: all saves together are the whole."""
        self.record = recorded(self.subscription)
        for operation in changed_pages(self.subscription, 1):
            if isinstance(operation, Put):
                self.pages[parse_page_key(operation.key)[2]] = operation.value
            else:
                self.pages.pop(parse_page_key(operation.low)[2], None)

    @precondition(lambda self: self.readable)
    @rule()
    def restart(self) -> None:
        self.save()
        stored = StoredSubscription(msgspec.msgpack.decode(self.record, type=SubscriptionRecord), self.pages)
        attached = dict.fromkeys([*self.consumers, *self.parked_until, *self.awaited], 0)
        self.subscription = restored(
            "s", stored, attached, log=self.log, until=self.now + GRACE_S
        )
        unsettled = [p for p in range(self.readable) if self.words[p] != _SETTLED]
        self.presumed = {p for p in self.presumed if self.counts.get(p) == 1}
        for position in unsettled:
            if position < self.delivered and position not in self.passed_over and position not in self.counts:
                self.counts[position] = 1  # it may have been delivered: better said once too often
                self.presumed.add(position)
        self._become(unsettled, _ORPHANED if attached else _FREE)
        self.next_fresh = self.readable
        self.consumers, self.resuming, self.parked_until, self.line = {}, set(), {}, []
        self.awaited, self.awaited_until = set(attached), self.now + GRACE_S

    # -- what must hold --------------------------------------------------------------------------------

    @invariant()
    def says_what_the_model_says(self) -> None:
        subscription = self.subscription
        subscription.check(self.log)
        said: list[object] = [_SETTLED] * self.readable
        orphaned = subscription.parking.orphaned
        sets: list[tuple[object, RangeSet]] = [(_FREE, subscription.returned), (_ORPHANED, orphaned)]
        for key, consumer in subscription.consumers.items():
            sets += [(("held", key), consumer.held), (("unclaimed", key), consumer.unclaimed or RangeSet())]
        sets += [(("parked", key), parked.positions) for key, parked in subscription.parking.parked.items()]
        for word, positions in (*sets, (_FREE, RangeSet([(subscription.fresh_of(0), self.readable)]))):
            for low, high in positions:
                said[low:high] = [word] * (high - low)
        assert said == self.words
        counts = subscription.redeliveries.of(0, self.readable) or [0] * self.readable
        assert counts == [self.counts.get(position, 0) for position in range(self.readable)]

    @invariant()
    def counts_add_up(self) -> None:
        subscription = self.subscription
        assert subscription.free_count(self.log) == len(self._free())
        assert subscription.waiting_count(self.log) == self.readable - len(self._where(_SETTLED))
        assert len(subscription.line) == len(self.line)
        assert bool(subscription.parking) == bool(self.parked_until or self.awaited)

    @invariant()
    def deadline_is_the_next_giving_up(self) -> None:
        times = list(self.parked_until.values()) + ([self.awaited_until] if self.awaited else [])
        assert self.subscription.deadline() == min(times, default=None)


TestSubscriptionAgainstModel: Any = pytest.mark.timeout(600)(SubscriptionAgainstModel.TestCase)  # to shrink a failure
TestSubscriptionAgainstModel.settings = settings(THOROUGH, max_examples=150, stateful_step_count=40)


# -- what hypothesis would have to be lucky for ------------------------------------------------------------


def attached(subscription: Subscription, key: ConsumerKey, limit: int) -> Consumer:
    consumer = Consumer(*key, subscription, limit)
    subscription.attach(consumer, [], resumed=False)
    return consumer


def test_memory_of_a_long_backlog_is_a_few_ranges() -> None:
    subscription = Subscription("s", durable=True)
    consumer = attached(subscription, _KEYS[0], 1_000_000)
    subscription.take(consumer, 0, 100_000)
    for low in range(0, 100_000, 10):
        subscription.settle(consumer, low, low + 10)
    assert subscription.cursor_of(0) == 100_000
    assert not subscription.settled
    assert not consumer.held


def test_a_record_is_small_when_everything_is_settled_in_order() -> None:
    subscription = Subscription("s", durable=True)
    consumer = attached(subscription, _KEYS[0], 1_000_000)
    subscription.take(consumer, 0, 1_000_000)
    subscription.settle(consumer, 0, 999_999)
    assert len(recorded(subscription)) < 32


def test_what_a_settlement_writes_does_not_depend_on_how_many_others_are_out_of_order() -> None:
    subscription = Subscription("s", durable=True, selector="x = 1")
    consumer = attached(subscription, _KEYS[0], 1_000_000)
    subscription.take(consumer, 0, 100_001)
    for low in range(1, 100_000, 2):
        subscription.settle(consumer, low, low + 1)
    subscription.release(consumer, 2, 3)
    first = [operation for operation in changed_pages(subscription, 1) if isinstance(operation, Put)]
    assert len(first) == 1 + -(-100_000 // 1_024), "all pages, and the selector, once"
    assert max(len(operation.value) for operation in first) < 4_096
    assert len(recorded(subscription)) < 32
    for position in (50_000, 0, 50_002):
        subscription.settle(consumer, position, position + 1)
        (operation,) = changed_pages(subscription, 1)
        assert isinstance(operation, Put) and len(operation.value) < 4_096
    subscription.settle(consumer, 4, 100_000)
    gone = changed_pages(subscription, 1)
    assert sum(isinstance(operation, Put) for operation in gone) == 1, "what is one run now is on one page"


def test_a_long_run_is_on_one_page() -> None:
    subscription = Subscription("s", durable=True)
    consumer = attached(subscription, _KEYS[0], 10_000_000)
    subscription.take(consumer, 0, 10_000_000)
    subscription.settle(consumer, 1, 10_000_000)
    assert len(changed_pages(subscription, 1)) == 1


def test_a_subscription_that_is_not_durable_notes_nothing() -> None:
    subscription = Subscription("s", durable=False)
    consumer = attached(subscription, _KEYS[0], 1_000_000)
    subscription.take(consumer, 0, 100_000)
    for low in range(1, 100_000, 2):
        subscription.settle(consumer, low, low + 1)
    assert not subscription.changed_pages


def test_a_stalled_or_opening_consumer_takes_no_turn() -> None:
    subscription = Subscription("s", durable=True)
    first, second = attached(subscription, _KEYS[0], 10), attached(subscription, _KEYS[1], 10)
    first.stalled = True
    subscription.line.update(first)
    assert subscription.line.first() is second
    second.opening = True
    subscription.line.update(second)
    assert subscription.line.first() is None
    log = Log(1)
    log.lanes[0].readable = 5
    assert wanted(subscription, log) is None
    first.stalled = False
    subscription.line.update(first)
    assert wanted(subscription, log) == 0
