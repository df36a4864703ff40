"""The wire protocol by hand, over a blocking socket: for clients that misbehave in ways our own client cannot."""
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from angarium.core.wire import frames
from angarium.core.wire.codec import FrameParser, Received, encode
from angarium.core.wire.frames import DestinationKind, Frame
from angarium.core.wire.packing import pack
from tests.process.process_broker import WAIT_S

_FRAME_BYTES_MAX = 1 << 28
_CREDIT_HUGE = 1 << 30
RECEIVE_BUFFER_BYTES_MIN = 2_048  # the system's least: the broker feels at once that nobody reads
F = TypeVar("F", bound=Frame)


class RawClient:
    def __init__(self, port: int, *, host: str = "127.0.0.1", receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:  # before connecting, so that the window is small from the start
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(WAIT_S)
        self.socket.connect((host, port))
        self._parser = FrameParser(frame_bytes_max=_FRAME_BYTES_MAX)
        self._received: list[Received] = []
        self.is_closed = False  # by the broker

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, session: int, frame: Frame, payload: bytes = b"") -> None:
        self.send_bytes(encode(session, frame, payload))

    def next(self, timeout_s: float = WAIT_S) -> Received | None:
        """The next frame; None when the broker has closed the connection, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not self._received and not self.is_closed:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(1 << 18)
            except TimeoutError:
                return None
            except ConnectionError:
                data = b""
            if data:
                self._received += self._parser.feed(data)
            else:
                self.is_closed = True
        return self._received.pop(0) if self._received else None

    def expect(self, *kinds: type[F], timeout_s: float = WAIT_S) -> F:
        """The next frame of one of these kinds; others before it are skipped."""
        deadline = time.monotonic() + timeout_s
        while (received := self.next(deadline - time.monotonic())) is not None:
            if isinstance(received.frame, kinds):
                return received.frame
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise AssertionError(f"no {wanted}: the connection is {'closed' if self.is_closed else 'silent'}")

    # -- the ordinary ways -------------------------------------------------------------------------------

    def hello(self) -> frames.Welcome:
        self.send(0, frames.Hello(frames.PROTOCOL_VERSION, "raw", "test"))
        return self.expect(frames.Welcome)

    def open_session(self, session: int = 1, identity: bytes = b"") -> bytes:
        self.send(session, frames.SessionOpen(identity))
        return self.expect(frames.SessionOpened).identity

    def open_producer(
        self, destination: str, producer: int = 1, *, session: int = 1, identity: bytes = b"",
        kind: DestinationKind = DestinationKind.ANY,
    ) -> bytes:  # fmt: skip
        self.send(session, frames.ProducerOpen(producer, destination, kind, identity))
        return self.expect(frames.ProducerOpened).identity

    def request(self, number: int, command: str, arguments: dict[str, Any]) -> frames.Reply:
        self.send(0, frames.Request(number, command, arguments))
        return self.expect(frames.Reply)


def batch(identity: bytes, sequence: int, bodies: list[bytes]) -> bytes:
    return pack(identity, sequence, int(time.time() * 1000), bodies)


@contextmanager
def stalled_consumer(port: int, destination: str, *, topic: bool = False) -> Iterator[RawClient]:
    """It grants more credit than there will ever be messages, and reads nothing after that."""
    with RawClient(port, receive_buffer_bytes=RECEIVE_BUFFER_BYTES_MIN) as client:
        client.hello()
        identity = client.open_session()
        kind = DestinationKind.TOPIC if topic else DestinationKind.QUEUE
        client.send(1, frames.ConsumerOpen(1, destination, kind, credit=_CREDIT_HUGE))
        while isinstance(client.expect(frames.ConsumerOpened, frames.SessionDetached), frames.SessionDetached):
            client.open_session(identity=identity)  # of a cluster that has just started: its groups are still found
            client.send(1, frames.ConsumerOpen(1, destination, kind, credit=_CREDIT_HUGE))
        yield client
