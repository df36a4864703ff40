"""Goal: what a client holds goes to others soon after its host has gone without a word, whatever it was doing; a client
whose host is there keeps it.
Method: hosts in network namespaces, of which one loses its interface; clients by hand, that do nothing unless told."""
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.netns.netns_hosts import Hosts, enter, why_not
from tests.process.process_broker import Broker, running
from tests.process.process_wire import RECEIVE_BUFFER_BYTES_MIN, RawClient, batch

_WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
# The least that can be set, and what a busy machine may take for it.
_SILENCE_S_MAX, _NOTICED_S_MAX = 1.0, 30.0
_SETTINGS = {
    "listener.silence_s_max": _SILENCE_S_MAX, "session.heartbeat_s": 0.5, "destination.resume_grace_s": 0.1,
}  # fmt: skip


class Network:
    """A broker on one host, clients on the others."""

    def __init__(self, path: Path) -> None:
        self.hosts = Hosts(3)
        self._running = running(path, _SETTINGS, command_prefix=self.hosts.prefix(0), host=self.hosts.addresses[0])
        self._clients: list[RawClient] = []
        self.broker: Broker = self._running.__enter__()

    def client(self, host: int, *, receive_buffer_bytes: int | None = None) -> RawClient:
        def connect() -> None:
            enter(self.hosts.name(host))
            address, port = self.hosts.addresses[0], self.broker.port
            self._clients.append(RawClient(port, host=address, receive_buffer_bytes=receive_buffer_bytes))

        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
        client = self._clients[-1]
        client.hello()
        client.open_session()
        return client

    def end(self) -> None:
        for client in self._clients:
            client.close()
        self._running.__exit__(None, None, None)
        self.hosts.end()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    yield made
    made.end()


def _consume(client: RawClient) -> None:
    client.send(1, frames.ConsumerOpen(1, "q", DestinationKind.QUEUE, credit=1 << 30))
    client.expect(frames.ConsumerOpened)


def _publish(client: RawClient, bodies: list[bytes]) -> None:
    identity = client.open_producer("q", kind=DestinationKind.QUEUE)
    client.send(1, frames.Publish(1), batch(identity, 1, bodies))
    client.expect(frames.Confirm)


def test_what_an_idle_client_holds_goes_to_others_when_its_host_has_gone(network: Network) -> None:
    gone, other = network.client(1), network.client(2)
    _consume(gone)
    _publish(other, [b"held"])
    gone.expect(frames.Deliver)
    _consume(other)
    network.hosts.pull_out(1)
    began = time.monotonic()
    other.expect(frames.Deliver, timeout_s=_NOTICED_S_MAX)
    print(f"{time.monotonic() - began:.1f} s until an idle client's messages went to another")


def test_what_a_client_that_does_not_read_holds_goes_to_others_when_its_host_has_gone_and_not_before(
    network: Network,
) -> None:
    stopped, other = network.client(1, receive_buffer_bytes=RECEIVE_BUFFER_BYTES_MIN), network.client(2)
    _consume(stopped)
    _publish(other, [bytes(100_000)] * 10)
    _consume(other)
    assert not _delivered(other, 2.5 * _SILENCE_S_MAX), "its host answers"
    network.hosts.pull_out(1)
    began = time.monotonic()
    other.expect(frames.Deliver, timeout_s=_NOTICED_S_MAX)
    print(f"{time.monotonic() - began:.1f} s until the messages of a client that did not read went to another")


def _delivered(client: RawClient, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while (received := client.next(max(0.0, deadline - time.monotonic()))) is not None:
        if isinstance(received.frame, frames.Deliver):
            return True
    assert not client.is_closed
    return False
