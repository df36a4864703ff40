"""Goal: the connection comes up, notices that it is dead, comes back, and accuses nobody without reason.
Method: frames by hand, time by hand."""
import pytest

from angarium.core.client import events
from angarium.core.client.connection import State
from angarium.core.client.reconnect import Address, ReconnectPolicy, parse_address
from angarium.core.errors import LocalProtocolError, Rejected, RemoteProtocolError, Unavailable
from angarium.core.wire import frames
from tests.unit.client.client_bench import QUEUE, SESSION_ID, Bench, batch_of, welcome


def test_handshake() -> None:
    bench = Bench("a")
    assert bench.do(events.OpenConnection()) == [events.Connect("a", 4560)]
    bench.do(events.Connected())
    assert bench.take_sent() == [frames.Hello(frames.PROTOCOL_VERSION, "bench", "angarium-python")]
    bench.receive(welcome(), session=0)
    assert bench.take_told()[-1] == events.ConnectionReady("n1", 1 << 23, 1 << 22)
    bench.do(events.OpenSession(1))
    assert bench.take_sent() == [frames.SessionOpen()]
    bench.receive(frames.SessionOpened(SESSION_ID))
    assert bench.told[-1] == events.SessionReady(1, SESSION_ID)


def test_sessions_opened_before_the_connection_open_with_it() -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.do(events.OpenSession(1))
    bench.reach()
    assert bench.take_sent()[1:] == [frames.SessionOpen()]


def test_a_resumed_session_keeps_its_identity() -> None:
    bench = Bench().ready().with_session()
    bench.do(events.Disconnected("cut"))
    assert bench.told[-1] == events.ConnectionLost("a:4560: cut")
    bench.tick_to(1.0)
    bench.reach()
    assert frames.SessionOpen(SESSION_ID, turn=1) in bench.take_sent()
    bench.do(events.Disconnected("cut again, before it was answered"))
    bench.tick_to(10.0)
    bench.reach()
    assert frames.SessionOpen(SESSION_ID, turn=2) in bench.take_sent()


@pytest.mark.parametrize(
    ("frame", "session", "code"),
    [
        (welcome(), 0, "unexpected-frame"),
        (frames.Hello(1, "", ""), 0, "unexpected-frame"),
        (frames.Pong(7), 0, "bad-number"),
        (frames.Reply(3, "", ""), 0, "bad-number"),
        (frames.SessionOpened(SESSION_ID), 1, "unexpected-frame"),
        (frames.SessionClosed(), 1, "unexpected-frame"),
        (frames.SessionOpened(SESSION_ID), 2, "unknown-session"),
        (frames.Confirm(1, 1), 1, "unknown-producer"),
        (frames.ConsumerOpened(1), 1, "unknown-consumer"),
        (frames.SessionEnded(True), 1, "unexpected-frame"),
        (frames.Stall(True), 1, "unexpected-frame"),
    ],
    ids=str,
)
def test_a_violation_ends_the_connection_for_good(frame: frames.Frame, session: int, code: str) -> None:
    bench = Bench().ready().with_session().clear()
    bench.receive(frame, session=session)
    [failure] = bench.take_sent()
    assert isinstance(failure, frames.Failure) and failure.code == code
    assert [type(command) for command in bench.told] == [events.CloseTransport, events.ConnectionFailed]
    [failed] = bench.told_of(events.ConnectionFailed)
    assert isinstance(failed.error, RemoteProtocolError) and failed.error.code == code
    with pytest.raises(LocalProtocolError, match="after the connection ended"):
        bench.do(events.Tick())


def test_frames_before_a_violation_count() -> None:
    bench = Bench().ready()
    bench.do(events.Request(1, "echo", {}))
    bench.clear()
    bench.receive(frames.Reply(1, "", "", 5), frames.Pong(9), session=0)
    assert bench.told[0] == events.RequestAnswered(1, "", "", 5)
    assert isinstance(bench.told[-1], events.ConnectionFailed)


@pytest.mark.parametrize(
    "changes", [{"heartbeat_s": 0.0}, {"frame_bytes_max": 10}, {"body_bytes_max": 0}, {"version": 9}], ids=str
)
def test_an_impossible_welcome_is_refused(changes: dict[str, object]) -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.reach(**changes)
    assert isinstance(bench.told[-1], events.ConnectionFailed)


