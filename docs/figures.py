"""Draws the pictures of docs/temporal.md from the rows that the page shows, and that of docs/spark.md from its plan:
`python docs/figures.py` writes docs/figures/*.svg.

The tests run every query of the page and compare its rows, and they draw every picture again and compare it with the
file; so what a picture shows is what the engine gives. Text in, text out: the same rows are the same file."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
PAGE = HERE / "temporal.md"
SPARK_PAGE = HERE / "spark.md"
FOLDER = HERE / "figures"
DAY = dt.datetime(2024, 5, 1)

Row = dict[str, Any]

_BLOCK = re.compile(
    r"^<!-- block: (\w+) -->\n```sql\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
_VALUE = re.compile(r"TIMESTAMP '([^']*)'|'([^']*)'|(NULL)|(-?[0-9]+)")


@dataclass(frozen=True)
class Block:
    """A named block of the page: its SQL, and the table below it if it has one."""

    name: str
    sql: str
    shown: str | None

    def rows(self) -> list[Row]:
        """The rows of the table below the SQL."""
        header, _, *lines = (self.shown or "\n").splitlines()
        names = [name.strip() for name in header.split("|")]
        return [dict(zip(names, (_read(cell.strip()) for cell in line.split("|")), strict=True)) for line in lines]

    def values(self, table: str | None = None) -> list[Row]:
        """The rows that its SQL puts into a table (the first one unless named), by the text behind VALUES."""
        text = self.sql if table is None else self.sql[self.sql.index(table) :]
        names = re.search(r"\) t\((.*?)\)|TABLE \w+ \(([^()]*), PERIOD", text)
        assert names is not None
        columns = [part.split()[0] for part in (names[1] or names[2]).split(",")]
        found = re.findall(
            r"\(((?:[^()']|'[^']*')*)\)", text[text.index("VALUES") : names.end(1) if names[1] else None]
        )
        rows = [[_literal(match) for match in _VALUE.finditer(row)] for row in found]
        return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]


def _literal(match: re.Match[str]) -> Any:
    moment, text, null, number = match.groups()
    return dt.datetime.fromisoformat(moment) if moment else None if null else int(number) if number else text


def _read(cell: str) -> Any:
    if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", cell):
        return dt.datetime.fromisoformat(cell)
    return None if cell == "NULL" else cell


def blocks(text: str) -> dict[str, Block]:
    """The named blocks of a page, in their order."""
    return {match[1]: Block(*match.groups()) for match in _BLOCK.finditer(text)}


def table_text(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Rows as the page shows them."""
    cells = [columns, *([_shown(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]) + "\n"


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(value)


def with_rows(text: str, name: str, shown: str) -> str:
    """The page with another table below a block."""
    match = next(found for found in _BLOCK.finditer(text) if found[1] == name)
    block = f"<!-- block: {name} -->\n```sql\n{match[2]}```\n\n```text\n{shown}```\n"
    return text[: match.start()] + block + text[match.end() :]


@dataclass(frozen=True)
class Span:
    """A stretch of time, or a point if `end` is `start`; None: it goes on."""

    start: dt.datetime
    end: dt.datetime | None
    label: str = ""


@dataclass(frozen=True)
class Lane:
    """A line of a picture: a title, and what lies beside each other in it. `tone` chooses the colour."""

    title: str
    spans: list[Span]
    tone: int = 0
    marks: list[dt.datetime] = field(default_factory=list)
    """Times at which a thin line crosses the lane."""


TONES = (("#1d4ed8", "#dbeafe"), ("#c2410c", "#ffedd5"), ("#15803d", "#dcfce7"), ("#7e22ce", "#f3e8ff"))
LEFT, RIGHT, TOP, ROW, GAP, WIDTH = 96, 24, 14, 24, 12, 760
INK, FAINT = "#374151", "#e5e7eb"


def draw(lanes: list[Lane], start: dt.datetime, end: dt.datetime, every: int) -> str:
    """A picture of lanes over the time from `start` to `end`, with a line every so many minutes."""
    placed = [(lane, _rows(lane.spans, (end - start) / 20)) for lane in lanes]
    height = TOP + sum(GAP + ROW * max(1, len(rows)) for _, rows in placed) + 30
    scale = (WIDTH - LEFT - RIGHT) / (end - start).total_seconds()

    def x(moment: dt.datetime) -> float:
        return LEFT + (min(max(moment, start), end) - start).total_seconds() * scale

    parts = opening(height)
    moment = start
    while moment <= end:
        parts.append(
            f'<line x1="{x(moment):.1f}" x2="{x(moment):.1f}" y1="{TOP}" y2="{height - 24}" stroke="{FAINT}"/>'
        )
        parts.append(
            f'<text x="{x(moment):.1f}" y="{height - 9}" text-anchor="middle" fill="{INK}">{moment:%H:%M}</text>'
        )
        moment += dt.timedelta(minutes=every)
    y = float(TOP)
    for lane, rows in placed:
        y += GAP / 2
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + ROW / 2 + 4:.1f}" text-anchor="end" fill="{INK}" '
            f'font-weight="bold">{escape(lane.title)}</text>'
        )
        for at in lane.marks:
            parts.append(
                f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{y:.1f}" '
                f'y2="{y + ROW * max(1, len(rows)):.1f}" stroke="{TONES[lane.tone][0]}" '
                'stroke-dasharray="2 2"/>'
            )
        for number, row in enumerate(rows):
            parts += [_span(span, x, y + number * ROW, lane.tone, end) for span in row]
        y += ROW * max(1, len(rows)) + GAP / 2
    return "\n".join([*parts, "</svg>"]) + "\n"


