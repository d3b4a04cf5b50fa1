"""Draws the pictures of docs/progressive.md from runs of progressive queries: `python docs/figures_progressive.py`
writes docs/figures/*.svg.

The data are made by formulas, seeds decide the order in which they are read, and one thread reads them: so the same
picture is the same file. The tests draw every picture again and compare it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from figures import FAINT, FOLDER, INK, TONES, WIDTH, opening

import tsql

UNIT_ROWS, UNITS = 2_048, 200
"""A table of so many rows is read in units of so many."""
DAY_UNITS = 20

HITS = f"""CREATE TABLE hits AS
SELECT i AS id, CAST(i // {DAY_UNITS * UNIT_ROWS} AS INTEGER) AS day,
       CAST(20 + i // 8192 + hash(i) % 60 AS INTEGER) AS latency,
       CAST(hash(i + 7) % 100000 AS INTEGER) AS user_id,
       CASE WHEN hash(i + 3) % 100 < 31 THEN 'DE' WHEN hash(i + 3) % 100 < 53 THEN 'FR'
            WHEN hash(i + 3) % 100 < 70 THEN 'IT' WHEN hash(i + 3) % 100 < 86 THEN 'ES'
            WHEN hash(i + 3) % 100 < 95 THEN 'PL' ELSE 'AT' END AS country
FROM range({UNITS * UNIT_ROWS}) t(i)"""
"""In the order of time, while the site gets slower. Each of ten days has 20 units."""

SALES = f"""CREATE TABLE sales AS
SELECT i AS id, CAST(CASE WHEN i // {UNIT_ROWS} IN (23, 24, 61, 118, 119, 171) THEN 2000 + hash(i) % 1000
                 ELSE hash(i) % 100 END AS INTEGER) AS amount
FROM range({UNITS * UNIT_ROWS}) t(i)"""
"""Small amounts, and large ones in six units."""

RED = "#b91c1c"


@dataclass(frozen=True)
class Look:
    """A value at a look: how much was read (0 to 1), the estimate, and its bounds."""

    share: float
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Panel:
    """A place of a picture, with what its axes show."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at_x(self, x: float) -> float:
        return self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * self.width

    def at_y(self, y: float) -> float:
        low, high = self.y
        return self.top + self.height - (min(max(y, low), high) - low) / (high - low) * self.height

    def grid(self, xs: Sequence[float], ys: Sequence[float], x_text: str, y_text: str) -> Iterator[str]:
        """Thin lines with numbers, as texts say them."""
        for y in ys:
            at = self.at_y(y)
            yield _line(self.left, at, self.left + self.width, at, FAINT)
            yield _text(self.left - 8, at + 4, y_text.format(y), "end")
        for x in xs:
            yield _text(self.at_x(x), self.top + self.height + 17, x_text.format(x), "middle")

    def band(self, looks: Sequence[Look], tone: int) -> Iterator[str]:
        """The bounds of a value, and the value, over what was read."""
        line, fill = TONES[tone]
        there = [(one.share, one.low, one.high) for one in looks if one.low is not None and one.high is not None]
        edge = [(x, high) for x, _, high in there] + [(x, low) for x, low, _ in reversed(there)]
        yield f'<path d="{self._path(edge)} Z" fill="{fill}" stroke="{line}" stroke-width="0.6"/>'
        yield _path(self._path([(one.share, one.value) for one in looks]), line)

    def level(self, y: float, text: str) -> Iterator[str]:
        """A line for the exact value."""
        at = self.at_y(y)
        yield _line(self.left, at, self.left + self.width, at, RED, dash=True)
        yield _text(self.left + self.width, at - 6, text, "end", RED)

    def _path(self, points: Sequence[tuple[float, float]]) -> str:
        return " ".join(
            f"{'L' if place else 'M'}{self.at_x(x):.1f} {self.at_y(y):.1f}" for place, (x, y) in enumerate(points)
        )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0, dash: bool = False) -> str:
    dashes = ' stroke-dasharray="4 3"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashes}/>'
    )


def _path(points: str, colour: str) -> str:
    return f'<path d="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = INK, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str, line: str = "none") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{line}" '
        'stroke-width="0.8"/>'
    )


def _whole(parts: Sequence[str], height: float) -> str:
    return "\n".join([*opening(height), *parts, "</svg>"]) + "\n"


# What is drawn


