"""`angarium bench`: a quick look at what a running broker does here, from one process.

Three phases on a queue of its own, which is removed afterwards: messages in, the same messages out, and messages
one at a time. The comparison with other brokers, each role in its own process, is `make bench`.
"""
import secrets
import time
from itertools import repeat
from statistics import quantiles
from typing import Annotated

import msgspec
import typer

import angarium
from angarium.admin.administration import Administration
from angarium.cli import failure, options, output
from angarium.cli.usage import at_most_whole

CHUNK_COUNT = 20_000
SINGLE_COUNT_MAX = 500
IDLE_S_MAX = 30.0
PREFETCH = 20_000
MICROSECONDS = 1e6


class Figures(msgspec.Struct, frozen=True):
    count: int
    body_bytes: int
    in_rate: float  # messages a second, confirmed
    out_rate: float  # messages a second, settled
    single_count: int
    single_p50_us: float  # from send to confirm, one message at a time
    single_p99_us: float


def bench(
    address: options.Address = [],  # noqa: B006
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="Messages to send.", callback=at_most_whole)
    ] = 100_000,
    size: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="Of each message's body.", callback=at_most_whole)
    ] = 1_024,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Measure a running broker.

    Messages in, the same messages out, then messages one at a time, on a queue of its own that is removed afterwards.
    """
    queue = f"bench.{secrets.token_hex(4)}"
    figures = options.run(lambda: _measure(options.Broker(address, wait), queue, count, size))
    if as_json:
        output.write_json(figures)
        return
    rows = [
        ("in, confirmed", f"{figures.in_rate:,.0f} msg/s", f"{figures.in_rate * size / 1e6:,.1f} MB/s"),
        ("out, settled", f"{figures.out_rate:,.0f} msg/s", f"{figures.out_rate * size / 1e6:,.1f} MB/s"),
        ("one at a time", f"p50 {figures.single_p50_us:,.0f} us", f"p99 {figures.single_p99_us:,.0f} us"),
    ]
    output.write_table((f"{count:,} x {size:,} B", "", ""), rows)


async def _measure(broker: options.Broker, queue: str, count: int, size: int) -> Figures:
    async with options.connected(broker, give_up_after_s=options.CONNECT_S_MAX) as connection:
        if size > (limit := connection.limits.body_bytes_max):
            raise failure.Failure(f"--size: {size:,} bytes exceed the broker's body_bytes_max {limit:,}")
        body = bytes(size)
        try:
            async with connection.session() as session:
                in_rate = await _send(session, queue, body, count)
                out_rate = await _receive(session, queue, count)
                singles = await _send_singly(session, queue, body, min(SINGLE_COUNT_MAX, max(2, count)))
        finally:
            await Administration(connection).remove(queue)
    cuts = quantiles(singles, n=100)
    return Figures(count, size, in_rate, out_rate, len(singles), cuts[49] * MICROSECONDS, cuts[98] * MICROSECONDS)


async def _send(session: angarium.Session, queue: str, body: bytes, count: int) -> float:
    started = time.perf_counter()
    with output.Watch("in", count) as watch:
        while watch.done < count:
            watch.advance(await session.send_many(queue, repeat(body, min(CHUNK_COUNT, count - watch.done))))
    return count / (time.perf_counter() - started)


async def _receive(session: angarium.Session, queue: str, count: int) -> float:
    started = time.perf_counter()
    async with session.consume(queue, prefetch=PREFETCH) as consumer:
        with output.Watch("out", count) as watch:
            while watch.done < count:
                messages = await consumer.receive_batch(CHUNK_COUNT, IDLE_S_MAX)
                if not messages:
                    raise failure.Failure(f"{watch.done:,} of {count:,} messages came: nothing for {IDLE_S_MAX:g} s")
                for message in messages:
                    message.settle()
                watch.advance(len(messages))
        await session.sync()
    return count / (time.perf_counter() - started)


async def _send_singly(session: angarium.Session, queue: str, body: bytes, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        await session.send(queue, body)
        seconds.append(time.perf_counter() - started)
    return seconds
