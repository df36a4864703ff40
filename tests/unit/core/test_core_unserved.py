"""Goal: nobody waits for ever for a replica group that has no message manager, and nobody is refused by a short gap."""
from angarium.core.session.unserved import UnservedRequests

A, B = b"a" * 24, b"b" * 24


def test_a_request_to_a_group_that_nobody_serves_is_refused_after_a_while() -> None:
    requests = UnservedRequests(patience_s=5.0)
    requests.asked(1, A, 7, is_served=False, now=10.0)
    assert requests.deadline() == 15.0
    assert requests.refused(now=14.9) == []
    assert requests.refused(now=15.0) == [(1, A, 7)]
    assert requests.deadline() is None
    assert requests.refused(now=16.0) == []


def test_whoever_asks_when_that_has_lasted_is_refused_at_once() -> None:
    requests = UnservedRequests(patience_s=5.0)
    requests.lost(1, now=10.0)
    assert requests.deadline() is None, "nobody waits"
    requests.asked(1, A, 7, is_served=False, now=100.0)
    assert requests.refused(now=100.0) == [(1, A, 7)]


def test_what_was_asked_before_the_group_was_lost_is_refused_as_well() -> None:
    requests = UnservedRequests(patience_s=5.0)
    requests.asked(1, A, 7, is_served=True, now=10.0)
    requests.asked(2, A, 7, is_served=True, now=10.0)
    assert requests.deadline() is None
    requests.lost(1, now=11.0)
    assert requests.refused(now=16.0) == [(1, A, 7)]
    assert requests.refused(now=99.0) == [], "the other group is served, and may take its time"


def test_a_gap_refuses_nobody() -> None:
    requests = UnservedRequests(patience_s=5.0)
    requests.asked(1, A, 7, is_served=False, now=10.0)
    requests.served(1)
    requests.asked(1, B, 8, is_served=True, now=11.0)
    assert requests.deadline() is None
    assert requests.refused(now=99.0) == []


def test_answers_and_ends_are_forgotten() -> None:
    requests = UnservedRequests(patience_s=5.0)
    requests.asked(1, A, 7, is_served=True, now=10.0)
    requests.asked(1, A, 8, is_served=True, now=10.0)
    requests.asked(1, B, 9, is_served=True, now=10.0)
    requests.answered(1, A, 7)
    requests.ended(B)
    requests.lost(1, now=11.0)
    assert requests.refused(now=16.0) == [(1, A, 8)]
