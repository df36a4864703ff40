"""Goal: whatever bytes a client sends, the node answers with frames or ends that connection with a documented code; no
other client notices, and the invariants hold after every event.
Method: streams of frames with plausible and wild fields, some with flipped bits, fed to a whole node of fakes while a
well-behaved client works beside them. One seed draws everything. Replay one: pytest -k 'wild_frames[17]'."""
import typing
from random import Random
from typing import Any

import msgspec
import pytest

from angarium.core.errors import RemoteProtocolError
from angarium.core.session.events import ConnectionStalled
from angarium.core.wire import frames
from angarium.core.wire.codec import FrameParser, encode
from angarium.core.wire.frames import DestinationKind, Frame, Outcome
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns, pack
from tests.unit.core.core_frames import CLIENT_KINDS, EVERY_KIND, FAILURE_CODES
from tests.unit.core.core_node import HELLO, Client, Node

WILD_NUMBERS = [-(1 << 63), -2, -1, 0, 1, 2, 3, 5, 1_000, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, (1 << 63) - 1,
                1 << 63, (1 << 64) - 1]  # fmt: skip
PLAIN_NUMBERS = [0, 1, 1, 1, 2, 2, 3, 4]
NAMES = ["q", "q", "q", "t", "t", "", "a b", "_LOG", "x" * 300, "ä"]
COMMANDS = ["destination.list", "destination.describe", "destination.create", "destination.remove",
            "destination.purge", "destination.browse", "subscription.remove", "node.status", "", "x"]  # fmt: skip
IDENTITIES = [b"", b"", b"p" * 16, b"r" * 16, b"short"]


