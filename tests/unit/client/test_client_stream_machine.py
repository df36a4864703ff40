"""Goal: a sender keeps what is not durable and sends it again after a cut; at most a handful of fragments is on its way
in one connection; a reader asks again from where it was.
Method: the client's machine with frames given by hand."""
import zlib
from random import Random

import pytest

from angarium.core.client import events, stream_events
from angarium.core.client.connection import ConnectionMachine
from angarium.core.client.events import Event
from angarium.core.client.flight import FRAGMENTS_MAX
from angarium.core.client.reconnect import Address, ReconnectPolicy
from angarium.core.client.stream_reader import WINDOW_FRAGMENTS
from angarium.core.errors import LocalProtocolError
from angarium.core.wire import frames
from angarium.core.wire.codec import FrameParser, Received
from angarium.core.wire.frames import DestinationKind, Frame

IDENTITY = b"stream identity!"
SIZE = 10  # of a fragment, here


class Client:
    def __init__(self) -> None:
        self.machine = ConnectionMachine(
            addresses=[Address("a", 1)], name="x", chance=Random(1), connect_timeout_s=10, policy=ReconnectPolicy()
        )
        self.now = 0.0
        self.sent: list[tuple[Frame, bytes]] = []
        self.told: list[events.Command] = []
        self.parser = FrameParser(frame_bytes_max=1 << 20)
        self.do(events.OpenConnection())
        self.do(events.OpenSession(1))
        self.connect()

    def do(self, event: Event) -> None:
        for command in self.machine.handle(event, now=self.now):
            if isinstance(command, events.SendBytes):
                received = self.parser.feed(b"".join(command.buffers))
                self.sent += [(item.frame, item.payload) for item in received]
            else:
                self.told.append(command)

    def connect(self) -> None:
        self.do(events.Connected())
        self.say(frames.Welcome(1, "n", b"i", 1 << 20, 1 << 19, 1 << 20, 5.0), session=0)
        self.say(frames.SessionOpened(b"session identity"))

    def reconnect(self) -> None:
        self.do(events.Disconnected("cut"))
        self.now += 10.0
        self.do(events.Tick())
        self.parser = FrameParser(frame_bytes_max=1 << 20)
        self.sent.clear()
        self.connect()

    def say(self, frame: Frame, payload: bytes = b"", session: int = 1) -> None:
        self.do(events.FramesReceived([Received(session, frame, payload)]))

    def open(self, stream: int = 1, *, limit: int = 4) -> None:
        self.do(stream_events.OpenStream(1, stream, "q", DestinationKind.ANY))
        self.say(frames.StreamOpened(stream, IDENTITY, 0, 0, limit, SIZE))

    def put(self, count: int, *, stream: int = 1, last: bool = False) -> None:
        for number in range(count):
            is_last = last and number == count - 1
            self.do(stream_events.PutFragment(1, stream, b"x" * SIZE, zlib.crc32(b"x" * SIZE), is_last))

    def fragments(self, stream: int = 1) -> list[int]:
        return [f.number for f, _ in self.sent if isinstance(f, frames.StreamFragment) and f.stream == stream]


def test_no_more_is_sent_than_the_limit_lets_go() -> None:
    client = Client()
    client.open(limit=2)
    client.put(5)
    assert client.fragments() == [0, 1]
    client.say(frames.StreamStored(1, 0, 4))
    assert client.fragments() == [0, 1, 2, 3]


def test_after_a_cut_what_the_broker_lacks_is_sent_again() -> None:
    client = Client()
    client.open(limit=9)
    client.put(5)
    client.say(frames.StreamStored(1, 2, 9))
    client.reconnect()
    (opening,) = [f for f, _ in client.sent if isinstance(f, frames.StreamOpen)]
    assert opening.identity == IDENTITY
    client.say(frames.StreamOpened(1, IDENTITY, 2, 3, 9, SIZE))
    assert client.fragments() == [3, 4]
    client.say(frames.StreamStored(1, 5, 9))
    assert client.told[-1] == stream_events.StreamAdvanced(1, 1, 5, 9)


def test_a_broker_that_has_less_than_it_had_stored_ends_the_stream() -> None:
    client = Client()
    client.open(limit=9)
    client.put(5)
    client.say(frames.StreamStored(1, 3, 9))
    client.reconnect()
    client.say(frames.StreamOpened(1, IDENTITY, 2, 2, 9, SIZE))
    ended = client.told[-1]
    assert isinstance(ended, stream_events.StreamEnded) and ended.code == "stream-lost"
    assert client.sent[-1][0] == frames.StreamClose(1)


def test_a_stream_of_which_nothing_was_stored_begins_anew_where_it_is_not_known() -> None:
    client = Client()
    client.open(limit=9)
    client.put(3)
    client.reconnect()
    client.say(frames.StreamClosed(1, "unknown-stream", "never heard of it"))
    openings = [f for f, _ in client.sent if isinstance(f, frames.StreamOpen | frames.StreamClose)]
    assert [type(f).__name__ for f in openings] == ["StreamOpen", "StreamClose", "StreamOpen"]
    assert openings[-1] == frames.StreamOpen(1, "q", DestinationKind.ANY, b"")
    client.say(frames.StreamOpened(1, b"another identity", 0, 0, 9, SIZE))
    assert client.fragments() == [0, 1, 2]
    client.say(frames.StreamStored(1, 1, 9))
    client.reconnect()
    client.say(frames.StreamClosed(1, "unknown-stream", "never heard of it"))
    assert isinstance(client.told[-1], stream_events.StreamEnded), "some of it was durable, and is not kept here"


