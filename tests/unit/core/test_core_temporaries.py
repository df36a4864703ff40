"""Goal: a temporary destination lives as long as its connection, through cuts and restarts, and not longer; everybody
may send to it, its connection alone consumes from it.
Method: whole nodes, with clients that come, are cut off, come back and close."""
import pytest

from angarium.core.destination.events import DestinationSettings
from angarium.core.ids import GLOBAL_ID_BYTES
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind, Outcome
from angarium.core.wire.packing import pack
from tests.unit.core.core_node import Client, Node

GRACE_S = DestinationSettings().resume_grace_s


def identity_of(client: Client) -> bytes:
    return client.last(frames.Welcome).identity


def temporary(client: Client, kind: str = "queue", *, number: int = 1) -> str:
    client.send(frames.Request(number, "destination.create", {"temporary": True, "kind": kind}), session=0)
    reply = client.last(frames.Reply)
    assert not reply.code, reply.reason
    name = reply.result["name"]
    assert name.startswith("_TEMP.") and reply.result["kind"] == kind and reply.result["temporary"]
    return str(name)


def publish(client: Client, name: str, *bodies: bytes) -> None:
    producer = client.open_producer(name)
    client.send_with(frames.Publish(1), pack(producer, 1, 0, list(bodies)))


def exists(node: Node, name: str) -> bool:
    return node.world.manager.find(name) is not None


# -- identity ------------------------------------------------------------------------------------------------


def test_a_connection_keeps_the_identity_that_it_repeats() -> None:
    node = Node()
    first, other = node.connect(), node.connect()
    assert len(identity_of(first)) == GLOBAL_ID_BYTES and identity_of(first) != identity_of(other)
    first.lose()
    assert identity_of(node.connect(client=identity_of(first))) == identity_of(first)


def test_a_link_under_the_same_identity_is_taken_for_dead() -> None:
    node = Node()
    half_open = node.connect_with_session()
    again = node.connect(client=identity_of(half_open))
    assert half_open.closed and half_open.received(frames.Goodbye)
    assert not again.closed and identity_of(again) == identity_of(half_open)


def test_an_identity_of_another_length_is_refused() -> None:
    assert Node().connect(client=b"short").failure == "bad-frame"


# -- who may do what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_everybody_sends_and_the_owner_alone_consumes(kind: str) -> None:
    node = Node()
    owner, other = node.connect_with_session(), node.connect_with_session()
    name = temporary(owner, kind)
    owner.open_consumer(name)
    other.open_consumer(name)
    assert other.last(frames.ConsumerClosed).code == "not-owner"
    publish(other, name, b"reply")
    assert owner.bodies == [b"reply"]


def test_only_the_broker_makes_such_names() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.ProducerOpen(1, "_TEMP.mine", DestinationKind.QUEUE))
    assert client.last(frames.ProducerClosed).code == "unknown-destination"
    asked = {"name": "_TEMP.mine", "kind": "queue"}
    client.send(frames.Request(1, "destination.create", asked), session=0)
    assert client.last(frames.Reply).code == "unknown-destination"
    client.send(frames.Request(2, "destination.create", asked | {"temporary": True}), session=0)
    assert client.last(frames.Reply).result["name"] != "_TEMP.mine"
    client.send(frames.ConsumerOpen(1, "t", DestinationKind.TOPIC, "_TEMP.mine"))
    assert client.last(frames.ConsumerClosed).code == "reserved-name"


def test_a_connection_has_so_many_and_not_more() -> None:
    node = Node(destination_settings=DestinationSettings(temporaries_max=2))
    client = node.connect()
    first = temporary(client)
    temporary(client, number=2)
    client.send(frames.Request(3, "destination.create", {"temporary": True}), session=0)
    assert client.last(frames.Reply).code == "too-many-destinations"
    temporary(node.connect())
    client.send(frames.Request(4, "destination.remove", {"name": first}), session=0)
    temporary(client, number=5)


# -- when they go --------------------------------------------------------------------------------------------


def test_they_go_at_once_when_their_connection_is_closed_with_all_that_is_stored_of_them() -> None:
    node = Node()
    owner, other = node.connect_with_session(), node.connect_with_session()
    name, kept = temporary(owner), temporary(other)
    number = node.world.manager.find(name)
    assert number is not None
    publish(other, name, b"never read")
    owner.send(frames.Goodbye("done"), session=0)
    assert not exists(node, name) and exists(node, kept)
    assert other.last(frames.ProducerClosed).code == "destination-removed"
    assert node.world.disk.records_of(number.identity) == {}
    assert not exists(node, "_DMQ")


