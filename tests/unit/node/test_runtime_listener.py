"""Goal: connections take turns, one that does not read is not read from, one whose host is gone is cut, and none for
what its application does. Method: the listener in virtual time, on transports that a test holds in its hands; for what
the kernel says real connections on loopback."""
import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest

from angarium.core.errors import ConfigError
from angarium.core.session.events import ConnectionLost, ConnectionStalled, Event, FramesReceived
from angarium.core.wire import frames
from angarium.core.wire.codec import encode
from angarium.runtime.listener import ClientTransport, Listener, ListenerSettings
from angarium.runtime.peer_host import is_gone, says_gone, watch_over
from angarium.sim.clock import Clock
from angarium.sim.loop import SimLoop
from tests.process.process_broker import until

_PING = encode(0, frames.Ping(1))
_SETTINGS = ListenerSettings(output_bytes_low=1_000, output_bytes_high=2_000, output_bytes_max=10_000)
_SILENCE_S_MAX = _SETTINGS.silence_s_max


def _info(
    *, repetitions: int = 4, probes: int = 0, unacknowledged: int = 0, silence_s: float = 60.0, window: int = 65_536
) -> bytes:
    """A struct tcp_info."""
    info = bytearray(232)
    info[2:4] = repetitions, probes
    for offset, value in ((24, unacknowledged), (56, int(silence_s * 1_000)), (228, window)):
        struct.pack_into("=I", info, offset, value)
    return bytes(info)


class KernelSocket:
    """What a listener asks of a socket."""

    def __init__(self) -> None:
        self.info = _info(silence_s=0.0)
        self.asked = 0

    def setsockopt(self, *_: object) -> None: ...

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        self.asked += 1
        return self.info[:size]


class HeldTransport(asyncio.Transport):
    """It writes nothing: what it was given waits until the test takes it."""

    def __init__(self) -> None:
        super().__init__({"socket": KernelSocket(), "peername": ("10.0.0.1", 1)})
        self.waiting_bytes = 0
        self.is_read = True
        self.is_cut = False

    @property
    def socket(self) -> KernelSocket:
        found = self.get_extra_info("socket")
        assert isinstance(found, KernelSocket)
        return found

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def write(self, data: Any) -> None:
        self.waiting_bytes += len(data)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_cut

    def abort(self) -> None:
        self.is_cut = True


