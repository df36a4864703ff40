"""The audit as a page for people."""
import html
from typing import Any

from angarium.spark.pipelines.audit import FINDINGS_MAX, AuditResult, sentence
from angarium.spark.pipelines.plots import Line, clock, line_plot, page, table

_SHOWN_MAX = 100  # findings on the page; all of them are in the Parquet files


def audit_page(result: AuditResult) -> str:
    verdict = (
        f'<p class="bad">Broken: {html.escape(", ".join(result.broken))}.</p>'
        if result.broken
        else '<p class="good">Every guarantee held.</p>'
    )
    parts = [verdict, f"<p>{html.escape(sentence(result))}.</p>"]
    if result.dropped:
        parts.append(
            f'<p class="bad">{result.dropped:,} trace records could not be kept (a full disk, or too much at once): '
            "what nothing ended may have been settled without a record, and is not called lost.</p>"
        )
    parts += ["<h2>Destinations</h2>", _destinations(result), "<h2>Over time</h2>", *_plots(result)]
    parts += ["<h2>Consumers</h2>", _consumers(result)]
    if result.findings or result.stored_twice or result.replaced:
        parts += ["<h2>Findings</h2>", _findings(result)]
    return page("Delivery audit", parts)


def _where(row: dict[str, Any]) -> str:
    return f"{row['destination']} · {row['subscription']}" if row["subscription"] else row["destination"]


def _destinations(result: AuditResult) -> str:
    counted = ("confirmed", "delivered", "settled", "unsettled", "expired", "dead", "passed_over", "missed",
               "redelivered", "lost", "duplicated", "reordered")  # fmt: skip
    header = ["", *(name.replace("_", " ") for name in counted)]
    rows = ([_where(row), *(row[name] for name in counted)] for row in result.destinations)
    times = ([_where(row), *_times(row)] for row in result.destinations)
    return table(header, rows) + "<h3>Milliseconds</h3>" + table(["", *_TIMES], times)


_TIMES = ("to delivery, half", "99 %", "longest", "unsettled, half", "99 %", "longest")


def _times(row: dict[str, Any]) -> list[Any]:
    return [*(row["latency_ms"] or [None] * 3), *(row["held_ms"] or [None] * 3)]


def _plots(result: AuditResult) -> list[str]:
    by: dict[str, list[dict[str, Any]]] = {}
    for row in result.over_time:
        by.setdefault(_where(row), []).append(row)
    rates = [
        Line(name, [(row["from_ms"], row["confirmed"] * 1_000 / row["width_ms"]) for row in rows])
        for name, rows in list(by.items())[:8]
    ]
    halves = [
        Line(f"{name}, {share}", [(row["from_ms"], (row["latency_ms"] or [None] * 3)[at]) for row in rows])
        for name, rows in list(by.items())[:4]
        for at, share in ((0, "half"), (1, "99 %"))
    ]
    return [line_plot("Messages a second", rates), line_plot("From confirm to first delivery", halves, "ms")]


def _consumers(result: AuditResult) -> str:
    rows = ([_where(row), row["consumer"], row["delivered"], row["settled"], *_times(row)] for row in result.consumers)
    return table(["", "consumer", "delivered", "settled", *_TIMES], rows, text=(0, 1))


def _findings(result: AuditResult) -> str:
    rows = [
        [row["finding"], _where(row), row["position"], row["consumer"] or "", *map(_at, _moments(row))]
        for row in result.findings[:_SHOWN_MAX]
    ]
    rows += [
        ["stored twice", row["destination"], row["position"], f"{row['producer']} {row['sequence']}", "", ""]
        for row in result.stored_twice[:_SHOWN_MAX]
    ]
    rows += [
        ["replaced by another", row["destination"], row["position"], "", "", ""] for row in result.replaced[:_SHOWN_MAX]
    ]
    note = f'<p class="quiet">The first {_SHOWN_MAX} of each; up to {FINDINGS_MAX:,} in --json, all in --output.</p>'
    return table(["", "where", "position", "consumer", "confirmed", "ended"], rows, text=(0, 1, 3, 4, 5)) + note


def _moments(row: dict[str, Any]) -> tuple[int | None, int | None]:
    return row["confirmed_ms"], row["ended_ms"]


def _at(at_ms: int | None) -> str:
    return "" if at_ms is None else clock(at_ms)
