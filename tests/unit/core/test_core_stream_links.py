"""Goal: a client manager brings streams to the destination of their message and back, and nothing of an earlier
connection, of a number that is free, or of a consumer that is not there.
Method: the session's part for streams, frame by frame."""
import pytest

from angarium.core.errors import RemoteProtocolError
from angarium.core.ids import GlobalIds
from angarium.core.session.events import ToBus
from angarium.core.session.stream_links import STREAMS_MAX, StreamLinks
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Frame

SESSION, HERE, BEFORE = b"session", b"this attachment", b"an earlier one"
QUEUE = 5


class Links(StreamLinks):
    def __init__(self) -> None:
        super().__init__(SESSION, HERE, GlobalIds(start_ms=1, site=0, node=1))

    def send(self, frame: Frame, payload: bytes = b"") -> list[Frame]:
        """What goes to the destination."""
        posted, _ = self.client_frame(frame, payload, lambda consumer: QUEUE)
        return [command.frame for command in posted]

    def opened(self, number: int = 1) -> None:
        self.send(frames.StreamOpen(number, "q", DestinationKind.ANY))
        self.locate()
        assert self.bus_frame(frames.StreamOpened(number, b"i" * 16, 0, 0, 4, 9, HERE))

    def locate(self, destination: int = QUEUE) -> tuple[list[ToBus], list[Frame]]:
        code = "" if destination else "wrong-kind"
        return self.located(
            frames.Located("q", DestinationKind.ANY, destination, DestinationKind.QUEUE, code, "it is a topic")
        )


def test_a_new_stream_gets_an_identity_and_is_located_first() -> None:
    links = Links()
    assert links.send(frames.StreamOpen(1, "q", DestinationKind.ANY)) == [frames.Locate("q", DestinationKind.ANY)]
    ((posted,), refused) = links.locate()
    opening = posted.frame
    assert isinstance(opening, frames.StreamOpen) and not refused
    assert len(opening.identity) == 16 and not opening.resumed and opening.attachment == HERE
    assert links.destinations() == [QUEUE]


def test_one_to_resume_says_so_whatever_its_client_claims() -> None:
    links = Links()
    links.send(frames.StreamOpen(1, "q", DestinationKind.ANY, b"i" * 16, resumed=False))
    ((posted,), _) = links.locate()
    assert isinstance(posted.frame, frames.StreamOpen) and posted.frame.resumed


# Once the number was free with the refusal: the client, which is done with every stream that ends, lost its connection.
def test_refusals_reach_the_client_and_its_close_frees_the_number() -> None:
    links = Links()
    posted, answers = links.client_frame(frames.StreamOpen(1, "no name!", DestinationKind.ANY), b"", lambda _: 0)
    assert not posted and isinstance(answers[0], frames.StreamClosed)
    assert links.send(frames.StreamClose(1)) == []
    links.send(frames.StreamOpen(1, "q", DestinationKind.ANY))
    assert links.locate(destination=0) == ([], [frames.StreamClosed(1, "wrong-kind", "it is a topic")])
    assert links.locate(destination=0) == ([], []), "it is told once"
    with pytest.raises(RemoteProtocolError, match="open already"):
        links.send(frames.StreamOpen(1, "q", DestinationKind.ANY))
    assert links.send(frames.StreamClose(1)) == []
    links.send(frames.StreamOpen(1, "q", DestinationKind.ANY))
    assert links.destinations() == []


def test_an_answer_to_an_earlier_connection_is_not_for_this_client() -> None:
    links = Links()
    links.send(frames.StreamOpen(1, "q", DestinationKind.ANY))
    links.locate()
    assert not links.bus_frame(frames.StreamOpened(1, b"i" * 16, 0, 0, 4, 9, BEFORE))
    assert not links.bus_frame(frames.StreamStored(1, 0, 4))
    assert links.bus_frame(frames.StreamOpened(1, b"i" * 16, 0, 0, 4, 9, HERE))
    assert links.bus_frame(frames.StreamStored(1, 0, 4))
    links.send(frames.StreamRead(7, 1, 0, 0, 8))
    assert not links.bus_frame(frames.StreamData(7, 0, 0, False, BEFORE))
    assert not links.bus_frame(frames.StreamReadEnd(7, "not-held", "", BEFORE))
    assert links.bus_frame(frames.StreamData(7, 0, 0, False, HERE))


