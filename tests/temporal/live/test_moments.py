"""Results leave with the first punctuation that makes them final, neither earlier nor later: the moments are those of
`tests/temporal/reference/moments.py`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

import tsql
from tests.temporal.live.lives import rows_of
from tests.temporal.live.test_live import live_scans, plan_of
from tests.temporal.reference import moments
from tests.temporal.reference.moments import Moments
from tests.temporal.reference.rows import SECOND, Row, Rows
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
LIVES, OTHERS = "SLIDE(events, ts, INTERVAL '9 seconds')", "SLIDE(others, ts, INTERVAL '4 seconds')"


def over(name: str, call: str) -> str:
    return f"SELECT id, {call} AS {name} FROM events"


def _sum(rows: Rows) -> int:
    return sum(row["v"] for row in rows)


def less(left: Row, right: Row) -> bool:
    return left["k"] == right["k"] and left["v"] < right["v"]


CASES: dict[str, tuple[str, Callable[[Rows, Rows], Moments]]] = {
    "row_number": (
        over("n", "row_number() OVER (PARTITION BY k ORDER BY ts)"),
        lambda e, o: moments.in_time(e, "k", lambda part, at: at + 1),
    ),
    "running sum": (
        over("s", "sum(v) OVER (PARTITION BY k ORDER BY ts)::BIGINT"),
        lambda e, o: moments.in_time(e, "k", lambda part, at: _sum(part[: at + 1])),
    ),
    "lag": (
        over("p", "lag(v, 2) OVER (ORDER BY ts)"),
        lambda e, o: moments.in_time(e, None, lambda part, at: part[at - 2]["v"] if at > 1 else None),
    ),
    "lead": (
        over("p", "lead(v, 2) OVER (PARTITION BY k ORDER BY ts)"),
        lambda e, o: moments.in_time(e, "k", lambda p, at: p[at + 2]["v"] if at + 2 < len(p) else None, ahead=2),
    ),
    "rows around": (
        over("s", "sum(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)::BIGINT"),
        lambda e, o: moments.in_time(e, "k", lambda p, at: _sum(p[max(at - 1, 0) : at + 2]), ahead=1),
    ),
    "times around": (
        over(
            "s",
            "sum(v) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '3 s' PRECEDING AND INTERVAL '4 s' FOLLOWING)::BIGINT",
        ),
        lambda e, o: moments.in_range(e, 3 * SECOND, 4 * SECOND, _sum),
    ),
    "best of windows": (
        "SELECT id, row_number() OVER (PARTITION BY window_start ORDER BY v DESC, id) AS place FROM TUMBLE(events, ts, "
        "INTERVAL '10 seconds') QUALIFY place <= 2",
        lambda e, o: moments.best_of_windows(e, 10 * SECOND, 2),
    ),
    "sort": ("SELECT id, v FROM events ORDER BY ts", lambda e, o: moments.in_time(e, None, lambda p, at: p[at]["v"])),
    "row pattern": (
        "SELECT a, b FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(id) AS a, LAST(id) AS b "
        "PATTERN (S DOWN+ UP+) DEFINE DOWN AS v < PREV(v), UP AS v > PREV(v))",
        lambda e, o: moments.falls_and_rises(e, "k"),
    ),
    "row pattern within": (
        "SELECT a, b FROM events MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(id) AS a, LAST(id) AS b "
        "PATTERN (S MORE+) WITHIN INTERVAL '5 seconds' DEFINE MORE AS v >= 0)",
        lambda e, o: moments.runs_within(e, 5 * SECOND),
    ),
    "temporal NOT EXISTS": (
        f"SELECT l.id, valid_from, valid_to FROM {LIVES} l WHERE NOT EXISTS (SELECT 1 FROM {OTHERS} r WHERE l.k = r.k)",
        lambda e, o: moments.uncovered(e, o, 9 * SECOND, 4 * SECOND),
    ),
    "temporal NOT EXISTS by another condition": (
        f"SELECT l.id, valid_from, valid_to FROM {LIVES} l WHERE NOT EXISTS (SELECT 1 FROM {OTHERS} r WHERE l.k = r.k "
        "AND l.v < r.v)",
        lambda e, o: moments.uncovered(e, o, 9 * SECOND, 4 * SECOND, less),
    ),
    "CLIP JOIN by another condition": (
        f"SELECT l.id, valid_from, valid_to FROM {LIVES} l CLIP JOIN others r ON l.k = r.k AND l.v < r.v",
        lambda e, o: moments.clipped(e, o, 9 * SECOND, less),
    ),
    "the latest row per snapshot": (
        f"SELECT id, valid_from, valid_to FROM {LIVES} QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
        lambda e, o: moments.latest(e, 9 * SECOND),
    ),
    "CLIP JOIN": (
        f"SELECT l.id, valid_from, valid_to FROM {LIVES} l CLIP JOIN {OTHERS} r ON l.k = r.k",
        lambda e, o: moments.clipped(e, o, 9 * SECOND),
    ),
    "temporal DISTINCT": (f"SELECT DISTINCT k FROM {LIVES}", lambda e, o: moments.islands(e, 9 * SECOND)),
    "full join": (
        "SELECT e.id AS a, o.id AS b FROM events e FULL JOIN others o ON e.k = o.k AND o.ts BETWEEN e.ts AND e.ts + "
        "INTERVAL '4 seconds'",
        lambda e, o: moments.unmatched_in_band(e, o, 4 * SECOND),
    ),
}


def streams(seed: int) -> tuple[Rows, Rows]:
    """Two streams of rows at times that all differ."""
    rng = random.Random(seed)
    times = rng.sample(range(1, 80), 48)
    rows: tuple[Rows, Rows] = ([], [])
    for number, time in enumerate(sorted(times)):
        row = {"id": number, "k": rng.randrange(2), "v": rng.randrange(20), "ts": time * SECOND}
        rows[rng.randrange(4) == 0].append(row)
    return rows


@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("name", CASES)
def test_results_leave_when_they_are_final(name: str, seed: int) -> None:
    sql, expected = CASES[name]
    print(f"seed {seed}: {sql}")
    events, others = streams(seed)
    with tsql.connect(threads=2, shards=2) as session:
        for table in ("events", "others"):
            session.register(table, SCHEMA.empty_table())
        plan = plan_of(session, sql)
        scans = live_scans(plan)
        query = LiveQuery(plan, dict.fromkeys(scans, "ts"), Run())
        found: list[tuple[tuple[object, ...], int | None]] = []
        times = sorted(row["ts"] for row in (*events, *others))
        bounds: list[int | None] = [*times[1:], times[-1] + 1, times[-1] + 100 * SECOND, None]
        waiting = sorted([(r["ts"], "events", r) for r in events] + [(r["ts"], "others", r) for r in others])
        for place, bound in enumerate(bounds):
            batches = []
            if place < len(waiting):
                _, table, row = waiting[place]
                rows = pa.Table.from_pylist([row], schema=SCHEMA)
                for scan in (name for name, read in scans.items() if read == table):
                    batches += query.consume(scan, rows)
            for scan in scans:
                batches += query.punctuate(scan, bound)
            if batches:
                answer = rows_of(pa.Table.from_batches(batches, schema=plan.schema))
                found += [(tuple(row.values()), bound) for row in answer]
    wanted = [
        (row, next((b for b in bounds if b is not None and moment is not None and b >= moment), None))
        for row, moment in expected(events, others)
    ]
    missing, more = (
        Counter(map(repr, wanted)) - Counter(map(repr, found)),
        Counter(map(repr, found)) - Counter(map(repr, wanted)),
    )
    assert not missing and not more, f"missing {list(missing)[:5]}, too many {list(more)[:5]}"
    assert any(bound is not None for _, bound in found)
