"""Draws measured times as an SVG file: one bar per engine for each query, on a logarithmic axis. Called by `bench`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tsql.tpch.measure import geometric_mean, short

COLOURS = {"tsql": "#c2410c", "duckdb": "#ca8a04", "hyper": "#2563eb", "polars": "#0891b2", "datafusion": "#7c3aed"}
OTHER = "#6b7280"
BAR, GAP, LEFT, TOP, HEIGHT, PANEL = 7, 10, 56, 52, 220, 300
"""The widths of a bar and of the gap between groups, the positions of the axes, and the heights of the axes and of a
panel."""


@dataclass(frozen=True)
class Panel:
    """One chart: the milliseconds of each case, by engine."""

    title: str
    bars: Mapping[str, Mapping[str, float]]


def draw(panels: list[Panel]) -> str:
    """The SVG text of the panels, one below the other."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.bars))
    width = LEFT + 20 + max(len(_cases(panel)) for panel in panels) * (len(names) * BAR + GAP)
    width = max(width, 120 * len(names) + LEFT)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{len(panels) * PANEL + TOP}" '
            'font-family="sans-serif" font-size="11">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        *(_key(i, name) for i, name in enumerate(names)),
    ]
    for i, panel in enumerate(panels):
        parts += [f'<g transform="translate(0 {i * PANEL + TOP})">', *_panel(panel, names, width), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cases(panel: Panel) -> list[str]:
    """The queries of a panel, and their mean."""
    return [*dict.fromkeys(case for bars in panel.bars.values() for case in bars), "mean"]


def _key(place: int, name: str) -> str:
    x = LEFT + place * 110
    return (
        f'<rect x="{x}" y="14" width="10" height="10" fill="{COLOURS.get(name, OTHER)}"/><text x="{x + 15}" '
        f'y="23">{escape(name)}</text>'
    )


def _panel(panel: Panel, names: list[str], width: int) -> list[str]:
    common = set.intersection(*(set(bars) for bars in panel.bars.values())) if panel.bars else set()
    bars = {
        name: dict(found) | ({"mean": geometric_mean(found[case] for case in common)} if common else {})
        for name, found in panel.bars.items()
    }
    values = [value for found in bars.values() for value in found.values()]
    title = (
        f'<text x="{LEFT}" y="-8" font-size="13" font-weight="bold">{escape(panel.title)} (ms, logarithmic; '
        "shorter is better)</text>"
    )
    if not values:
        return [title, f'<text x="{LEFT}" y="20">nothing was measured</text>']
    low, high = math.floor(math.log10(min(values)) - 0.05), math.ceil(math.log10(max(values)))

    def y(value: float) -> float:
        return HEIGHT * (1 - (math.log10(value) - low) / (high - low))

    parts = [title]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{LEFT}" x2="{width - 10}" y1="{at:.1f}" y2="{at:.1f}" stroke="#d1d5db"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for i, case in enumerate(_cases(panel)):
        start = LEFT + GAP + i * (len(names) * BAR + GAP)
        for j, name in enumerate(names):
            if (value := bars.get(name, {}).get(case)) is not None:
                shape = f'x="{start + j * BAR}" y="{y(value):.1f}" width="{BAR - 1}" height="{HEIGHT - y(value):.1f}"'
                tip = escape(f"{name}, {case}: {short(value)} ms")
                parts.append(f'<rect {shape} fill="{COLOURS.get(name, OTHER)}"><title>{tip}</title></rect>')
        parts.append(
            f'<text x="{start + len(names) * BAR / 2:.1f}" y="{HEIGHT + 15}" text-anchor="middle">{escape(case)}</text>'
        )
    return parts
