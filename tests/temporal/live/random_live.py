"""Random plans over rows that arrive: the rows are those of the plain run; `test_random.py` runs a fixed part.

python -m tests.temporal.live.random_live SEED COUNT      a longer run; it prints what differs
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

import tsql
from tests.temporal.arrivals import HOW, Message, Punctuation, arrivals, interleaved
from tests.temporal.live.random_operators import condition, interval, lives, over, patterns, pieces
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.step import PhysicalPlan

SECOND, DAY = 1_000_000, 86_400_000_000
INFINITY = 2**63 - 1
TIMES = {"e": "ts", "o": "ts", "p": "vs", "days": "day"}
"""The column that punctuations of a table are about; `names` is read as it is."""


@dataclass(frozen=True)
class Case:
    """A query, the tables that it is about, and how their rows arrive."""

    tables: dict[str, pa.Table]
    sql: str
    settings: dict[str, Any]
    how: str
    seed: int
    disorder: int
    planned_empty: bool
    """Whether the plan is made before any row is known."""
    restores: tuple[tuple[float, int], ...] = field(default=())
    """(how far, shards): where the state is saved, and another query goes on from it."""


def case(seed: int) -> Case:
    """The same case for the same seed."""
    random = Random(seed)
    rows = random.choice((0, 1, 6, 30, 30, 80))
    tables = _tables(random, rows)
    settings: dict[str, Any] = {"threads": 2, "shards": random.choice((1, 2, 3))}
    if random.random() < 0.2:
        settings["optimizer"] = False
    if random.random() < 0.2:
        settings["equal_hashes"] = True
    restores = tuple((random.random(), random.choice((1, 2, 5))) for _ in range(random.choice((0, 1, 2))))
    disorder = random.choice((0, 5, 40))
    return Case(tables, query(random), settings, random.choice(HOW), seed, disorder, random.random() < 0.2, restores)


def _tables(random: Random, rows: int) -> dict[str, pa.Table]:
    unit = random.choice((1, 250_000, SECOND))
    span = random.choice((8, 40, 400))
    start = random.choice((0, 1_714_564_800 * SECOND, -3 * DAY))
    special = [INFINITY, -INFINITY] if random.random() < 0.15 else []

    def time() -> int | None:
        if random.random() < 0.06:
            return None
        return (
            random.choice(special) if special and random.random() < 0.1 else start + random.randint(-span, span) * unit
        )

    def events() -> pa.Table:
        return pa.table(
            {
                "id": pa.array(range(rows), pa.int64()),
                "k": pa.array([_some(random, lambda: random.randint(0, 4)) for _ in range(rows)], pa.int64()),
                "s": pa.array(
                    [
                        _some(random, lambda: random.choice(("a", "b", "long enough to be elsewhere")))
                        for _ in range(rows)
                    ],
                    pa.string(),
                ),
                "v": pa.array([_some(random, lambda: random.randint(-20, 20)) for _ in range(rows)], pa.int32()),
                "ts": pa.array([time() for _ in range(rows)], pa.timestamp("us")),
            }
        )

    def periods() -> pa.Table:
        starts = [time() for _ in range(rows)]
        ends = [
            None
            if s is None or random.random() < 0.15
            else s
            if abs(s) == INFINITY
            else s + random.randint(-1, 30) * unit
            for s in starts
        ]
        columns = {
            "id": pa.array(range(rows), pa.int64()),
            "k": pa.array([_some(random, lambda: random.randint(0, 3)) for _ in range(rows)], pa.int64()),
        }
        return pa.table(
            {
                **columns,
                "v": pa.array([random.randint(0, 3) for _ in range(rows)], pa.int32()),
                "vs": pa.array(starts, pa.timestamp("us")),
                "ve": pa.array(ends, pa.timestamp("us")),
            }
        )

    first_day = start // DAY
    days = [_some(random, lambda: first_day + random.randint(-3, 3)) for _ in range(rows)]
    return {
        "e": events(),
        "o": events(),
        "p": periods(),
        "days": pa.table(
            {
                "k": pa.array([random.randint(0, 4) for _ in days], pa.int64()),
                "w": pa.array([random.randint(0, 9) for _ in days], pa.int64()),
                "day": pa.array(days, pa.int32()).cast(pa.date32()),
            }
        ),
        "names": pa.table(
            {"k": pa.array([0, 1, 2, None, 2], pa.int64()), "title": ["zero", "one", "two", "none", "too"]}
        ),
    }


def _some(random: Random, value: Any) -> Any:
    return None if random.random() < 0.1 else value()


def _computed_time(random: Random, ts: str = "ts") -> str:
    """A time that is computed from another."""
    return random.choice(
        (
            ts, ts, ts, ts, f"{ts} + {interval(random)}", f"{ts} - {interval(random)}", f"{ts} + INTERVAL '-3 seconds'",
            f"CASE WHEN v > 0 THEN {ts} ELSE {ts} + {interval(random)} END",
            f"coalesce({ts}, TIMESTAMP '2024-05-01 12:00:10')", f"least({ts}, {ts} - {interval(random)})",
            f"greatest({ts}, TIMESTAMP '1970-01-01')", f"date_trunc('minute', {ts})",
            f"CAST(CAST({ts} AS DATE) AS TIMESTAMP)", f"{ts} + INTERVAL '1 month'",
            f"time_bucket(INTERVAL '5 seconds', {ts})", f"CAST({ts} AS TIMESTAMPTZ)::TIMESTAMP",
            f"nullif({ts}, TIMESTAMP '1970-01-01')", f"CASE WHEN v IS NULL THEN NULL ELSE {ts} END",
        )
    )  # fmt: skip


def _rows(random: Random, depth: int = 2) -> str:
    """A relation with the columns id, k, s, v, ts."""
    plain = random.choice(("e", "e", "o"))
    if depth == 0 or random.random() < 0.3:
        return plain
    match random.randrange(9):
        case 0:
            return f"(SELECT id, k, s, v, {_computed_time(random)} AS ts FROM {_rows(random, depth - 1)} x0)"
        case 1:
            return (
                f"(SELECT id, k, s, v, ts FROM {_rows(random, depth - 1)} x1 UNION ALL SELECT id + 1000, k, s, "
                f"v, {_computed_time(random)} FROM {_rows(random, depth - 1)} x2)"
            )
        case 2:
            return f"(SELECT id, k, s, v, ts FROM {_rows(random, depth - 1)} x3 WHERE {condition(random)})"
        case 3:
            return (
                f"(SELECT a.id, b.k, b.s, a.v, {random.choice(('a.ts', 'b.ts', 'greatest(a.ts, b.ts)'))} AS ts "
                f"FROM {_rows(random, depth - 1)} a JOIN {_rows(random, 0)} b ON {_on(random)})"
            )
        case 4:
            return (
                f"(SELECT a.id, a.k, a.s, b.v, {random.choice(('a.ts', 'a.ts', 'coalesce(b.ts, a.ts)'))} AS ts "
                f"FROM {_rows(random, depth - 1)} a LEFT JOIN {_rows(random, 0)} b ON {_on(random)})"
            )
        case 5:
            return (
                f"(SELECT a.id, a.k, a.s, a.v, a.ts FROM {_rows(random, depth - 1)} a WHERE "
                f"{random.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {_rows(random, 0)} b WHERE {_on(random)}))"
            )
        case 6:
            return (
                f"(SELECT a.id, a.k, a.s, b.v, {random.choice(('a.ts', 'a.ts', 'b.ts'))} AS ts FROM "
                f"{_rows(random, depth - 1)} a ASOF {random.choice(('', 'LEFT '))}JOIN {_rows(random, 0)} b ON "
                f"{_asof(random)})"
            )
        case 7:
            end = random.choice(
                ("window_start", "window_end", "max(ts)", "min(ts)", "window_end - INTERVAL '1 microsecond'")
            )
            return (
                f"(SELECT count(*) AS id, k, max(s) AS s, sum(v)::INTEGER AS v, {end} AS ts FROM "
                f"{_windows(random, _rows(random, depth - 1))} GROUP BY k, window_start, "
                f"window_end{random.choice(('', '', ' HAVING count(*) > 1'))})"
            )
    return f"(SELECT DISTINCT id, k, s, v, ts FROM {_rows(random, depth - 1)} x4)"


def _on(random: Random) -> str:
    time = random.choice(
        (
            "", f" AND b.ts BETWEEN a.ts AND a.ts + {interval(random)}",
            f" AND b.ts BETWEEN a.ts - {interval(random)} AND a.ts + {interval(random)}", " AND a.ts = b.ts",
            f" AND a.ts < b.ts AND b.ts < a.ts + {interval(random)}", " AND a.ts > b.ts",
            f" AND a.ts - b.ts < {interval(random)} AND a.ts >= b.ts", " AND a.ts::DATE = b.ts::DATE",
            f" AND a.ts >= b.ts + {interval(random)}",
            " AND date_trunc('minute', a.ts) = date_trunc('minute', b.ts)",
            " AND coalesce(a.ts, TIMESTAMP '2024-05-01') <= b.ts", " AND a.ts IS NOT DISTINCT FROM b.ts",
            " AND (a.ts = b.ts OR a.v > b.v)",
        )
    )  # fmt: skip
    return random.choice(("a.k = b.k", "a.k = b.k AND a.s = b.s", "a.k IS NOT DISTINCT FROM b.k", "a.v < b.v")) + time


def _asof(random: Random) -> str:
    keys = random.choice(("a.k = b.k AND ", "a.k = b.k AND a.s = b.s AND ", ""))
    return (
        f"{keys}a.ts {random.choice(('>=', '>', '<=', '<'))} "
        f"b.ts{random.choice(('', f' TOLERANCE {interval(random)}', f' TOLERANCE {interval(random)}'))}"
    )


def _windows(random: Random, rows: str) -> str:
    offset = random.choice(("", "", f", offset => {interval(random, -9, 9)}"))
    amount, unit = random.randint(1, 12), random.choice(("milliseconds", "seconds", "seconds"))
    step = f"INTERVAL '{amount} {unit}'"
    # Windows of so many rows are defined where ties are: rows of a table arrive in their order.
    match random.randrange(6 if rows in ("e", "o") else 5):
        case 0 | 1:
            return f"TUMBLE({rows}, ts, {step}{offset})"
        case 2:
            return f"HOP({rows}, ts, slide => {step}, size => INTERVAL '{random.randint(1, 30)} {unit}'{offset})"
        case 3:
            return (
                f"CUMULATE({rows}, ts, step => {step}, size => INTERVAL '{amount * random.randint(1, 5)} "
                f"{unit}'{offset})"
            )
        case 4:
            return (
                f"SESSION({rows} PARTITION BY k, ts, gap => "
                f"{step}{random.choice(('', '', f', max_size => {interval(random, 5, 30)}'))})"
            )
    return f"TUMBLE({rows} PARTITION BY k, ts, rows => {random.randint(1, 4)})"


CALLS = (
    "count(*)",
    "sum(v)",
    "min(v)",
    "max(s)",
    "median(v)",
    "count(DISTINCT s)",
    "sum(v) FILTER (WHERE v > 0)",
    "max(ts)",
    "min(ts)",
    "avg(v)",
    "bool_or(v > 3)",
    "min(s)",
)


LAST_CLAUSES = (
    "",
    " HAVING count(*) > 1",
    " ORDER BY window_end",
    " ORDER BY window_end DESC NULLS LAST LIMIT 3",
)
GROUPINGS = (
    "ROLLUP (ts::DATE, k)",
    "CUBE (k, ts::DATE)",
    "GROUPING SETS ((ts::DATE, k), (k), ())",
    "k, ts::DATE",
)
DAY_CONDITIONS = (
    "q.ts::DATE = d.day",
    "q.ts >= d.day",
    "d.day > q.ts",
    "d.day BETWEEN q.ts AND q.ts + INTERVAL 1 DAY",
)
CALLS_OVER = (
    "sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "count(*) OVER (PARTITION BY k)",
    "max(ts) OVER (PARTITION BY s)",
)


def query(random: Random) -> str:
    """A query whose rows are defined whatever the order of its input."""
    some = ", ".join(f"{call} AS a{number}" for number, call in enumerate(random.sample(CALLS, random.randint(1, 3))))
    match random.randrange(22):
        case 0:
            return f"SELECT * FROM {_rows(random, 3)} q"
        case 1 | 2:
            return (
                f"SELECT k, window_start, window_end, {some} FROM {_windows(random, _rows(random))} GROUP BY "
                "k, window_start, window_end"
            )
        case 3:
            return (
                f"SELECT window_end, {some} FROM {_windows(random, _rows(random))} GROUP BY "
                f"window_end{random.choice(LAST_CLAUSES)}"
            )
        case 4:
            return f"SELECT * FROM {_windows(random, _rows(random))}"
        case 5:
            key = _computed_time(random)
            return f"SELECT {key} AS t, {some} FROM {_rows(random)} q GROUP BY {key}"
        case 6:
            return f"SELECT k, ts::DATE AS d, {some} FROM {_rows(random)} q GROUP BY {random.choice(GROUPINGS)}"
        case 7:
            return (
                f"WITH c AS (SELECT k, window_start AS t, count(*) AS n FROM {_windows(random, _rows(random))} "
                f"GROUP BY ALL) SELECT a.*, b.n AS m FROM c a {random.choice(('', 'LEFT ', 'FULL '))}JOIN c b "
                "ON a.k = b.k AND "
                f"{random.choice(('a.t = b.t', 'a.t < b.t', f'b.t BETWEEN a.t AND a.t + {interval(random)}'))}"
            )
        case 8:
            return (
                f"WITH c AS (SELECT id, k, s, v, ts FROM {_rows(random)} q) SELECT k, ts, count(*) AS n FROM "
                "(SELECT * FROM c UNION ALL SELECT * FROM c WHERE v > 0) u GROUP BY ALL"
            )
        case 9:
            return (
                f"SELECT q.*, n.title FROM {_rows(random)} q "
                f"{random.choice(('', 'LEFT ', 'RIGHT ', 'FULL '))}JOIN names n ON q.k = n.k"
            )
        case 10:
            return (
                f"SELECT q.id, d.w, d.day FROM {_rows(random)} q {random.choice(('', 'LEFT '))}JOIN days d ON "
                "q.k = d.k AND "
                f"{random.choice(DAY_CONDITIONS)}"
            )
        case 11:
            return random.choice(
                (
                    f"SELECT day, sum(w) AS w, count(*) AS n FROM days GROUP BY {random.choice(('day', 'ALL'))}",
                    "SELECT day + INTERVAL 1 DAY AS d, count(*) AS n FROM days GROUP BY ALL",
                    "SELECT window_end, sum(w) AS w FROM TUMBLE(days, day, INTERVAL '2 days') GROUP BY ALL",
                    "SELECT day + 1 AS d, count(*) AS n FROM days GROUP BY ALL",
                    "SELECT a.w, b.w AS x FROM days a ASOF JOIN days b ON a.k = b.k AND a.day > b.day",
                )
            )
        case 12:
            return (
                f"SELECT k, count(*) AS n, {random.choice(('sum(v)', 'max(v)', 'avg(v)', 'min(v)'))} AS a FROM "
                f"{lives(random, 'l')} GROUP BY k"
            )
        case 13:
            return (
                f"SELECT l.id, r.id AS other FROM {lives(random, 'l')} {random.choice(('', 'LEFT '))}JOIN "
                f"{lives(random, 'r')} ON l.k = r.k"
            )
        case 14:
            return f"SELECT count(*) AS n, max(v) AS top FROM {lives(random, 'l')}"
        case 15 | 16:
            return over(random)
        case 17:
            return patterns(random)
        case 18 | 19:
            return pieces(random)
        case 20:
            return (
                f"SELECT a.id, b.id AS j, a.v, b.s FROM {_rows(random, 1)} a FULL JOIN {_rows(random, 0)} b ON "
                f"{_on(random)}"
            )
    return f"SELECT id, k, v, ts, {random.choice(CALLS_OVER)} AS w FROM {_rows(random)} q"


def plan_of(session: tsql.Session, sql: str) -> PhysicalPlan:
    return parse_plan(session.sql(sql).plan(), session.catalog)


def live_rows(plan: PhysicalPlan, asked: Case) -> list[dict[str, Any]]:
    """The rows of a plan over the rows of a case as they arrive."""
    scans = {s.name: s.table for s in plan.root.walk() if isinstance(s, Scan) and s.table in TIMES}
    live = {name: TIMES[table] for name, table in scans.items()}
    streams = [_messages(asked, table) for table in scans.values()]
    messages = list(interleaved(streams, asked.seed))
    at = {int(far * len(messages)): shards for far, shards in asked.restores}
    names = list(scans)
    running = LiveQuery(plan, live, Run())
    found: list[pa.RecordBatch] = []
    for number, (stream, message) in enumerate(messages):
        if number in at:
            state = running.state()
            running = LiveQuery(plan, live, Run(), shards=at[number])
            running.restore(state)
        scan = names[stream]
        if isinstance(message, Punctuation):
            found += running.punctuate(scan, message.time_us)
        else:
            found += running.consume(scan, _batch(message, asked.tables[scans[scan]].schema))
    if not names:
        found += running._advance({})
    return _integers(pa.Table.from_batches(found, schema=plan.schema))


def _messages(asked: Case, table: str) -> list[Message]:
    """How the rows of a table arrive; times are microseconds on the way, for dates too."""
    time = TIMES[table]
    unit = DAY if pa.types.is_date(asked.tables[table].schema.field(time).type) else 1
    rows = [
        {n: (v * unit if n == time and v is not None else v) for n, v in row.items()}
        for row in _integers(asked.tables[table])
    ]
    return arrivals(rows, time, asked.how, asked.seed, asked.disorder)


def _integers(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table; times and dates are the numbers that are stored, so that infinite ones are values too."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        columns[name] = column.cast(
            pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind
        ).to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    arrays = []
    for field_ in schema:
        values = [row[field_.name] for row in rows]
        if pa.types.is_date(field_.type):
            arrays.append(pa.array([None if v is None else v // DAY for v in values], pa.int32()).cast(field_.type))
        elif pa.types.is_timestamp(field_.type):
            arrays.append(pa.array(values, pa.int64()).cast(field_.type))
        else:
            arrays.append(pa.array(values, field_.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def differs(asked: Case) -> str | None:
    """How the live run differs from the plain one; None if it does not."""
    with tsql.connect(**asked.settings) as db, tsql.connect(**asked.settings) as planner:
        for name, table in asked.tables.items():
            db.register(name, table)
            planner.register(name, _unknown(table) if asked.planned_empty and name in TIMES else table)
        try:
            expected = _bag(_integers(db.sql(asked.sql).arrow()))
        except tsql.ExecutionError:
            return None  # An error of the data: that of the live run comes at another time.
        ours = _bag(live_rows(plan_of(planner, asked.sql), asked))
    missing, more = expected - ours, ours - expected
    return (
        None
        if not missing and not more
        else f"missing {list(missing.elements())[:4]}, too many {list(more.elements())[:4]}"
    )


def _unknown(table: pa.Table) -> pa.Table:
    """A table of which a plan learns nothing but the types."""
    return pa.Table.from_arrays([pa.nulls(1, field_.type) for field_ in table.schema], schema=table.schema)


def _bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


def main(first: int, count: int) -> None:
    """Run cases, and print those that differ."""
    found = 0
    for seed in range(first, first + count):
        asked = case(seed)
        try:
            why = differs(asked)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why is not None:
            found += 1
            print(
                (
                    f"seed {seed}: {asked.settings} {asked.how} {asked.restores} empty={asked.planned_empty} "
                    f"{asked.sql}\n  {why}"
                ),
                flush=True,
            )
    print(f"{count} queries from seed {first} on, {found} differ")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