def test_bytes_that_are_not_the_protocol_end_it() -> None:
    bench = Bench().ready().clear()
    bench.do(events.InputViolated("bad-frame", "is this HTTP?"))
    assert bench.take_sent() == [frames.Failure("bad-frame", "is this HTTP?")]
    assert isinstance(bench.told[-1], events.ConnectionFailed)


def test_a_failure_from_the_broker_is_final_and_carries_its_code() -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.do(events.Connected())
    bench.receive(frames.Failure("version-unsupported", "speak 2"), session=0)
    [failed] = bench.told_of(events.ConnectionFailed)
    assert isinstance(failed.error, Rejected) and failed.error.code == "version-unsupported"


def test_a_failure_that_may_pass_is_tried_again_elsewhere() -> None:
    bench = Bench("a", "b").ready().clear()
    bench.receive(frames.Failure("unavailable", "starting"), session=0)
    bench.tick_to(1.0)
    assert bench.told[-1] == events.Connect("b", 4560)


# -- reconnecting ----------------------------------------------------------------------------------


def test_back_off_doubles_with_jitter_and_goes_round_the_addresses() -> None:
    bench = Bench("a", "b", "c", connect_timeout_s=1_000.0)
    bench.do(events.OpenConnection())
    hosts: list[str] = []
    delays: list[float] = []
    for _ in range(12):
        [connect] = bench.told_of(events.Connect)
        hosts.append(connect.host)
        bench.clear()
        bench.do(events.Disconnected("refused"))
        deadline = bench.machine.deadline()
        assert deadline is not None
        delays.append(deadline - bench.now)
        bench.tick_to(deadline)
    assert hosts == ["a", "b", "c"] * 4
    for attempt, delay in enumerate(delays):
        nominal = min(1.0, 0.05 * 2**attempt)
        assert 0.5 * nominal <= delay <= 1.5 * nominal
    assert len({delay / min(1.0, 0.05 * 2**n) for n, delay in enumerate(delays)}) == len(delays)


def test_a_connection_that_lasted_starts_the_back_off_afresh() -> None:
    bench = Bench(connect_timeout_s=1_000.0)
    bench.do(events.OpenConnection())
    for _ in range(6):
        bench.do(events.Disconnected("refused"))
        bench.tick_to(bench.machine.deadline() or 0)
    bench.reach()
    bench.now += 2.0
    bench.receive(frames.Ping(1), session=0)
    bench.do(events.Disconnected("cut"))
    assert (bench.machine.deadline() or 0) - bench.now <= 0.05 * 1.5


def test_the_same_broker_first_after_a_loss_and_the_next_one_after_goodbye() -> None:
    bench = Bench("a", "b").ready()
    bench.now = 2.0
    bench.receive(frames.Ping(1), session=0)
    bench.clear().do(events.Disconnected("cut"))
    bench.tick_to(2.1)
    assert bench.told_of(events.Connect) == [events.Connect("a", 4560)]
    bench.reach()
    bench.now = 4.0
    bench.clear().receive(frames.Goodbye("shutting down"), session=0)
    assert [type(command) for command in bench.told] == [events.ConnectionLost, events.CloseTransport]
    bench.tick_to(4.2)
    assert bench.told_of(events.Connect) == [events.Connect("b", 4560)]


def test_the_next_broker_after_a_connection_that_did_not_last() -> None:
    """One that takes connections and serves nobody keeps no client from the others."""
    bench = Bench("a", "b", "c").ready()
    hosts: list[str] = []
    for _ in range(4):
        bench.now += 0.9
        bench.clear().do(events.Disconnected("cut"))
        bench.tick_to(bench.machine.deadline() or 0)
        hosts += [connect.host for connect in bench.told_of(events.Connect)]
        bench.reach()
    assert hosts == ["b", "c", "a", "b"]


def test_addresses_of_the_cluster_are_learnt() -> None:
    bench = Bench("a").ready(addresses=["b:1", "not an address://", "a:4560"])
    bench.clear().receive(frames.Goodbye(""), session=0)
    bench.tick_to(1.0)
    assert bench.told_of(events.Connect) == [events.Connect("b", 1)]


