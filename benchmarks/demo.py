"""`make demo`: a broker is killed in the middle of its work, and nothing that it confirmed is lost.

    1  start a broker on a free port, with its data in a temporary directory
    2  two producers and two consumers share the queue `orders`; one producer publishes to the topic `prices`, which
       two durable subscriptions follow
    3  kill -9 the broker twice while they work, and start it again; the clients go on by themselves
    4  compare what producers saw confirmed with what consumers received (`demo_proof`)

Exit code 0 only if the proof holds. `--plant` falsifies the consumers' books, to see that it can fail.
"""
import asyncio
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

import angarium
from angarium.admin.administration import Administration
from benchmarks.demo_proof import Receipt, Verdict, prove
from benchmarks.demo_traffic import BURST_COUNT, Consumer, Producer
from benchmarks.processes import BenchmarkFailed, Broker, Launch, free_port

TOTAL_S_MAX = 55.0
KILL_AT = (0.3, 0.65)  # shares of the messages that are confirmed by then
DOWN_S = 0.7
LINE_EVERY_S = 1.0
RATE = 2_500  # messages a second from each producer


class Plant(StrEnum):
    NONE = "none"
    LOSS = "loss"
    TWICE = "twice"
    ORDER = "order"
    CHANGE = "change"


@dataclass(slots=True)
class Stage:
    """Everybody who takes part."""

    address: str
    producers: list[Producer]
    consumers: list[Consumer]
    broker: Broker
    state: str = "starting"

    @property
    def total(self) -> int:
        return sum(producer.count for producer in self.producers)

    @property
    def confirmed(self) -> int:
        return sum(len(producer.confirmed) for producer in self.producers)

    @property
    def received(self) -> int:
        return sum(len(consumer.receipts) for consumer in self.consumers)

    @property
    def expected(self) -> int:
        """Receptions when all is done: each of a queue's messages once, each of a topic's once a subscription."""
        counts = {"orders": 1, "prices": 2}
        return sum(producer.count * counts[str(_name(producer))] for producer in self.producers)


def _name(member: Producer | Consumer) -> str:
    return member.destination if isinstance(member.destination, str) else member.destination.name


class Show:
    """A live table for a person, a line a second for a log."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._started = time.monotonic()

    async def run(self) -> None:
        if self._live is None:
            while True:
                await asyncio.sleep(LINE_EVERY_S)
                stage = self._stage
                self.say(f"broker {stage.state:<8} confirmed {stage.confirmed:>7,}  received {stage.received:>7,}")
        with self._live:
            try:
                while True:
                    self._live.update(self._table(), refresh=True)
                    await asyncio.sleep(0.1)
            finally:
                self._live.update(self._table(), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._started:5.1f} s  {text}", markup=False)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("who", "where", "done", "of"):
            table.add_column(name, justify="left" if name in ("who", "where") else "right", min_width=10)
        for producer in self._stage.producers:
            table.add_row(producer.name, f"to {_name(producer)}", f"{len(producer.confirmed):,}", f"{producer.count:,}")
        for consumer in self._stage.consumers:
            table.add_row(consumer.name, f"from {_name(consumer)}", f"{len(consumer.receipts):,}", "")
        table.add_row("broker", self._stage.state, "", "")
        return table


async def _kill_and_restart(stage: Stage, show: Show) -> None:
    for share in KILL_AT:
        while stage.confirmed < share * stage.total:  # noqa: ASYNC110 (a look at three lists, not an event)
            await asyncio.sleep(0.01)
        confirmed = stage.confirmed
        stage.broker.kill()
        stage.state = "killed"
        show.say(f"kill -9 after {confirmed:,} confirmed messages, {stage.received:,} receptions")
        await asyncio.sleep(DOWN_S)
        started = stage.broker.spawn()
        stage.state = "starting"
        await asyncio.to_thread(stage.broker.wait_ready, started)
        stage.state = "up"
        show.say(f"the broker is ready again, {stage.broker.ready_after_s:.2f} s after its start")


async def _play(stage: Stage, show: Show) -> None:
    stage.state = "up"
    async with asyncio.timeout(TOTAL_S_MAX), asyncio.TaskGroup() as everybody:
        showing = everybody.create_task(show.run())
        consuming = [everybody.create_task(consumer.run(stage.address)) for consumer in stage.consumers]
        for consumer in stage.consumers:
            await consumer.subscribed.wait()
        producing = [everybody.create_task(producer.run(stage.address)) for producer in stage.producers]
        await _kill_and_restart(stage, show)
        await asyncio.gather(*producing)
        show.say(f"all {stage.confirmed:,} messages are confirmed")
        received = -1
        while stage.received < stage.expected and stage.received > received:
            received = stage.received
            await asyncio.sleep(3.0)  # something has to come in this time, or it is lost
        for consumer in stage.consumers:
            consumer.stopping = True
        await asyncio.gather(*consuming)
        showing.cancel()


async def _left_over(address: str) -> list[str]:
    """The broker's own view afterwards: every message is settled for every durable subscription."""
    async with angarium.connect(address) as connection:
        found = await Administration(connection).destinations()
    return [f"{d.name} still holds {d.messages:,} messages" for d in found if d.messages or d.in_flight]


