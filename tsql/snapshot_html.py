"""A snapshot as HTML for notebooks: how far it is, and its rows with error bars. `Snapshot._repr_html_` and
`notebook.py` call it.

The text is complete in itself: no script, no file, and colours that follow those of the page."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

import pyarrow as pa

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.snapshot_text import error_text, percent, value_text
from tsql.values import texts

if TYPE_CHECKING:
    from tsql.snapshots import Bounds, Snapshot

MOST_ROWS = 30
MOST_COLUMNS = 30
MOST_TEXT = 200
"""Longer texts are cut."""
WIDTH, HEIGHT = 90, 14
"""Of an error bar, in pixels."""

STYLE = (
    ".tsql-snapshot{overflow-x:auto}"
    ".tsql-snapshot table{border-collapse:collapse;border:0;margin:.4em 0;color:inherit;font-size:inherit}"
    ".tsql-snapshot td,.tsql-snapshot th{padding:.15em .6em;border:0;vertical-align:middle;white-space:nowrap;"
    "text-align:left}"
    ".tsql-snapshot thead tr{border-bottom:1px solid currentColor}"
    ".tsql-snapshot .n{text-align:right;font-variant-numeric:tabular-nums}"
    ".tsql-snapshot .q{opacity:.6;font-weight:normal;font-size:90%}"
    ".tsql-snapshot .b{width:16em;max-width:100%;height:.4em;border-radius:.2em;overflow:hidden;"
    "background:rgba(128,128,128,.3)}"
    ".tsql-snapshot .b div{height:100%;background:currentColor;opacity:.6}"
)


@dataclass(frozen=True)
class Scale:
    """Where numbers lie in an error bar: zero is always in it."""

    low: float
    high: float

    def __call__(self, value: float) -> str:
        """A place in pixels; one outside is at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return f"{2 + min(1.0, max(0.0, share)) * (WIDTH - 4):.1f}"


def html_of(snap: Snapshot, state: str = "") -> str:
    """A snapshot as HTML; `state` says what became of its run."""
    rows = min(MOST_ROWS, snap.table.num_rows)
    places = range(min(MOST_COLUMNS, snap.table.num_columns))
    status = [] if snap.row_status is None else snap.row_status.slice(0, rows).to_pylist()
    columns = [_cells(snap, place, rows) for place in places]
    head = "".join(_header(snap, place) for place in places)
    body = "".join(
        f"<tr{_row_note(status, row)}>{''.join(column[row] for column in columns)}</tr>" for row in range(rows)
    )
    left_out = []
    if rows < snap.table.num_rows:
        left_out.append(f"{snap.table.num_rows:,} rows ({rows:,} shown)")
    if len(places) < snap.table.num_columns:
        left_out.append(f"{snap.table.num_columns:,} columns ({len(places):,} shown)")
    if "possible" in status:
        left_out.append("faint rows may leave the result, or their place in it")
    foot = f'<div class="q">{"; ".join(left_out)}</div>' if left_out else ""
    told = state or ("exact" if snap.is_final else "")
    progress = _progress(snap.progress, snap.rows_read, snap.elapsed, told)
    return (
        f'<div class="tsql-snapshot"><style>{STYLE}</style>{progress}'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"
    )


def waiting_html(state: str = "") -> str:
    """What is shown before the first snapshot."""
    return f'<div class="tsql-snapshot"><style>{STYLE}</style>{_progress(0.0, 0, 0.0, state)}</div>'


def _progress(progress: float, rows: int, elapsed: float, state: str) -> str:
    told = f"{percent(progress)} of the input, {rows:,} rows, {elapsed:.2f} s"
    told += f" ({html.escape(state)})" * bool(state)
    return f'<div class="b"><div style="width:{progress * 100:.1f}%"></div></div><div class="q">{told}</div>'


def _header(snap: Snapshot, place: int) -> str:
    kind = ' class="n"' if snap.sql_types[place].is_numeric else ""
    name = snap.table.column_names[place]
    note = snap.notes.get(name)
    told = str(snap.sql_types[place]).lower() + (f", {note}" if note and not snap.is_final else "")
    bars = "" if _bounds(snap, place) is None else "<th></th>"
    return f'<th{kind}>{_text(name)}<br><span class="q">{html.escape(told)}</span></th>{bars}'


def _row_note(status: list[str | None], row: int) -> str:
    return ' style="opacity:.55" title="possible"' if row < len(status) and status[row] == "possible" else ""


def _bounds(snap: Snapshot, place: int) -> Bounds | None:
    return None if snap.is_final else snap.bounds_at.get(place)


def _cells(snap: Snapshot, place: int, rows: int) -> list[str]:
    """The cells of a column, with those of its error bars."""
    column = _whole(snap.table.column(place).slice(0, rows))
    kind = ' class="n"' if snap.sql_types[place].is_numeric else ""
    shown: list[str | None] = texts(column)
    bounds = _bounds(snap, place)
    if bounds is None:
        return [f"<td{kind}>{_value(text)}</td>" for text in shown]
    lows, highs = (side.slice(0, rows).to_pylist() for side in (bounds.lower, bounds.upper))
    values: list[float | None] = _whole(column.cast(pa.float64())).to_pylist()
    scale = _scale([*lows, *highs, *values])
    found = []
    for scalar, text, value, low, high in zip(column, shown, values, lows, highs, strict=True):
        known = low is not None and high is not None and math.isfinite(high - low)
        error = (high - low) / 2 if known else None
        told = _value(value_text(scalar, text, error))
        if error is not None:
            told += f' <span class="q">± {error_text(error)}</span>'
        bar = _bar(scale, value, low if known else None, high if known else None)
        found.append(f"<td{kind}>{told}</td><td>{bar}</td>")
    return found


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _scale(numbers: list[float | None]) -> Scale:
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    low, high = min(0.0, *finite, 0.0), max(0.0, *finite, 0.0)
    return Scale(low, high) if low < high and math.isfinite(high - low) else Scale(0.0, 1.0)


def _bar(scale: Scale, value: float | None, low: float | None, high: float | None) -> str:
    """A bar from zero to a value, with a whisker from its lower to its upper bound."""
    if value is None or not math.isfinite(value):
        return ""
    start, end = sorted((scale(0.0), scale(value)), key=float)
    middle = HEIGHT / 2
    parts = f'<rect x="{start}" y="3" width="{float(end) - float(start):.1f}" height="{HEIGHT - 6}" opacity=".25"/>'
    if low is not None and high is not None:
        left, right = scale(low), scale(high)
        parts += (
            f'<path d="M{left} {middle}H{right}M{left} 3V{HEIGHT - 3}M{right} 3V{HEIGHT - 3}" stroke="currentColor" '
            'fill="none"/>'
        )
    return f'<svg width="{WIDTH}" height="{HEIGHT}" fill="currentColor" aria-hidden="true">{parts}</svg>'


def _value(text: str | None) -> str:
    return '<span class="q">NULL</span>' if text is None else _text(text)


def _text(text: str) -> str:
    """Text that no page takes for anything else."""
    cut = text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
    return html.escape("".join(c if c.isprintable() else " " for c in cut))