def test_what_a_client_sends_before_it_knows_of_the_end_is_ignored() -> None:
    links = Links()
    links.opened()
    assert links.bus_frame(frames.StreamClosed(1, "stream-too-long", ""))
    assert not links.bus_frame(frames.StreamClosed(1, "stream-too-long", ""))
    assert links.send(frames.StreamFragment(1, 0, 0), b"x") == []
    assert links.send(frames.StreamClose(1)) == [], "nobody knows it any more"
    with pytest.raises(RemoteProtocolError, match="not open"):
        links.send(frames.StreamClose(1))


def test_a_reader_ends_with_its_last_fragment_and_what_comes_later_is_dropped() -> None:
    links = Links()
    links.send(frames.StreamRead(1, 1, 0, 0, 8))
    assert links.bus_frame(frames.StreamData(1, 0, 0, True, HERE))
    assert not links.bus_frame(frames.StreamData(1, 1, 0, False, HERE))
    assert links.send(frames.StreamCredit(1, 9)) == []
    assert links.send(frames.StreamRead(1, 1, 0, 0, 8)), "the number is free"


# Once it cost the connection: a consumer may be closed while one of its messages is being opened.
def test_a_reader_of_a_consumer_that_is_not_open_is_told_that_it_holds_nothing() -> None:
    links = Links()
    posted, answers = links.client_frame(frames.StreamRead(1, 3, 0, 0, 8), b"", lambda _: 0)
    assert not posted and links.destinations() == []
    (answer,) = answers
    assert isinstance(answer, frames.StreamReadEnd) and (answer.reader, answer.code) == (1, "not-held")
    assert links.send(frames.StreamCredit(1, 9)) == links.send(frames.StreamReadEnd(1)) == []


def test_a_browser_is_known_to_the_message_manager_itself() -> None:
    links = Links()
    posted, _ = links.client_frame(frames.StreamRead(1, -1, 0, 0, 8, "q"), b"", lambda _: QUEUE)
    assert posted[0].destination == 0
    assert links.destinations() == [0]


def test_where_a_stream_is_read_is_told_of_the_end_also_without_a_consumer_there() -> None:
    links = Links()
    links.send(frames.StreamRead(1, 1, 0, 0, 8))
    assert links.destinations() == [QUEUE]
    assert links.bus_frame(frames.StreamData(1, 0, 0, True, HERE))
    assert links.destinations() == []


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (frames.StreamOpen(1, "q", DestinationKind.ANY), "number-in-use"),
        (frames.StreamOpen(-1, "q", DestinationKind.ANY), "bad-frame"),
        (frames.StreamOpen(2, "q", DestinationKind.ANY, b"short"), "bad-frame"),
        (frames.StreamFragment(2, 0, 0), "not-open"),
        (frames.StreamRead(1, 1, 0, 0, 8), "number-in-use"),
        (frames.StreamRead(2, 1, -1, 0, 8), "bad-frame"),
        (frames.StreamRead(2, 1, 0, -1, 8), "bad-frame"),
    ],
)
def test_what_a_client_must_not_do(frame: Frame, code: str) -> None:
    links = Links()
    links.opened(1)
    links.send(frames.StreamRead(1, 1, 0, 0, 8))
    with pytest.raises(RemoteProtocolError) as caught:
        links.send(frame)
    assert caught.value.code == code


def test_there_is_a_limit_to_streams_and_readers_of_a_session() -> None:
    links = Links()
    for number in range(STREAMS_MAX):
        links.send(frames.StreamOpen(number, "q", DestinationKind.ANY))
        links.send(frames.StreamRead(number, 1, 0, 0, 8))
    for frame in (frames.StreamOpen(STREAMS_MAX, "q", DestinationKind.ANY), frames.StreamRead(STREAMS_MAX, 1, 0, 0, 8)):
        with pytest.raises(RemoteProtocolError) as caught:
            links.send(frame)
        assert caught.value.code == "too-many-links"
