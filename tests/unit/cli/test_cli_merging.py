"""Goal: of several consumers that are received from as one, none takes what nobody sees.
Method: the fake broker behind a real server."""
import asyncio

import pytest

import angarium
from angarium.cli.merging import Merged
from tests.unit.client.client_fake_server import serving
from tests.unit.client.client_running import run_on, until


def test_what_one_has_is_handed_out_before_the_error_of_another() -> None:
    async def main() -> None:
        async with (
            serving() as server, angarium.connect(server.address) as connection, connection.session() as session,
        ):  # fmt: skip
            await session.send("orders", b"x")
            one, other = session.consume("orders"), session.consume(angarium.Topic("orders"))
            await until(lambda: not one.is_empty and other.error is not None)
            merged = Merged([one, other])
            assert [message.body for message in await merged.receive_batch(10, 5)] == [b"x"]
            with pytest.raises(angarium.Rejected):
                await merged.receive_batch(10, 5)

    run_on(asyncio.new_event_loop, main())


def test_what_is_there_is_asked_for_when_the_time_is_over() -> None:
    async def main() -> None:
        async with (
            serving() as server, angarium.connect(server.address) as connection, connection.session() as session,
        ):  # fmt: skip
            await session.send("second", b"x")
            merged = Merged([session.consume("first"), session.consume("second")])
            assert [message.body for message in await merged.receive_batch(10, 0)] == [b"x"]
            assert await merged.receive_batch(10, 0) == []

    run_on(asyncio.new_event_loop, main())