class Data:
    """The tables, each also as Arrow memory under the name with `_arrow`, and runs over them."""

    def __init__(self) -> None:
        self.db = tsql.connect(threads=1)
        for name, sql in (("hits", HITS), ("sales", SALES)):
            self.db.execute(sql)
            self.db.register(f"{name}_arrow", self.db.sql(f"SELECT * FROM {name}").arrow())

    def exact(self, sql: str) -> float:
        return float(self.db.sql(sql).fetchall()[0][0])

    def snapshots(self, sql: str, every: float = 2, rest: str = "") -> list[Any]:
        found = self.db.sql(f"{sql} PROGRESSIVE EVERY {every:g} PERCENT {rest}").snapshots()
        return [snap for snap in found if not snap.is_final]

    def looks(self, sql: str, name: str, every: float = 2, rest: str = "") -> list[Look]:
        """The looks at the only value of a column."""
        return [self.look(snap, name, 0) for snap in self.snapshots(sql, every, rest)]

    @staticmethod
    def look(snap: Any, name: str, row: int) -> Look:
        bounds = snap.bounds.get(name)
        ends = (None, None) if bounds is None else (bounds.lower[row].as_py(), bounds.upper[row].as_py())
        return Look(snap.progress, float(snap.table[name][row].as_py()), *ends)

    def units_read(self, share: float) -> list[int]:
        """The units of `hits` that have been read, by their place in the table."""
        (first, *_) = self.snapshots(f"SELECT id // {UNIT_ROWS} AS unit, count(*) AS n FROM hits GROUP BY 1", share)
        return sorted(int(unit) for unit in first.table["unit"].to_pylist())


def _settling(data: Data) -> str:
    sql = "SELECT avg(latency) AS m FROM hits"
    looks, exact = data.looks(sql, "m"), data.exact(sql)
    parts, cell = [], (WIDTH - 96 - 24) / UNITS
    for row, share in enumerate((5, 20, 50)):
        top = 32 + 26 * row
        parts.append(_text(86, top + 13, f"{share} % read", "end"))
        parts.append(_rect(96, top, UNITS * cell, 17, "#f3f4f6"))
        parts += [_rect(96 + unit * cell, top, cell, 17, TONES[0][0]) for unit in data.units_read(share)]
    parts.append(_text(96, 20, "the table, in 200 units of 2,048 rows; those that were read are blue", bold=True))
    panel = Panel(96, 144, WIDTH - 96 - 24, 190, (0, 1), (60, 90))
    parts += panel.grid((0, 0.2, 0.4, 0.6, 0.8, 1), (60, 70, 80, 90), "{:.0%}", "{:.0f}")
    parts += panel.band(looks, 0)
    parts += panel.level(exact, "")
    parts.append(_text(panel.left + panel.width, panel.at_y(69.5), f"exact: {exact:.2f}", "end", RED))
    parts.append(_text(96, panel.top - 12, "avg(latency): the estimate, between its bounds", bold=True))
    parts.append(_text(panel.left + panel.width, panel.top + panel.height - 8, "how much was read →", "end"))
    return _whole(parts, 364)


def _neighbours(data: Data) -> str:
    sql = "SELECT avg(latency) AS m, stddev_samp(latency) AS s FROM hits"
    exact, found = data.exact("SELECT avg(latency) FROM hits"), data.snapshots(sql)
    by_units = [data.look(snap, "m", 0) for snap in found]
    by_rows = []
    for snap, one in zip(found, by_units, strict=True):
        half = 1.96 * snap.table["s"][0].as_py() * ((1 - snap.progress) / snap.rows_read) ** 0.5
        by_rows.append(Look(one.share, one.value, one.value - half, one.value + half))
    table = Panel(60, 40, 250, 200, (0, UNITS), (20, 140))
    parts = [
        _text(60, 24, "the latencies of each unit, and their mean", bold=True),
        _text(60, 257, "place in the table →"),
    ]
    parts += table.grid((), (20, 60, 100, 140), "", "{:.0f}")
    rows = data.db.sql(f"SELECT id // {UNIT_ROWS} AS u, avg(latency), min(latency), max(latency) FROM hits GROUP BY u")
    for unit, middle, low, high in sorted(rows.fetchall()):
        x = table.at_x(unit + 0.5)
        parts.append(_line(x, table.at_y(low), x, table.at_y(high), TONES[0][1], 1.25))
        parts.append(_rect(x - 0.7, table.at_y(middle) - 0.7, 1.4, 1.4, TONES[0][0]))
    panel = Panel(376, 40, WIDTH - 376 - 24, 200, (0, 1), (65, 85))
    parts.append(_text(376, 24, "bounds for avg(latency)", bold=True))
    parts += panel.grid((0, 0.5, 1), (65, 70, 75, 80, 85), "{:.0%}", "{:.0f}")
    parts += panel.band(by_units, 0)
    parts += panel.band(by_rows, 1)
    parts += panel.level(exact, "")
    parts.append(_text(panel.at_x(0.32), panel.at_y(82), "from units", colour=TONES[0][0]))
    parts.append(_text(panel.at_x(0.32), panel.at_y(80.3), "as if rows were drawn: too close", colour=TONES[1][0]))
    parts.append(_text(panel.left + panel.width, panel.at_y(72.3), "exact", "end", RED))
    return _whole(parts, 270)


