"""Traffic as a page for people."""
import html
from collections.abc import Callable
from typing import Any

from angarium.spark.pipelines.plots import Line, bar_plot, line_plot, page, table
from angarium.spark.pipelines.traffic import TrafficResult

_LINES_MAX = 6  # the busiest of each kind
_BARS_MAX = 20
_HEADER = ("in a second", "bytes in a second", "out a second", "bytes out a second", "fan-out")
_PLOTS = {"messages_in": "Messages in, a second", "messages_out": "Messages out, a second"}
_PLOTS |= {"bytes_in": "Bytes in, a second", "bytes_out": "Bytes out, a second"}


def traffic_page(result: TrafficResult) -> str:
    advice = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in result.advice)
    parts = [f"<p>{result.seconds:,.0f} seconds of what is traced.</p><ul>{advice}</ul>"]
    managers = {row["number"]: row["name"] for row in result.message_managers}
    for title, key, rows, name in (
        ("Destinations", "destination", result.destinations, str),
        ("Message managers", "number", result.message_managers, managers.__getitem__),
        ("Client managers", "node", result.client_managers, str),
        ("Producers", "producer", result.producers, str),
    ):
        bars = [(name(row[key]), (row["bytes_in"] + row["bytes_out"]) / result.seconds) for row in rows[:_BARS_MAX]]
        parts += [f"<h2>{title}</h2>", bar_plot("Bytes a second, in and out", bars)]
        parts.append(table(("", *_HEADER), ([name(row[key]), *_figures(row, result.seconds)] for row in rows)))
        told = result.over_time.get(key, [])
        parts += [line_plot(said, _lines(told, key, name, what)) for what, said in _PLOTS.items()]
        parts.append(line_plot("Fan-out", _lines(told, key, name, "fan_out")))
    return page("Traffic", parts)


def _figures(row: dict[str, Any], seconds: float) -> list[Any]:
    return [*(row[name] / seconds for name in ("messages_in", "bytes_in", "messages_out", "bytes_out")), row["fan_out"]]


def _lines(told: list[dict[str, Any]], key: str, name: Callable[[Any], str], what: str) -> list[Line]:
    """The busiest, which come first."""
    points: dict[Any, list[tuple[float, float | None]]] = {}
    for row in told:
        value = row[what] if what == "fan_out" else row[what] * 1_000 / row["width_ms"]
        points.setdefault(row[key], []).append((row["from_ms"], value))
    return [Line(name(one), points[one]) for one in list(points)[:_LINES_MAX]]
