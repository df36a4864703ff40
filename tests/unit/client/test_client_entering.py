"""Goal: inside its block a consumer is open at the broker, so that what is sent there is not missed."""
import asyncio

import pytest

import angarium
from angarium import blocking
from tests.unit.client.client_fake_broker import FakeBroker
from tests.unit.client.client_fake_server import serving
from tests.unit.client.client_running import Runner
from tests.unit.client.test_client_blocking import ServerThread


def test_inside_its_block_a_consumer_is_open(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            async with session.consume(angarium.Topic("prices"), durable="ledger") as consumer:
                assert consumer._opened.done()
            assert consumer.is_ended

    run(main())


def test_the_same_without_asyncio() -> None:
    server = ServerThread(FakeBroker())
    try:
        with blocking.connect(server.address) as connection, connection.session() as session:  # noqa: SIM117
            with session.consume(angarium.Topic("prices"), durable="ledger") as consumer:
                assert consumer._consumer._opened.done()  # type: ignore[union-attr]
    finally:
        server.stop()


def test_who_is_cancelled_while_it_enters_leaves_no_consumer_behind(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            consumer = session.consume("orders")
            consumer.on_ready = lambda: None  # type: ignore[method-assign]  # the broker does not answer
            entering = asyncio.create_task(consumer.__aenter__())
            await asyncio.sleep(0.01)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            assert consumer.is_ended

    run(main())


def test_what_was_refused_is_not_counted_as_confirmed(run: Runner) -> None:
    async def main() -> None:
        async with serving() as server, angarium.connect(server.address) as connection, connection.session() as session:
            for body in (b"one", b"refuse me", b"two", b"three"):
                sending = session.send("orders", body)
                if body == b"refuse me":
                    with pytest.raises(angarium.Rejected):
                        await sending
                else:
                    await sending
            assert session.confirmed_count("orders") == 3
            assert session.confirmed_count("nothing") == 0

    run(main())


@pytest.mark.parametrize("address", [4560, [4560], None])
def test_what_is_no_address_is_said_to_be_none(address: object) -> None:
    with pytest.raises(angarium.LocalProtocolError, match="an address is a text"):
        angarium.connect(address)  # type: ignore[arg-type]