def _far(data: Data) -> str:
    sql = "SELECT sum(amount) AS s FROM {}"
    exact = data.exact(sql.format("sales")) / 1e6
    zones = data.db.sql(f"SELECT id // {UNIT_ROWS} AS u, max(amount) FROM sales GROUP BY u").fetchall()
    strip = Panel(60, 34, WIDTH - 84, 66, (0, UNITS), (0, 3000))
    parts = [_text(60, 20, "the largest amount in each unit, as the zones say before anything is read", bold=True)]
    parts += strip.grid((), (0, 3000), "", "{:,.0f}")
    for unit, most in sorted(zones):
        x, tone = strip.at_x(unit), 1 if most > 1000 else 0
        parts.append(_rect(x, strip.at_y(most), strip.width / UNITS, strip.at_y(0) - strip.at_y(most), TONES[tone][0]))
    for place, (name, title) in enumerate((
        ("sales", "a table: the orange units are read first"),
        ("sales_arrow", "Arrow memory has no zones: luck decides"),
    )):  # fmt: skip
        panel = Panel(60 + 356 * place, 152, 312, 150, (0, 1), (0, 120))
        looks = [_scaled(one, 1e-6) for one in data.looks(sql.format(name), "s", rest="SEED 5")]
        parts.append(_text(panel.left, 138, title, bold=True))
        parts += panel.grid((0, 0.5, 1), (0, 40, 80, 120), "{:.0%}", "{:.0f} M")
        parts += panel.band(looks, place)
        parts += panel.level(exact, "exact")
        if any(one.high is not None and one.high < 0.9 * exact for one in looks):
            parts.append(_text(panel.at_x(0.02), panel.at_y(8), "wrong", colour=TONES[1][0]))
    return _whole(parts, 332)


def _scaled(one: Look, by: float) -> Look:
    ends = (None if end is None else end * by for end in (one.low, one.high))
    return Look(one.share, one.value * by, *ends)


def _moved(one: Look, by: float) -> Look:
    ends = (None if end is None else end + by for end in (one.low, one.high))
    return Look(one.share, one.value + by, *ends)


def _proven(data: Data) -> str:
    sql, shown = "SELECT sum(id) AS s FROM {}", range(60, 80)
    read = set(data.units_read(30))
    table = Panel(60, 40, 270, 200, (shown[0], shown[-1] + 1), (shown[0] * UNIT_ROWS, (shown[-1] + 1) * UNIT_ROWS))
    parts = [_text(60, 24, "20 units of a sorted column", bold=True)]
    for unit in shown:
        low, high = unit * UNIT_ROWS, (unit + 1) * UNIT_ROWS
        x, y, width = table.at_x(unit), table.at_y(high), table.width / len(shown)
        height, is_read = table.at_y(low) - y, unit in read
        parts.append(_rect(x, y, width, height, TONES[0][0] if is_read else TONES[2][1], TONES[0 if is_read else 2][0]))
        parts.append(_rect(x, table.at_y(low), width, table.at_y(table.y[0]) - table.at_y(low), "#f9fafb"))
    parts += [_rect(72, 52, 12, 12, TONES[0][0]), _text(90, 62, "read: summed up")]
    parts += [_rect(72, 72, 12, 12, TONES[2][1], TONES[2][0]), _text(90, 82, "not read: in its box")]
    parts.append(_text(60, 257, "place in the table →"))
    panel = Panel(410, 40, WIDTH - 410 - 24, 200, (0, 1), (60, 110))
    parts.append(_text(410, 24, "bounds for sum(id)", bold=True))
    parts += panel.grid((0, 0.5, 1), (60, 80, 100), "{:.0%}", "{:.0f} G")
    for tone, name in ((1, "hits_arrow"), (2, "hits")):
        parts += panel.band([_scaled(one, 1e-9) for one in data.looks(sql.format(name), "s")], tone)
    parts.append(_text(panel.at_x(0.4), panel.at_y(104), "from the sample alone", colour=TONES[1][0]))
    parts.append(_text(panel.at_x(0.4), panel.at_y(66), "proven by the zones", colour=TONES[2][0]))
    parts.append(_line(panel.at_x(0.55), panel.at_y(69), panel.at_x(0.5), panel.at_y(82.6), TONES[2][0], 0.8))
    return _whole(parts, 270)


