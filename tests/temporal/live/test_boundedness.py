"""What could never answer, or never free its state, is told before a query runs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tsql
from tests.temporal.live.test_live import live_scans, plan_of
from tsql.backends import Run
from tsql.backends.live.boundedness import problems
from tsql.backends.live.query import LiveQuery

EVENTS = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
PERIODS = pa.schema([*((n, pa.int64()) for n in ("id", "k", "v")), *((n, pa.timestamp("us")) for n in ("vs", "ve"))])
TABLES = {"events": EVENTS, "others": EVENTS, "periods": PERIODS, "more": PERIODS}
TIMES = {"events": "ts", "others": "ts", "periods": "vs", "more": "vs"}
PAST = "LIFETIME(periods, start => vs, end => ve)"
MORE = "LIFETIME(more, start => vs, end => ve)"

FINE = (
    "SELECT id FROM events WHERE v > 0",
    "SELECT window_start, count(*) FROM TUMBLE(events, ts, INTERVAL '1 hour') GROUP BY 1",
    "SELECT window_end, count(*) FROM HOP(events, ts, INTERVAL '1 hour', INTERVAL '2 hours') GROUP BY 1",
    "SELECT k, window_end, count(*) FROM SESSION(events PARTITION BY k, ts, gap => INTERVAL '1 hour') GROUP BY 1, 2",
    "SELECT k, window_id, sum(v) FROM TUMBLE(events PARTITION BY k, ts, rows => 4) GROUP BY ALL",
    "SELECT k, count(*) FROM SLIDE(events, ts, INTERVAL '1 hour') GROUP BY k",
    "SELECT id, row_number() OVER (PARTITION BY k ORDER BY ts) AS n FROM events",
    "SELECT id, avg(v) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL '1 hour' PRECEDING) AS n FROM events",
    "SELECT id FROM TUMBLE(events, ts, INTERVAL '1 hour') QUALIFY row_number() OVER (PARTITION BY window_start ORDER "
    "BY v DESC) <= 3",
    "SELECT id FROM events ORDER BY ts, v",
    "SELECT id FROM events LIMIT 5",
    "SELECT e.id, n.title FROM events e JOIN names n ON e.k = n.k",
    "SELECT e.id, o.id FROM events e JOIN others o ON e.k = o.k AND o.ts BETWEEN e.ts AND e.ts + INTERVAL '1 hour'",
    "SELECT e.id, o.id FROM events e FULL JOIN others o ON e.k = o.k AND o.ts BETWEEN e.ts AND e.ts + INTERVAL '9 s'",
    "SELECT e.id, o.id FROM events e ASOF JOIN others o ON e.k = o.k AND e.ts >= o.ts",
    "SELECT e.id, o.id FROM events e ASOF JOIN others o ON e.k = o.k AND e.ts <= o.ts TOLERANCE INTERVAL '1 hour'",
    f"SELECT l.id, r.id FROM {PAST} l JOIN {MORE} r ON l.k = r.k",
    f"SELECT l.id, r.id FROM {PAST} l LEFT JOIN {MORE} r ON l.k = r.k",
    f"SELECT l.id, r.id FROM {PAST} l FULL JOIN {MORE} r ON l.k = r.k",
    f"SELECT l.id FROM {PAST} l WHERE NOT EXISTS (SELECT 1 FROM {MORE} r WHERE l.k = r.k)",
    f"SELECT l.id FROM {PAST} l CLIP JOIN {MORE} r ON l.k = r.k",
    f"SELECT DISTINCT k FROM {PAST}",
    f"SELECT k, median(v) FROM {PAST} GROUP BY k",
    f"SELECT k FROM {PAST} EXCEPT ALL SELECT k FROM {MORE}",
    "SELECT id FROM events WHERE k NOT IN (SELECT k FROM names)",
    f"SELECT k FROM {PAST} EXCEPT SELECT k FROM {MORE}",
    f"SELECT * FROM STITCH((SELECT k FROM {PAST}))",
    "SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(id) AS last_id PATTERN (A B+) "
    "DEFINE B AS v > PREV(v))",
    f"SELECT l.id, r.id FROM {PAST} l JOIN {MORE} r ON l.v < r.v",
    f"SELECT l.id, r.id FROM {PAST} l LEFT JOIN {MORE} r ON l.k = r.k AND l.v < r.v",
    f"SELECT l.id, r.id FROM {PAST} l FULL JOIN {MORE} r ON l.k = r.k AND l.v < r.v",
    f"SELECT l.id FROM {PAST} l WHERE EXISTS (SELECT 1 FROM {MORE} r WHERE l.v < r.v)",
    f"SELECT l.id FROM {PAST} l WHERE EXISTS (SELECT 1 FROM {MORE} r WHERE l.k = r.k AND l.v > 0)",
    f"SELECT l.id FROM {PAST} l WHERE NOT EXISTS (SELECT 1 FROM {MORE} r WHERE l.k = r.k AND l.v < r.v)",
    f"SELECT l.id FROM {PAST} l SEMI JOIN {MORE} r ON l.k = r.k AND l.v <> r.v",
    f"SELECT l.id FROM {PAST} l ANTI JOIN {MORE} r ON l.k = r.k AND l.v <> r.v",
    f"SELECT l.id FROM {PAST} l CLIP JOIN events r ON l.k = r.k",
    f"SELECT l.id FROM {PAST} l CLIP JOIN events r ON l.k = r.k AND l.v < r.v",
    f"SELECT l.id FROM {PAST} l CLIP JOIN SHIFT({MORE}, INTERVAL '1 hour') r ON l.k = r.k",
    f"SELECT k FROM {PAST} EXCEPT SELECT k FROM SHIFT({MORE}, INTERVAL '1 hour')",
    f"SELECT id, k, v FROM {PAST} QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) <= 2",
    f"SELECT id, k, v FROM {PAST} QUALIFY rank() OVER (ORDER BY valid_from DESC) = 1 AND v > avg(v) OVER ()",
    f"SELECT k, n FROM (SELECT k, count(*) AS n FROM {PAST} GROUP BY k) QUALIFY rank() OVER (ORDER BY n) = 1",
    f"SELECT k, count(*) FROM (SELECT k FROM {PAST} ORDER BY v LIMIT 2 OFFSET 1) GROUP BY k",
    f"SELECT id FROM (SELECT id FROM {PAST} LIMIT 2)",
    "SELECT e.id FROM events e SEMI JOIN others o ON e.k = o.k AND o.ts BETWEEN e.ts AND e.ts + INTERVAL '1 hour'",
    "SELECT l.id, r.id FROM periods l JOIN more r ON l.k = r.k AND l.vs < r.ve AND r.vs < l.ve",
)
ENDLESS = (
    (
        "SELECT k, count(*) FROM events GROUP BY k",
        "groups have no time among their keys, so none of them is ever final",
    ),
    ("SELECT max(v) FROM events", "groups have no time among their keys"),
    ("SELECT DISTINCT k FROM events", "groups have no time among their keys"),
    ("SELECT id FROM events ORDER BY v", "ORDER BY does not begin with a time"),
    (f"SELECT id FROM (SELECT id, v FROM {PAST} ORDER BY v LIMIT 2)", "ORDER BY does not begin with a time"),
    ("SELECT id FROM events ORDER BY ts DESC LIMIT 3", "ORDER BY does not begin with a time"),
    ("SELECT e.id, o.id FROM events e JOIN others o ON e.k = o.k", "rows of the left side are held for ever"),
    ("SELECT e.id, o.id FROM events e JOIN others o ON e.ts >= o.ts", "rows of the right side are held for ever"),
    ("SELECT e.id, o.id FROM events e LEFT JOIN others o ON e.ts >= o.ts", "rows of the right side are held for ever"),
    ("SELECT e.id, n.title FROM names n LEFT JOIN events e ON e.k = n.k", "further match"),
    (
        "SELECT id, sum(v) OVER (PARTITION BY k) AS s FROM events",
        "so no row is ever final|needs all rows of a partition",
    ),
    ("SELECT id, ntile(3) OVER (ORDER BY ts) AS s FROM events", "ntile needs all rows of a partition"),
    ("SELECT id, median(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM events", "median sees all rows before its own"),
    ("SELECT id, row_number() OVER (PARTITION BY k ORDER BY v) AS s FROM events", "so no row is ever final"),
    (
        "SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(id) AS last_id PATTERN (A B+ $)"
        " DEFINE B AS v > PREV(v))",
        "the pattern ends at the last row",
    ),
    (
        "SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY v MEASURES LAST(id) AS last_id PATTERN (A B+) "
        "DEFINE B AS v > PREV(v))",
        "no match is ever final",
    ),
)


def query_of(sql: str, times: dict[str, str] = TIMES) -> LiveQuery:
    with tsql.connect(threads=2) as session:
        for name, schema in TABLES.items():
            session.register(name, pa.Table.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema))
        session.register("names", pa.table({"k": [0, 1], "title": ["zero", "one"]}))
        plan = plan_of(session, sql)
        return LiveQuery(plan, {name: times.get(table) for name, table in live_scans(plan).items()}, Run())


@pytest.mark.parametrize("sql", FINE)
def test_queries_that_go_on(sql: str) -> None:
    assert problems(query_of(sql)) == []


@pytest.mark.parametrize(("sql", "text"), ENDLESS)
def test_queries_that_cannot(sql: str, text: str) -> None:
    query = query_of(sql)
    found = problems(query)
    assert any(part in problem.text for problem in found for part in text.split("|")), found
    assert all(problem.ways for problem in found)
    assert {problem.step for problem in found} <= {node.name for node in query.nodes.values()}


@pytest.mark.parametrize("sql", FINE[1:10])
def test_a_stream_without_a_time_is_told(sql: str) -> None:
    found = problems(query_of(sql, {}))
    assert found and any("WATERMARK" in way for problem in found for way in problem.ways)


def test_the_query_is_not_changed() -> None:
    query = query_of(ENDLESS[0][0])
    before = query.state()
    problems(query)
    assert not query.begun and query.rows_held() == 0 and query.state() == before
