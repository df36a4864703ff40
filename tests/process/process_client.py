"""Clients in processes of their own, to be killed: `python -m tests.process.process_client hold ADDRESS QUEUE ...`.

They say what they have done on standard output, one line for each fact, flushed: what was said before a kill counts.
"""
import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import angarium
from tests.process.process_broker import environment
from tests.process.process_ledger import body_of

_ROOT = Path(__file__).parents[2]


@contextmanager
def client_process(*arguments: object) -> "Iterator[subprocess.Popen[str]]":
    """A client that is killed at the end, if not before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.process.process_client", *map(str, arguments)],
        cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the client has ended"
    return line.strip()


def kill(process: "subprocess.Popen[str]") -> list[str]:
    """kill -9; what it had said and nobody had read yet, in whole lines."""
    process.kill()
    assert process.stdout is not None
    with process.stdout as output:
        rest = [line.strip() for line in output.read().splitlines(keepends=True) if line.endswith("\n")]
    process.wait()
    return rest


async def _hold(address: str, queue: str, take: str, settle: str) -> None:
    """Take so many messages, settle the first of them, and hold the others."""
    async with angarium.connect(address) as connection, connection.session() as session:
        consumer = session.consume(queue, prefetch=int(take))
        messages: list[angarium.Message] = []
        while len(messages) < int(take):
            messages += await consumer.receive_batch(int(take) - len(messages))
        for message in messages[: int(settle)]:
            message.settle()
        await session.sync()
        counts = sorted({message.redelivery_count for message in messages})
        print("holding", len(messages), "settled", settle, "redeliveries", *counts, flush=True)
        await asyncio.Event().wait()


async def _produce(address: str, queue: str, name: str) -> None:
    """Send for ever, with thousands in flight; say how far confirms have come."""
    async with angarium.connect(address) as connection, connection.session() as session:
        sent = 0
        while True:
            for _ in range(500):
                last = session.send(queue, body_of(name, sent))
                sent += 1
            await last
            print("confirmed", sent, flush=True)


async def _flood(address: str, queue: str, body_bytes: str) -> None:
    """Send as fast as the broker takes it, for ever."""
    body = bytes(int(body_bytes))
    async with angarium.connect(address) as connection, connection.session() as session:
        while True:
            await session.send_many(queue, [body] * 1_000)
            print("confirmed 1000", flush=True)


_ROLES: dict[str, Callable[..., Awaitable[None]]] = {"hold": _hold, "produce": _produce, "flood": _flood}

if __name__ == "__main__":
    asyncio.run(_ROLES[sys.argv[1]](*sys.argv[2:]))  # type: ignore[arg-type]