def _populations(data: Data) -> str:
    days, cell = range(4, 8), 4.3
    (snap, *_) = data.snapshots("SELECT day, avg(latency) AS m FROM hits GROUP BY day ORDER BY day", 50)
    read, left = set(data.units_read(50)), 110
    parts = [_text(left, 22, "80 of the 200 units, when half are read", bold=True)]
    parts.append(_text(478, 22, "avg(latency) of the day: off by", bold=True))
    panel = Panel(478, 34, WIDTH - 478 - 24, 30 * len(days), (-2, 2), (0, 1))
    exact = dict(data.db.sql("SELECT day, avg(latency) FROM hits GROUP BY day").fetchall())
    for row, day in enumerate(days):
        top, place = 34 + 30 * row, snap.table["day"].to_pylist().index(day)
        parts.append(_text(left - 10, top + 15, f"day {day}", "end"))
        for number in range(len(days) * DAY_UNITS):
            unit = days[0] * DAY_UNITS + number
            is_mine = unit // DAY_UNITS == day
            fill = TONES[0][0] if unit in read and is_mine else TONES[0][1] if is_mine else "#f3f4f6"
            parts.append(_rect(left + number * cell, top, cell - 0.6, 20, fill))
        one = _moved(data.look(snap, "m", place), -exact[day])
        y = top + 10
        parts.append(_line(panel.left, y, panel.left + panel.width, y, FAINT))
        if one.low is not None and one.high is not None:
            parts.append(_line(panel.at_x(one.low), y, panel.at_x(one.high), y, TONES[0][0], 3))
        parts.append(f'<circle cx="{panel.at_x(one.value):.1f}" cy="{y}" r="3.5" fill="{TONES[0][0]}"/>')
        parts.append(_line(panel.at_x(0), y - 8, panel.at_x(0), y + 8, RED, 1.5))
    bottom = 34 + 30 * len(days)
    parts += [_text(panel.at_x(x), bottom + 12, f"{x}", "middle") for x in (-2, -1, 0, 1, 2)]
    parts += [_rect(left, bottom + 6, 12, 12, TONES[0][0]), _text(left + 17, bottom + 16, "read")]
    parts += [_rect(left + 60, bottom + 6, 12, 12, TONES[0][1]), _text(left + 77, bottom + 16, "may hold the day")]
    parts += [_rect(left + 190, bottom + 6, 12, 12, "#f3f4f6"), _text(left + 207, bottom + 16, "cannot")]
    return _whole(parts, bottom + 30)