def test_the_first_connection_has_its_time() -> None:
    bench = Bench("a", "b", connect_timeout_s=3.0)
    bench.do(events.OpenConnection())
    bench.do(events.Disconnected("Connection refused"))
    while bench.machine.state is not State.ENDED:
        bench.tick_to(bench.machine.deadline() or 0)
        if bench.machine.state is State.CONNECTING:
            bench.do(events.Disconnected("Connection refused"))
    assert bench.now == 3.0
    [failed] = bench.told_of(events.ConnectionFailed)
    assert isinstance(failed.error, Unavailable)
    assert str(failed.error) == "no broker answered at a:4560 (Connection refused), b:4560 (Connection refused)"


def test_after_a_first_success_it_never_gives_up_unless_told_to() -> None:
    forever, bounded = Bench(), Bench(policy=ReconnectPolicy(give_up_after_s=60.0))
    for bench in (forever, bounded):
        bench.ready()
        bench.do(events.Disconnected("cut"))
        while bench.now < 3_600 and bench.machine.state is not State.ENDED:
            bench.tick_to(bench.machine.deadline() or 0)
            if bench.machine.state is State.CONNECTING:
                bench.do(events.Disconnected("refused"))
    assert forever.machine.state is not State.ENDED
    assert bounded.machine.state is State.ENDED and bounded.now == 60.0


def test_an_attempt_that_hangs_is_given_up() -> None:
    bench = Bench("a", "b").ready()
    bench.do(events.Disconnected("cut"))
    bench.tick_to(bench.machine.deadline() or 0)
    bench.do(events.Connected())  # and no Welcome
    bench.clear().tick_to(bench.now + 5.0)
    assert bench.told == [events.CloseTransport("no greeting within 5 s", abort=True)]
    assert bench.machine.state is State.WAITING


# -- heartbeats ------------------------------------------------------------------------------------


def test_an_idle_client_pings_and_answers_pings() -> None:
    bench = Bench().ready(heartbeat_s=1.0).clear()
    bench.tick_to(1.0)
    assert bench.take_sent() == [frames.Ping(1)]
    bench.receive(frames.Ping(77), session=0)
    assert bench.take_sent() == [frames.Pong(77)]
    bench.tick_to(1.9)
    assert bench.take_sent() == []


def test_who_only_listens_pings_all_the_same() -> None:
    bench = Bench().ready(heartbeat_s=1.0).with_session().with_consumer()
    bench.tick_to(0.9)
    bench.receive(frames.Deliver(1, 0), payload=batch_of(1))
    bench.clear().tick_to(1.0)
    assert bench.take_sent() == [frames.Ping(1)]


def test_who_goes_on_sending_notices_the_silence() -> None:
    bench = Bench().ready(heartbeat_s=1.0).with_session().clear()
    for number in range(1, 30):
        bench.tick_to(number / 10)
        bench.do(events.OpenProducer(1, number, "q", QUEUE))
    assert bench.machine.state is State.READY
    bench.tick_to(3.0)
    assert bench.told_of(events.ConnectionLost)


def test_three_silent_heartbeats_and_the_link_is_dead() -> None:
    bench = Bench().ready(heartbeat_s=1.0)
    bench.tick_to(2.0)
    bench.receive(frames.Pong(1), session=0)
    bench.clear().tick_to(4.99)
    assert bench.machine.state is State.READY
    bench.tick_to(5.0)
    assert [type(command) for command in bench.told] == [events.ConnectionLost, events.CloseTransport]
    assert bench.told_of(events.CloseTransport)[0].abort


@pytest.mark.parametrize("pause_s", [2.0, 3.0, 3.1, 60.0])
def test_a_lagging_driver_accuses_nobody(pause_s: float) -> None:
    bench = Bench().ready(heartbeat_s=1.0).clear()
    bench.now = pause_s  # the loop stood still; what the broker sent lies unread
    bench.do(events.Tick())
    assert bench.machine.state is State.READY
    bench.now += 0.01
    bench.receive(frames.Ping(1), session=0)
    bench.tick_to(bench.now + 2.9)
    assert bench.machine.state is State.READY
    assert bench.told == []


@pytest.mark.parametrize(("late_s", "state"), [(0.4, State.WAITING), (0.6, State.READY)])
def test_late_is_who_comes_half_a_heartbeat_after_his_time(late_s: float, state: State) -> None:
    bench = Bench().ready(heartbeat_s=1.0)
    bench.tick_to(2.5)
    bench.now = 3.0 + late_s
    bench.do(events.Tick())
    assert bench.machine.state is state


