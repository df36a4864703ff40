"""Goal: a paused broker is noticed, a busy client is not taken for dead, and neither costs a message.
Method: SIGSTOP for longer than three heartbeats under traffic; an application that blocks its own event loop."""
import asyncio
import time
from pathlib import Path

import angarium
from angarium.core.wire import frames
from tests.process.process_broker import Broker, running, until_async
from tests.process.process_delay import Delay
from tests.process.process_ledger import Inbox, assert_same, body_of
from tests.process.process_traffic import PATIENT, Traffic
from tests.process.process_wire import RawClient

_HEARTBEAT_S = 0.3


def test_traffic_survives_a_broker_that_is_paused(tmp_path: Path) -> None:
    with running(tmp_path, {"session.heartbeat_s": _HEARTBEAT_S, **PATIENT}) as broker:

        async def faults(traffic: Traffic) -> None:
            async with angarium.connect(broker.address) as watch:
                for _ in range(2):
                    await traffic.more_confirmed(traffic.chance.randrange(500, 3_000))
                    broker.pause()
                    await until_async(lambda: not watch.is_connected, "a client gives the silent broker up")
                    await asyncio.sleep(_HEARTBEAT_S)  # the others, too
                    broker.go_on()
                    traffic.note_fault()
                    await until_async(lambda: watch.is_connected, "it comes back")
                await traffic.more_confirmed(100)

        async def run() -> None:
            await Traffic(broker.address, seed=4).run(faults)

        asyncio.run(run())
        assert broker.stop() == 0


def test_idleness_and_a_short_pause_are_not_even_noticed(tmp_path: Path) -> None:
    heartbeat_s = 1.0  # given up after three of them: the pause has to leave room for a busy machine
    with running(tmp_path, {"session.heartbeat_s": heartbeat_s, **PATIENT}) as broker:

        async def run() -> None:
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                await session.send("q", b"before")
                used = _local_port(connection)
                await asyncio.to_thread(_hear_heartbeats, broker, 4, heartbeat_s)  # idle all the while
                broker.pause()
                await asyncio.sleep(1.2 * heartbeat_s)
                broker.go_on()
                await session.send("q", b"after")
                assert _local_port(connection) == used, "the client went to another connection"

        asyncio.run(run())


def test_a_client_that_blocks_its_loop_keeps_its_connection_and_its_messages(tmp_path: Path) -> None:
    bodies = [body_of("p", number) for number in range(20)]

    async def run() -> None:
        async with (
            angarium.connect(broker.address) as other,
            other.session() as rival_session,
            angarium.connect(broker.address) as connection,
            connection.session() as session,
        ):
            await session.send_many("q", bodies)
            inbox = Inbox("busy")
            consumer = session.consume("q", prefetch=len(bodies))
            while (await connection.request("destination.describe", {"name": "q"})).result["in_flight"] < len(bodies):
                pass  # until all of them are on their way to it
            rival = rival_session.consume("q")
            used = None
            async for message in consumer:
                used = used or _local_port(connection)
                inbox.take(message)
                if len(inbox.bodies) % 7 == 0:
                    time.sleep(5 * _HEARTBEAT_S)  # noqa: ASYNC251  # the point: nothing of this loop runs
                await message.settle()
                if len(inbox.bodies) == len(bodies):
                    break
            await session.sync()
            assert _local_port(connection) == used
            assert set(inbox.redeliveries.values()) == {0}
            assert consumer.lost_count == 0
            assert_same(inbox.bodies, bodies)
            assert await rival.receive(timeout_s=0.1) is None, "a message of the busy client went to another"

    with running(tmp_path, {"session.heartbeat_s": _HEARTBEAT_S, "destination.resume_grace_s": 0.2}) as broker:
        asyncio.run(run())


def _hear_heartbeats(broker: Broker, count: int, heartbeat_s: float) -> None:
    """A client that says nothing hears from the broker all the same, before it would have to give it up."""
    with RawClient(broker.port) as client:
        client.hello()
        for _ in range(count):
            delay = Delay(broker.pid)
            client.expect(frames.Ping)
            assert delay.seconds() < 3 * heartbeat_s


def _local_port(connection: angarium.Connection) -> int:
    """Which connection it is: another one would have another port."""
    link = connection.driver.link
    assert link is not None and link.transport is not None
    port: int = link.transport.get_extra_info("sockname")[1]
    return port
