"""Goal: requests find their replies over temporary queues, through cuts of the link and a restart of the broker, and
nothing is left when the connection closes.
Method: real brokers, a proxy that cuts, the client as applications use it."""
import asyncio
import contextlib
from pathlib import Path

import pytest

import angarium
from tests.process.process_broker import WAIT_S, running, until_async
from tests.process.process_proxy import Proxy
from tests.process.process_traffic import EAGER


def whole(port: int) -> Proxy:
    proxy = Proxy(port, seed=1, bytes_max=1 << 30)
    proxy.heal()
    return proxy


def cut(proxy: Proxy) -> None:
    proxy.shut()
    proxy.reopen()


async def serve(session: angarium.Session) -> None:
    async with session.consume("service") as consumer:
        async for request in consumer:
            await session.reply(request, request.body.upper())
            request.settle()


async def temporary_names(address: str) -> list[str]:
    async with angarium.connect(address) as connection:
        found = (await connection.request("destination.list", {"prefix": "_TEMP."})).result
        return [item["name"] for item in found]


async def until_none_is_left(address: str) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while names := await temporary_names(address):
        assert asyncio.get_running_loop().time() < deadline, names


def test_request_and_reply_through_a_cut_and_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        with running(tmp_path, {"destination.resume_grace_s": WAIT_S}) as broker:
            async with whole(broker.port) as proxy, angarium.connect(broker.address, reconnect=EAGER) as server:
                serving = asyncio.create_task(serve(server.session()))
                async with (
                    angarium.connect(proxy.address, reconnect=EAGER) as client,
                    client.session() as session,
                ):
                    assert (await session.request("service", b"one")).body == b"ONE"
                    (name,) = await temporary_names(broker.address)
                    cut(proxy)
                    assert (await session.request("service", b"two")).body == b"TWO"
                    await broker.restart_after_kill()
                    assert (await session.request("service", b"three")).body == b"THREE"
                    assert await temporary_names(broker.address) == [name], "it is the same all the time"
                await until_none_is_left(broker.address)
                serving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await serving

    asyncio.run(main())


def test_a_temporary_queue_goes_when_its_connection_does_not_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        with running(tmp_path, {"destination.resume_grace_s": 0.3}) as broker:
            async with (
                whole(broker.port) as proxy,
                angarium.connect(proxy.address, reconnect=EAGER, close_timeout_s=0.1) as owner,
                angarium.connect(broker.address) as other,
                owner.session() as session,
                other.session() as sender,
            ):
                queue = await session.temporary_queue()
                await sender.send(queue, b"kept")
                with pytest.raises(angarium.Rejected) as refused:
                    await sender.consume(queue).opened()
                assert refused.value.code == "not-owner"
                proxy.shut()
                await until_async(lambda: not owner.is_connected, "the cut is noticed")
                await until_none_is_left(broker.address)
                with pytest.raises(angarium.Rejected):
                    await sender.send(queue, b"too late")

    asyncio.run(main())


def test_no_local_holds_through_a_cut(tmp_path: Path) -> None:
    async def main() -> None:
        with running(tmp_path, {"destination.resume_grace_s": WAIT_S}) as broker:
            async with (
                whole(broker.port) as proxy,
                angarium.connect(proxy.address, reconnect=EAGER) as mine,
                angarium.connect(broker.address) as other,
                mine.session() as session,
                other.session() as sender,
                session.consume(angarium.Topic("news"), no_local=True) as consumer,
            ):
                await consumer.opened()
                for text in (b"1", b"2"):
                    await session.send("news", b"own " + text)
                    await sender.send("news", b"other " + text)
                    message = await consumer.receive(WAIT_S)
                    assert message is not None and message.body == b"other " + text
                    message.settle()
                    cut(proxy)

    asyncio.run(main())
