"""Goal: in every state of a connection every frame is let through or refused with a stable code, and a client that is
refused takes nobody with it.
Method: a table of every frame kind in every state, on a node of fakes."""
import pytest

from angarium.core.session.events import FramesReceived
from angarium.core.wire import frames
from angarium.core.wire.codec import Received
from angarium.core.wire.frames import DestinationKind, Frame, Outcome
from angarium.core.wire.packing import pack
from tests.unit.core.core_frames import EVERY_KIND, sample
from tests.unit.core.core_node import HELLO, Node
from tests.unit.core.core_states import PRODUCER, STATES

# U unexpected-frame, N not-open, I number-in-use, . taken
TABLE = """
                greeting connection_itself no_session session locating opening opened closing closed_by_broker detached
Hello              .          U               N         U        U        U      U       U        U           U
Ping               U          .               .         .        .        .      .       .        .           .
Pong               U          .               .         .        .        .      .       .        .           .
Goodbye            U          .               .         .        .        .      .       .        .           .
SessionOpen        U          I               .         I        I        I      I       I        I           .
SessionClose       U          N               N         .        .        .      .       .        .           .
ProducerOpen       U          U               N         .        I        I      I       .        .           .
Publish            U          U               N         N        N        N      .       N        .           .
ProducerClose      U          U               N         N        .        .      .       N        .           .
ConsumerOpen       U          U               N         .        I        I      I       I        .           .
Credit             U          U               N         N        .        .      .       N        .           .
Settle             U          U               N         N        .        .      .       N        .           .
Recover            U          U               N         N        .        .      .       N        .           .
ConsumerClose      U          U               N         N        .        .      .       N        .           .
Request            U          .               N         .        .        .      .       .        .           .
Commit             U          U               N         U        U        U      U       U        U           .
StreamOpen         U          U               N         .        .        .      .       .        .           .
StreamFragment     U          U               N         N        N        N      N       N        N           .
StreamClose        U          U               N         N        N        N      N       N        N           .
StreamRead         U          U               N         .        .        .      .       .        .           .
StreamCredit       U          U               N         .        .        .      .       .        .           .
StreamReadEnd      U          U               N         .        .        .      .       .        .           .
Watch              U          U               N         .        .        .      .       .        .           .
WatchClose         U          U               N         .        .        .      .       .        .           .
(any other)        U          U               N         U        U        U      U       U        U           U
"""
CODES = {"U": "unexpected-frame", "N": "not-open", "I": "number-in-use", ".": ""}


def table() -> dict[tuple[str, str], str]:
    header, *rows = TABLE.strip().splitlines()
    expected = {row.split()[0]: row.split()[-len(STATES) :] for row in rows}
    return {
        (kind.__name__, state): CODES[letter]
        for kind in EVERY_KIND
        if kind is not frames.Failure  # a test of its own
        for state, letter in zip(header.split(), expected.get(kind.__name__, expected["(any"]), strict=True)
    }


def frame_for(kind: type[Frame]) -> tuple[Frame, bytes]:
    """A frame of the kind in which only its state can be wrong."""
    special: dict[type[Frame], Frame] = {
        frames.Hello: HELLO,
        frames.SessionOpen: frames.SessionOpen(),
        frames.ProducerOpen: frames.ProducerOpen(1, "q", DestinationKind.ANY),
        frames.ConsumerOpen: frames.ConsumerOpen(1, "q", DestinationKind.ANY),
        frames.Settle: frames.Settle(1, 1, Outcome.SETTLE, []),
        frames.Recover: frames.Recover(1, 1, []),
        frames.Request: frames.Request(1, "destination.list", {}),
        frames.StreamOpen: frames.StreamOpen(1, "q", DestinationKind.ANY),
        frames.StreamRead: frames.StreamRead(1, consumer=1, position=0, first=0, limit=1),
    }
    return special.get(kind, sample(kind)), pack(PRODUCER, 1, 0, [b"x"]) if kind is frames.Publish else b""


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", [kind for kind in EVERY_KIND if kind is not frames.Failure], ids=lambda k: k.__name__)
def test_every_frame_in_every_state(kind: type[Frame], state: str) -> None:
    node = Node()
    other = node.connect_with_session()
    identity = other.open_producer("elsewhere")
    client, number = STATES[state](node)
    frame, payload = frame_for(kind)
    client.send_with(frame, payload, session=number)
    code = table()[kind.__name__, state]
    assert client.failure == code
    assert client.closed == (bool(code) or kind is frames.Goodbye)
    node.auto = True
    node.run()
    if code:
        assert node.reports[-1].code == code
        count = len(client.frames)
        client.closed = False
        client.feed(b"")
        node.tell(FramesReceived(client.connection, [Received(1, frames.Ping(1), b"")]))
        assert len(client.frames) == count, "a connection that was ended is deaf"
    other.send_with(frames.Publish(1), pack(identity, 1, 0, [b"undisturbed"]))
    assert other.last(frames.Confirm) == frames.Confirm(1, 1)
    assert not other.closed
