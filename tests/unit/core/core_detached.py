"""A message manager that is replaced behind a client manager that lives on, and clients that see it."""
from angarium.core.session.events import GroupLost
from angarium.core.wire import frames
from angarium.core.wire.frames import Frame
from angarium.core.wire.packing import pack
from tests.unit.core.core_node import Client, Node


def fail_over(node: Node, *, told: bool = True) -> None:
    """Another message manager on the same disk; what was on its way to the one before is void."""
    node._queues.clear()
    on_sent = node.world.on_sent
    node.world = node.world.restarted()
    node.world.on_sent = on_sent
    if told:
        node.tell(GroupLost(0))


def consuming(node: Node, *bodies: bytes) -> Client:
    """A client that has published these, and holds them unsettled."""
    client = node.connect_with_session()
    identity = client.open_producer("q")
    client.send_with(frames.Publish(1), pack(identity, 1, 0, list(bodies)))
    client.open_consumer("q")
    assert client.bodies == list(bodies)
    return client


def kinds(client: Client, *, since: int) -> list[type[Frame]]:
    return [type(item.frame) for item in client.frames[since:]]


def is_detached(client: Client, *, session: int = 1) -> bool:
    return bool(client.received(frames.SessionDetached, session=session))
