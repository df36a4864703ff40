"""Goal: a flipped bit in the store is noticed, reported and set aside, and everything else is still there.
Method: a broker is stopped or killed, a bit is flipped in the journal or in LMDB's file, and it is started again."""
import asyncio
import json
from pathlib import Path

import pytest

import angarium
from angarium.core.destination.log import LogField
from angarium.core.storage import Table, key_of
from angarium.store.durable import DurableStore
from angarium.store.interface import Item
from tests.process.process_broker import MIB, WAIT_S, Broker, running, until_async
from tests.process.process_damage import flip_in_journal, flip_in_tables, flip_record, ruin_leaves, table_records
from tests.process.process_drain import drain
from tests.process.process_ledger import Inbox, body_of

_QUEUE = angarium.Queue("precious")
_SMALL = {"store.segment_bytes": MIB, "destination.resume_grace_s": 0.2}


def end(broker: Broker, how: str) -> None:
    if how == "killed":
        broker.kill()
    else:
        assert broker.stop() == 0


async def send_one_by_one(address: str, destination: angarium.Destination, bodies: list[bytes]) -> None:
    """Each in a batch, and in a record, of its own."""
    async with angarium.connect(address) as connection, connection.session() as session:
        for body in bodies:
            await session.send(destination, body)


async def push_to_tables(address: str) -> None:
    """Write as much elsewhere as it takes for everything before it to leave the journal."""
    async with angarium.connect(address) as connection, connection.session() as session:

        async def checkpoints() -> int:
            return int((await connection.request("node.status", {})).result["store"]["checkpoints"])

        before = await checkpoints()
        while await checkpoints() < before + 2:
            await session.send_many("filler", [bytes(1_000)] * 500)


async def describe(address: str, name: str) -> dict[str, object]:
    async with angarium.connect(address) as connection:
        result: dict[str, object] = (await connection.request("destination.describe", {"name": name})).result
        return result


async def receive_while_there_is_a_broker(address: str) -> None:
    policy = angarium.ReconnectPolicy(give_up_after_s=0.2)
    connecting = angarium.connect(address, reconnect=policy, close_timeout_s=0.2)
    async with connecting as connection, connection.session() as session:
        assert await session.receive(_QUEUE, timeout_s=WAIT_S) is None


def assert_reported(broker: Broker, count: int) -> None:
    assert asyncio.run(describe(broker.address, _QUEUE.name))["damaged"] == count
    broker.until_logged("batch-damaged", repr(_QUEUE.name))


def set_aside(broker: Broker) -> list[bytes]:
    """The damaged records that the store keeps; the broker must not be running."""
    store = DurableStore.open(broker.data)
    try:
        items = store.scan(Table.DAMAGED, b"", b"\xff" * 9, limit=100)
        return [item.value for item in items if isinstance(item, Item)]
    finally:
        store.close()


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("where", ["journal", "tables"])
def test_a_damaged_message_is_set_aside_and_all_others_are_delivered(tmp_path: Path, how: str, where: str) -> None:
    bodies = [body_of("p", number, 6_000) for number in range(60)]
    victim = bodies[23]
    with running(tmp_path, _SMALL) as broker:
        asyncio.run(send_one_by_one(broker.address, _QUEUE, bodies))
        if where == "tables":
            asyncio.run(push_to_tables(broker.address))
        end(broker, how)
        flip = flip_in_tables if where == "tables" else flip_in_journal
        assert flip(broker.data, victim[:200], 150) >= 1

        broker.start()
        inbox = asyncio.run(drain(broker.address, _QUEUE))
        assert inbox.bodies == [body for body in bodies if body is not victim]
        assert_reported(broker, 1)
        # Healthy: it takes and gives as before.
        asyncio.run(send_one_by_one(broker.address, _QUEUE, [body_of("later", 0)]))
        assert asyncio.run(drain(broker.address, _QUEUE)).bodies == [body_of("later", 0)]

        # What was found is not found again, and not forgotten either.
        end(broker, how)
        broker.start()
        assert_reported(broker, 1)
        assert broker.stop() == 0
        kept = set_aside(broker)
        assert len(kept) == 1 and victim[200:400] in kept[0]


def test_a_damaged_batch_of_many_costs_exactly_that_batch(tmp_path: Path) -> None:
    bodies = [body_of("p", number, 500) for number in range(6_000)]

    async def send() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many(_QUEUE, bodies)

    with running(tmp_path, _SMALL) as broker:
        asyncio.run(send())
        asyncio.run(push_to_tables(broker.address))
        broker.kill()
        assert flip_in_tables(broker.data, bodies[3_000], 400) >= 1
        broker.start()
        inbox = asyncio.run(drain(broker.address, _QUEUE))
        assert inbox.disorders == []
        missing = sorted(set(bodies) - set(inbox.bodies))
        assert bodies[3_000] in missing
        first = bodies.index(missing[0])
        assert missing == bodies[first : first + len(missing)], "one stretch"
        assert len(inbox.bodies) + len(missing) == len(bodies)
        assert_reported(broker, len(missing))
        assert f"{len(missing):,} damaged" in broker.run("ls").stdout, "people see it, too"
        assert broker.stop() == 0


