"""Draws times over sizes as SVG text, a line per strategy, with a band below that names the fastest at each size.
Called by `bench/bigdata.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tsql.tpch.measure import short

TONES = ("#1d4ed8", "#c2410c", "#15803d", "#7e22ce", "#374151")
INK, FAINT = "#374151", "#e5e7eb"
WIDTH, HEIGHT, LEFT, TOP, GAP, BAND = 380, 240, 56, 46, 40, 14
"""The size of a panel's axes, the margins, the space between panels, and the height of the band."""


@dataclass(frozen=True)
class Line:
    """A strategy: its milliseconds by size."""

    title: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """The strategies of one engine."""

    title: str
    lines: Sequence[Line]


def fastest(panel: Panel) -> list[tuple[float, int]]:
    """For each size of a panel in their order, which line has the fewest milliseconds."""
    sizes = sorted({size for line in panel.lines for size, _ in line.points})
    found = []
    for size in sizes:
        times = [(ms, number) for number, line in enumerate(panel.lines) for at, ms in line.points if at == size]
        found.append((size, min(times)[1]))
    return found


def draw(panels: Sequence[Panel], size_title: str) -> str:
    """The SVG text of the panels side by side, with the same axes, both of them logarithmic."""
    points = [point for panel in panels for line in panel.lines for point in line.points]
    width = LEFT + len(panels) * (WIDTH + GAP)
    keys = max((len(panel.lines) for panel in panels), default=0)
    height = TOP + HEIGHT + BAND + 48 + 18 * keys
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    if not points:
        return "\n".join([*parts, f'<text x="{LEFT}" y="{TOP}">nothing was measured</text>', "</svg>"]) + "\n"
    across = _Axis([size for size, _ in points], 0, WIDTH)
    up = _Axis([ms for _, ms in points], HEIGHT, 0)
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({LEFT + number * (WIDTH + GAP)} {TOP})">')
        parts += [*_panel(panel, across, up, size_title, labels=number == 0), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """A logarithmic axis over whole powers of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float):
        self.low, self.high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self.high = max(self.high, self.low + 1)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def powers(self) -> list[int]:
        return [10**power for power in range(max(self.low, 0), self.high + 1)]


def _panel(panel: Panel, across: _Axis, up: _Axis, size_title: str, labels: bool) -> list[str]:
    parts = [
        f'<text x="0" y="-22" font-size="14" font-weight="bold" fill="{INK}">{escape(panel.title)}</text>',
        f'<text x="0" y="-6" fill="{INK}">milliseconds by {escape(size_title)}</text>',
    ]
    for value in up.powers:
        parts.append(f'<line x1="0" x2="{WIDTH}" y1="{up(value):.1f}" y2="{up(value):.1f}" stroke="{FAINT}"/>')
        if labels:
            parts.append(f'<text x="-6" y="{up(value) + 4:.1f}" text-anchor="end" fill="{INK}">{value:,}</text>')
    for value in across.powers:
        at = across(value)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{HEIGHT}" stroke="{FAINT}"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{HEIGHT + BAND + 22}" text-anchor="middle" fill="{INK}">{_count(value)}</text>'
        )
    for number, line in enumerate(panel.lines):
        tone = TONES[number % len(TONES)]
        path = " ".join(f"{across(size):.1f},{up(ms):.1f}" for size, ms in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{tone}" stroke-width="2"/>')
        for size, ms in line.points:
            tip = escape(f"{line.title}, {size:,.0f}: {short(ms)} ms")
            parts.append(
                f'<circle cx="{across(size):.1f}" cy="{up(ms):.1f}" r="3" fill="{tone}"><title>{tip}</title></circle>'
            )
        y = HEIGHT + BAND + 46 + 18 * number
        parts.append(f'<rect x="0" y="{y - 10}" width="10" height="10" fill="{tone}"/>')
        parts.append(f'<text x="16" y="{y}" fill="{INK}">{escape(line.title)}</text>')
    return parts + _band(panel, across)


def _band(panel: Panel, across: _Axis) -> list[str]:
    """The fastest strategy from one size to the next: each reaches half-way to its neighbours."""
    won = fastest(panel)
    places = [across(size) for size, _ in won]
    edges = [places[0], *((a + b) / 2 for a, b in zip(places, places[1:])), places[-1]] if places else []
    parts = []
    for (size, number), start, end in zip(won, edges, edges[1:]):
        tip = escape(f"{size:,.0f}: {panel.lines[number].title} is the fastest")
        parts.append(
            f'<rect x="{start:.1f}" y="{HEIGHT + 2}" width="{max(end - start, 1):.1f}" height="{BAND - 4}" '
            f'fill="{TONES[number % len(TONES)]}"><title>{tip}</title></rect>'
        )
    return parts


def _count(value: int) -> str:
    return f"{value // 1_000_000} M" if value >= 1_000_000 else f"{value // 1_000} k" if value >= 1_000 else str(value)