class Hostile:
    """Draws frames; knows enough of the protocol to get far."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.wildness = random.choice([0.02, 0.2, 0.6])
        self.sequences: dict[bytes, int] = {}

    def frame(self) -> tuple[int, Frame, bytes]:
        random = self.random
        kind = random.choice(CLIENT_KINDS[4:] if random.random() > self.wildness else EVERY_KIND)
        hints = typing.get_type_hints(kind)
        fields = [self.value(f.name, hints[f.name]) for f in msgspec.structs.fields(kind)]
        payload = self.batch() if kind is frames.Publish else b"x" * random.choice([0, 0, 5])
        session = random.choice([1, 1, 1, 1, 2, 0]) if random.random() > self.wildness else random.choice([0, 3, 99])
        return session, kind(*fields), payload

    def value(self, name: str, hint: Any) -> Any:
        random = self.random
        if isinstance(hint, type) and issubclass(hint, DestinationKind | Outcome | frames.Start):
            return random.choice(list(hint))
        if hint is bytes:
            return random.choice(IDENTITIES)
        if hint is str:
            return random.choice({"command": COMMANDS, "subscription": ["", "s", *NAMES]}.get(name, NAMES))
        if hint is bool:
            return random.random() < 0.5
        if hint is int:
            return self.number()
        if hint == list[tuple[int, int]]:
            return [(self.number(), self.number()) for _ in range(random.randint(0, 3))]
        if hint == dict[str, Any]:
            return self.arguments()
        return {float: 1.0, list[str]: ["a"], list[int]: [1]}.get(hint)

    def number(self) -> int:
        return self.random.choice(WILD_NUMBERS if self.random.random() < self.wildness else PLAIN_NUMBERS)

    def arguments(self) -> dict[str, Any]:
        values: list[Any] = [*NAMES, None, 1.5, True, [], {}, b"q", "topic", "memory"]
        arguments = {key: self.random.choice(values) for key in ("kind", "confirm", "subscription")}
        arguments |= {key: self.number() for key in ("position", "count", "bytes_max")}
        kept = {key: value for key, value in arguments.items() if self.random.random() < 0.5}
        return {"name": self.random.choice(NAMES), **kept}

    def batch(self) -> bytes:
        random = self.random
        producer = random.choice([b"p" * 16, b"r" * 16])
        first = self.sequences.get(producer, 0) + 1
        count = random.randint(1, 4)
        if random.random() < self.wildness:
            first = random.choice([1, first + 1, max(1, first - 1), (1 << 62), (1 << 64) - 1, (1 << 64) - 2])
        else:
            self.sequences[producer] = first + count - 1
        columns = MessageColumns(expiries_ms=[self.random.choice([0, 1, 1 << 60]) for _ in range(count)])
        data = pack(producer, first, 0, [b"x"] * count, random.choice([MessageColumns(), columns]))
        if random.random() < self.wildness:
            spoiled = bytearray(data)
            spoiled[random.randrange(len(spoiled))] ^= 1 << random.randrange(8)
            data = bytes(spoiled)
        return data


class Victim:
    """A well-behaved client with a queue of its own."""

    def __init__(self, node: Node) -> None:
        self.client = node.connect_with_session()
        self.identity = self.client.open_producer("victim")
        self.client.open_consumer("victim", credit=1_000_000)
        self.published = 0

    def work(self) -> None:
        self.published += 1
        body = b"v%d" % self.published
        self.client.send_with(frames.Publish(1), pack(self.identity, self.published, 0, [body]))
        assert self.client.last(frames.Confirm) == frames.Confirm(1, self.published)
        assert self.client.bodies[-1] == body
        position = self.client.last(frames.Deliver).position
        self.client.send(frames.Settle(1, self.published, Outcome.SETTLE, [(position, position + 1)]))
        assert self.client.last(frames.Settled) == frames.Settled(1, self.published, [])
        assert not self.client.closed


def check_ended_well(node: Node, victim: Victim, hostile: list[Client]) -> None:
    for client in hostile:
        assert client.failure in {"", *FAILURE_CODES}
        if not client.closed:
            client.lose()
    node.run()
    node.advance(10)
    victim.work()
    assert len(victim.client.bodies) == victim.published
    for destination in node.world.manager.destinations.values():
        mine = destination.record.name == "victim"
        assert len(destination.consumers) == len(destination.producers.attached()) == int(mine)
        counters = destination.counters
        if mine:
            assert (counters.settled, counters.rejected) == (victim.published, 0)
        elif destination.record.kind is DestinationKind.QUEUE:
            assert counters.settled + counters.rejected <= counters.messages_in, "each message once"


@pytest.mark.parametrize("seed", range(150))
def test_wild_frames_disturb_nobody_else(seed: int) -> None:
    random = Random(seed)
    node = Node(random=random)
    victim = Victim(node)
    hostile: list[Client] = []
    source = Hostile(random)
    for _ in range(60):
        if not hostile or hostile[-1].closed:
            client = node.connect()
            client.open_session(session=1, identity=random.choice([b"", b"s" * 16]))
            client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, b"p" * 16))
            client.send(frames.ConsumerOpen(1, "q", DestinationKind.ANY, credit=2))
            hostile.append(client)
        client = hostile[-1]
        node.auto = random.random() < 0.7
        session, frame, payload = source.frame()
        client.send_with(frame, payload, session=session)
        if random.random() < 0.05:
            node.tell(ConnectionStalled(client.connection, random.random() < 0.5))
        if random.random() < 0.03:
            node.advance(random.choice([0.5, 3.0]))
        if random.random() < 0.1:
            node.auto = True
            node.run()
            victim.work()
    node.auto = True
    check_ended_well(node, victim, hostile)


@pytest.mark.parametrize("seed", range(60))
def test_flipped_and_torn_streams_disturb_nobody_else(seed: int) -> None:
    random = Random(seed)
    node = Node(random=random)
    victim = Victim(node)
    hostile: list[Client] = []
    for _ in range(12):
        client = node.connect(greet=random.random() < 0.5)
        hostile.append(client)
        source = Hostile(random)
        opening = [(0, HELLO, b""), (1, frames.SessionOpen(), b"")] + [source.frame() for _ in range(10)]
        stream = bytearray(b"".join(encode(*item) for item in opening))
        for _ in range(random.randint(0, 3)):
            at = random.randrange(len(stream))
            match random.choice(["flip", "cut", "drop", "insert"]):
                case "flip":
                    stream[at] ^= 1 << random.randrange(8)
                case "cut":
                    del stream[at + 1 :]
                case "drop":
                    del stream[at]
                case "insert":
                    stream.insert(at, random.randrange(256))
            if not stream:
                break
        while stream:
            piece = random.choice([1, 7, 100, 10_000])
            client.feed(bytes(stream[:piece]))
            del stream[:piece]
        victim.work()
    check_ended_well(node, victim, hostile)


# -- what has once stopped a node, or could have --------------------------------------------------------------------


def hostile_client(node: Node) -> Client:
    client = node.connect_with_session()
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, b"p" * 16))
    client.send(frames.ConsumerOpen(1, "q", DestinationKind.ANY, credit=10))
    return client


def test_a_sequence_at_the_end_of_its_bits() -> None:
    node = Node()
    victim, client = Victim(node), node.connect_with_session()
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, b"p" * 16, (1 << 62) - 1))
    client.send_with(frames.Publish(1), pack(b"p" * 16, 1 << 62, 0, [b"a", b"b"]))
    client.send_with(frames.Publish(1), pack(b"p" * 16, (1 << 64) - 1, 0, [b"a", b"b"]))
    check_ended_well(node, victim, [client])


def test_a_producer_number_used_again_at_once_for_another_destination() -> None:
    """The answer to the first opening arrives while the second is still being located."""
    node = Node()
    victim, client = Victim(node), node.connect_with_session()
    node.auto = False
    client.send(frames.ProducerOpen(1, "q", DestinationKind.ANY, b"p" * 16))
    node.step_bus()
    node.world.complete_write()
    client.send(frames.ProducerClose(1), frames.ProducerOpen(1, "other", DestinationKind.ANY, b"p" * 16))
    number = next(d.identity for d in node.world.manager.destinations.values() if d.record.name == "q")
    node.step_destination(number)
    client.send_with(frames.Publish(1), pack(b"p" * 16, 1, 0, [b"a"]))
    node.auto = True
    check_ended_well(node, victim, [client])


def test_a_counter_that_grows_beyond_what_can_be_told() -> None:
    node = Node()
    victim, client = Victim(node), hostile_client(node)
    client.send_with(frames.Publish(1), pack(b"p" * 16, 1, 0, [b"a"]))
    for number in range(1, 4):
        client.send(frames.Settle(1, number, Outcome.SETTLE, [(-(1 << 63), 1)]))
    victim.client.send(frames.Request(1, "destination.list", {}))
    assert victim.client.last(frames.Reply).code == ""
    check_ended_well(node, victim, [client])


def test_claims_of_everything_there_ever_was() -> None:
    node = Node()
    victim, client = Victim(node), hostile_client(node)
    client.send_with(frames.Publish(1), pack(b"p" * 16, 1, 0, [b"a", b"b"]))
    held = [(0, (1 << 62) - 1)] * 50
    for number, name in enumerate(("q", "t", "victim"), start=2):
        client.send(frames.ConsumerOpen(number, name, DestinationKind.ANY, "", frames.Start.OLDEST, 0, True, held, 5))
        client.send(frames.Settle(number, 1, Outcome.RELEASE, []), frames.Credit(number, 0))
    check_ended_well(node, victim, [client])


TOO_MANY = [(0, 1)] * (frames.RANGES_MAX + 1)


@pytest.mark.parametrize(
    "frame",
    [
        frames.Settle(1, 1, Outcome.SETTLE, TOO_MANY),
        frames.Recover(1, 1, TOO_MANY),
        frames.ConsumerClose(1, False, TOO_MANY),
        frames.ConsumerOpen(2, "q", DestinationKind.ANY, resumed=True, held=TOO_MANY),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_more_ranges_than_messages_that_anybody_holds(frame: Frame) -> None:
    """Each costs some microseconds, and all clients wait meanwhile: a frame has room for millions."""
    parser = FrameParser(frame_bytes_max=8 << 20)
    with pytest.raises(RemoteProtocolError, match="length <= 131072") as caught:
        parser.feed(encode(1, frame))
    assert caught.value.code == "bad-frame"


@pytest.mark.parametrize("settles", [[(1, TOO_MANY[1:])], [(1, [(0, 1)])] * (frames.RANGES_MAX // 2 + 1)])
def test_a_commit_that_settles_more_ranges_than_it_may(settles: list[tuple[int, list[tuple[int, int]]]]) -> None:
    node = Node()
    client = node.connect()
    client.send(frames.SessionOpen(transacted=True))
    client.send(frames.ConsumerOpen(1, "q", DestinationKind.QUEUE, credit=10))
    client.send(frames.Commit(1, [], settles))
    assert client.last(frames.Aborted).code == "transaction-too-long"
    client.send(frames.Commit(2, [], [(1, [(0, 1)])]))  # which goes its way
    assert client.last(frames.Aborted).code == "messages-lost"


def test_a_thousand_open_requests_and_no_reader() -> None:
    node = Node()
    victim, client = Victim(node), hostile_client(node)
    node.auto = False
    client.send(*(frames.Request(number, "destination.browse", {"name": "victim"}) for number in range(1_000)))
    client.lose()
    node.auto = True
    node.run()
    check_ended_well(node, victim, [client])


NOT_UTF_8 = b"\xa2\xff\xfe"


@pytest.mark.parametrize("announced", [Columns(0), Columns.DEDUPLICATION, Columns.KEY, Columns.GROUP, Columns.STREAM])
def test_texts_in_headers_and_properties_that_are_not_utf_8(announced: Columns) -> None:
    """msgspec has an error of its own for everything else that can be wrong with a map."""
    headers = b"\x86" + b"".join(
        encoded_name + NOT_UTF_8
        for encoded_name in map(
            msgspec.msgpack.encode, ("deduplication_id", "last_value_key", "group", "type", "stream", "dead_letter")
        )
    )
    properties = b"\x81" + msgspec.msgpack.encode("colour") + NOT_UTF_8
    columns = MessageColumns(headers=[headers], properties=[properties], announcements=int(announced))
    node = Node()
    client = node.connect_with_session()
    client.send(frames.ProducerOpen(1, "q", DestinationKind.QUEUE, b"p" * 16))
    selector = "colour IS NULL OR JMSType = 'x'"
    client.send(frames.ConsumerOpen(1, "q", DestinationKind.QUEUE, credit=10, selector=selector))
    client.send_with(frames.Publish(1), pack(b"p" * 16, 1, 0, [b"strange"], columns))
    client.send_with(frames.Publish(1), pack(b"p" * 16, 2, 0, [b"plain"]))
    client.send(frames.Request(7, "destination.browse", {"name": "q", "selector": "colour = 'blue'"}))
    assert client.received(frames.Confirm)
    assert client.received(frames.Reply)
    assert client.received(frames.Deliver) and not client.closed