def prepared(broker: Broker, bodies: list[bytes]) -> int:
    """Messages in a queue whose records are all in LMDB, not in the journal; the destination's number."""
    asyncio.run(send_one_by_one(broker.address, _QUEUE, bodies))
    asyncio.run(push_to_tables(broker.address))
    broker.kill()
    records = table_records(broker.data, Table.DESTINATION)
    (key,) = [key for key, value in records.items() if _QUEUE.name.encode() in value]
    return int.from_bytes(key, "big")


def test_a_damaged_record_of_where_the_log_ends_does_not_overwrite_messages(tmp_path: Path) -> None:
    bodies = [body_of("p", number, 300) for number in range(20)]
    with running(tmp_path, _SMALL) as broker:
        number = prepared(broker, bodies)
        flip_record(broker.data, Table.LOG, key_of(number, bytes([LogField.NEXT, 0])))
        broker.start()
        broker.until_logged("record-damaged")
        later = [body_of("later", number) for number in range(20)]
        asyncio.run(send_one_by_one(broker.address, _QUEUE, later))
        assert asyncio.run(drain(broker.address, _QUEUE)).bodies == bodies + later
        assert broker.stop() == 0


def test_a_damaged_record_of_the_destination_does_not_cost_its_messages(tmp_path: Path) -> None:
    """Its name may be lost with it; then it gets one that an administrator finds."""
    bodies = [body_of("p", number, 300) for number in range(20)]
    with running(tmp_path, _SMALL) as broker:
        number = prepared(broker, bodies)
        flip_record(broker.data, Table.DESTINATION, key_of(number))
        broker.start()
        broker.until_logged("record-damaged")
        found = json.loads(broker.run("ls", "--json").stdout)
        (name,) = [destination["name"] for destination in found if destination["messages"] == len(bodies)]
        assert asyncio.run(drain(broker.address, angarium.Queue(name))).bodies == bodies
        assert broker.stop() == 0


def test_a_damaged_record_of_a_subscription_does_not_cost_its_messages(tmp_path: Path) -> None:
    """How far it had come is lost with it: it starts again with what is stored."""
    topic = angarium.Topic(_QUEUE.name)
    bodies = [body_of("p", number, 300) for number in range(20)]

    async def subscribe() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.consume(topic, durable="reader").opened()

    with running(tmp_path, _SMALL) as broker:
        asyncio.run(subscribe())
        asyncio.run(send_one_by_one(broker.address, topic, bodies))
        asyncio.run(push_to_tables(broker.address))
        broker.kill()
        (key,) = [key for key in table_records(broker.data, Table.SUBSCRIPTION) if key.endswith(b"reader")]
        flip_record(broker.data, Table.SUBSCRIPTION, key)
        broker.start()
        broker.until_logged("record-damaged")
        assert asyncio.run(drain(broker.address, topic, durable="reader")).bodies == bodies
        assert broker.stop() == 0


def test_damage_in_front_of_a_waiting_consumer_is_passed(tmp_path: Path) -> None:
    """The first message of all, the last of all, and a consumer that is there before what follows them."""
    bodies = [body_of("p", number, 6_000) for number in range(10)]

    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            consumer = session.consume(_QUEUE)
            inbox = Inbox("waiting")

            async def read() -> None:
                async for message in consumer:
                    inbox.take(message)
                    await message.settle()

            reading = asyncio.create_task(read())
            await until_async(lambda: len(inbox.bodies) == 8, lambda: f"eight messages, have {len(inbox.bodies)}")
            await session.send(_QUEUE, body_of("later", 0))
            await until_async(lambda: len(inbox.bodies) == 9, "what was sent after it")
            reading.cancel()
            assert inbox.bodies == [*bodies[1:-1], body_of("later", 0)]
            described = (await connection.request("destination.describe", {"name": _QUEUE.name})).result
            assert described["damaged"] == 2

    with running(tmp_path, _SMALL) as broker:
        asyncio.run(send_one_by_one(broker.address, _QUEUE, bodies))
        asyncio.run(push_to_tables(broker.address))
        broker.kill()
        for victim in (bodies[0], bodies[-1]):
            assert flip_in_tables(broker.data, victim[:200], 150) >= 1
        broker.start()
        asyncio.run(run())
        assert broker.stop() == 0


def test_a_ruined_table_ends_the_node_with_one_sentence(tmp_path: Path) -> None:
    with running(tmp_path, _SMALL) as broker:
        asyncio.run(send_one_by_one(broker.address, _QUEUE, [b"precious %02d " % number * 80 for number in range(60)]))
        asyncio.run(push_to_tables(broker.address))
        assert broker.stop() == 0
        assert ruin_leaves(broker.data, b"precious ") >= 15

        broker.start()
        with pytest.raises(angarium.Unavailable):
            asyncio.run(receive_while_there_is_a_broker(broker.address))
        assert broker.process.wait(WAIT_S) == 70
        broker.until_logged("node-failed: StorageCorrupt", "data.mdb", "keep a copy of its directory")
        assert "Traceback" not in broker.log()
