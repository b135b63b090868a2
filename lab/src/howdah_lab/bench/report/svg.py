"""Plot: bars and lines as SVG, written by hand; readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 760
LABEL = 150
VALUE = 150
ROW = 26
TOP = 44
OURS = "#c2410c"
THEIRS = "#64748b"
COLOURS = (OURS, "#2563eb", "#059669", "#9333ea", "#64748b", "#b45309")
STYLE = "text{font:13px system-ui,sans-serif;fill:#64748b}.t{font-weight:600;font-size:15px}"


def bars(title: str, unit: str, rows: Sequence[tuple[str, float, float, float]], ours: str) -> str:
    """One bar for each (name, median, low, high), with a line from the lowest to the highest round."""
    most = max((row[3] for row in rows), default=0) or 1
    scale = (WIDTH - LABEL - VALUE) / most
    parts = []
    for index, (name, middle, low, high) in enumerate(rows):
        y = TOP + index * ROW
        colour = OURS if name == ours else THEIRS
        centre = y + ROW / 2 - 3
        parts.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect x="{LABEL}" y="{y}" width="{max(1, middle * scale):.1f}" height="{ROW - 6}" fill="{colour}"/>'
        )
        left, right = LABEL + low * scale, LABEL + high * scale
        parts.append(f'<path d="M{left:.1f} {centre}H{right:.1f}" stroke="#0f172a" stroke-opacity=".55"/>')
        parts.append(f'<text x="{max(right, LABEL + 1) + 8:.1f}" y="{y + 15}">{number(middle)} {escape(unit)}</text>')
    return _page(title, TOP + len(rows) * ROW + 10, parts)


def lines(title: str, unit: str, ticks: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> str:
    """One line for each name over the same evenly spaced ticks; what was not measured is left out."""
    height, left, right, bottom = 320, 80, 170, 40
    most = max((value for values in series.values() for value in values if value is not None), default=0) or 1
    step = (WIDTH - left - right) / max(1, len(ticks) - 1)
    across = [left + index * step for index in range(len(ticks))]

    def up(value: float) -> float:
        return TOP + (height - TOP - bottom) * (1 - value / most)

    parts = [
        f'<path d="M{left} {up(most * part):.1f}H{WIDTH - right}" stroke="#94a3b8" stroke-opacity=".35"/>'
        f'<text x="{left - 8}" y="{up(most * part) + 4:.1f}" text-anchor="end">{number(most * part)}</text>'
        for part in (0, 0.25, 0.5, 0.75, 1)
    ]
    parts += [
        f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{escape(tick)}</text>'
        for x, tick in zip(across, ticks, strict=True)
    ]
    for index, (name, values) in enumerate(series.items()):
        colour, y = COLOURS[index % len(COLOURS)], TOP + 14 + index * 20
        points = [(x, up(value)) for x, value in zip(across, values, strict=True) if value is not None]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = ' stroke-dasharray="6 4"' if index >= len(COLOURS) else ""
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(f'<rect x="{WIDTH - right + 14}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - right + 32}" y="{y - 3}">{escape(name)}</text>')
    return _page(f"{title}, {unit}", height, parts)


def number(value: float) -> str:
    """With the digits it deserves.

    >>> number(123456.7), number(17.31), number(0.0523)
    ('123,457', '17.3', '0.052')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _page(title: str, height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
    name = f'<title>{escape(title)}</title><style>{STYLE}</style><text class="t" x="8" y="22">{escape(title)}</text>'
    return "\n".join([head, name, *parts, "</svg>", ""])
