"""Figures as tables for people (terminal, Markdown) and as JSON for programs."""
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cases import Backlog, Latency, Throughput
from benchmarks.systems import OURS, SYSTEMS

RESULTS = Path(__file__).parent / "results"


@dataclass(slots=True)
class Results:
    conditions: dict[str, str]
    throughput: list[Throughput] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    backlog: list[Backlog] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sheet:
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def sheets(results: Results) -> list[Sheet]:
    found = [_throughput(results.throughput, size) for size in sorted({r.body_bytes for r in results.throughput})]
    if results.latency:
        found.append(_latency(results.latency))
    if results.backlog:
        found.append(_backlog(results.backlog))
    return found


def _throughput(rows: Sequence[Throughput], body_bytes: int) -> Sheet:
    rows = [row for row in rows if row.body_bytes == body_bytes]
    ours, peers = [r for r in rows if r.system in OURS], [r for r in rows if r.system not in OURS]
    fastest = max((row.rate for row in ours), default=0.0)
    leanest = min((row.cpu_us for row in ours), default=0.0)
    lines = [
        (
            f"{SYSTEMS[row.system].title}: {row.variant}",
            f"{row.count:,}",
            f"{row.rate:,.0f}",
            f"{row.publish_rate:,.0f}",
            f"{row.cpu_us:.1f}",
            _ratio(fastest, row.rate),
            _ratio(leanest, row.cpu_us),
        )
        for row in rows
    ]
    if ours and peers:
        rate, cpu_us = max(peer.rate for peer in peers), min(peer.cpu_us for peer in peers)
        lines.append(("ours against the best peer", "", "", "", "", _ratio(fastest, rate), _ratio(leanest, cpu_us)))
    return Sheet(
        f"Throughput, {body_bytes:,} B, 1 producer to 1 consumer, durable, settled",
        ("", "messages", "msg/s settled", "msg/s confirmed", "broker CPU us/msg", "our rate / its", "our CPU / its"),
        lines,
    )


def _latency(rows: Sequence[Latency]) -> Sheet:
    lines: list[tuple[str, ...]] = [
        (
            SYSTEMS[row.system].title,
            f"{row.count:,} x {row.body_bytes:,} B",
            f"{row.confirm_p50_us:,.0f}",
            f"{row.confirm_p99_us:,.0f}",
            f"{row.receive_p50_us:,.0f}",
            f"{row.receive_p99_us:,.0f}",
        )
        for row in rows
    ]
    mine = next((row for row in rows if row.system in OURS), None)
    figures: list[Callable[[Latency], float]] = [
        lambda row: row.confirm_p50_us, lambda row: row.confirm_p99_us,
        lambda row: row.receive_p50_us, lambda row: row.receive_p99_us,
    ]  # fmt: skip
    for peer in (row for row in rows if mine and row.system not in OURS):
        assert mine is not None
        ratios = [_ratio(figure(mine), figure(peer)) for figure in figures]
        lines.append((f"ours / {SYSTEMS[peer.system].title}", "", *ratios))
    header = ("", "samples", "confirm p50 us", "confirm p99 us", "receive p50 us", "receive p99 us")
    return Sheet("Latency, one message at a time, from send", header, lines)


def _backlog(rows: Sequence[Backlog]) -> Sheet:
    lines = [
        (
            SYSTEMS[row.system].title,
            f"{row.count:,} x {row.body_bytes:,} B",
            f"{row.fill_rate:,.0f}",
            f"{row.rss_bytes / 1e6:,.0f}",
            f"{row.rss_anonymous_bytes / 1e6:,.0f}",
            f"{row.disk_bytes / 1e6:,.0f}",
            f"{row.ready_s:.2f}",
            f"{row.first_s:.2f}",
            f"{row.rss_after_bytes / 1e6:,.0f}",
        )
        for row in rows
    ]
    header = (
        "", "waiting", "msg/s in", "RSS MB", "of it anonymous MB", "disk MB",
        "ready after kill -9, s", "first message, s", "RSS MB after restart",
    )  # fmt: skip
    return Sheet("Backlog", header, lines)


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else "-"


def show(results: Results, console: Console) -> None:
    for sheet in sheets(results):
        table = Table(title=sheet.title, title_justify="left")
        for number, name in enumerate(sheet.header):
            table.add_column(name, justify="right" if number else "left")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)
    conditions = Table(title="Conditions", show_header=False, title_justify="left")
    for name, value in results.conditions.items():
        conditions.add_row(name, value)
    console.print(conditions)
    for reason in results.skipped:
        console.print(f"skipped: {reason}")


def save(results: Results, *, latest: bool) -> Path:
    """Write the figures under results/; `latest` also renews the page that is kept in the repository."""
    RESULTS.mkdir(exist_ok=True)
    stamp = results.conditions["date"].replace(" UTC", "").replace(" ", "T").replace(":", "")
    path = RESULTS / f"{stamp}.json"
    path.write_text(json.dumps(asdict(results), indent=2) + "\n")
    if latest:
        (RESULTS / "latest.md").write_text(_markdown(results))
    return path


def _markdown(results: Results) -> str:
    parts = ["# Latest measurement\n", "Written by `make bench`.\n"]
    for sheet in sheets(results):
        parts.append(f"## {sheet.title}\n")
        parts.append("| " + " | ".join(sheet.header) + " |\n|" + "---|" * len(sheet.header))
        parts.extend("| " + " | ".join(row) + " |" for row in sheet.rows)
        parts.append("")
    parts.append("## Conditions\n")
    parts.extend(f"- {name}: {value}" for name, value in results.conditions.items())
    parts.extend(f"- skipped: {reason}" for reason in results.skipped)
    return "\n".join(parts) + "\n"
