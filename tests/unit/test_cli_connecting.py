"""Goal: whoever has no broker yet is told how to get one; whoever said where it is, is not."""
import asyncio
import socket

import pytest

import angarium
from angarium.cli import failure, options


async def connect(*addresses: str) -> None:
    async with options.connected(options.Broker(list(addresses), 0.0)):
        raise AssertionError("nobody listens there")


def test_only_where_no_address_was_given_the_way_to_a_broker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # and not listening: nobody else gets the port, and whoever connects is refused
        bound.bind(("127.0.0.1", 0))
        address = f"angarium://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(angarium.Unavailable) as refused:
            asyncio.run(connect(address))
        assert str(refused.value).endswith("(Connection refused)")
        monkeypatch.setattr(options, "ADDRESS_DEFAULT", address)
        with pytest.raises(failure.Failure, match=r"refused\); 'angarium up' starts one, --address says"):
            asyncio.run(connect())


def test_what_fails_later_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connected:
        def __init__(self, *_: object, **__: object) -> None:
            self.on_change = None

        async def __aenter__(self) -> "Connected":
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

    async def lose() -> None:
        async with options.connected(options.Broker([], 0.0)):
            raise angarium.Unavailable("lost")

    monkeypatch.setattr(angarium, "connect", Connected)
    with pytest.raises(angarium.Unavailable, match=r"^lost$"):
        asyncio.run(lose())