def opening(height: float) -> list[str]:
    return [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
            f'height="{height:.0f}" font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
    ]


def _span(span: Span, x: Callable[[dt.datetime], float], y: float, tone: int, end: dt.datetime) -> str:
    line, fill = TONES[tone]
    left, middle = x(span.start), y + ROW / 2
    if span.end == span.start:
        label = (
            f'<text x="{left + 8:.1f}" y="{middle + 4:.1f}" fill="{INK}">{escape(span.label)}</text>'
            if span.label
            else ""
        )
        return f'<circle cx="{left:.1f}" cy="{middle:.1f}" r="4.5" fill="{line}"/>{label}'
    right = x(span.end if span.end is not None else end)
    shape = (
        f'<rect x="{left:.1f}" y="{y + 3:.1f}" width="{right - left:.1f}" height="{ROW - 6}" rx="3" '
        f'fill="{fill}" stroke="{line}"/>'
    )
    if span.end is None:
        shape += (
            f'<path d="M{right - 7:.1f} {middle - 5:.1f} L{right - 1:.1f} {middle:.1f} L{right - 7:.1f} '
            f'{middle + 5:.1f}" fill="none" stroke="{line}"/>'
        )
    return (
        f'{shape}<text x="{(left + right) / 2:.1f}" y="{middle + 4:.1f}" text-anchor="middle" '
        f'fill="{INK}">{escape(span.label)}</text>'
    )


def _rows(spans: list[Span], label: dt.timedelta) -> list[list[Span]]:
    """Spans in as few rows as they need so as not to overlap, in their order; `label` is the time that the label of a
    point covers."""
    rows: list[list[Span]] = []
    for span in spans:
        for row in rows:
            last = row[-1]
            behind = label if last.end == last.start and last.label else dt.timedelta()
            if last.end is not None and last.end + behind <= span.start and last.start != span.start:
                row.append(span)
                break
        else:
            rows.append([span])
    return rows


def points(rows: list[Row], time: str = "ts", label: str | None = None) -> list[Span]:
    """Rows as points; those without a time are not there."""
    return [
        Span(row[time], row[time], "" if label is None else str(row[label]))
        for row in sorted((r for r in rows if r[time] is not None), key=lambda r: r[time])
    ]


def spans(rows: list[Row], label: Callable[[Row], str], start: str = "valid_from", end: str = "valid_to") -> list[Span]:
    """Rows as stretches of time."""
    return [Span(row[start], row[end], label(row)) for row in rows]


def _windows(page: dict[str, Block], name: str, label: Callable[[Row], str]) -> Lane:
    return Lane("windows", spans(page[name].rows(), label, "window_start", "window_end"), 1)


def _bids(page: dict[str, Block]) -> list[Row]:
    return page["bids"].values()


def _bids_said(row: Row) -> str:
    return f"{row['n']} bid{'' if row['n'] == '1' else 's'}"


def _minutes(start: int, end: int) -> tuple[dt.datetime, dt.datetime]:
    noon = DAY + dt.timedelta(hours=12)
    return noon + dt.timedelta(minutes=start), noon + dt.timedelta(minutes=end)


def _tumble(page: dict[str, Block]) -> str:
    bids = Lane("bids", points(_bids(page), label="price"))
    return draw(
        [bids, _windows(page, "tumble", lambda row: f"{_bids_said(row)}, top {row['top']}")], *_minutes(0, 16), 5
    )


