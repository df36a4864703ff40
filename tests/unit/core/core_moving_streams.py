"""Very large messages in a pair of message managers between which their destination is moved."""
import zlib
from typing import Any

import msgspec

from angarium.core.stream.blocks import FRAGMENT_BYTES
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.layout import Columns
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_clients import Producer
from tests.unit.core.core_manager import World, identity
from tests.unit.core.core_moving import Pair

CONTENT = [bytes([number]) * FRAGMENT_BYTES for number in range(20)] + [b"the end"]
STREAM, OTHER = identity(900), identity(901)


class Sender:
    """Sends a stream, fragment by fragment; `begin` opens or resumes it."""

    def __init__(self, world: World, destination: int, stream: bytes = STREAM, content: list[bytes] | None = None):
        self.world, self.destination, self.stream = world, destination, stream
        self.content = CONTENT if content is None else content
        self.session = world.session()
        self.begin(resumed=False)

    def begin(self, *, resumed: bool) -> None:
        opening = frames.StreamOpen(1, "q", DestinationKind.ANY, self.stream, resumed)
        self.world.frame(self.session, self.destination, opening)

    @property
    def opened(self) -> frames.StreamOpened:
        return self.world.last(self.session, frames.StreamOpened)

    def send(self, low: int, high: int) -> None:
        for number in range(low, high):
            crc, is_last = zlib.crc32(self.content[number]), number == len(self.content) - 1
            frame = frames.StreamFragment(1, number, crc, is_last)
            self.world.frame(self.session, self.destination, frame, self.content[number])

    def publish(self, producer: Producer, *, due_ms: int | None = None) -> None:
        header = {"stream": {"identity": self.stream, "bytes": sum(map(len, self.content))}}
        columns = MessageColumns(
            headers=[msgspec.msgpack.encode(header)], announcements=int(Columns.STREAM),
            dues_ms=None if due_ms is None else [due_ms],
        )  # fmt: skip
        producer.publish(b"large", columns=columns)


def holding(content: list[bytes] | None = None, *, due_ms: int | None = None) -> tuple[Pair, int]:
    """A queue with a small message, a very large one, and another small one."""
    pair = Pair()
    queue = pair.source.locate("q")
    sender = Sender(pair.source, queue, content=content)
    sender.send(0, len(sender.content))
    producer = pair.source.producer(queue)
    producer.publish(b"before")
    sender.publish(producer, due_ms=due_ms)
    producer.publish(b"after")
    return pair, queue


def read(world: World, position: int, *, limit: int = 1_000) -> list[bytes]:
    session = world.session()
    world.frame(session, 0, frames.StreamRead(1, -1, position, 0, limit, "q"))
    return [payload for frame, payload in world.sent[session] if isinstance(frame, frames.StreamData)]


def content_of(world: World, stream: bytes = STREAM) -> list[bytes]:
    assert world.files is not None
    return [block.payload for block in world.files.blocks.get(stream, [])]


def files_of(world: World) -> dict[bytes, Any]:
    assert world.files is not None
    return world.files.blocks
