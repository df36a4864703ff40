"""How late delayed messages come while the broker is busy: python -m benchmarks.delays

One process sends delayed messages and notes when each comes; two others keep the broker as busy as they can through
another queue. Lateness is from the time at which a message was due to its reception; the same is measured without the
others.
"""
import asyncio
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

import angarium
from benchmarks.processes import Broker, Role, free_port
from benchmarks.systems.ours import Ours

DELAY_S_MIN, DELAY_S_MAX = 0.5, 3.0
QUEUE = "delayed"


async def _lateness(address: str, *, count: int, rate: float) -> list[float]:
    """Seconds after its time at which each of the messages came."""
    late: list[float] = []
    async with (
        angarium.connect(address) as sending, sending.session() as producer,
        angarium.connect(address) as receiving, receiving.session() as session,
    ):  # fmt: skip
        consumer = session.consume(QUEUE)
        await consumer.opened()

        async def receive() -> None:
            while len(late) < count:
                message = await consumer.receive(timeout_s=60.0)
                assert message is not None, f"{count - len(late)} messages have not come"
                late.append(time.time() - float(message.properties["due"]))
                message.settle()

        receiving_task = asyncio.create_task(receive())
        chance = random.Random(1)
        for _ in range(count):
            due = time.time() + chance.uniform(DELAY_S_MIN, DELAY_S_MAX)
            producer.send(QUEUE, b"", deliver_at=due, properties={"due": due})
            await asyncio.sleep(1 / rate)
        await receiving_task
    return late


def _tell(console: Console, title: str, late: list[float]) -> None:
    cuts = statistics.quantiles(late, n=100)
    figures = f"p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms, at most {max(late) * 1e3:.1f} ms"
    console.print(f"{title}: {figures}, at least {min(late) * 1e3:.1f} ms, of {len(late):,}", markup=False)


def main(
    count: Annotated[int, typer.Option(help="Delayed messages.", min=100)] = 2_000,
    rate: Annotated[float, typer.Option(help="Of them a second.", min=1)] = 200.0,
    body_bytes: Annotated[int, typer.Option(help="Of the others.", min=1)] = 1_024,
) -> None:
    console = Console(highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="angarium-delays-", dir="var" if Path("var").is_dir() else None))
    system, port = Ours(), free_port()
    address, seconds = f"angarium://127.0.0.1:{port}", count / rate + DELAY_S_MAX
    # More than they can do until it is over.
    load = {"port": port, "variant": "client", "count": 10**8, "body_bytes": body_bytes, "time_s_max": seconds + 60}
    try:
        with Broker(system.launch(directory / "data", port), directory / "broker.log"):
            _tell(console, "alone", uvloop.run(_lateness(address, count=count, rate=rate)))
            with (
                Role("consume", system.name, load, time_s_max=seconds + 60) as consumer,
                Role("produce", system.name, load, time_s_max=seconds + 60) as producer,
            ):
                consumer.wait_ready()
                consumer.go()
                producer.wait_ready()
                producer.go()
                time.sleep(1.0)
                _tell(console, "busy", uvloop.run(_lateness(address, count=count, rate=rate)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
