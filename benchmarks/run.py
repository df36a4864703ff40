"""`make bench`: our broker and its peers, one after the other on one machine, in one run.

    python -m benchmarks.run [--quick] [--only ours,nats,redis] [--case throughput,latency,backlog] [--repeat 3]
    python -m benchmarks.run --copies 3 [...]   clusters of three, each message on all of them

Figures go to standard output as tables, to benchmarks/results/ as JSON and, after a full run, to
benchmarks/results/latest.md. A peer that is not installed is named and skipped.
"""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import cases, report
from benchmarks.conditions import conditions
from benchmarks.processes import BenchmarkFailed
from benchmarks.systems import OURS, REPLICATED, SINGLE
from benchmarks.systems.contract import System

Figures = cases.Throughput | cases.Latency | cases.Backlog
Measurement = tuple[str, Callable[[], Figures]]  # what it is, for people, and the work

CASES = ("throughput", "latency", "backlog")
CASES_REPLICATED = ("throughput", "latency")
DATA = Path("var/bench")  # on the disk that a broker would use, never a tmpfs
KIB = 1_024
LATENCY_BODY_BYTES = KIB
BACKLOG_BODY_BYTES = 100


@dataclass(frozen=True, slots=True)
class Scale:
    """Counts are chosen so that each measurement lasts seconds for its system."""

    ours_count: dict[int, int]  # messages by body size
    peer_count: dict[int, int]
    latency_count: int
    backlog_count: int
    time_s_max: float  # of one measurement


FULL = Scale({KIB: 1_000_000, 100: 3_000_000}, {KIB: 200_000, 100: 300_000}, 2_000, 10_000_000, 180.0)
QUICK = Scale({KIB: 100_000, 100: 200_000}, {KIB: 20_000, 100: 20_000}, 300, 200_000, 60.0)
SLOW_COUNT_FACTOR = {("nats", "publish"): 0.2, ("nats-3", "publish"): 0.1}  # one fsync for each message
FULL_REPLICATED = Scale({KIB: 400_000}, {KIB: 100_000}, 1_000, 0, 180.0)
QUICK_REPLICATED = Scale({KIB: 40_000}, {KIB: 10_000}, 200, 0, 120.0)


def _measurements(systems: list[System], chosen: list[str], scale: Scale, data: Path) -> Iterator[Measurement]:
    if "throughput" in chosen:
        for body_bytes in sorted(scale.ours_count, reverse=True):
            for system in systems:
                for variant in system.variants:
                    yield _throughput(system, variant.name, body_bytes, scale, data)
    for system in systems:
        if "latency" in chosen:
            yield _latency(system, scale, data)
        if "backlog" in chosen:
            yield _backlog(system, scale, data)


def _throughput(system: System, variant: str, body_bytes: int, scale: Scale, data: Path) -> Measurement:
    counts = scale.ours_count if system.name in OURS else scale.peer_count
    count = int(counts[body_bytes] * SLOW_COUNT_FACTOR.get((system.name, variant), 1))

    def measure() -> Figures:
        return cases.throughput(
            system, variant, count=count, body_bytes=body_bytes, time_s_max=scale.time_s_max, data=data
        )

    return f"{system.title} ({variant}): {count:,} messages of {body_bytes:,} B", measure


def _latency(system: System, scale: Scale, data: Path) -> Measurement:
    count, body_bytes = scale.latency_count, LATENCY_BODY_BYTES

    def measure() -> Figures:
        return cases.latency(system, count=count, body_bytes=body_bytes, time_s_max=scale.time_s_max, data=data)

    return f"{system.title}: {count:,} messages of {body_bytes:,} B, one at a time", measure


def _backlog(system: System, scale: Scale, data: Path) -> Measurement:
    count, body_bytes = scale.backlog_count, BACKLOG_BODY_BYTES

    def measure() -> Figures:
        return cases.backlog(system, count=count, body_bytes=body_bytes, time_s_max=scale.time_s_max, data=data)

    return f"{system.title}: backlog of {count:,} messages of {body_bytes:,} B, kill -9, restart", measure


def _median(runs: list[Figures]) -> Figures:
    def speed(figures: Figures) -> float:
        match figures:
            case cases.Throughput():
                return figures.rate
            case cases.Latency():
                return figures.confirm_p50_us
            case cases.Backlog():
                return figures.ready_s

    return sorted(runs, key=speed)[len(runs) // 2]


def _names(given: str, known: tuple[str, ...], option: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint=option)
    return [name for name in known if not names or name in names]


def _run(
    quick: Annotated[bool, typer.Option("--quick", help="Small counts: shows that it works, not how fast.")] = False,
    copies: Annotated[int, typer.Option(help="1: single brokers. 3: clusters with three copies (no backlog).")] = 1,
    only: Annotated[str, typer.Option(help="Comma separated: ours, nats, redis; ours-3, nats-3, rabbit-3.")] = "",
    case: Annotated[str, typer.Option(help="Cases, comma separated: throughput, latency, backlog.")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="Measure so often and keep the median (not the backlog).")] = 1,
    data: Annotated[Path, typer.Option(help="Directory for the brokers' data, on a real disk.")] = DATA,
) -> None:
    if copies not in (1, 3):
        raise typer.BadParameter(f"{copies} is neither 1 nor 3", param_hint="--copies")
    known, cases_here = (SINGLE, CASES) if copies == 1 else (REPLICATED, CASES_REPLICATED)
    names, chosen = _names(only, tuple(known), "--only"), _names(case, cases_here, "--case")
    full, small = (FULL, QUICK) if copies == 1 else (FULL_REPLICATED, QUICK_REPLICATED)
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal:
        console = Console(width=160)  # a log file has room
    data.mkdir(parents=True, exist_ok=True)
    missing = {name: known[name].missing() for name in names}
    systems = [known[name] for name in names if not missing[name]]
    results = report.Results(conditions(systems, data))
    results.conditions["runs"] = f"{repeat}, the median is shown" if repeat > 1 else "1"
    results.skipped = [f"{known[name].title}: {reason}" for name, reason in missing.items() if reason]
    failed = False
    for label, measure in _measurements(systems, chosen, small if quick else full, data):
        progress.print(label, highlight=False)
        try:
            figures = _median([measure() for _ in range(1 if "backlog" in label else repeat)])
        except BenchmarkFailed as error:
            failed = True
            results.skipped.append(f"{label}: {error}")
            progress.print(f"  failed: {error}", highlight=False, markup=False)
            continue
        match figures:
            case cases.Throughput():
                results.throughput.append(figures)
            case cases.Latency():
                results.latency.append(figures)
            case cases.Backlog():
                results.backlog.append(figures)
    report.show(results, console)
    everything = copies == 1 and not quick and not only and not case and not failed
    progress.print(f"written to {report.save(results, latest=everything)}", highlight=False)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(_run)
