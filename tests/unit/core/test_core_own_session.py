"""Goal: what a node publishes of its own accord is stored once, through whatever happens to the message manager, or it
is told why not; commands that come as messages are asked and answered; nothing here lets a client in where it may not.
Method: a node of fakes; its message manager dies and is restored from its disk."""
import msgspec
import pytest

from angarium.core.session import events as cm
from angarium.core.session.administration_desk import COMMANDS_MAX
from angarium.core.session.own_session import BATCHES_MAX, REQUESTS_MAX
from angarium.core.wire import frames
from angarium.core.wire.batch import Batch
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_detached import fail_over
from tests.unit.core.core_node import Client, Node

TOPIC = DestinationKind.TOPIC


def publish(node: Node, number: int, *bodies: bytes, destination: str = "_LOG") -> None:
    messages = [cm.OwnMessage(body, {"type": "event"}, {"level": "info"}) for body in bodies]
    node.tell(cm.PublishOwn(number, destination, DestinationKind.ANY, messages))


def subscriber(node: Node) -> Client:
    client = node.connect_with_session()
    client.send(frames.ConsumerOpen(1, "_LOG", TOPIC, credit=1_000))
    assert client.received(frames.ConsumerOpened)
    return client


def ask(node: Node, command: str, **arguments: object) -> str:
    """The code of the answer."""
    client = node.connect()
    client.send(frames.Request(1, command, arguments), session=0)
    return client.last(frames.Reply).code


def codes(node: Node) -> list[tuple[int, str]]:
    return [(told.number, told.code) for told in node.own if isinstance(told, cm.OwnPublished)]


# -- events ------------------------------------------------------------------------------------------------


def test_without_a_listener_nothing_is_made_and_nothing_is_kept() -> None:
    node = Node()
    publish(node, 1, b"e1")
    assert codes(node) == [(1, "unknown-destination")]
    assert node.world.manager.find("_LOG") is None


def test_a_subscriber_makes_the_topic_and_gets_what_follows() -> None:
    node = Node()
    publish(node, 1, b"before")
    client = subscriber(node)
    publish(node, 2, b"e1", b"e2")
    publish(node, 3, b"e3")
    assert client.bodies == [b"e1", b"e2", b"e3"]
    assert codes(node) == [(1, "unknown-destination"), (2, ""), (3, "")]
    batch = Batch.parse(next(item.payload for item in client.frames if isinstance(item.frame, frames.Deliver)))
    assert msgspec.msgpack.decode(batch.properties_of(0)) == {"level": "info"}


def test_it_is_a_topic_that_neither_blocks_nor_buries() -> None:
    node = Node()
    subscriber(node)
    destination = node.world.manager.find("_LOG")
    assert destination is not None
    record = destination.record
    assert record.kind is TOPIC and record.slow_subscriber == "drop" and record.messages_max and not record.buries
    assert not ask(node, "destination.alter", name="_LOG", buries=True, messages_max=5)
    assert not destination.record.buries


def test_a_subscription_that_nobody_reads_keeps_the_latest() -> None:
    node = Node()
    client = node.connect_with_session()
    client.send(frames.ConsumerOpen(1, "_LOG", TOPIC, subscription="audit", durable=True))
    ask(node, "destination.alter", name="_LOG", messages_max=10)
    for number in range(1, 31):
        publish(node, number, b"e%d" % number)
    assert codes(node)[-1] == (30, ""), "nobody is blocked"
    client.send(frames.Credit(1, 100))
    assert client.bodies[-1] == b"e30" and len(client.bodies) <= 11


@pytest.mark.parametrize("kind", [DestinationKind.ANY, TOPIC])
def test_clients_cannot_publish_to_it_nor_create_it(kind: DestinationKind) -> None:
    node = Node()
    subscriber(node)
    client = node.connect_with_session()
    client.send(frames.ProducerOpen(1, "_LOG", kind))
    assert client.last(frames.ProducerClosed).code == "reserved-name"
    assert ask(node, "destination.create", name="_OTHER") == "reserved-name"
    client.send(frames.ConsumerOpen(2, "_LOG", DestinationKind.QUEUE))
    assert client.last(frames.ConsumerClosed).code in ("wrong-kind", "reserved-name")


