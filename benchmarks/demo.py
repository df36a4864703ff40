"""`make demo`: processes of a cluster are killed in the middle of their work, and nothing that was confirmed is lost.

    1  start a cluster on free ports: two client managers, two replica groups of three copies, each node a process
    2  two producers and two consumers share the queue `orders`; one producer publishes to the topic `prices`, which
       two durable subscriptions follow
    3  kill -9 the primary that has the queue: a backup takes over; start it again: it synchronises and is a backup
    4  kill -9 a client manager: its clients go on at the other one
    5  compare what producers saw confirmed with what consumers received (`demo_proof`)
    6  archive all of it with Spark, and have Spark audit it by the cluster's own traces (`demo_pipeline`)

It ends within `--within` seconds: Spark has what is left of them after the proof, and is left out, with a word, where
that is too short. Exit code 0 only if the proof holds, and the audit, if there is one. `--plant` falsifies the
consumers' books, to see that it can fail.
"""
import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

import angarium
from angarium.admin.administration import Administration
from angarium.cli.failure import Failure
from angarium.cli.local_cluster import LocalCluster, LocalNode
from angarium.cli.output import PIPE_COLUMNS
from benchmarks import demo_pipeline
from benchmarks.demo_cluster import ClusterWatch
from benchmarks.demo_pipeline import Pipelines
from benchmarks.demo_proof import Receipt, Verdict, prove
from benchmarks.demo_traffic import BURST_COUNT, Consumer, Producer
from benchmarks.processes import free_port

TOTAL_S_MAX = 55.0
WITHIN_S = 54.0  # to end the processes takes some seconds more
PRIMARY_KILLED_AT, MANAGER_KILLED_AT = 0.3, 0.7  # shares of the messages that are confirmed by then
DOWN_S = 2.0
LINE_EVERY_S = 1.0
RATE = 3_350  # messages a second from each producer


class Plant(StrEnum):
    NONE = "none"
    LOSS = "loss"
    TWICE = "twice"
    ORDER = "order"
    CHANGE = "change"


@dataclass(slots=True)
class Stage:
    """Everybody who takes part."""

    cluster: LocalCluster
    watch: ClusterWatch
    producers: list[Producer]
    consumers: list[Consumer]
    pipelines: Pipelines | None = None  # None: it ends without Spark
    rates: dict[str, float] = field(default_factory=dict)  # messages a second, of everybody
    sent_before_kill: dict[str, int] = field(default_factory=dict)  # by each producer, until the last kill

    @property
    def addresses(self) -> list[str]:
        return self.cluster.addresses

    def kill(self, node: LocalNode) -> None:
        self.watch.kill(node)
        self.sent_before_kill = {producer.name: producer.sent for producer in self.producers}

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