def _hop(page: dict[str, Block]) -> str:
    return draw([Lane("bids", points(_bids(page))), _windows(page, "hop", _bids_said)], *_minutes(-5, 20), 5)


def _cumulate(page: dict[str, Block]) -> str:
    bids = Lane("bids", points(_bids(page), label="price"))
    return draw([bids, _windows(page, "cumulate", lambda row: f"total {row['total']}")], *_minutes(0, 16), 5)


def _session(page: dict[str, Block]) -> str:
    lanes = []
    for tone, key in enumerate("AB"):
        lanes.append(Lane(f"bids of {key}", points([row for row in _bids(page) if row["auction"] == key]), tone))
        found = [row for row in page["session"].rows() if row["auction"] == key]
        lanes.append(Lane("sessions", spans(found, _bids_said, "window_start", "window_end"), tone))
    return draw(lanes, *_minutes(0, 18), 2)


def _snapshot(page: dict[str, Block]) -> str:
    lives = Lane("bids", spans(page["lives"].rows(), lambda row: f"{row['id']}: {row['price']}"))
    found = page["snapshot"].rows()
    return draw(
        [
            lives,
            Lane("how many", spans(found, lambda row: row["n"]), 1),
            Lane("the top", spans(found, lambda row: row["top"]), 2),
        ],
        *_minutes(0, 18),
        2,
    )


def _chop(page: dict[str, Block]) -> str:
    whole = Lane(
        "SLIDE",
        spans([row for row in page["lives"].rows() if row["id"] in ("1", "3", "4", "6")], lambda row: str(row["id"])),
    )
    return draw([whole, Lane("CHOP", spans(page["chop"].rows(), lambda row: str(row["id"])), 1)], *_minutes(0, 18), 5)


def _rates(page: dict[str, Block]) -> list[Lane]:
    found = page["rates"].values()
    return [
        Lane(cur, spans([row for row in found if row["cur"] == cur], lambda row: str(row["rate"]), "vs", "ve"), 2)
        for cur in ("EUR", "USD")
    ]


def _sequenced(page: dict[str, Block]) -> str:
    answer = Lane("answer", spans(page["sequenced"].rows(), lambda row: f"{row['currencies']}, best {row['best']}"), 1)
    return draw([*_rates(page), answer], *_minutes(0, 16), 2)


def _join(page: dict[str, Block]) -> str:
    orders = [
        Span(row["ts"], row["ts"] + dt.timedelta(minutes=6), f"{row['id']} {row['cur']}")
        for row in page["orders"].values()
    ]
    pairs = Lane("pairs", spans(page["temporal_join"].rows(), lambda row: f"{row['id']} at {row['rate']}"), 1)
    rest = Lane("no rate", spans(page["not_exists"].rows(), lambda row: str(row["id"])), 3)
    return draw([Lane("orders", orders), *_rates(page), pairs, rest], *_minutes(0, 18), 2)


def _clip(page: dict[str, Block]) -> str:
    block = page["logins"]
    lanes = [
        Lane("logins", points(block.values("logins"), label="who")),
        Lane("logouts", points(block.values("logouts"), label="who"), 3),
    ]
    return draw(
        [*lanes, Lane("logged in", spans(page["clip_join"].rows(), lambda row: str(row["who"])), 1)],
        *_minutes(0, 16),
        2,
    )


def _asof(page: dict[str, Block]) -> str:
    orders = {str(row["id"]): row["ts"] for row in page["orders"].values()}
    bids = {str(row["id"]): row["ts"] for row in _bids(page)}
    found = [
        Span(bids[row["bid_id"]], orders[row["order_id"]], f"order {row['order_id']}")
        for row in page["asof"].rows()
        if row["bid_id"] is not None
    ]
    lanes = [
        Lane("orders", points(page["orders"].values(), label="id")),
        Lane("bids", points(_bids(page), label="id"), 2),
        Lane("ASOF", found, 1),
    ]
    return draw(lanes, *_minutes(0, 14), 2)


def _pattern(page: dict[str, Block]) -> str:
    ticks = page["ticks"].values()
    (match,) = page["pattern"].rows()
    lanes = [
        Lane("ticks", points(ticks, label="price")),
        Lane(
            "match",
            [Span(match["falls"], match["recovered"], f"low {match['low']}")],
            1,
            [match["falls"], match["recovered"]],
        ),
    ]
    return draw(lanes, *_minutes(0, 6), 1)


ARRIVALS = (1, 3, 2, 6, 5, 9, 4, 12, 8, 11)
"""Minutes past twelve, in the order in which rows arrive."""