class Listening:
    """A listener in virtual time, and what it told."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.clock = Clock(Random(1))
        self.loop = SimLoop(self.clock, "listener", starts_at=1_000.0)  # type: ignore[abstract]
        self.listener = Listener(_SETTINGS, frame_bytes_max=1 << 20, tell=self.told.append)
        self._now = 0.0

    def connect(self) -> tuple[ClientTransport, HeldTransport]:
        number = sum(type(event).__name__ == "ConnectionOpened" for event in self.told) + 1
        end, transport = ClientTransport(self.listener, number), HeldTransport()
        self.loop.call_soon(end.connection_made, transport)
        self.pass_time(0.001)
        self.arrive(end, _PING)  # in time: it is not cut for saying nothing at all
        self.pass_time(0.001)
        return end, transport

    def arrive(self, end: ClientTransport, data: bytes) -> None:
        """In a turn of the loop of its own, as the real one reads."""

        def read() -> None:
            end.get_buffer(-1)[: len(data)] = data
            end.buffer_updated(len(data))

        self.loop.call_soon(read)

    def pass_time(self, seconds: float) -> None:
        self._now += seconds
        self.clock.run_until(self._now)

    def handed_on(self) -> list[tuple[int, int]]:
        """(connection, frames) since the last time, in order."""
        told = [(event.connection, len(event.received)) for event in self.told if isinstance(event, FramesReceived)]
        self.told.clear()
        return told


@pytest.mark.parametrize(
    ("info", "gone"),
    [
        (_info(unacknowledged=1, silence_s=14.9), False),
        (_info(unacknowledged=1, silence_s=15.0), True),
        (_info(unacknowledged=1, repetitions=1), False),  # sent just now: it may be we who have paused
        (_info(unacknowledged=0), False),  # idle: the kernel's own probes decide
        (_info(unacknowledged=1, window=0), False),  # repeated seldom: the kernel decides
        (_info(window=0, probes=2), False),
        (_info(window=0, probes=3), True),
        (_info(window=0, probes=3, silence_s=1.0), False),
        (_info(unacknowledged=1)[:228], False),  # of an older kernel
    ],
)
def test_a_host_is_gone_that_has_long_acknowledged_nothing_of_what_it_was_asked(info: bytes, gone: bool) -> None:
    assert says_gone(info, 15.0) is gone


@contextmanager
def _joined() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            yield accepted, client


def _window(sock: socket.socket) -> int:
    window: int = struct.unpack_from("=I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232), 228)[0]
    return window


def test_a_host_whose_application_reads_nothing_is_there() -> None:
    """However short the silence that is allowed: it is not the application that is asked."""
    with _joined() as (ours, _):
        watch_over(ours, 15.0)
        assert not is_gone(ours, 0.0)
        ours.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                ours.send(bytes(100_000))
        until(lambda: _window(ours) == 0, "the other side takes no more")
        assert not is_gone(ours, 0.0)


def test_the_kernel_asks_as_often_as_it_must_and_does_not_judge_by_what_waits() -> None:
    with _joined() as (ours, _):
        watch_over(ours, 15.0)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        assert [ours.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [5, 2, 3, 0]
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_silence_that_no_kernel_could_judge_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        ListenerSettings(silence_s_max=0.9)


def test_a_connection_whose_host_is_gone_is_cut_soon_and_no_other() -> None:
    listening = Listening()
    (_, gone), (_, there) = listening.connect(), listening.connect()
    gone.socket.info = _info(unacknowledged=1, silence_s=_SILENCE_S_MAX)
    listening.pass_time(0.7 * _SILENCE_S_MAX)
    assert (gone.is_cut, there.is_cut) == (True, False)
    assert there.socket.asked
    listening.pass_time(10 * _SILENCE_S_MAX)
    assert not there.is_cut


def _answer(listening: Listening, end: ClientTransport, count: int) -> None:
    """What a broker does to Pings."""
    for _ in range(count):
        end.send(0, frames.Pong(1), b"")
    end.flush()


def test_a_client_that_asks_and_does_not_read_is_not_read_from_until_it_has() -> None:
    listening = Listening()
    (end, asker), (_, other) = listening.connect(), listening.connect()
    answers = _SETTINGS.output_bytes_max // len(_PING)
    _answer(listening, end, answers)
    assert asker.is_read and asker.waiting_bytes <= _SETTINGS.output_bytes_max
    end.pause_writing()  # as the loop does from `output_bytes_high` on
    assert listening.told[-1] == ConnectionStalled(1, True)
    assert asker.is_read, "what it settles makes room"
    _answer(listening, end, 1)
    assert not asker.is_read and other.is_read
    _answer(listening, end, answers)  # of what was read before
    asker.waiting_bytes = _SETTINGS.output_bytes_low
    end.resume_writing()
    assert listening.told[-1] == ConnectionStalled(1, False)
    assert asker.is_read


def test_who_is_held_stays_held_when_it_has_read() -> None:
    listening = Listening()
    end, transport = listening.connect()
    end.hold(True)
    _answer(listening, end, 2 * _SETTINGS.output_bytes_max // len(_PING))
    transport.waiting_bytes = 0
    end.resume_writing()
    assert not transport.is_read
    end.hold(False)
    assert transport.is_read


def test_a_connection_with_thousands_of_frames_lets_others_go_between() -> None:
    listening = Listening()
    (many, from_many), (one, _) = listening.connect(), listening.connect()
    listening.handed_on()
    listening.arrive(many, _PING * 4_500)
    listening.arrive(one, _PING)
    listening.pass_time(0.001)
    assert listening.handed_on() == [(1, 1_000), (2, 1), *[(1, 1_000)] * 3, (1, 500)]
    assert from_many.is_read


def test_a_connection_is_not_read_from_while_others_have_their_turn() -> None:
    """One that has filled the buffer, and one of whose frames some wait."""
    whole_buffer = encode(1, frames.Publish(1), bytes(1 << 19))
    for data in (whole_buffer[: 1 << 18], _PING * 1_001):
        listening = Listening()
        end, transport = listening.connect()
        reading: list[bool] = []
        listening.arrive(end, data)
        listening.loop.call_soon(lambda transport=transport, reading=reading: reading.append(transport.is_read))
        listening.pass_time(0.001)
        assert (reading, transport.is_read) == ([False], True)


def test_what_waits_of_a_connection_that_is_held_waits_and_is_not_lost() -> None:
    listening = Listening()
    end, transport = listening.connect()
    listening.handed_on()
    listening.arrive(end, _PING * 2_500)
    listening.loop.call_soon(end.hold, True)
    listening.pass_time(0.001)
    assert listening.handed_on() == [(1, 1_000)] and not transport.is_read
    listening.loop.call_soon(end.hold, False)
    listening.pass_time(0.001)
    assert listening.handed_on() == [(1, 1_000), (1, 500)] and transport.is_read


def test_what_was_said_before_a_connection_went_is_handed_on_first() -> None:
    listening = Listening()
    end, _ = listening.connect()
    listening.arrive(end, _PING * 2_500)
    listening.loop.call_soon(end.connection_lost, None)
    listening.pass_time(0.001)
    kinds = [type(event).__name__ for event in listening.told[-4:]]
    assert kinds == ["FramesReceived"] * 3 + ["ConnectionLost"]
    assert sum(count for _, count in listening.handed_on()) == 2_501


def test_the_kernel_is_not_asked_of_a_client_that_speaks() -> None:
    listening = Listening()
    end, transport = listening.connect()
    transport.socket.info = _info(unacknowledged=1)
    for _ in range(20):
        listening.arrive(end, _PING)
        listening.pass_time(_SILENCE_S_MAX / 4)
    assert not transport.is_cut and transport.socket.asked == 0


def test_nobody_is_looked_at_when_nobody_is_there() -> None:
    listening = Listening()
    for _ in range(2):
        end, transport = listening.connect()
        listening.loop.call_soon(end.connection_lost, None)
        listening.pass_time(10 * _SILENCE_S_MAX)
        assert transport.socket.asked == 0
        assert isinstance(listening.told[-1], ConnectionLost)
