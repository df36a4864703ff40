"""Goal: a search for a broker finds the one that is there, and says of each address what came of it.
Method: events and time by hand."""
import errno
import socket

import pytest

from angarium.client.driver import reason_of
from angarium.core.client import events
from angarium.core.client.connection import State
from angarium.core.client.reconnect import ReconnectPolicy
from angarium.core.errors import RemoteProtocolError, Unavailable
from tests.unit.client.client_bench import Bench

HTTP = events.InputViolated("frame-too-long", "frame of 1,347,703,884 bytes", b"HTTP/1.1 400 Bad")


def failure_of(bench: Bench) -> Exception:
    [failed] = bench.told_of(events.ConnectionFailed)
    return failed.error


def test_a_silent_address_leaves_time_for_the_others() -> None:
    bench = Bench("a", "b", "c", connect_timeout_s=3.0)
    bench.do(events.OpenConnection())
    bench.do(events.Connected())  # and not a word
    bench.tick_to(1.5)
    assert events.Connect("b", 4560) in bench.told
    bench.do(events.Disconnected("Connection refused"))
    bench.tick_to(2.0)
    assert bench.told[-1] == events.Connect("c", 4560)
    assert bench.reach().machine.state is State.READY


def test_a_failed_search_tells_of_each_address() -> None:
    bench = Bench("a", "b", connect_timeout_s=3.0)
    bench.do(events.OpenConnection())
    bench.do(events.Connected())
    bench.tick_to(2.0)
    bench.tick_to(3.0)
    error = failure_of(bench)
    assert isinstance(error, Unavailable)
    assert str(error).startswith("no broker answered at a:4560 (no greeting within 1.5 s), b:4560 (no answer within ")


def test_one_address_has_the_whole_time_of_an_attempt() -> None:
    bench = Bench("a", connect_timeout_s=3.0)
    bench.do(events.OpenConnection())
    bench.tick_to(2.99)
    assert bench.machine.state is State.CONNECTING
    bench.tick_to(3.0)
    assert str(failure_of(bench)) == "no broker answered at a:4560 (no answer within 3 s)"


def test_the_impatient_try_each_address_once() -> None:
    bench = Bench("a", "b", connect_timeout_s=3.0, policy=ReconnectPolicy(tries_s_max=0.0))
    bench.do(events.OpenConnection())
    bench.do(events.Disconnected("Connection refused"))
    bench.tick_to(0.1)
    assert bench.told[-1] == events.Connect("b", 4560)
    bench.do(events.Disconnected("unknown host"))
    bench.tick_to(0.1)
    assert str(failure_of(bench)) == "no broker answered at a:4560 (Connection refused), b:4560 (unknown host)"


def test_no_attempt_begins_when_the_time_for_it_is_over() -> None:
    """Once: what was to be tried for a tenth of a second was tried for three."""
    bench = Bench("a", connect_timeout_s=3.0, policy=ReconnectPolicy(tries_s_max=0.4))
    bench.do(events.OpenConnection())
    for _ in range(10):
        if bench.told_of(events.ConnectionFailed):
            break
        bench.do(events.Disconnected("Connection refused"))
        bench.tick_to(bench.machine.deadline() or bench.now)
    assert str(failure_of(bench)) == "no broker answered at a:4560 (Connection refused)"
    assert bench.now == pytest.approx(0.4)


def test_who_is_there_has_the_time_to_greet_that_a_short_wait_does_not_leave() -> None:
    bench = Bench("a", connect_timeout_s=3.0, policy=ReconnectPolicy(tries_s_max=0.1))
    bench.do(events.OpenConnection())
    bench.tick_to(2.9)
    assert bench.reach().machine.state is State.READY


def test_each_address_is_tried_once_however_short_the_time_for_it() -> None:
    bench = Bench("a", "b", connect_timeout_s=3.0, policy=ReconnectPolicy(tries_s_max=0.1))
    bench.do(events.OpenConnection())
    bench.tick_to(1.6)
    assert [connect.host for connect in bench.told_of(events.Connect)] == ["a", "b"], "the first one was silent"
    bench.tick_to(3.0)
    assert "a:4560 (no answer within 1.5 s), b:4560 (no answer within 1.5 s)" in str(failure_of(bench))


def test_the_impatient_come_back_like_everybody() -> None:
    bench = Bench("a", policy=ReconnectPolicy(tries_s_max=0.0)).ready()
    bench.do(events.Disconnected("cut"))
    bench.tick_to(1.0)
    bench.do(events.Disconnected("Connection refused"))
    bench.tick_to(2.0)
    assert bench.reach().machine.state is State.READY


def test_who_is_no_broker_is_named_and_passed_over() -> None:
    bench = Bench("a", "b")
    bench.do(events.OpenConnection())
    bench.do(events.Connected())
    bench.do(HTTP)
    bench.tick_to(0.1)
    assert bench.told[-2:] == [
        events.CloseTransport("not an Angarium broker: it speaks HTTP", abort=True),
        events.Connect("b", 4560),
    ]
    assert bench.reach().machine.state is State.READY


def test_no_broker_anywhere_ends_the_search_at_once() -> None:
    bench = Bench("a")
    bench.do(events.OpenConnection())
    bench.do(events.Connected())
    bench.do(HTTP)
    error = failure_of(bench)
    assert isinstance(error, RemoteProtocolError) and error.code == "not-a-broker"
    assert "no broker at a:4560 (not an Angarium broker: it speaks HTTP)" in str(error)


@pytest.mark.parametrize("start", [b"", b"\0\1\2"])
def test_what_is_not_recognised_is_not_guessed_at(start: bytes) -> None:
    bench = Bench("a")
    bench.do(events.OpenConnection())
    bench.do(events.Connected())
    bench.do(events.InputViolated("bad-frame", "odd", start))
    assert "(not an Angarium broker)" in str(failure_of(bench))


def test_a_proxy_that_answers_for_a_broker_that_restarts_is_outlasted() -> None:
    bench = Bench("a").ready()
    bench.do(events.Disconnected("cut"))
    bench.tick_to(1.0)
    bench.do(events.Connected())
    bench.do(HTTP)
    bench.tick_to(2.0)
    assert bench.reach().machine.state is State.READY


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_what_the_system_says_is_told_in_its_words_without_its_numbers(error: Exception, told: str) -> None:
    assert reason_of(error) == told