def _verdicts(stage: Stage) -> list[Verdict]:
    orders = [entry for producer in stage.producers if _name(producer) == "orders" for entry in producer.confirmed]
    prices = [entry for producer in stage.producers if _name(producer) == "prices" for entry in producer.confirmed]
    shared = {consumer.name: consumer.receipts for consumer in stage.consumers if _name(consumer) == "orders"}
    verdicts = [prove("queue orders", orders, shared)]
    for consumer in stage.consumers:
        if _name(consumer) == "prices":
            verdicts.append(prove(f"topic prices, {consumer.name}", prices, {consumer.name: consumer.receipts}))
    return verdicts


def _falsify(receipts: list[Receipt], plant: Plant) -> None:
    middle = len(receipts) // 2
    match plant:
        case Plant.LOSS:
            del receipts[middle]
        case Plant.TWICE:
            receipts.append(receipts[middle])
        case Plant.ORDER:
            receipts[middle], receipts[middle + 1] = receipts[middle + 1], receipts[middle]
        case Plant.CHANGE:
            receipts[middle] = receipts[middle]._replace(entry=receipts[middle].entry._replace(digest=b"other"))


def _print_verdicts(verdicts: list[Verdict], left_over: list[str], console: Console) -> bool:
    for verdict in verdicts:
        console.print(f"\n{verdict.title}", style="bold", markup=False)
        console.print(f"  confirmed {verdict.confirmed_count:>8,}  sha256 {verdict.confirmed_hash[:32]}")
        console.print(f"  received  {verdict.received_count:>8,}  sha256 {verdict.received_hash[:32]}")
        if verdict.redelivered_count:
            console.print(f"  {verdict.redelivered_count:,} of them with the mark that they may have come before")
        for problem in verdict.problems:
            console.print(f"  WRONG: {problem}", style="red", markup=False)
    for problem in left_over:
        console.print(f"  WRONG: {problem}", style="red", markup=False)
    holds = all(verdict.holds for verdict in verdicts) and not left_over
    text = (
        "PROVED: no confirmed message was lost or changed, and none came twice to a session that had settled it."
        if holds
        else "FAILED: the books do not agree."
    )
    console.print(f"\n{text}", style="green" if holds else "red", markup=False)
    return holds


def _stage(data: Path, seconds: float) -> Stage:
    port, count = free_port(), int(RATE * seconds)
    command = [sys.executable, "-m", "angarium.cli.main", "up", "--data", str(data), "--listen", f"127.0.0.1:{port}"]
    prices, pause_s = angarium.Topic("prices"), BURST_COUNT / RATE
    producers = [
        Producer("shop", "orders", count, pause_s),
        Producer("phone", "orders", count, pause_s),
        Producer("exchange", prices, count, pause_s),
    ]
    consumers = [
        Consumer("packer-1", "orders"),
        Consumer("packer-2", "orders"),
        Consumer("ledger", prices, durable="ledger"),
        Consumer("audit", prices, durable="audit"),
    ]
    broker = Broker(Launch(command, "ready"), data.with_suffix(".log"))
    return Stage(f"angarium://127.0.0.1:{port}", producers, consumers, broker)


def demo(
    seconds: Annotated[float, typer.Option(help="How long the producers send, about.", min=1, max=30)] = 10.0,
    plant: Annotated[Plant, typer.Option(help="Falsify the consumers' books: the proof has to fail.")] = Plant.NONE,
) -> None:
    console = Console(highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="angarium-demo-"))
    stage, left_over, reasons = _stage(directory / "data", seconds), list[str](), list[str]()
    try:
        show = Show(stage)
        with stage.broker:
            show.say(f"broker ready on {stage.address}, process {stage.broker.pid}")
            asyncio.run(_play(stage, show))
            left_over = asyncio.run(_left_over(stage.address))
    except* TimeoutError:
        reasons.append(f"not done after {TOTAL_S_MAX:g} s")
    except* (BenchmarkFailed, angarium.AngariumError) as failures:
        reasons.extend(map(str, failures.exceptions))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if reasons:
        console.print(f"FAILED: {'; '.join(reasons)}", style="red", markup=False)
        raise typer.Exit(1)
    _falsify(stage.consumers[-1].receipts, plant)
    if not _print_verdicts(_verdicts(stage), left_over, console):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(demo)
