"""Traffic as a page for people."""
import html
from typing import Any

from angarium.spark.pipelines.plots import Line, bar_plot, line_plot, page, table
from angarium.spark.pipelines.traffic import TrafficResult

_LINES_MAX = 8
_BARS_MAX = 20
_HEADER = ("in a second", "bytes in a second", "out a second", "bytes out a second", "fan-out")


def traffic_page(result: TrafficResult) -> str:
    advice = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in result.advice)
    parts = [f"<p>{result.seconds:,.0f} seconds of what is traced.</p><ul>{advice}</ul>", "<h2>Over time</h2>"]
    parts += [
        line_plot("Messages in, a second, by destination", _lines(result, "destination", "messages_in")),
        line_plot("Messages out, a second, by destination", _lines(result, "destination", "messages_out")),
        line_plot("Bytes in, a second, by message manager", _lines(result, "number", "bytes_in")),
    ]
    for title, key, rows in (
        ("Destinations", "destination", result.destinations),
        ("Message managers", "name", result.message_managers),
        ("Client managers", "node", result.client_managers),
        ("Producers", "producer", result.producers),
    ):
        bars = [(str(row[key]), (row["bytes_in"] + row["bytes_out"]) / result.seconds) for row in rows[:_BARS_MAX]]
        parts += [f"<h2>{title}</h2>", bar_plot("Bytes a second, in and out", bars)]
        parts.append(table(("", *_HEADER), ([row[key], *_figures(row, result.seconds)] for row in rows)))
    return page("Traffic", parts)


def _figures(row: dict[str, Any], seconds: float) -> list[Any]:
    names = ("messages_in", "bytes_in", "messages_out", "bytes_out")
    return [*(row[name] / seconds for name in names), row["fan_out"]]


def _lines(result: TrafficResult, key: str, what: str) -> list[Line]:
    summed: dict[str, dict[float, float]] = {}
    names = {row["number"]: row["name"] for row in result.message_managers}
    for row in result.over_time:
        name = names[row["number"]] if key == "number" else row[key]
        points = summed.setdefault(name, {})
        points[row["from_ms"]] = points.get(row["from_ms"], 0.0) + row[what] * 1_000 / row["width_ms"]
    return [Line(name, sorted(points.items())) for name, points in list(summed.items())[:_LINES_MAX]]