@pytest.mark.parametrize("written", [False, True])
def test_it_is_stored_once_when_the_message_manager_dies_meanwhile(written: bool) -> None:
    node = Node()
    client = subscriber(node)
    publish(node, 1, b"e1")
    node.auto = False
    publish(node, 2, b"e2")
    while node.step_bus():
        pass
    if written:
        node.world.disk.complete_next()  # and nobody hears of it
    fail_over(node, told=False)
    node.auto = True
    node.tell(cm.GroupLost(0))
    assert codes(node) == [(1, ""), (2, "")]
    again = node.connect_with_session()
    again.send(frames.ConsumerOpen(1, "_LOG", TOPIC, credit=100))
    publish(node, 3, b"e3")
    assert again.bodies == [b"e3"]
    assert codes(node)[-1] == (3, "")
    assert client.bodies[:1] == [b"e1"]
    log = node.world.manager.find("_LOG")
    assert log is not None and log.log.lanes[0].next == 3, "each has one position"


def test_while_it_is_blocked_nothing_is_sent_and_then_everything() -> None:
    node = Node()
    client = subscriber(node)
    publish(node, 1, b"e1")
    node.world.block()
    publish(node, 2, b"e2")
    assert codes(node) == [(1, "")]
    node.world.unblock()
    node.run()
    assert codes(node) == [(1, ""), (2, "")]
    assert client.bodies == [b"e1", b"e2"]


def test_a_topic_that_is_removed_is_told_and_may_come_back() -> None:
    node = Node()
    subscriber(node)
    publish(node, 1, b"e1")
    assert not ask(node, "destination.remove", name="_LOG")
    publish(node, 2, b"lost")
    client = node.connect_with_session()
    client.send(frames.ConsumerOpen(1, "_LOG", TOPIC, credit=100))
    publish(node, 3, b"e3")
    assert codes(node) == [(1, ""), (2, "unknown-destination"), (3, "")]
    assert client.bodies == [b"e3"]


def test_what_waits_has_a_limit() -> None:
    node = Node(auto=False)
    for number in range(BATCHES_MAX + 1):
        publish(node, number, b"x")
    assert codes(node) == [(BATCHES_MAX, "busy")]


# -- requests of the node ----------------------------------------------------------------------------------


def test_the_node_may_ask_the_message_manager() -> None:
    node = Node()
    assert not ask(node, "destination.create", name="orders")
    node.tell(cm.AskManager(frames.Request(-7, "destination.describe", {"name": "orders"})))
    (told,) = node.own
    assert isinstance(told, cm.ManagerReplied)
    assert told.frame.number == -7 and told.frame.result["name"] == "orders"


def test_a_question_is_lost_with_the_message_manager() -> None:
    node = Node(auto=False)
    node.tell(cm.AskManager(frames.Request(-1, "destination.list", {})))
    fail_over(node)
    (told,) = node.own
    assert isinstance(told, cm.ManagerReplied) and told.frame.code == "request-lost"


def test_questions_that_are_not_answered_have_a_limit() -> None:
    node = Node(auto=False)
    for number in range(REQUESTS_MAX + 1):
        node.tell(cm.AskManager(frames.Request(number, "destination.list", {})))
    (told,) = node.own
    assert isinstance(told, cm.ManagerReplied)
    assert (told.frame.number, told.frame.code) == (REQUESTS_MAX, "busy")


# -- commands as messages ----------------------------------------------------------------------------------


def send_command(client: Client, identity: bytes, sequence: int, body: bytes, **headers: object) -> None:
    packed = msgspec.msgpack.encode(headers)
    batch = pack(identity, sequence, 0, [body], MessageColumns(headers=[packed] if headers else None))
    client.send_with(frames.Publish(1), batch)