def console_here() -> Console:
    """Where a program reads, lines are never wrapped."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_COLUMNS)


class Show:
    """A live table for a person, a line a second for a log."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._console = console_here()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._started = time.monotonic()
        self._counts: dict[str, int] = {}

    async def run(self) -> None:
        if self._live is None:
            while True:
                await asyncio.sleep(LINE_EVERY_S)
                stage = self._stage
                self.say(f"confirmed {stage.confirmed:>7,}  received {stage.received:>7,}  {stage.watch.summary}")
        with self._live:
            try:
                while True:
                    self._live.update(self._tables(), refresh=True)
                    await asyncio.sleep(0.25)
            finally:
                self._live.update(self._tables(), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._started:5.1f} s  {text}", markup=False)

    def _tables(self) -> Table:
        both = Table.grid(padding=(0, 4))
        both.add_row(self._people(), self._stage.watch.table())
        return both

    def _people(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("who", "where", "done", "a second"):
            table.add_column(name, justify="left" if name in ("who", "where") else "right", min_width=8)
        counts = {p.name: len(p.confirmed) for p in self._stage.producers}
        counts |= {c.name: len(c.receipts) for c in self._stage.consumers}
        where = {p.name: f"to {_name(p)}" for p in self._stage.producers}
        where |= {c.name: f"from {_name(c)}" for c in self._stage.consumers}
        for name, count in counts.items():
            rate = (count - self._counts.get(name, 0)) * 4.0
            smooth = self._stage.rates[name] = 0.7 * self._stage.rates.get(name, rate) + 0.3 * rate
            table.add_row(name, where[name], f"{count:,}", f"{smooth:,.0f}")
        self._counts = counts
        return table


async def _confirmed_share(stage: Stage, share: float) -> None:
    while stage.confirmed < share * stage.total:  # noqa: ASYNC110 (a look at three lists, not an event)
        await asyncio.sleep(0.01)


async def _kill_the_primary(stage: Stage, show: Show) -> None:
    await _confirmed_share(stage, PRIMARY_KILLED_AT)
    group, primary = await stage.watch.primary_with("orders")
    node = stage.watch.node(primary)
    stage.kill(node)
    show.say(f"kill -9 {primary}, primary of group {group}, after {stage.confirmed:,} confirmed messages")
    killed = time.monotonic()
    successor = await stage.watch.another_primary(group, primary)
    show.say(f"{successor} is primary of group {group}, {time.monotonic() - killed:.2f} s after the kill")
    await asyncio.sleep(DOWN_S)
    stage.cluster.start_node(node)
    show.say(f"{primary} is started again, and synchronises")
    started = time.monotonic()
    await stage.watch.in_sync(primary)
    show.say(f"{primary} is in sync, {time.monotonic() - started:.1f} s after its start")
    if stage.pipelines is not None:
        stage.pipelines.start()


async def _kill_a_client_manager(stage: Stage, show: Show) -> None:
    await _confirmed_share(stage, MANAGER_KILLED_AT)
    node = stage.watch.node("cm1")
    stage.kill(node)
    show.say(f"kill -9 cm1, a client manager, after {stage.confirmed:,} confirmed messages: its clients go elsewhere")


async def _play(stage: Stage, show: Show) -> None:
    async with asyncio.timeout(TOTAL_S_MAX), asyncio.TaskGroup() as everybody:
        watching = everybody.create_task(stage.watch.run())
        showing = everybody.create_task(show.run())
        consuming = [everybody.create_task(consumer.run(stage.addresses)) for consumer in stage.consumers]
        for consumer in stage.consumers:
            await consumer.subscribed.wait()
        producing = [everybody.create_task(producer.run(stage.addresses)) for producer in stage.producers]
        await _kill_the_primary(stage, show)
        await _kill_a_client_manager(stage, show)
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
        watching.cancel()


async def _create(stage: Stage) -> None:
    """Traced for the audit, and kept for the archive after it is settled."""
    async with angarium.connect(stage.addresses) as connection:
        for name, kind in (("orders", "queue"), ("prices", "topic")):
            for is_last in (False, False, True):
                try:
                    await Administration(connection).create(name, kind, traced=True, retain_s=3_600)
                    break
                except angarium.Unavailable:  # a primary was lost on a busy machine: to create it again is to find it
                    if is_last:
                        raise


async def _left_over(addresses: list[str]) -> list[str]:
    """The cluster's own view afterwards: every message is settled for every durable subscription."""
    async with angarium.connect(addresses) as connection:
        found = await Administration(connection).destinations()
    return [f"{d.name} still holds {d.messages:,} messages" for d in found if d.messages or d.in_flight]


def _verdicts(stage: Stage) -> list[Verdict]:
    orders = [entry for producer in stage.producers if _name(producer) == "orders" for entry in producer.confirmed]
    prices = [entry for producer in stage.producers if _name(producer) == "prices" for entry in producer.confirmed]
    shared = {consumer.name: consumer.receipts for consumer in stage.consumers if _name(consumer) == "orders"}
    verdicts = [prove("queue orders", orders, shared, stage.sent_before_kill)]
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
    count = int(RATE * seconds)
    cluster = LocalCluster(data, free_port(), client_managers=2, groups=2, copies=3)
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
    return Stage(cluster, ClusterWatch(cluster), producers, consumers)


def demo(
    seconds: Annotated[float, typer.Option(help="How long the producers send, about.", min=1, max=30)] = 10.0,
    plant: Annotated[Plant, typer.Option(help="Falsify the consumers' books: the proof has to fail.")] = Plant.NONE,
    pipeline: Annotated[bool, typer.Option(help="End with Spark: archive and audit.")] = True,
    within: Annotated[float, typer.Option(help="Seconds, after which Spark is not waited for.", min=1)] = WITHIN_S,
) -> None:
    console, started = console_here(), time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="angarium-demo-"))
    stage, reasons, holds = _stage(directory / "cluster", seconds), list[str](), False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # on the way out the nodes are ended
    try:
        show = Show(stage)
        show.say(f"starting {len(stage.cluster.nodes)} nodes: 2 client managers, 2 groups of 3 copies")
        stage.cluster.write_configuration()
        with ExitStack() as ending:
            ending.callback(stage.cluster.stop)
            stage.cluster.start()
            show.say(f"cluster ready on {', '.join(stage.addresses)}")
            if hindrance := demo_pipeline.hindrance() if pipeline else "":
                show.say(f"it will end without archive and audit: {hindrance}")
            elif pipeline:
                stage.pipelines = Pipelines(stage.addresses, directory)
                ending.callback(stage.pipelines.stop)
            asyncio.run(_create(stage))
            asyncio.run(_play(stage, show))
            left_over = asyncio.run(_left_over(stage.addresses))
            _falsify(stage.consumers[-1].receipts, plant)
            holds = _print_verdicts(_verdicts(stage), left_over, console)
            if stage.pipelines is not None and holds:
                reasons += stage.pipelines.run(show.say, within_s=started + within - time.monotonic())
    except* TimeoutError:
        reasons.append(f"not done after {TOTAL_S_MAX:g} s")
    except* (Failure, angarium.AngariumError, RuntimeError, subprocess.TimeoutExpired) as failures:
        reasons.extend(map(str, failures.exceptions))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if reasons:
        console.print(f"FAILED: {'; '.join(reasons)}", style="red", markup=False)
        raise typer.Exit(1)
    if not holds:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(demo)
