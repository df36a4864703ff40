"""Goal: a whole node keeps its limits by its policy, on a real broker: the oldest of whoever holds most go to `_DMQ`,
also when it is killed meanwhile; and a full `_DMQ` does what it is told to.
Method: small limits, real clients, kill -9; what is where afterwards is counted, message by message."""
import asyncio
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import POLL_S, WAIT_S, Broker, running, until_async
from tests.process.process_bulk import mounted

MESSAGES_MAX = 200
OLDEST = {"destination.node_messages_max": MESSAGES_MAX, "destination.node_over_limit": "oldest"}


async def taken(connection: angarium.Connection, name: str) -> list[angarium.Message]:
    found: list[angarium.Message] = []
    async with connection.session() as session, session.consume(name) as consumer:
        while (message := await consumer.receive(0.5)) is not None:
            found.append(message)
            await message.settle()
    return found


async def described(connection: angarium.Connection, name: str) -> dict[str, int]:
    result: dict[str, int] = (await connection.request("destination.describe", {"name": name})).result
    return result


def test_the_oldest_of_whoever_holds_most_go_and_a_kill_loses_none(tmp_path: Path) -> None:
    async def fill(broker: Broker) -> list[bytes]:
        confirmed: list[bytes] = []
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("small", [b"s%d" % number for number in range(5)])
            for first in range(0, 300, 10):
                bodies = [b"%d" % number for number in range(first, first + 10)]
                await session.send_many("large", bodies)
                confirmed += bodies
            broker.kill()
        return confirmed

    async def look(broker: Broker) -> tuple[list[bytes], list[bytes], list[bytes]]:
        async with angarium.connect(broker.address) as connection:
            held = 0
            for _ in range(int(WAIT_S / POLL_S)):
                held = (await described(connection, "large"))["messages"]
                if held == MESSAGES_MAX - 5:
                    break
                await asyncio.sleep(POLL_S)
            assert held == MESSAGES_MAX - 5
            status = (await connection.request("node.status", {})).result
            assert status["blocked"] == "" and status["node_limits"]["messages"] == MESSAGES_MAX
            dead = await taken(connection, "_DMQ")
            letters = [message.dead_letter for message in dead]
            assert {(letter.destination, letter.reason) for letter in letters if letter} == {("large", "node-limit")}
            large, small = await taken(connection, "large"), await taken(connection, "small")
            return [m.body for m in dead], [m.body for m in large], [m.body for m in small]

    with running(tmp_path, OLDEST) as broker:
        confirmed = asyncio.run(asyncio.wait_for(fill(broker), WAIT_S))
        broker.start()
        dead, large, small = asyncio.run(asyncio.wait_for(look(broker), WAIT_S))
        assert dead + large == confirmed, "each once, in order"
        assert len(large) == MESSAGES_MAX - 5 and len(small) == 5, "a small queue loses nothing to a large one"
        assert "node-makes-room" in broker.log()


def test_a_full_dead_message_queue_blocks_the_node_until_it_may_drop_its_oldest(tmp_path: Path) -> None:
    async def run(broker: Broker) -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:

            async def send(first: int, last: int) -> None:
                for number in range(first, last):
                    await session.send("q", b"%d" % number)

            await send(0, 20)
            sending = asyncio.create_task(send(20, 60))

            await until_async(lambda: session.is_blocked("q"), "the node is full")
            told = (await connection.request("destination.explain", {"name": "q"})).result
            assert "_DMQ holds 10 messages" in told["sentence"] and "node-full" in told["sentence"]
            status = (await connection.request("node.status", {})).result
            assert "angarium dmq" in status["blocked"]
            await connection.request("destination.alter", {"name": "_DMQ", "over_limit": "oldest"})
            await sending
            assert [message.body for message in await taken(connection, "q")] == [b"%d" % n for n in range(50, 60)]
            assert [message.body for message in await taken(connection, "_DMQ")] == [b"%d" % n for n in range(40, 50)]
            status = (await connection.request("node.status", {})).result
            assert status["node_limits"]["dropped"] == 40 and status["node_limits"]["moved"] == 50

    with running(tmp_path, {**OLDEST, "destination.node_messages_max": 10}) as broker:
        asyncio.run(asyncio.wait_for(run(broker), WAIT_S))


@pytest.mark.parametrize("policy", ["block", "refuse"])
def test_what_a_disk_must_have_room_for_is_kept_free_and_consuming_makes_room(tmp_path: Path, policy: str) -> None:
    """Though the file of the store never shrinks: what is free in it counts."""

    async def run(broker: Broker) -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:

            async def send(count: int) -> int:
                sent = 0
                for _ in range(count):
                    try:
                        await session.send_many("q", [bytes(4_000)] * 25)
                    except angarium.Rejected as error:
                        assert error.code == "node-full" and "node_disk_free_bytes_min" in str(error)
                        return sent
                    sent += 25
                    await asyncio.sleep(0.04)  # 2.5 MB/s: it is measured once a second
                return sent

            sending = asyncio.create_task(send(400))
            if policy == "block":
                await until_async(lambda: session.is_blocked("q"), "the disk is nearly full")
            else:
                assert await sending > 0
            status = (await connection.request("node.status", {})).result
            assert "node_disk_free_bytes_min is 25,000,000" in status["blocked"]
            assert "disk-blocked" not in broker.log(), "there is room left"
            first = await taken(connection, "q")
            if policy == "block":
                drained = len(first)
                while not sending.done():
                    drained += len(await taken(connection, "q"))
                assert drained + len(await taken(connection, "q")) == await sending == 10_000
            else:
                await until_async(lambda: "node-not-full" in broker.log(), "there is room again")
                assert await send(10) == 250

    with mounted(tmp_path / "disk", 48) as disk:
        settings = {"destination.node_disk_free_bytes_min": 25_000_000, "destination.node_over_limit": policy}
        with running(tmp_path, settings, data=disk / "data") as broker:
            asyncio.run(asyncio.wait_for(run(broker), 2 * WAIT_S))
