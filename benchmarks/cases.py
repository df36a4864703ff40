"""The measurements. Each runs one system in fresh processes on fresh data and returns plain figures.

    throughput   1 producer -> 1 consumer, durable and settled: first publish to last settlement, broker CPU a message
    latency      one message at a time: send to confirm, send to reception
    backlog      messages waiting: broker memory, then kill -9, until ready again and until the first message
"""
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

from benchmarks.processes import Broker, Role, cpu_of_all_s, free_port, rss_anonymous_bytes, rss_bytes
from benchmarks.systems.contract import System, Work

WARM_UP_COUNT = 200  # latency samples that are not counted


@dataclass(frozen=True, slots=True)
class Throughput:
    system: str
    variant: str
    body_bytes: int
    count: int
    elapsed_s: float
    publish_rate: float  # messages a second until the last was confirmed
    rate: float  # messages a second until the last was settled
    cpu_us: float  # of the broker's processes, for each message


@dataclass(frozen=True, slots=True)
class Latency:
    system: str
    body_bytes: int
    count: int
    confirm_p50_us: float
    confirm_p99_us: float
    receive_p50_us: float
    receive_p99_us: float


@dataclass(frozen=True, slots=True)
class Backlog:
    system: str
    body_bytes: int
    count: int  # confirmed and waiting
    fill_rate: float
    rss_bytes: int
    rss_anonymous_bytes: int
    disk_bytes: int
    ready_s: float  # from the new start after kill -9 until the broker says that it is ready
    first_s: float  # from the same moment until a waiting client has received a message
    rss_after_bytes: int  # after the restart and the first message


def throughput(
    system: System, variant: str, *, count: int, body_bytes: int, time_s_max: float, data: Path
) -> Throughput:
    with _broker(system, data) as (broker, port):
        work = Work(port, variant, count, body_bytes, time_s_max)
        _prepare(system, asdict(work), time_s_max)
        return pass_through(system, broker, work)


def pass_through(system: System, broker: Broker, work: Work) -> Throughput:
    """From one producer to one consumer, through a broker that runs."""
    given = asdict(work)
    with (
        Role("consume", system.name, given, time_s_max=work.time_s_max) as consumer,
        Role("produce", system.name, given, time_s_max=work.time_s_max) as producer,
    ):
        consumer.wait_ready()
        consumer.go()
        producer.wait_ready()
        cpu_before_s = cpu_of_all_s(broker.pid)
        producer.go()
        ended = float(consumer.result()["ended"])
        cpu_after_s = cpu_of_all_s(broker.pid)
        filled = producer.result()
    elapsed_s = ended - filled["started"]
    return Throughput(
        system.name, work.variant, work.body_bytes, work.count, elapsed_s,
        publish_rate=work.count / (filled["ended"] - filled["started"]),
        rate=work.count / elapsed_s,
        cpu_us=1e6 * (cpu_after_s - cpu_before_s) / work.count,
    )  # fmt: skip


def latency(system: System, *, count: int, body_bytes: int, time_s_max: float, data: Path) -> Latency:
    with _broker(system, data) as (_, port):
        work = asdict(Work(port, system.variants[0].name, WARM_UP_COUNT + count, body_bytes, time_s_max))
        _prepare(system, work, time_s_max)
        ends = socket.socketpair()
        sending, taking = ({**work, "channel": end.fileno()} for end in ends)
        with (
            ends[0], ends[1],
            Role("take-one-by-one", system.name, taking, time_s_max=time_s_max) as consumer,
            Role("send-one-by-one", system.name, sending, time_s_max=time_s_max) as producer,
        ):  # fmt: skip
            consumer.wait_ready()
            consumer.go()
            producer.wait_ready()
            producer.go()
            samples = producer.result()
            consumer.result()
    confirm = _percentiles_us(samples["confirm_s"][WARM_UP_COUNT:])
    receive = _percentiles_us(samples["receive_s"][WARM_UP_COUNT:])
    return Latency(system.name, body_bytes, count, *confirm, *receive)


def backlog(system: System, *, count: int, body_bytes: int, time_s_max: float, data: Path) -> Backlog:
    """A system that cannot take `count` within `time_s_max` is measured with what it took."""
    with _broker(system, data) as (broker, port):
        work = asdict(Work(port, system.fill_variant, count, body_bytes, time_s_max))
        _prepare(system, work, time_s_max)
        with Role("produce", system.name, work, time_s_max=2 * time_s_max) as producer:
            producer.wait_ready()
            producer.go()
            filled = producer.result()
        rss, rss_anonymous = rss_bytes(broker.pid), rss_anonymous_bytes(broker.pid)
        disk = sum(path.stat().st_blocks * 512 for path in data.rglob("*") if path.is_file())
        with Role("first", system.name, work, time_s_max=time_s_max) as consumer:
            consumer.wait_ready()  # its imports are done; it connects at `go`
            broker.kill()
            started = broker.spawn()
            consumer.go()
            broker.wait_ready(started)
            arrived = float(consumer.result()["arrived"])
        return Backlog(
            system.name, body_bytes, filled["count"], filled["count"] / (filled["ended"] - filled["started"]),
            rss, rss_anonymous, disk, broker.ready_after_s, arrived - started, rss_bytes(broker.pid),
        )  # fmt: skip


@contextmanager
def _broker(system: System, data: Path) -> Iterator[tuple[Broker, int]]:
    """A running broker with its own empty directory below `data`, which is gone afterwards."""
    data.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{system.name}-", dir=data))
    try:
        port = free_port()
        with Broker(system.launch(directory, port), directory / "broker.log") as broker:
            yield broker, port
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _prepare(system: System, work: dict[str, object], time_s_max: float) -> None:
    with Role("prepare", system.name, work, time_s_max=time_s_max) as role:
        role.wait_ready()
        role.go()
        role.result()


def _percentiles_us(seconds: list[float]) -> tuple[float, float]:
    cuts = quantiles(seconds, n=100)
    return 1e6 * cuts[49], 1e6 * cuts[98]
