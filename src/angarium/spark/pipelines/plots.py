"""Plots as SVG, and pages of them that need nothing else: no script, no font, no network."""
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

WIDTH, HEIGHT = 860, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 26, 28
_COLOURS = ("#1a6faf", "#c7552b", "#3d8b4f", "#8757a5", "#a07c1c", "#5b6770")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 920px; margin: 2rem auto; padding: 0 1rem; color: #1c2329 }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #dde3e8; white-space: nowrap }
th:first-child, td:first-child, td.text, th.text { text-align: left }
.good { color: #22713a } .bad { color: #b3261e; font-weight: 600 } .quiet { color: #5b6770 }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: #5b6770 }
"""


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[float, float | None]]  # milliseconds since 1970, and a value if there is one


def line_plot(title: str, lines: Sequence[Line], unit: str = "") -> str:
    """Over time. Values begin at zero, so that heights compare."""
    known = [(x, y) for line in lines for x, y in line.points if y is not None]
    if not known:
        return ""
    low, high = min(x for x, _ in known), max(x for x, _ in known)
    top = ceiling(max(y for _, y in known))

    def place(x: float, y: float) -> str:
        share = (x - low) / (high - low) if high > low else 0.5
        across = _LEFT + share * (WIDTH - _LEFT - _RIGHT)
        return f"{across:.1f},{HEIGHT - _BOTTOM - y / top * (HEIGHT - _TOP - _BOTTOM):.1f}"

    drawn: list[str] = [_axes(top, unit, low, high)]
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(place(x, y) for x, y in line.points if y is not None)
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        drawn += [
            f'<circle cx="{place(x, y).split(",")[0]}" cy="{place(x, y).split(",")[1]}" r="2" fill="{colour}"/>'
            for x, y in line.points if y is not None
        ]  # fmt: skip
        drawn.append(
            f'<text x="{_LEFT + 4 + number % 4 * 195}" y="{12 + number // 4 * 12}" style="fill:{colour}">'
            f"{html.escape(line.name[:32])}</text>"
        )
    return f"<h3>{html.escape(title)}</h3>{_svg(drawn)}"


def bar_plot(title: str, bars: Sequence[tuple[str, float]], unit: str = "") -> str:
    if not bars:
        return ""
    top = max(value for _, value in bars) or 1.0
    drawn: list[str] = []
    for number, (name, value) in enumerate(bars):
        y = number * 22
        width = value / top * (WIDTH - 420)
        drawn.append(f'<text x="230" y="{y + 14}" text-anchor="end">{html.escape(name[:36])}</text>')
        drawn.append(f'<rect x="238" y="{y + 3}" width="{width:.1f}" height="15" fill="{_COLOURS[0]}"/>')
        drawn.append(f'<text x="{244 + width:.1f}" y="{y + 14}">{figure(value)} {html.escape(unit)}</text>')
    return f"<h3>{html.escape(title)}</h3>{_svg(drawn, len(bars) * 22)}"


def _svg(drawn: Iterable[str], height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(drawn)}</svg>'


def _axes(top: float, unit: str, low_ms: float, high_ms: float) -> str:
    parts: list[str] = []
    for step in range(5):
        y = HEIGHT - _BOTTOM - step / 4 * (HEIGHT - _TOP - _BOTTOM)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e8ec"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{figure(top * step / 4)} {unit}</text>')
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = _LEFT + share * (WIDTH - _LEFT - _RIGHT)
        at = clock(low_ms + share * (high_ms - low_ms))
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{at}</text>')
    return "".join(parts)


def ceiling(value: float) -> float:
    """The next 1, 2 or 5 with zeros behind it."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999999))


def figure(value: float | None) -> str:
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2g}"


def clock(at_ms: float) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, text: Sequence[int] = (0,)) -> str:
    def cell(tag: str, number: int, value: object) -> str:
        kind = ' class="text"' if number in text else ""
        shown = figure(value) if isinstance(value, int | float) or value is None else str(value)
        return f"<{tag}{kind}>{html.escape(shown)}</{tag}>"

    head = "".join(cell("th", number, name) for number, name in enumerate(header))
    body = "".join(f"<tr>{''.join(cell('td', n, value) for n, value in enumerate(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def page(title: str, parts: Sequence[str]) -> str:
    name = html.escape(title)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>'
    return f"<!doctype html><html lang=en>{head}<style>{_STYLE}</style><h1>{name}</h1>{''.join(parts)}\n"