def test_they_are_kept_through_a_cut_for_the_grace_time() -> None:
    node = Node()
    owner, other = node.connect_with_session(), node.connect_with_session()
    name = temporary(owner)
    owner.lose()
    publish(other, name, b"meanwhile")
    node.advance(GRACE_S * 0.9)
    again = node.connect_with_session(client=identity_of(owner))
    node.advance(GRACE_S * 5)
    again.open_consumer(name)
    assert again.bodies == [b"meanwhile"]
    again.lose()
    node.advance(GRACE_S * 0.9)
    assert exists(node, name)
    node.advance(GRACE_S * 0.2)
    assert not exists(node, name)


def test_the_late_end_of_an_earlier_link_does_not_count() -> None:
    node = Node(auto=False)
    owner = node.connect()
    node.run()
    name = temporary_now(node, owner)
    again = node.connect(client=identity_of(owner))
    node.run()
    node.advance(GRACE_S * 5)
    assert exists(node, name) and not again.closed


def temporary_now(node: Node, client: Client) -> str:
    client.send(frames.Request(1, "destination.create", {"temporary": True}), session=0)
    node.run()
    return str(client.last(frames.Reply).result["name"])


@pytest.mark.parametrize("comes_back", [True, False])
def test_after_a_restart_they_wait_for_their_connection(comes_back: bool) -> None:
    node = Node()
    owner = node.connect()
    name = temporary(owner)
    successor = node.world.restarted()
    assert successor.manager.find(name) is not None
    if comes_back:
        successor.frame(successor.session(), 0, frames.ClientHere(identity_of(owner)))
    successor.advance(GRACE_S * 2)
    successor.run_disk()
    assert (successor.manager.find(name) is not None) == comes_back


def test_what_is_rejected_there_is_gone() -> None:
    node = Node()
    owner = node.connect_with_session()
    name = temporary(owner)
    owner.open_consumer(name)
    publish(owner, name, b"no use")
    owner.send(frames.Settle(1, 1, Outcome.REJECT, [(0, 1)]))
    assert not exists(node, "_DMQ")


# -- what a connection sends itself --------------------------------------------------------------------------


def subscribe(client: Client, *, durable: str = "", number: int = 1) -> None:
    client.send(frames.ConsumerOpen(number, "t", DestinationKind.TOPIC, durable, credit=100, no_local=True))
    assert not client.received(frames.ConsumerClosed)


def test_no_local_leaves_out_what_the_same_connection_sends_also_after_a_reconnection() -> None:
    node = Node()
    mine, other = node.connect_with_session(), node.connect_with_session()
    subscribe(mine)
    publish(mine, "t", b"own")
    publish(other, "t", b"other's")
    assert mine.bodies == [b"other's"]
    mine.lose()
    again = node.connect(client=identity_of(mine))
    again.open_session(identity=mine.identity)
    again.send(
        frames.ConsumerOpen(1, "t", DestinationKind.TOPIC, resumed=True, held=[(1, 2)], next_position=2, no_local=True),
        frames.Credit(1, 100),
    )
    publish(again, "t", b"own again")
    other.send_with(frames.Publish(1), pack(other.last(frames.ProducerOpened).identity, 2, 0, [b"other's again"]))
    assert again.bodies == [b"other's again"]


def test_no_local_holds_for_what_was_sent_while_nobody_consumed_and_by_producers_that_are_closed() -> None:
    node = Node()
    mine, other = node.connect_with_session(), node.connect_with_session()
    subscribe(mine, durable="d")
    mine.send(frames.ConsumerClose(1))
    publish(mine, "t", b"own")
    mine.send(frames.ProducerClose(1))
    publish(other, "t", b"other's")
    mine.send(frames.ConsumerOpen(2, "t", DestinationKind.TOPIC, "d", credit=100, no_local=True))
    assert mine.bodies == [b"other's"]


def test_a_durable_no_local_subscription_goes_on_with_the_connection_that_takes_it_up() -> None:
    node = Node()
    mine, other = node.connect_with_session(), node.connect_with_session()
    subscribe(mine, durable="d")
    mine.send(frames.ConsumerClose(1))
    publish(other, "t", b"while it was away")
    third = node.connect_with_session()
    subscribe(third, durable="d")
    publish(third, "t", b"own")
    publish(mine, "t", b"no longer its own")
    assert third.bodies == [b"while it was away", b"no longer its own"]