def _rows(data: Data) -> str:
    sql = "SELECT country, sum(latency) AS n FROM hits GROUP BY country ORDER BY n DESC"
    parts = []
    for place, share in enumerate((6, 60)):
        (everything, *_) = data.snapshots(sql, share)
        (cut, *_) = data.snapshots(f"{sql} LIMIT 3", share)
        status = dict(zip(cut.table["country"].to_pylist(), cut.row_status.to_pylist(), strict=True))
        panel = Panel(60 + 356 * place, 36, 312, 168, (0, 13.5), (0, 1))
        parts.append(_text(panel.left, 22, f"{share} % read", bold=True))
        for x in (0, 5, 10):
            parts.append(_line(panel.at_x(x), panel.top, panel.at_x(x), panel.top + panel.height, FAINT))
            parts.append(_text(panel.at_x(x), panel.top + panel.height + 17, f"{x} M", "middle"))
        for row, country in enumerate(everything.table["country"].to_pylist()):
            one, y = _scaled(data.look(everything, "n", row), 1e-6), panel.top + 14 + 28 * row
            tone = {"certain": 2, "possible": 1}.get(status.get(country, ""), None)
            colour = "#9ca3af" if tone is None else TONES[tone][0]
            parts.append(_text(panel.left - 10, y + 4, country, "end", bold=tone is not None))
            low, high = (panel.at_x(one.value if end is None else end) for end in (one.low, one.high))
            parts.append(_line(low, y, high, y, colour, 4))
            parts.append(f'<circle cx="{panel.at_x(one.value):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
            parts.append(_text(high + 10, y + 4, status.get(country, ""), colour=colour))
    return _whole(parts, 236)


ENDS = (1 / 64, 1 / 16, 1 / 4, 1)


def _ripples(data: Data) -> str:
    sql = (
        "SELECT visits, count(*) AS n FROM (SELECT user_id, count(*) AS visits FROM hits GROUP BY user_id) "
        "GROUP BY visits ORDER BY visits"
    )
    left, top, size = 60.0, 40.0, 200.0
    parts = [_text(left, 24, "two sides, by the hash of their keys", bold=True)]
    for number in reversed(range(len(ENDS))):
        edge = size * ENDS[number]
        line, fill = TONES[number % len(TONES)]
        parts.append(_rect(left, top, edge, edge, fill, line))
    for number, end in enumerate(ENDS):
        start = ENDS[number - 1] if number else 0.0
        a, b = size * start, size * end
        line = TONES[number][0]
        parts.append(_line(left + a, top + a, left + b, top + b, line, 5))
    parts.append(_text(left + size / 2, top + size + 20, "keys of one side →", "middle"))
    parts.append(
        f'<text x="46" y="{top + size / 2:.1f}" text-anchor="middle" fill="{INK}" '
        f'transform="rotate(-90 46 {top + size / 2:.1f})">← keys of the other</text>'
    )
    for number, text in enumerate(("1/64 of the keys", "up to 1/16", "up to 1/4", "the rest")):
        line, fill = TONES[number]
        parts.append(_rect(left + size + 14, top + 6 + 24 * number, 12, 12, fill, line))
        parts.append(_text(left + size + 32, top + 16 + 24 * number, f"ripple {number + 1}: {text}"))
    for number, text in enumerate(("pairs have equal keys:", "they lie on the diagonal")):
        parts.append(_text(left + size + 14, top + 130 + 16 * number, text))
    panel = Panel(496, 40, WIDTH - 496 - 24, 200, (0, 3), (16, 23))
    parts.append(_text(474, 24, "users with 3 visits, after each ripple", bold=True))
    found = [snap for snap in data.db.sql(f"{sql} PROGRESSIVE").snapshots()]
    parts += panel.grid((), (16, 18, 20, 22), "", "{:.0f} k")
    for place, snap in enumerate(found):
        row = snap.table["visits"].to_pylist().index(3)
        one = _scaled(data.look(snap, "n", row), 1e-3)
        assert one.low is not None and one.high is not None
        x = panel.left + panel.width * (place + 0.5) / len(found)
        parts.append(_line(x, panel.at_y(one.low), x, panel.at_y(one.high), TONES[place][0], 4))
        parts.append(f'<circle cx="{x:.1f}" cy="{panel.at_y(one.value):.1f}" r="4.5" fill="{TONES[place][0]}"/>')
        parts.append(_text(x, 257, f"{snap.progress:.0%}", "middle"))
    exact = data.look(found[-1], "n", 2).value / 1000
    parts.append(_line(panel.left, panel.at_y(exact), panel.left + panel.width, panel.at_y(exact), RED, dash=True))
    return _whole(parts, 270)


FIGURES: dict[str, Callable[[Data], str]] = {
    "settling": _settling,
    "neighbours": _neighbours,
    "far": _far,
    "proven": _proven,
    "populations": _populations,
    "rows": _rows,
    "ripples": _ripples,
}
"""The pictures of docs/progressive.md by the names of their files."""


def main() -> None:
    """Write every picture."""
    data = Data()
    for name, figure in FIGURES.items():
        (FOLDER / f"{name}.svg").write_text(figure(data), encoding="utf-8")


if __name__ == "__main__":
    main()
