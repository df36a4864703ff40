"""A client in every state that a connection, a session, a producer and a consumer can be in."""
from collections.abc import Callable

from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from tests.unit.core.core_node import Client, Node

PRODUCER = b"producer 16 byte"


def number_of(node: Node, name: str = "q") -> int:
    destination = node.world.manager.find(name)
    assert destination is not None
    return destination.identity


def greeting(node: Node) -> tuple[Client, int]:
    return node.connect(greet=False), 0


def connection_itself(node: Node) -> tuple[Client, int]:
    return node.connect(), 0


def no_session(node: Node) -> tuple[Client, int]:
    return node.connect_with_session(), 2


def session(node: Node) -> tuple[Client, int]:
    return node.connect_with_session(), 1


def locating(node: Node) -> tuple[Client, int]:
    client = node.connect_with_session()
    node.auto = False
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, PRODUCER))
    client.send(frames.ConsumerOpen(1, "q", DestinationKind.ANY))
    return client, 1


def opening(node: Node) -> tuple[Client, int]:
    client, number = locating(node)
    node.step_destination(0)
    node.step_destination(0)
    node.world.complete_write()
    assert [type(frame) for frame in node.waiting_for(number_of(node))] == [frames.ProducerOpen, frames.ConsumerOpen]
    return client, number


def opened(node: Node) -> tuple[Client, int]:
    client, number = locating(node)
    node.auto = True
    node.run()
    assert client.received(frames.ProducerOpened)
    assert client.received(frames.ConsumerOpened)
    return client, number


def closing(node: Node) -> tuple[Client, int]:
    client, number = opened(node)
    node.auto = False
    client.send(frames.ProducerClose(1), frames.ConsumerClose(1))
    return client, number


def closed_by_broker(node: Node) -> tuple[Client, int]:
    client, number = opened(node)
    client.send(frames.Request(1, "destination.remove", {"name": "q"}), session=0)
    assert client.received(frames.ProducerClosed)
    assert client.received(frames.ConsumerClosed)
    return client, number


def detached(node: Node) -> tuple[Client, int]:
    """As by GroupLost, and nobody else is."""
    client, number = opened(node)
    manager = node.client_manager
    connection = manager._connections[client.connection]
    node._perform(manager._detach(connection, connection.sessions[number], "lost", 0))
    assert client.received(frames.SessionDetached)
    return client, number


STATES: dict[str, Callable[[Node], tuple[Client, int]]] = {
    function.__name__: function
    for function in (
        greeting, connection_itself, no_session, session, locating, opening, opened, closing, closed_by_broker,
        detached,
    )
}  # fmt: skip