def test_a_command_is_confirmed_asked_and_answered_where_it_says() -> None:
    node = Node()
    client = node.connect_with_session()
    identity = client.open_producer("_ADMIN")
    client.open_consumer("answers")
    body = b'{"command": "node.status", "arguments": {"a": 1}, "node": "n2"}'
    send_command(client, identity, 1, body, reply_to="answers", correlation_id="c1")
    assert client.last(frames.Confirm).sequence == 1
    (asked,) = node.asked
    assert asked.command == "admin.run"
    assert asked.arguments == {"command": "node.status", "arguments": {"a": 1}, "node": "n2"}
    (answer,) = client.bodies
    assert msgspec.json.decode(answer) == {"code": "", "reason": "", "result": "about the node"}
    payload = next(item.payload for item in client.frames if isinstance(item.frame, frames.Deliver))
    assert msgspec.msgpack.decode(Batch.parse(payload).headers_of(0))["correlation_id"] == "c1"
    send_command(client, identity, 2, b'{"command": "node.status"}', reply_to="answers")
    assert len(client.bodies) == 2, "it opens again for the next"


def test_what_is_no_command_is_answered_as_well() -> None:
    node = Node()
    client = node.connect_with_session()
    identity = client.open_producer("_ADMIN")
    for sequence, body in enumerate((b"", b"[1]", b'{"comand": "x"}', b'{"command": 5}', b"\xff"), start=1):
        send_command(client, identity, sequence, body, reply_to="q")
    assert len(node.asked) == 5 and all("unread" in asked.arguments for asked in node.asked)
    assert not client.failure


def test_what_is_no_command_and_cannot_be_answered_is_refused() -> None:
    node = Node()
    client = node.connect_with_session()
    identity = client.open_producer("_ADMIN")
    bodies = [b'{"command": "node.status"}', b"x", b'{"command": "node.status"}']
    client.send_with(frames.Publish(1), pack(identity, 1, 0, bodies))
    refusal = client.last(frames.Refuse)
    assert (refusal.first, refusal.last, refusal.code) == (2, 2, "bad-argument")
    assert "a command is JSON" in refusal.reason and "angarium admin" in refusal.reason
    assert len(node.asked) == 2 and client.last(frames.Confirm).sequence == 3


@pytest.mark.parametrize("reply_to", ["_LOG", "_DMQ", "_ADMIN", "", 5, None, "-bad"])
def test_no_answer_goes_where_its_sender_could_not_publish(reply_to: object) -> None:
    node = Node()
    listener = subscriber(node)
    client = node.connect_with_session()
    identity = client.open_producer("_ADMIN")
    send_command(client, identity, 1, b'{"command": "node.status"}', reply_to=reply_to, reply_to_kind=[1])
    assert len(node.asked) == 1 and not client.failure
    assert listener.bodies == []


def test_it_is_no_destination_of_any_other_kind() -> None:
    node = Node()
    client = node.connect_with_session()
    client.open_consumer("_ADMIN")
    assert client.last(frames.ConsumerClosed).code == "reserved-name"
    assert ask(node, "destination.create", name="_ADMIN") == "reserved-name"
    client.send(frames.SessionOpen(b"", True), session=2)
    client.send(frames.ProducerOpen(1, "_ADMIN", DestinationKind.ANY), session=2)
    assert client.last(frames.ProducerClosed, session=2).code == "reserved-name"
    client.open_producer("_ADMIN")
    client.send(frames.ProducerClose(1))
    client.open_producer("_ADMIN")
    node.tell(cm.GroupLost(1))
    client.lose()
    assert not client.failure


def test_commands_that_are_being_done_have_a_limit() -> None:
    node = Node()
    client = node.connect_with_session()
    identity = client.open_producer("_ADMIN")
    bodies = [b'{"command": "node.status"}'] * (COMMANDS_MAX + 1)
    client.send_with(frames.Publish(1), pack(identity, 1, 0, bodies))
    refusal = client.last(frames.Refuse)
    assert (refusal.first, refusal.last, refusal.code) == (1, COMMANDS_MAX + 1, "too-many-requests")
    assert node.asked == []
