"""Goal: a message manager hears of the end of every session, also when its client manager can tell nobody."""
from angarium.core.destination.attendance import MISSED_MAX, Attendance
from angarium.core.destination.events import FromSession
from angarium.core.ids import destination_id
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind

ONE, OTHER = b"1" * 16, b"2" * 16
SESSION = b"s" * 16
OPEN = frames.ConsumerOpen(1, "q", DestinationKind.QUEUE)
ENDED = frames.SessionEnded(False)


def test_sessions_of_a_dead_client_manager_are_cut_off_at_every_destination() -> None:
    attendance = Attendance()
    for destination in (7, 9):
        assert attendance.heard(ONE, SESSION, destination, OPEN) == []
    attendance.heard(OTHER, b"t" * 16, 7, OPEN)
    assert attendance.gone(ONE) == [FromSession(SESSION, 7, ENDED), FromSession(SESSION, 9, ENDED)]
    assert attendance.gone(ONE) == []
    assert len(attendance) == 1


def test_connections_that_are_known_end_too() -> None:
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 0, frames.Request(1, "destination.create", {}, client=b"me"))
    assert FromSession(SESSION, 0, frames.ClientEnded(b"me", False)) in attendance.gone(ONE)


def test_a_session_that_ended_is_forgotten() -> None:
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 7, OPEN)
    attendance.heard(ONE, SESSION, 7, frames.SessionEnded(True))
    assert len(attendance) == 0
    assert attendance.gone(ONE) == []


def test_who_comes_late_with_an_earlier_turn_does_not_get_a_session_back() -> None:
    """It stood still with what its client had sent before it went elsewhere: that would have been cut off."""
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 7, OPEN, turn=1)
    attendance.heard(OTHER, SESSION, 7, OPEN, turn=2)
    assert attendance.heard(ONE, SESSION, 0, frames.Locate("q", DestinationKind.QUEUE), turn=1) is None
    assert attendance.heard(ONE, SESSION, 7, OPEN, turn=1) is None
    assert attendance.client_manager_of(SESSION) == OTHER
    assert attendance.heard(ONE, SESSION, 7, OPEN, turn=3) == [FromSession(SESSION, 7, ENDED)]
    assert attendance.client_manager_of(SESSION) == ONE


def test_of_a_session_that_has_located_and_closed_something_nothing_is_left() -> None:
    """The message manager itself is told last: what was closed before is not told of the end."""
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 0, frames.Locate("q", DestinationKind.QUEUE))
    attendance.heard(ONE, SESSION, 7, OPEN)
    attendance.heard(ONE, SESSION, 7, frames.ConsumerClose(1))
    attendance.heard(ONE, SESSION, 0, frames.SessionEnded(True))
    assert len(attendance) == 0


def test_of_a_connection_that_has_ended_nothing_is_left() -> None:
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 1 << 40, frames.ClientHere(b"me"))
    attendance.heard(ONE, SESSION, 0, frames.Request(1, "destination.list", {}))
    attendance.heard(ONE, SESSION, 0, frames.SessionEnded(True))
    assert len(attendance) == 1
    attendance.heard(ONE, SESSION, 0, frames.ClientEnded(b"me", True))
    attendance.heard(ONE, b"t" * 16, 0, frames.ClientEnded(b"never heard of", True))
    assert len(attendance) == 0


def test_a_session_taken_over_is_cut_off_before_it_opens_elsewhere() -> None:
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 7, OPEN)
    assert attendance.heard(OTHER, SESSION, 7, OPEN) == [FromSession(SESSION, 7, ENDED)]
    assert attendance.client_manager_of(SESSION) == OTHER
    assert attendance.gone(ONE) == []


def test_what_the_old_client_manager_still_says_is_void() -> None:
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 7, OPEN)
    attendance.heard(OTHER, SESSION, 7, OPEN)
    for frame in (frames.SessionEnded(False), frames.Credit(1, 10), frames.Publish(1)):
        assert attendance.heard(ONE, SESSION, 7, frame) is None
    assert attendance.client_manager_of(SESSION) == OTHER


def test_a_client_manager_that_reads_too_slowly_stalls_its_sessions_but_for_those_it_has_stalled_itself() -> None:
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 7, OPEN)
    attendance.heard(ONE, b"t" * 16, 7, OPEN)
    attendance.heard(ONE, b"t" * 16, 7, frames.Stall(True))
    assert attendance.stall(ONE, True) == [FromSession(SESSION, 7, frames.Stall(True))]
    assert attendance.stall(ONE, False) == [FromSession(SESSION, 7, frames.Stall(False))]
    assert attendance.stall(OTHER, True) == []


def test_a_message_manager_itself_is_not_stalled() -> None:
    """Commits are sent to it; told to stall, it stopped the node."""
    attendance = Attendance()
    attendance.heard(ONE, SESSION, destination_id(3, 0), frames.Locate("q", DestinationKind.QUEUE))
    attendance.heard(ONE, SESSION, destination_id(3, 7), OPEN)
    assert attendance.stall(ONE, True) == [FromSession(SESSION, destination_id(3, 7), frames.Stall(True))]


def test_who_was_missed_is_heard_again_when_it_begins_anew() -> None:
    attendance = Attendance()
    attendance.heard(ONE, SESSION, 7, OPEN)
    attendance.gone(ONE)
    assert attendance.heard(ONE, SESSION, 7, frames.Credit(1, 10)) is None
    assert attendance.heard(ONE, SESSION, 7, OPEN) is None, "it would be ended when it begins anew"
    assert attendance.begins_anew(ONE) == []
    assert attendance.heard(ONE, SESSION, 7, OPEN) == []


def test_who_had_said_nothing_is_not_missed() -> None:
    """It has nothing to begin anew with, and does not say so."""
    attendance = Attendance()
    attendance.gone(ONE)
    assert attendance.heard(ONE, SESSION, 7, OPEN) == []


def test_of_very_many_that_were_missed_the_longest_gone_are_forgotten() -> None:
    attendance = Attendance()
    starts = [number.to_bytes(16, "big") for number in range(MISSED_MAX + 1)]
    for start in starts:
        attendance.heard(start, SESSION, 7, OPEN)
        attendance.gone(start)
    first, second, *_, last = starts
    assert attendance.heard(second, SESSION, 7, OPEN) is None and attendance.heard(last, SESSION, 7, OPEN) is None
    assert attendance.heard(first, SESSION, 7, OPEN) == []
