"""Goal: kill -9 of the broker, at whatever moment, loses nothing confirmed and doubles nothing.
Method: traffic through the public client; the seed draws when the broker dies, by what it has confirmed until then. It
is started again on the same port and data, and the clients go on by themselves. Replay one: pytest -k 'killed[2]'."""
import asyncio
import random
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import MIB, WAIT_S, running
from tests.process.process_drain import drain
from tests.process.process_ledger import body_of
from tests.process.process_traffic import EAGER, PATIENT, Traffic

_KILLS = 3


@pytest.mark.parametrize("seed", range(3))
def test_traffic_survives_a_broker_that_is_killed(tmp_path: Path, seed: int) -> None:
    # Small segments: a checkpoint every second or so, for the kill to hit.
    with running(tmp_path, {**PATIENT, "store.segment_bytes": MIB}) as broker:

        async def faults(traffic: Traffic) -> None:
            for _ in range(_KILLS):
                await traffic.more_confirmed(traffic.chance.randrange(10, 6_000))
                await broker.restart_after_kill()
                traffic.note_fault()
            await traffic.more_confirmed(100)

        async def run() -> None:
            await Traffic(broker.address, seed=seed).run(faults)

        asyncio.run(run())
        assert broker.stop() == 0


def test_kills_while_starting_do_no_harm(tmp_path: Path) -> None:
    bodies = [body_of("p", number) for number in range(2_000)]
    chance = random.Random(5)

    async def send() -> None:
        async with angarium.connect(broker.address) as connection, connection.session() as session:
            await session.send_many("kept", bodies)

    with running(tmp_path, {"store.segment_bytes": MIB}) as broker:
        asyncio.run(send())
        broker.kill()
        for _ in range(4):
            broker.start_unwatched()
            broker.die_after(chance.uniform(0.1, 0.7))
        broker.start()
        inbox = asyncio.run(drain(broker.address, "kept"))
        assert inbox.bodies == bodies
        assert broker.stop() == 0


def test_a_queue_that_confirms_from_memory_may_lose_in_a_crash_but_never_doubles(tmp_path: Path) -> None:
    """The explicit choice of speed. What was confirmed and lost is not sent again; what follows is numbered on."""

    async def run() -> None:
        async with angarium.connect(broker.address, reconnect=EAGER) as connection, connection.session() as session:
            await connection.request("destination.create", {"name": "fast", "kind": "queue", "confirm": "memory"})
            sent: list[bytes] = []
            for _ in range(3):
                handles = []
                for _ in range(5_000):
                    sent.append(body_of("p", len(sent)))
                    handles.append(session.send("fast", sent[-1]))
                await handles[2_000]
                await broker.restart_after_kill()
                await asyncio.wait_for(session.flush(), WAIT_S)
            after = [body_of("p", len(sent) + number) for number in range(5_000)]
            await session.send_many("fast", after)
            inbox = await drain(broker.address, "fast")
            assert inbox.disorders == []
            assert set(inbox.bodies) <= {*sent, *after}
            assert inbox.bodies[-len(after) :] == after, "what no crash came after is there, and comes last"

    with running(tmp_path, PATIENT) as broker:
        asyncio.run(run())
        assert broker.stop() == 0