def _watermark(page: dict[str, Block]) -> str:
    """Arrival from left to right, time upwards; the line is the watermark after each row, by the code that live sources
    use."""
    import pyarrow as pa

    from tsql.backends.io.watermark import Lateness, Watermark
    from tsql.backends.live.watermark_values import marks_of
    from tsql.kernels.expr.schema import Schema
    from tsql.kernels.expr.types import TIMESTAMP
    from tsql.planner.bind.binder import parse_expression

    minute = 60_000_000
    expression = parse_expression("ts - INTERVAL '2 minutes'", Schema.of(("ts", TIMESTAMP)))
    mark = Watermark("ts", "", expression, allowed_lateness_us=minute)
    stream = Lateness(mark, marks_of(mark))
    height, bottom, step = 300, 262, (WIDTH - LEFT - RIGHT) / len(ARRIVALS)

    def y(minutes: float) -> float:
        return bottom - minutes * (bottom - TOP - 10) / 13

    parts = opening(height)
    for tick in range(0, 14, 2):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{LEFT - 10}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="{INK}">12:{tick:02d}</text>')
    path: list[str] = []
    for number, time in enumerate(ARRIVALS):
        x = LEFT + (number + 0.5) * step
        batch = pa.RecordBatch.from_arrays([pa.array([time * minute], pa.timestamp("us"))], names=["ts"])
        arrived = stream.consume(batch)
        late = arrived.batch.num_rows == 0
        path.append(
            f"{'L' if path else 'M'}{x:.1f} {y(stream.current / minute):.1f} L{x + step:.1f} "
            f"{y(stream.current / minute):.1f}"
        )
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y(time):.1f}" r="4.5" fill="{"white" if late else TONES[0][0]}" '
            f'stroke="{"#b91c1c" if late else TONES[0][0]}"/>'
        )
        if late:
            parts.append(f'<text x="{x + 9:.1f}" y="{y(time) + 4:.1f}" fill="#b91c1c">late</text>')
    parts.append(f'<path d="{" ".join(path)}" fill="none" stroke="{TONES[1][0]}" stroke-width="1.5"/>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{y(stream.current / minute) + 15:.1f}" text-anchor="end" '
        f'fill="{TONES[1][0]}">watermark</text>'
    )
    parts.append(f'<text x="{LEFT}" y="{height - 12}" fill="{INK}">rows in the order of their arrival →</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True)
class PlanStep:
    """A line of a plan file: what it is called, what it does, to which lines, and the rest."""

    name: str
    op: str
    inputs: tuple[str, ...]
    details: str

    @property
    def moves(self) -> bool:
        """Whether rows go to other tasks, or to the driver."""
        return self.op == "gather" or ("scope=global" in self.details and self.op != "broadcast")


def plan_steps(text: str) -> list[PlanStep]:
    """The steps of a plan file."""
    found: dict[str, PlanStep] = {}
    for line in re.findall(r"^(\w+) += (\w+) (.*)$", text, re.MULTILINE):
        words = line[2].split()
        found[line[0]] = PlanStep(line[0], line[1], tuple(word for word in words if word in found), line[2])
    return list(found.values())


def plan_parts(steps: list[PlanStep]) -> list[list[PlanStep]]:
    """The steps of each stage, each with the movement that ends it, and last those of the driver."""
    place: dict[str, int] = {}
    by_name = {step.name: step for step in steps}
    for step in steps:
        place[step.name] = max((place[name] + by_name[name].moves for name in step.inputs), default=0)
    return [[step for step in steps if place[step.name] == number] for number in range(max(place.values()) + 1)]


def _below(steps: list[PlanStep], top: PlanStep) -> list[str]:
    """The names of the steps that a step is computed from."""
    by_name = {step.name: step for step in steps}
    return [name for below in top.inputs for name in (*_below(steps, by_name[below]), below)]


TASKS, TASK_WIDTH, TASK_HEIGHT, TASKS_LEFT = 4, 84, 52, 340


def _stages(page: dict[str, Block]) -> str:
    """The plan of the page from top to bottom: its steps on the left, the tasks of two executors on the right."""
    text = SPARK_PAGE.read_text(encoding="utf-8")
    steps = plan_steps(text[text.index("plan version 1") :].split("```")[0])
    parts = plan_parts(steps)
    middles = [TASKS_LEFT + 12 + (TASK_WIDTH + 8) * task + 10 * (task // 2) + TASK_WIDTH / 2 for task in range(TASKS)]
    tops, y = [], 14.0
    for part in parts:
        tops.append(y)
        y += max(TASK_HEIGHT + 34, 22 + 15 * len(part)) + 46
    drawn = opening(y - 34)
    for number, part in enumerate(parts):
        top, is_driver = tops[number], number == len(parts) - 1
        drawn += _steps_of(part, "driver" if is_driver else f"stage {number + 1}", top)
        if is_driver:
            drawn.append(_box(TASKS_LEFT, top, WIDTH - RIGHT - TASKS_LEFT, TASK_HEIGHT, 2))
            drawn.append(_said((TASKS_LEFT + WIDTH - RIGHT) / 2, top + 20, "driver: plans, deals out splits,"))
            drawn.append(_said((TASKS_LEFT + WIDTH - RIGHT) / 2, top + 36, "computes what follows gather"))
            continue
        read = [name for step in part if "how=read" in step.details for name in _below(steps, step)[:1]]
        does = "its splits" if any(step.op == "scan" for step in part) else "shard"
        drawn += _tasks(middles, top, does, read)
        last = number == len(parts) - 2
        ends = [(TASKS_LEFT + WIDTH - RIGHT) / 2] if last else middles
        start, end = top + TASK_HEIGHT + 26, tops[number + 1] - (0 if last else 4)
        drawn += [
            f'<line x1="{a:.1f}" y1="{start:.1f}" x2="{b:.1f}" y2="{end:.1f}" '
            f'stroke="{TONES[1][0]}" stroke-width="0.8"/>'
            for a in middles
            for b in ends
        ]
        label = "blobs to the driver" if last else "a shuffle of Spark: blobs of columns"
        drawn.append(f'<text x="20" y="{end - 14:.1f}" fill="{TONES[1][0]}">{label}</text>')
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _steps_of(part: list[PlanStep], title: str, top: float) -> list[str]:
    found = [f'<text x="20" y="{top + 12:.1f}" fill="{INK}" font-weight="bold">{title}</text>']
    for line, step in enumerate(part):
        words = step.details.split()
        shown = " ".join([step.name, "=", step.op, *takewhile(lambda word: "=" not in word, words)])
        shown += " how=read" if "how=read" in words else ""
        colour = TONES[1][0] if step.moves else INK
        found.append(
            f'<text x="20" y="{top + 29 + 15 * line:.1f}" fill="{colour}" font-family="monospace" '
            f'font-size="11">{escape(shown)}</text>'
        )
    return found


def _tasks(middles: list[float], top: float, does: str, read: list[str]) -> list[str]:
    """The tasks of a stage, in two executors."""
    found = []
    for executor in range(2):
        left = middles[2 * executor] - TASK_WIDTH / 2 - 6
        found.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{2 * TASK_WIDTH + 20}" height="{TASK_HEIGHT + 26}" rx="4" '
            f'fill="none" stroke="{INK}" stroke-dasharray="3 3"/>'
        )
        found.append(_said(left + TASK_WIDTH + 10, top + 14, "executor"))
    for task, middle in enumerate(middles):
        found.append(_box(middle - TASK_WIDTH / 2, top + 20, TASK_WIDTH, TASK_HEIGHT, 0))
        lines = [f"task {task}", f"{does} {task}" if does == "shard" else does, *(f"all of {name}" for name in read)]
        found += [_said(middle, top + 35 + 15 * line, text) for line, text in enumerate(lines)]
    return found


def _box(x: float, y: float, width: float, height: float, tone: int) -> str:
    line, fill = TONES[tone]
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{fill}" '
        f'stroke="{line}"/>'
    )


def _said(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{INK}" font-size="11">{escape(text)}</text>'


FIGURES: dict[str, Callable[[dict[str, Block]], str]] = {
    "tumble": _tumble,
    "hop": _hop,
    "cumulate": _cumulate,
    "session": _session,
    "snapshot": _snapshot,
    "chop": _chop,
    "sequenced": _sequenced,
    "join": _join,
    "clip": _clip,
    "asof": _asof,
    "pattern": _pattern,
    "watermark": _watermark,
}
"""The pictures of docs/temporal.md by the names of their files."""

SPARK_FIGURES: dict[str, Callable[[dict[str, Block]], str]] = {"stages": _stages}
"""Those of docs/spark.md."""


def main() -> None:
    """Write every picture."""
    page = blocks(PAGE.read_text(encoding="utf-8"))
    FOLDER.mkdir(exist_ok=True)
    for name, figure in {**FIGURES, **SPARK_FIGURES}.items():
        (FOLDER / f"{name}.svg").write_text(figure(page), encoding="utf-8")


if __name__ == "__main__":
    main()