def test_streams_of_one_connection_share_the_way_in_turn() -> None:
    client = Client()
    client.open(1, limit=100)
    client.open(2, limit=100)
    client.put(50, stream=1)
    client.put(50, stream=2)
    assert len(client.fragments(1)) == FRAGMENTS_MAX and not client.fragments(2)
    client.say(frames.StreamStored(1, 0, 102))  # two have landed
    assert (len(client.fragments(1)), len(client.fragments(2))) == (FRAGMENTS_MAX + 1, 1)
    client.do(stream_events.CloseStream(1, 1))
    assert len(client.fragments(2)) == FRAGMENTS_MAX, "its share is free"


def test_nothing_is_sent_while_the_transport_takes_nothing() -> None:
    client = Client()
    client.open(limit=9)
    client.do(events.WritingPaused())
    client.put(2)
    assert not client.fragments()
    client.do(events.WritingResumed())
    assert client.fragments() == [0, 1]


def test_a_fragment_after_the_last_or_for_no_stream_is_the_callers_error() -> None:
    client = Client()
    client.open()
    client.put(1, last=True)
    with pytest.raises(LocalProtocolError, match="last fragment already"):
        client.put(1)
    with pytest.raises(LocalProtocolError, match="not open"):
        client.put(1, stream=2)


def test_a_stream_that_the_broker_closes_is_told_and_its_number_freed() -> None:
    client = Client()
    client.open()
    client.say(frames.StreamClosed(1, "stream-too-long", "too long"))
    assert client.told[-1] == stream_events.StreamEnded(1, 1, "stream-too-long", "too long")
    assert client.sent[-1][0] == frames.StreamClose(1)
    client.say(frames.StreamStored(1, 0, 1))  # was under way: ignored


@pytest.mark.parametrize(
    "frame",
    [frames.StreamStored(1, 3, 9), frames.StreamOpened(1, IDENTITY, 0, 0, 4, SIZE), frames.StreamStored(9, 0, 1)],
)
def test_a_broker_that_says_what_cannot_be_ends_the_connection(frame: Frame) -> None:
    client = Client()
    client.open()
    client.put(2)
    client.say(frame)
    assert isinstance(client.told[-1], events.ConnectionFailed)


# -- reading -------------------------------------------------------------------------------------------


def reading() -> Client:
    client = Client()
    client.do(events.OpenConsumer(1, 1, "q", DestinationKind.ANY, prefetch=1))
    client.say(frames.ConsumerOpened(1))
    client.do(stream_events.OpenReader(1, 1, 1, position=7))
    return client


def data(number: int, payload: bytes = b"x", *, last: bool = False) -> frames.StreamData:
    return frames.StreamData(1, number, zlib.crc32(payload), last)


def test_a_reader_raises_its_limit_as_fragments_are_used() -> None:
    client = reading()
    assert frames.StreamRead(1, 1, 7, 0, WINDOW_FRAGMENTS) in [frame for frame, _ in client.sent]
    for number in range(WINDOW_FRAGMENTS):
        client.say(data(number), b"x")
    for _ in range(WINDOW_FRAGMENTS // 2):
        client.do(stream_events.UseFragment(1, 1))
    assert client.sent[-1][0] == frames.StreamCredit(1, WINDOW_FRAGMENTS + WINDOW_FRAGMENTS // 2)


def test_after_a_cut_it_is_read_on_once_the_consumer_has_resumed() -> None:
    client = reading()
    client.say(data(0), b"x")
    client.reconnect()
    assert not [f for f, _ in client.sent if isinstance(f, frames.StreamRead)]
    client.say(frames.ConsumerOpened(1))
    assert [f for f, _ in client.sent if isinstance(f, frames.StreamRead)] == [
        frames.StreamRead(1, 1, 7, 1, WINDOW_FRAGMENTS)
    ]


def test_a_fragment_that_arrives_damaged_ends_the_reader() -> None:
    client = reading()
    client.say(data(0, b"x"), b"y")
    assert isinstance(client.told[-1], stream_events.ReaderEnded)
    assert client.sent[-1][0] == frames.StreamReadEnd(1)


def test_a_fragment_out_of_turn_is_the_brokers_error() -> None:
    client = reading()
    client.say(data(1), b"x")
    assert isinstance(client.told[-1], events.ConnectionFailed)


def test_the_reader_of_a_closed_consumer_ends() -> None:
    client = reading()
    client.do(events.CloseConsumer(1, 1))
    client.say(frames.ConsumerClosed(1))
    ended = [item for item in client.told if isinstance(item, stream_events.ReaderEnded)]
    assert [item.code for item in ended] == ["not-held"]


def test_a_reader_that_is_opened_after_its_consumer_was_closed_ends_at_once() -> None:
    """Once: it waited for the consumer to open, for ever."""
    client = reading()
    client.do(events.CloseConsumer(1, 1))
    client.say(frames.ConsumerClosed(1))
    client.do(stream_events.OpenReader(1, 2, 1, position=7))
    assert isinstance(ended := client.told[-1], stream_events.ReaderEnded)
    assert (ended.reader, ended.code) == (2, "not-held")
    assert not [frame for frame, _ in client.sent if isinstance(frame, frames.StreamRead) and frame.reader == 2]


def test_a_session_that_is_closing_says_nothing_more_of_its_streams() -> None:
    """Once: the stream was closed behind its session, which is a violation, and the broker hung up."""
    client = Client()
    client.open()
    client.put(1, last=True)
    client.say(frames.StreamStored(1, 1, 4))
    client.do(events.CloseSession(1, 10.0))
    assert client.sent[-1][0] == frames.SessionClose()
    client.do(stream_events.CloseStream(1, 1))
    assert client.sent[-1][0] == frames.SessionClose()
    client.say(frames.StreamStored(1, 1, 5))  # was on its way
    client.say(frames.SessionClosed("", ""))
