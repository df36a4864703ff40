"""Streams through a real broker: contents, the files that hold them, and how they are read back."""
import asyncio
import functools
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import angarium
from tests.process.process_broker import WAIT_S, Broker

SIZE = 6_000_000


def content(size: int = SIZE, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def files(broker: Broker) -> list[Path]:
    return sorted((Path(broker.data) / "streams").iterdir())


async def received(session: angarium.Session, destination: str) -> angarium.Message:
    message = await session.receive(destination, WAIT_S)
    assert message is not None
    return message


async def read_all(message: angarium.Message) -> bytes:
    async with message.open() as stream:
        return await stream.read()
