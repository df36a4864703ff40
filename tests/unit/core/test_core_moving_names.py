"""Goal: where a name is to be is remembered only as long as it is of use: of a destination that was moved and removed
the name goes home, and nobody makes it in two places meanwhile.
Method: two message managers and decisions, step by step."""
import pytest

from angarium.core.groups import decisions as d
from tests.unit.core.core_moving import SOURCE, TARGET, Pair


def removed_elsewhere() -> Pair:
    pair = Pair()
    pair.source.locate("q")
    pair.move()
    assert not pair.target.request("destination.remove", name="q").code
    assert pair.placement.exceptions == {"q": TARGET}, "whoever makes it anew finds it where it was"
    return pair


def test_the_name_of_one_that_was_removed_goes_home() -> None:
    """Else names that nobody uses any more would fill `exceptions_max` for ever."""
    pair = removed_elsewhere()
    pair.move(group=SOURCE)
    assert not pair.placement.exceptions and not pair.placement.moves and not pair.placement.moves_ended
    assert pair.located(SOURCE, pair.locate(SOURCE)), "and is made there"
    assert not pair.located(TARGET, pair.locate(TARGET))


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_whoever_wants_to_make_it_while_its_name_moves_waits(is_cancelled: bool) -> None:
    pair = removed_elsewhere()
    pair.begin(group=SOURCE)
    pair.hear(TARGET)
    session = pair.locate(TARGET)
    assert not pair.located(TARGET, session) and not pair.has(TARGET)
    if is_cancelled:
        pair.decide(d.MoveEnded("q", pair.placement.moves["q"].number, "cancelled", "by hand"))
    else:
        pair.run()
        assert not pair.placement.exceptions
    pair.hear(TARGET)
    assert bool(pair.located(TARGET, session)) is is_cancelled and pair.has(TARGET) is is_cancelled


def test_one_that_is_made_before_its_group_hears_of_the_move_is_moved() -> None:
    pair = removed_elsewhere()
    pair.begin(group=SOURCE)
    pair.target.producer(pair.target.locate("q")).publish(b"new")
    pair.hear(TARGET)
    pair.hear(SOURCE)
    pair.run()
    pair.hear(SOURCE)
    assert pair.has(SOURCE) and pair.source.describe("q")["messages"] == 1


def test_a_name_that_nobody_has_goes_nowhere_else() -> None:
    pair = Pair()
    pair.move()
    assert pair.placement.moves_ended["q"].code == "unknown-destination" and not pair.placement.exceptions
