"""Goal: a dead node is found within the times of the settings, and a living one is not accused."""
from angarium.core.groups.records import NodeRecord, State
from angarium.core.groups.settings import GroupSettings
from angarium.core.groups.watching import Named, Watch

SETTINGS = GroupSettings()
X, Y = ("x", b"x1"), ("y", b"y1")


def watch(*nodes: Named, earlier_leader: str = "") -> Watch:
    watching = Watch("me", earlier_leader, SETTINGS)
    watching.take(State(nodes=tuple(NodeRecord(name, inc, (), ()) for name, inc in [("me", b"m"), *nodes])), 0.0)
    return watching


def test_silence_is_verified_and_decided_in_one_go() -> None:
    watching = watch(X, Y)
    assert watching.tick(0.9) == ([], [])
    watching.heard(*Y, 0.9)
    assert watching.deadline() == 1.0
    assert watching.tick(1.0) == ([X], [])
    assert watching.tick(1.3) == ([], [])
    assert watching.deadline() == 1.3 + SETTINGS.batch_s
    watching.lost(*Y, is_refused=True, now=1.35)
    assert watching.tick(1.41) == ([], [X, Y])


def test_whoever_answers_stays() -> None:
    watching = watch(X)
    assert watching.tick(1.0) == ([X], [])
    watching.heard(*X, 1.2)
    assert watching.tick(1.3) == ([], []) and watching.tick(2.1) == ([], [])
    assert watching.tick(2.2) == ([X], [])


def test_whoever_speaks_before_the_decision_stays() -> None:
    watching = watch(X)
    watching.lost(*X, is_refused=True, now=0.5)
    watching.heard(*X, 0.55)
    assert watching.tick(0.6) == ([], [])


def test_a_node_that_another_voter_hears_stays_and_that_is_told_once() -> None:
    watching = watch(X)
    watching.tick(1.0)
    assert "'v' hears it" in watching.vouched("v", *X, 0.1, 1.1)
    assert watching.tick(1.4) == ([], [])
    assert watching.tick(2.0) == ([X], [])
    assert watching.vouched("v", *X, 0.1, 2.1) == ""
    assert watching.tick(3.0) == ([X], [])
    assert watching.vouched("v", *X, 1.0, 3.1) == ""
    watching.tick(3.3)
    assert watching.tick(3.41) == ([], [X])


def test_a_broken_connection_is_verified_at_once_and_a_refused_one_is_proof() -> None:
    watching = watch(X, Y)
    assert watching.lost(*X, is_refused=False, now=0.1) == [X]
    assert watching.lost(*X, is_refused=False, now=0.2) == []
    assert watching.lost(*Y, is_refused=True, now=0.2) == []
    assert watching.tick(0.31) == ([], [Y])


def test_an_earlier_incarnation_is_no_evidence() -> None:
    watching = watch(X)
    assert watching.lost("x", b"x0", is_refused=True, now=0.1) == []
    watching.heard("x", b"x0", 0.9)
    assert watching.tick(1.0) == ([X], [])


def test_who_was_slow_itself_accuses_nobody() -> None:
    watching = watch(X, Y)
    watching.tick(1.0)
    watching.lost(*Y, is_refused=True, now=1.0)
    watching.lagged(5.0)
    assert watching.tick(5.9) == ([], [])
    assert watching.tick(6.0) == ([X, Y], [])


def test_the_leader_before_us_is_asked_at_once() -> None:
    watching = watch(X, Y, earlier_leader="x")
    assert watching.tick(0.0) == ([X], [])


def test_a_decision_that_had_no_effect_is_made_again() -> None:
    watching = watch(X)
    watching.lost(*X, is_refused=True, now=0.0)
    assert watching.tick(0.1) == ([], [X])
    assert watching.tick(0.9) == ([], [])
    assert watching.tick(1.1) == ([X], [])
