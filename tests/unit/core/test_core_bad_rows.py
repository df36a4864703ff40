"""Goal: of clients `_DMQ` takes the rows that a batch could not send, as such, and nothing else.
Method: what is staged there, opened by a client and sent to a message manager."""
import msgspec
import pytest

from angarium.core.destination.bad_rows import RowLetter, encoded
from angarium.core.storage import Table
from angarium.core.wire import frames
from angarium.core.wire.frames import DestinationKind
from angarium.core.wire.packing import MessageColumns
from tests.unit.core.core_manager import World
from tests.unit.core.core_node import Node

LETTER = RowLetter(destination="q", died_ms=1, detail="the body is NULL")


def _letter(**changed: object) -> bytes:
    return msgspec.msgpack.encode({"dead_letter": msgspec.structs.asdict(LETTER) | changed})


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (frames.ProducerOpen(1, "_DMQ", DestinationKind.ANY), "reserved-name"),
        (frames.ProducerOpen(1, "_LOG", DestinationKind.ANY, query="job"), "reserved-name"),
        (frames.ProducerOpen(1, "_DMQ", DestinationKind.ANY, query="job"), ""),
    ],
)
def test_only_what_is_staged_may_be_sent_to_the_dead_message_queue(frame: frames.ProducerOpen, code: str) -> None:
    client = Node().connect_with_session()
    client.send(frame)
    if code:
        assert client.last(frames.ProducerClosed).code == code
    else:
        assert client.last(frames.ProducerOpened).producer == 1


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (MessageColumns(headers=[encoded(LETTER)]), ""),
        (MessageColumns(), "nothing beside it"),
        (MessageColumns(headers=[encoded(LETTER)], priorities=[9]), "nothing beside it"),
        (MessageColumns(headers=[b"\x80"]), "dead_letter"),
        (MessageColumns(headers=[msgspec.msgpack.encode({"dead_letter": {"reason": "expired"}})]), "reason"),
        (MessageColumns(headers=[_letter(reason="expired")]), "reason"),
        (MessageColumns(headers=[_letter(position=7)]), "position"),
        (MessageColumns(headers=[_letter(destination="x" * 2_000)]), "destination"),
        (MessageColumns(headers=[_letter(more=1)]), "more"),
    ],
)
def test_of_clients_the_dead_message_queue_takes_bad_rows_only(columns: MessageColumns, told: str) -> None:
    world = World()
    producer = world.producer(world.locate("_DMQ"), stage=("job", 0))
    producer.publish(b"row", columns=columns)
    refused = world.received(producer.session, frames.Refuse)
    assert [frame.code for frame in refused] == (["stage-refused"] if told else [])
    assert all(told in frame.reason for frame in refused)
    assert (not world.disk.tables[Table.STAGED]) == bool(told)
