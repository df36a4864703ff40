"""Goal: what is kept for those who are away is given up when its time has come, however many they are.
Method: any sequence of comings and goings, compared with looking at all of them; and a table that refuses to be
looked through."""
from collections.abc import ItemsView, ValuesView

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.core.destination.consumer import ConsumerKey
from angarium.core.destination.parking import Parked, Parking
from angarium.core.ranges import RangeSet

KEYS = [(b"session", number) for number in range(5)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["park", "take", "come", "orphan"]), st.sampled_from(KEYS), st.integers(0, 9)),
    max_size=300,
)


class _Unread(dict[ConsumerKey, Parked]):
    def values(self) -> ValuesView[Parked]:  # type: ignore[override]
        raise AssertionError("all of them are looked at")

    def items(self) -> ItemsView[ConsumerKey, Parked]:  # type: ignore[override]
        raise AssertionError("all of them are looked at")


@given(STEPS)
def test_the_deadline_is_the_soonest_of_all_times(steps: list[tuple[str, ConsumerKey, int]]) -> None:
    parking, awaited_until = Parking(), 0
    for what, key, number in steps:
        match what:
            case "park":
                parking.park(key, RangeSet(), number, 0)
            case "take":
                parking.take(key)
            case "come":
                parking.has_come(key)
            case "orphan":
                awaited_until = number
                parking.orphan([], {key: 0}, number)
        times = [parked.until for parked in parking.parked.values()] + [awaited_until] * bool(parking.awaited)
        assert parking.deadline() == min(times, default=None)
        assert bool(parking) == bool(times)
        late = [key for key, parked in parking.parked.items() if parked.until <= 5]
        late += parking.awaited if awaited_until <= 5 else []
        assert parking.due(5) == late


def test_whether_anybody_is_late_is_known_without_looking_at_all() -> None:
    """Once, thousands of consumers that were cut off at once kept all others waiting for seconds: each that was parked
    asked for the deadline."""
    parking = Parking()
    parking.parked = _Unread()
    for number in range(1_000):
        parking.park((b"session", number), RangeSet(), 2.0 + number, 0)
        assert parking.deadline() == 2.0
        assert parking.due(1.0) == []
    with pytest.raises(AssertionError):
        parking.due(2.0)


def test_times_that_count_no_longer_are_dropped() -> None:
    """Of a client that is cut off again and again within the grace time."""
    parking = Parking()
    parking.park(KEYS[0], RangeSet(), 1.0, 0)
    for number in range(10_000):
        parking.park(KEYS[1], RangeSet(), 2.0 + number, 0)
        parking.take(KEYS[1])
    assert len(parking._times) < 200


def test_who_is_back_leaves_no_time_behind() -> None:
    """Of thousands that were cut off at once and have all come back nobody asks for the deadline any more."""
    parking, keys = Parking(), [(b"session", number) for number in range(1_000)]
    for key in keys:
        parking.park(key, RangeSet(), 2.0, 0)
    for left, key in zip(range(len(keys) - 1, -1, -1), keys, strict=True):
        parking.take(key)
        assert len(parking._times) <= 2 * left + 100