def test_a_request_may_be_the_first_to_come_after_a_pause() -> None:
    bench = Bench().ready(heartbeat_s=1.0)
    bench.now = 60.0
    bench.do(events.OpenSession(1))
    bench.do(events.Tick())
    assert bench.machine.state is State.READY


def test_but_a_dead_link_is_noticed_after_the_pause_too() -> None:
    bench = Bench().ready(heartbeat_s=1.0)
    bench.now = 60.0
    bench.do(events.Tick())
    bench.clear().tick_to(61.1)
    assert bench.told_of(events.ConnectionLost)


# -- requests --------------------------------------------------------------------------------------


def test_requests_wait_for_the_connection_and_are_lost_with_it() -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.do(events.Request(1, "node.status", {}))
    bench.reach()
    assert bench.take_sent()[-1] == frames.Request(1, "node.status", {})
    bench.do(events.Disconnected("cut"))
    assert bench.take_told()[-1] == events.RequestLost(1, "the connection was lost before the reply came: a:4560: cut")
    bench.do(events.Request(2, "node.status", {}))
    bench.tick_to(1.0)
    bench.reach()
    assert frames.Request(2, "node.status", {}) in bench.take_sent()
    bench.receive(frames.Reply(2, "no-such", "never heard of it"), session=0, payload=b"p")
    assert bench.told[-1] == events.RequestAnswered(2, "no-such", "never heard of it", None, b"p")


def test_a_request_that_nobody_will_answer_is_lost_as_with_the_connection() -> None:
    bench = Bench().ready().clear()
    bench.do(events.Request(1, "destination.list", {}))
    bench.receive(frames.Reply(1, "request-lost", "the message manager changed"), session=0)
    assert bench.told == [events.RequestLost(1, "the message manager changed")]
    bench.do(events.Request(2, "destination.list", {}))
    bench.receive(frames.Reply(2, "", ""), session=0)
    assert bench.told[-1] == events.RequestAnswered(2, "", "")


def test_a_request_that_cannot_be_encoded_changes_nothing() -> None:
    bench = Bench().ready().clear()
    with pytest.raises(TypeError):
        bench.do(events.Request(1, "echo", {"a": object()}))
    bench.do(events.Request(1, "echo", {}))
    assert bench.take_sent() == [frames.Request(1, "echo", {})]


def test_closing_says_goodbye() -> None:
    bench = Bench().ready().clear()
    bench.do(events.CloseConnection("done"))
    assert bench.take_sent() == [frames.Goodbye("done")]
    assert bench.told == [events.CloseTransport("done"), events.ConnectionClosed()]
    assert bench.machine.deadline() is None


@pytest.mark.parametrize(
    "event",
    [
        events.OpenConnection(), events.Connected(), events.OpenSession(1), events.CloseSession(2, 1.0),
        events.Sync(2, 1), events.Request(1, "", {}), events.OpenProducer(2, 1, "q", frames.DestinationKind.ANY),
    ],
    ids=lambda event: type(event).__name__,
)  # fmt: skip
def test_a_request_out_of_place_is_our_callers_mistake_and_changes_nothing(event: events.Event) -> None:
    bench = Bench().ready().with_session()
    bench.do(events.Request(1, "echo", {}))
    bench.clear()
    with pytest.raises(LocalProtocolError):
        bench.do(event)
    assert bench.do(events.Tick()) == []
    assert bench.machine.state is State.READY


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("angarium://broker", Address("broker", 4560)),
        ("angarium://broker:77/", Address("broker", 77)),
        ("10.0.0.1:88", Address("10.0.0.1", 88)),
        ("broker", Address("broker", 4560)),
        ("[::1]:99", Address("::1", 99)),
        ("[::1]", Address("::1", 4560)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", ":80", "a:b", "a:0", "a:65536", "http://a", "a/b", "me@a", "[::1", "[::1]x", "::1"]
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="not understood"):
        parse_address(text)


def test_the_connection_repeats_the_identity_that_it_was_told() -> None:
    bench = Bench()
    bench.do(events.OpenConnection())
    bench.do(events.Connected())
    assert [f.identity for f in bench.take_sent() if isinstance(f, frames.Hello)] == [b""]
    bench.receive(welcome(identity=b"c" * 16), session=0)
    bench.do(events.Disconnected("cut"))
    bench.tick_to(bench.machine.deadline() or 0.0)
    bench.do(events.Connected())
    assert [f.identity for f in bench.take_sent() if isinstance(f, frames.Hello)] == [b"c" * 16]
