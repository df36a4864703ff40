"""Goal: a session that comes back finds exactly what is its own, and one that does not leaves nothing behind.
Method: clients by hand for what happens between two frames; the proxy for clients that stay away."""
import asyncio
import time
from pathlib import Path

import angarium
from angarium.core.wire import frames
from angarium.core.wire.codec import encode
from angarium.core.wire.frames import DestinationKind
from tests.process.process_broker import MIB, WAIT_S, Broker, running, until_async
from tests.process.process_drain import drain
from tests.process.process_ledger import Inbox, assert_same, body_of
from tests.process.process_proxy import Proxy
from tests.process.process_traffic import EAGER, PATIENT
from tests.process.process_wire import RawClient, batch

_FLOOD = 6_000  # frames


def test_a_consumer_that_vanishes_behind_a_flood_is_forgotten(tmp_path: Path) -> None:
    """Its opening waits at the destination behind thousands of frames when its connection ends."""
    with running(tmp_path, {"destination.resume_grace_s": 0.2}) as broker, RawClient(broker.port) as flood:
        flood.hello()
        flood.open_session()
        identity = flood.open_producer("busy")
        for first in range(1, _FLOOD * 3, _FLOOD):
            flood.send_bytes(
                b"".join(
                    encode(1, frames.Publish(1), batch(identity, sequence, [b"x"]))
                    for sequence in range(first, first + _FLOOD)
                )
            )
            for _ in range(10):
                with RawClient(broker.port) as client:
                    client.hello()
                    client.open_session()
                    client.send(1, frames.ConsumerOpen(1, "busy", DestinationKind.QUEUE, credit=10))
            while flood.expect(frames.Confirm).sequence < first + _FLOOD - 1:
                pass
        asyncio.run(_until_nobody_holds(broker, "busy"))


async def _until_nobody_holds(broker: Broker, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    async with angarium.connect(broker.address) as connection:
        while True:
            found = (await connection.request("destination.describe", {"name": name})).result
            if found["consumers"] == found["in_flight"] == 0:
                return
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)


def test_a_resumed_session_hears_of_a_producer_only_once_it_has_opened_it(tmp_path: Path) -> None:
    """What was published over the old connection becomes durable while the new one is being set up."""
    with running(tmp_path, {"store.segment_bytes": 16 * MIB}) as broker:
        for _ in range(5):
            with RawClient(broker.port) as old, RawClient(broker.port) as new:
                old.hello()
                new.hello()
                session = old.open_session()
                identity = old.open_producer("jobs")
                old.send(1, frames.Publish(1), batch(identity, 1, [bytes(MIB)] * 4))
                new.open_session(identity=session)
                # The write is under way or done; nothing about it may come before the producer is open again.
                assert new.next(timeout_s=0.15) is None
                new.send(1, frames.ProducerOpen(1, "jobs", DestinationKind.ANY, identity))
                received = new.next()
                assert received is not None and isinstance(received.frame, frames.ProducerOpened)
                if received.frame.sequence == 0:  # the broker had not read it yet: it is to be sent again
                    new.send(1, frames.Publish(1), batch(identity, 1, [bytes(MIB)] * 4))
                assert new.expect(frames.Confirm).sequence == 4
                assert old.expect(frames.SessionClosed).code == "session-taken"


def test_what_is_sent_again_is_stored_once(tmp_path: Path) -> None:
    """Whole, in part, over another connection, and after a restart: for clients more timid than ours."""
    bodies = [body_of("p", number) for number in range(12)]

    def publish(client: RawClient, first: int, last: int) -> None:
        client.send(1, frames.Publish(1), batch(identity, first + 1, bodies[first:last]))
        while client.expect(frames.Confirm).sequence < last:  # those of earlier ones come again
            pass

    with running(tmp_path) as broker:
        with RawClient(broker.port) as client:
            client.hello()
            client.open_session()
            identity = client.open_producer("jobs")
            publish(client, 0, 4)
            publish(client, 0, 4)
            publish(client, 2, 6)
        for restart in (False, True):
            if restart:
                broker.kill()
                broker.start()
            with RawClient(broker.port) as client:
                client.hello()
                client.open_session()
                assert client.open_producer("jobs", identity=identity) == identity
                client.send(1, frames.Publish(1), batch(identity, 1, bodies[:6]))
                publish(client, 0, 9 if not restart else 12)
        assert asyncio.run(drain(broker.address, "jobs")).bodies == bodies
        assert broker.stop() == 0


def test_a_passing_subscriber_gets_no_older_messages_after_a_restart(tmp_path: Path) -> None:
    """It asked for what is published from then on, and had received nothing yet when the broker was killed."""
    topic = angarium.Topic("news")

    async def run() -> None:
        async with angarium.connect(broker.address, reconnect=EAGER) as connection, connection.session() as session:
            keeper = session.consume(topic, durable="keeper", prefetch=1)  # keeps the log from being trimmed
            await keeper.opened()
            await session.send_many(topic, [b"old %d" % number for number in range(50)])
            passing = session.consume(topic, start="next")
            await passing.opened()
            await broker.restart_after_kill()
            await session.send(topic, b"new")
            message = await passing.receive(timeout_s=WAIT_S)
            assert message is not None and message.body == b"new"
            assert await passing.receive(timeout_s=0.2) is None

    with running(tmp_path, PATIENT) as broker:
        asyncio.run(run())


def test_a_client_that_stays_away_too_long_is_told_what_it_has_lost(tmp_path: Path) -> None:
    bodies = [body_of("p", number) for number in range(100)]

    async def run() -> None:
        async with Proxy(broker.port, seed=0, bytes_max=1 << 30) as proxy:
            proxy.heal()
            late_connection = await angarium.connect(proxy.address, reconnect=EAGER)
            late_session = late_connection.session()
            async with angarium.connect(broker.address) as connection, connection.session() as session:
                await session.send_many("jobs", bodies)
                late = late_session.consume("jobs", prefetch=30)
                held: list[angarium.Message] = []
                while len(held) < 20:  # ten more lie ready and are not taken
                    held += await late.receive_batch(20 - len(held), timeout_s=WAIT_S)
                proxy.shut()
                inbox = Inbox("other")
                async with session.consume("jobs") as other:
                    while len(inbox.bodies) < len(bodies):
                        message = await other.receive(timeout_s=WAIT_S)
                        assert message is not None
                        inbox.take(message)
                        assert message.redelivered == (message.position < 30)
                        message.settle()
                    await session.sync()
                    for message in held[:5]:
                        message.settle()  # not knowing better
                    proxy.reopen()
                    await until_async(lambda: late_connection.is_connected and held[19].lost, "it is told")
                    for message in held[5:]:
                        message.settle()
                    await late_session.sync()
                    assert all(message.lost for message in held[5:])
                    assert late.lost_count >= 15
                    # What lay ready is gone as well, and nothing comes twice.
                    assert await late.receive(timeout_s=0.2) is None
                    assert await other.receive(timeout_s=0.1) is None
                    await session.send("jobs", b"more")
                    waiting = [asyncio.ensure_future(consumer.receive(WAIT_S)) for consumer in (late, other)]
                    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    assert [getattr(task.result(), "body", None) for task in done] == [b"more"]
                    for task in rest:
                        task.cancel()
                    await asyncio.wait(rest)
            await late_connection.close()
            assert_same(inbox.bodies, bodies)

    with running(tmp_path, {"destination.resume_grace_s": 0.3}) as broker:
        asyncio.run(run())
