"""Goal: what a dead client held goes to others, flagged; what a dead producer saw confirmed is there, once.
Method: clients in processes of their own, killed with -9; the broker's grace time is short so that the test is."""
import asyncio
import random
import time
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import WAIT_S, running
from tests.process.process_client import client_process, kill, read_line
from tests.process.process_drain import drain
from tests.process.process_ledger import Inbox, assert_same, body_of, sender_of

_GRACE_S = 0.3


async def until_free(address: str, queue: str) -> None:
    """The grace time of whoever held something is over."""
    async with angarium.connect(address) as connection:
        deadline = time.monotonic() + WAIT_S
        while (await connection.request("destination.describe", {"name": queue})).result["in_flight"]:
            assert time.monotonic() < deadline, "somebody still holds messages"
            await asyncio.sleep(0.02)


def test_what_a_killed_consumer_held_goes_to_another(tmp_path: Path) -> None:
    bodies = [body_of("p", number) for number in range(1_000)]

    async def send() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            assert await session.send_many("jobs", bodies) == len(bodies)

    with running(tmp_path, {"destination.resume_grace_s": _GRACE_S}) as broker:
        asyncio.run(send())
        for died_before in range(2):
            with client_process("hold", broker.address, "jobs", 300, 50 if died_before == 0 else 0) as holder:
                said = read_line(holder)
                # Settling 50 made room for 50 more: the second holder gets exactly what the first one held.
                expected = "settled 50 redeliveries 0" if died_before == 0 else "settled 0 redeliveries 1"
                assert said == f"holding 300 {expected}"
                kill(holder)
            asyncio.run(until_free(broker.address, "jobs"))
        inbox = asyncio.run(drain(broker.address, "jobs"))

    assert_same(inbox.bodies, bodies[50:])
    counts = {sender_of(body)[1]: count for body, count in inbox.redeliveries.items()}
    assert {number for number, count in counts.items() if count == 2} == set(range(50, 350))
    assert {number for number, count in counts.items() if count == 0} == set(range(350, 1_000))


def test_a_waiting_consumer_gets_what_a_killed_one_held(tmp_path: Path) -> None:
    async def run() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("jobs", [body_of("p", number) for number in range(100)])
            with client_process("hold", broker.address, "jobs", 100, 0) as holder:
                await asyncio.to_thread(read_line, holder)
                consumer = session.consume("jobs")
                assert await consumer.receive(timeout_s=2 * _GRACE_S) is None, "the holder is alive: nothing is free"
                await asyncio.to_thread(kill, holder)
            inbox = Inbox("waiting")
            while len(inbox.bodies) < 100:
                message = await consumer.receive(timeout_s=WAIT_S)
                assert message is not None and message.redelivery_count == 1
                inbox.take(message)
                message.settle()
            assert inbox.disorders == []
            await session.sync()

    with running(tmp_path, {"destination.resume_grace_s": _GRACE_S}) as broker:
        asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_what_a_killed_producer_saw_confirmed_is_there_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with running(tmp_path, {"destination.resume_grace_s": _GRACE_S}) as broker:
        confirmed = {}
        with (
            client_process("produce", broker.address, "jobs", "left") as left,
            client_process("produce", broker.address, "jobs", "right") as right,
        ):
            for name, producer in (("left", left), ("right", right)):
                lines = [read_line(producer) for _ in range(chance.randrange(1, 30))]
                lines += kill(producer)
                confirmed[name] = max(int(line.split()[1]) for line in lines)
        if chance.random() < 0.5:
            broker.kill()
            broker.start()
        inbox = asyncio.run(drain(broker.address, "jobs"))
        assert broker.stop() == 0
    for name, count in confirmed.items():
        mine = [body for body in inbox.bodies if sender_of(body)[0] == name]
        assert len(mine) >= count
        # Beyond what it saw confirmed there may be more, in order and without a gap.
        assert mine == [body_of(name, number) for number in range(len(mine))]
