"""What live queries hold: it shrinks as time passes, is saved and restored, and counts against the memory limit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.temporal.data import to_rows
from tests.temporal.live.test_live import Arriving, plan_of
from tests.temporal.reference.rows import SECOND
from tsql.backends import Run, Settings
from tsql.backends.live import sorts
from tsql.backends.live.query import LiveQuery

ROWS = 260
START = 1_714_564_800 * SECOND


def events(shift: int = 0) -> pa.Table:
    """A row each second, in order, of five keys."""
    numbers = range(ROWS)
    times = pa.array([START + n * SECOND + shift for n in numbers], pa.timestamp("us"))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "k": pa.array([n % 5 for n in numbers], pa.int64()),
            "v": pa.array([n * 7 % 50 for n in numbers], pa.int64()),
            "ts": times,
        }
    )


BANDS = "events e {} JOIN others o ON e.k = o.k AND o.ts BETWEEN e.ts AND e.ts + INTERVAL '20 seconds'"
LIVES = "SLIDE(events, ts, INTERVAL '12 seconds')"
OTHERS = "SLIDE(others, ts, INTERVAL '8 seconds')"
SHRINKING = {
    "tumble": "SELECT window_start, k, sum(v) AS s FROM TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY ALL",
    "tumble, median": (
        "SELECT window_end, k, median(v) AS s FROM TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY ALL"
    ),
    "hop": (
        "SELECT window_end, k, sum(v) AS s FROM HOP(events, ts, slide => INTERVAL '2 seconds', size => "
        "INTERVAL '20 seconds') GROUP BY ALL"
    ),
    "cumulate": (
        "SELECT window_end, k, sum(v) AS s FROM CUMULATE(events, ts, step => INTERVAL '2 seconds', size => "
        "INTERVAL '20 seconds') GROUP BY ALL"
    ),
    "session": (
        "SELECT window_start, window_end, k, sum(v) AS s FROM SESSION((SELECT * FROM events WHERE v < 20) e "
        "PARTITION BY k, ts, gap => INTERVAL '6 seconds') GROUP BY ALL"
    ),
    "session, median": (
        "SELECT window_start, window_end, k, median(v) AS s FROM SESSION((SELECT * FROM events WHERE v < 20) "
        "e PARTITION BY k, ts, gap => INTERVAL '6 seconds') GROUP BY ALL"
    ),
    "count windows": (
        "SELECT k, window_id, window_start, sum(v) AS s FROM TUMBLE(events PARTITION BY k, ts, rows => 4) GROUP BY ALL"
    ),
    "count windows of all rows": (
        "SELECT window_id, window_end, sum(v) AS s FROM TUMBLE(events, ts, rows => 7) GROUP BY ALL"
    ),
    "snapshot": "SELECT k, count(*) AS n, max(v) AS top FROM SLIDE(events, ts, INTERVAL '12 seconds') GROUP BY k",
    "windows of windows": (
        "SELECT window_start, max(s) AS s FROM (SELECT window_start, k, sum(v) AS s FROM TUMBLE(events, ts, "
        "INTERVAL '10 seconds') GROUP BY ALL) GROUP BY ALL"
    ),
    "band join": f"SELECT e.id, o.id AS other FROM {BANDS.format('')}",
    "left band join": f"SELECT e.id, o.id AS other FROM {BANDS.format('LEFT')} AND o.v < 10",
    **{
        name: f"SELECT id, k, {call} AS s FROM events"
        for name, call in {
            "row_number": "row_number() OVER (PARTITION BY k ORDER BY ts)",
            "rank of all rows": "rank() OVER (ORDER BY ts)",
            "lag": "lag(v, 3) OVER (PARTITION BY k ORDER BY ts)",
            "lead": "lead(v, 2) OVER (PARTITION BY k ORDER BY ts)",
            "running sum": "sum(v) OVER (PARTITION BY k ORDER BY ts)",
            "sum of the last rows": "sum(v) OVER (PARTITION BY k ORDER BY ts ROWS 4 PRECEDING)",
            "median of the last seconds": "median(v) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL '9 s' PRECEDING)",
            "the next seconds": "max(v) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '9 s' FOLLOWING)",
        }.items()
    },
    "top rows of a window": (
        "SELECT id, k, window_start FROM TUMBLE(events, ts, INTERVAL '10 seconds') QUALIFY row_number() OVER "
        "(PARTITION BY window_start ORDER BY v DESC, id) <= 3"
    ),
    "order of time": "SELECT id, k FROM events ORDER BY ts, id",
    "row pattern": (
        "SELECT k, first_id, last_id FROM events MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(id) AS "
        "first_id, LAST(id) AS last_id PATTERN (S DOWN+ UP+) DEFINE DOWN AS v < PREV(v), UP AS v > PREV(v))"
    ),
    "row pattern of a window": (
        "SELECT k, first_id, n FROM TUMBLE(events, ts, INTERVAL '10 seconds') MATCH_RECOGNIZE (PARTITION BY "
        "window_start, k ORDER BY ts MEASURES FIRST(id) AS first_id, count(*) AS n PATTERN (S ANY*) DEFINE ANY AS "
        "v >= 0)"
    ),
    "row pattern within": (
        "SELECT first_id, last_id FROM events MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(id) AS first_id, "
        "LAST(id) AS last_id PATTERN (S ANY+) WITHIN INTERVAL '10 seconds' DEFINE ANY AS v >= 0)"
    ),
    "temporal join": f"SELECT l.id, r.id AS other FROM {LIVES} l JOIN {OTHERS} r ON l.k = r.k",
    "temporal left join": f"SELECT l.id, r.id AS other FROM {LIVES} l LEFT JOIN {OTHERS} r ON l.k = r.k AND r.v < 10",
    "temporal full join": f"SELECT l.id, r.id AS other FROM {LIVES} l FULL JOIN {OTHERS} r ON l.k = r.k AND r.v < 10",
    "temporal NOT EXISTS": (
        f"SELECT l.id FROM {LIVES} l WHERE NOT EXISTS (SELECT 1 FROM {OTHERS} r WHERE l.k = r.k AND r.v < 10)"
    ),
    "temporal EXISTS": f"SELECT id FROM {LIVES} l WHERE EXISTS (SELECT 1 FROM {OTHERS} r WHERE l.k = r.k AND r.v < 9)",
    "CLIP JOIN": f"SELECT l.id, valid_to FROM {LIVES} l CLIP JOIN {OTHERS} r ON l.k = r.k",
    "temporal left join by another condition": (
        f"SELECT l.id, r.id AS other FROM {LIVES} l LEFT JOIN {OTHERS} r ON l.k = r.k AND r.v < l.v"
    ),
    "temporal full join by another condition": (
        f"SELECT l.id, r.id AS other FROM {LIVES} l FULL JOIN {OTHERS} r ON l.k = r.k AND r.v < l.v"
    ),
    "temporal NOT EXISTS by another condition": (
        f"SELECT l.id FROM {LIVES} l WHERE NOT EXISTS (SELECT 1 FROM {OTHERS} r WHERE l.k = r.k AND r.v < l.v)"
    ),
    "temporal EXISTS by another condition": (
        f"SELECT id FROM {LIVES} l WHERE EXISTS (SELECT 1 FROM {OTHERS} r WHERE l.k = r.k AND r.v < l.v)"
    ),
    "CLIP JOIN by another condition": (
        f"SELECT l.id, valid_to FROM {LIVES} l CLIP JOIN {OTHERS} r ON l.k = r.k AND r.v < l.v"
    ),
    "CLIP JOIN with a plain relation": f"SELECT l.id, valid_to FROM {LIVES} l CLIP JOIN others r ON l.k = r.k",
    "QUALIFY per snapshot": (
        f"SELECT id, k, v FROM {LIVES} QUALIFY row_number() OVER (PARTITION BY k ORDER BY v, id) = 1"
    ),
    "QUALIFY by lifetimes": f"SELECT id, v FROM {LIVES} QUALIFY row_number() OVER (ORDER BY valid_from DESC, id) <= 2",
    "LIMIT per snapshot": (
        f"SELECT k, count(*) AS n FROM (SELECT k FROM {LIVES} ORDER BY v, id LIMIT 3 OFFSET 1) GROUP BY k"
    ),
    "lifetimes that overlap": (
        "SELECT e.id, o.id AS other FROM LIFETIME(events, start => ts, \"end\" => ts + INTERVAL '3 seconds' * (1 + v % "
        "3)) e JOIN LIFETIME(others, start => ts, \"end\" => ts + INTERVAL '2 seconds' * (1 + v % 4)) o ON e.k = o.k"
    ),
    "temporal DISTINCT": f"SELECT DISTINCT k FROM {LIVES} WHERE v < 20",
    "temporal UNION": f"SELECT k FROM {LIVES} WHERE v < 9 UNION SELECT k FROM {OTHERS} WHERE v < 9",
    "temporal EXCEPT": f"SELECT k FROM {LIVES} WHERE v < 9 EXCEPT SELECT k FROM {OTHERS} WHERE v > 40",
    "temporal INTERSECT": f"SELECT k FROM {LIVES} WHERE v < 9 INTERSECT SELECT k FROM {OTHERS} WHERE v < 9",
    "STITCH": f"SELECT * FROM STITCH((SELECT k, v FROM {LIVES}))",
    "full band join": f"SELECT e.id, o.id AS other FROM {BANDS.format('FULL')} AND o.v < 10",
    "ahead in time": (
        "SELECT e.id, o.id AS other FROM events e ASOF LEFT JOIN others o ON e.k = o.k AND e.ts <= o.ts "
        "TOLERANCE INTERVAL '12 seconds'"
    ),
    "no partner in a band": (
        "SELECT e.id FROM events e WHERE NOT EXISTS (SELECT 1 FROM others o WHERE o.k = e.k AND o.v < 5 AND "
        "o.ts BETWEEN e.ts AND e.ts + INTERVAL '20 seconds')"
    ),
    "asof join": "SELECT e.id, o.id AS other FROM events e ASOF LEFT JOIN others o ON e.k = o.k AND e.ts >= o.ts",
    "a join of lifetimes": (
        "SELECT e.id, o.id AS other FROM SLIDE(events, ts, INTERVAL '9 seconds') e JOIN SLIDE(others, ts, "
        "INTERVAL '9 seconds') o ON e.k = o.k"
    ),
    "join of windows": "SELECT a.window_start, a.k, a.s, b.s AS t FROM (SELECT window_start, k, sum(v) AS s FROM "
    "TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY ALL) a "
    "JOIN (SELECT window_start, k, sum(v) AS s FROM TUMBLE(others, ts, INTERVAL '10 seconds') GROUP BY "
    "ALL) b ON a.window_start = b.window_start AND a.k = b.k",
}


def arriving(session: tsql.Session, sql: str) -> Arriving:
    data = {"events": events(), "others": events(500_000)}
    for name, table in data.items():
        session.register(name, table)
    found = Arriving(plan_of(session, sql), data, "sometimes", 3)
    # The two inputs go on at the same pace: one that runs ahead must be held.
    streams: dict[int, list] = {}
    for number, message in found.messages:
        streams.setdefault(number, []).append(message)
    longest = max(map(len, streams.values()))
    found.messages = [
        (number, messages[at]) for at in range(longest) for number, messages in streams.items() if at < len(messages)
    ]
    return found


@pytest.mark.parametrize("name", SHRINKING)
def test_state_shrinks_as_time_passes(name: str) -> None:
    """Of 260 rows (520 of two inputs) each step holds those of about a minute, and the rows are those of the run over
    all at once."""
    with tsql.connect(threads=2) as session:
        found = arriving(session, SHRINKING[name])
        expected = session.sql(SHRINKING[name]).arrow()
        ours = found.run()
        assert sorted(map(repr, ours)) == sorted(map(repr, to_rows(expected)))
        assert len(ours) > 20
        operators = {name for name, _ in found.query.held()}
        assert found.most < ROWS * 2 // 5 * len(operators), f"{found.most} rows were held"
        assert found.query.rows_held() == 0


def test_first_rows_are_held_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is known only at the end. Until then no more than the first rows are held, and what has come since they
    were last chosen."""
    monkeypatch.setattr(sorts, "CUT_ROWS", 20)
    sql = "SELECT id, v FROM events ORDER BY v DESC, id LIMIT 10"
    with tsql.connect(threads=2) as session:
        found = arriving(session, sql)
        assert found.run() == to_rows(session.sql(sql).arrow())
        assert found.most < 50, f"{found.most} rows were held"


def test_a_limit_ends_the_query() -> None:
    """Rows behind the last one that is wanted are neither held nor given."""
    with tsql.connect(threads=2) as session:
        session.register("events", events())
        query = LiveQuery(plan_of(session, "SELECT id FROM events WHERE v >= 0 LIMIT 7 OFFSET 2"), {"events": "ts"})
        found = []
        for start in range(0, 12, 4):
            assert not query.ended
            found += query.consume("events", events().slice(start, 4))
        assert pa.Table.from_batches(found).column(0).to_pylist() == list(range(2, 9))
        assert query.ended and query.rows_held() == 0
        state, again = query.state(), LiveQuery(query.plan, {"events": "ts"}, shards=3)
        again.restore(state)
        assert again.consume("events", events().slice(12, 4)) == [] and again.ended


def test_rows_leave_in_the_order_of_time() -> None:
    """Batches in disorder; what leaves is sorted over all punctuations."""
    sql = "SELECT id, v FROM events ORDER BY ts, v DESC LIMIT 200"
    with tsql.connect(threads=2) as session:
        found = arriving(session, sql)
        assert found.run() == to_rows(session.sql(sql).arrow())
        assert len(found.found) > 10


def test_what_is_held_is_described() -> None:
    with tsql.connect(threads=2) as session:
        session.register("events", events())
        plan = plan_of(
            session,
            (
                "SELECT window_end, k, sum(v) AS s FROM HOP(events, ts, slide => INTERVAL '2 seconds', size => "
                "INTERVAL '20 seconds') GROUP BY ALL ORDER BY 3 LIMIT 3"
            ),
        )
        told = LiveQuery(plan, {"events": "ts"}).describe()
        assert any(line == "windows: holds panes while a window that has them is open" for line in told)
        assert any("holds the first 3 rows until its input has ended" in line for line in told)


def tumbling(session: tsql.Session) -> LiveQuery:
    session.register("events", events())
    return LiveQuery(plan_of(session, SHRINKING["tumble"]), {"events": "ts"})


def test_rows_behind_the_end_are_an_error() -> None:
    with tsql.connect() as session:
        query = tumbling(session)
        query.punctuate("events")
        with pytest.raises(tsql.ExecutionError, match="the scan events has ended"):
            query.consume("events", events())


def test_unknown_scans_and_columns_are_errors() -> None:
    with tsql.connect() as session:
        query = tumbling(session)
        with pytest.raises(tsql.ExecutionError, match="others is no scan whose rows arrive"):
            query.consume("others", events())
        with pytest.raises(tsql.SourceError, match="no column v"):
            query.consume("events", events().drop_columns(["v"]))
        with pytest.raises(tsql.ExecutionError, match="the plan has no scan others"):
            LiveQuery(query.plan, {"others": "ts"})


def test_state_of_another_plan_is_refused() -> None:
    with tsql.connect() as session:
        query = tumbling(session)
        query.consume("events", events().slice(0, 5))
        state = query.state()
        other = LiveQuery(plan_of(session, SHRINKING["hop"]), {"events": "ts"})
        with pytest.raises(tsql.ExecutionError, match="state of"):
            other.restore(state)
        with pytest.raises(tsql.ExecutionError, match="has begun"):
            query.restore(state)


def test_state_travels_as_arrow() -> None:
    """Every table of a state can be written to an IPC file and read back; the query goes on as if nothing had
    happened."""
    with tsql.connect() as session:
        whole, first = tumbling(session), tumbling(session)
        rows = events()
        expected = [*whole.consume("events", rows), *whole.punctuate("events")]
        found = [*first.consume("events", rows.slice(0, 133)), *first.punctuate("events", START + 133 * SECOND)]
        kept = {}
        for name, table in first.state().items():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            kept[name] = pa.ipc.open_file(sink.getvalue()).read_all()
        second = LiveQuery(first.plan, {"events": "ts"}, shards=5)
        second.restore(kept)
        found += [*second.consume("events", rows.slice(133)), *second.punctuate("events")]
        assert sorted(map(repr, pa.Table.from_batches(found).to_pylist())) == sorted(
            map(repr, pa.Table.from_batches(expected).to_pylist())
        )


def test_what_is_held_counts_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that are too small for files of their own stay in memory, and then too much is held. (Others go into
    files: test_files_of_rows.py.)"""
    monkeypatch.setattr("tsql.backends.live.operator.LEAST_BYTES", 1 << 40)
    numbers = np.arange(375_000)
    many = pa.table(
        {
            "id": numbers,
            "k": pa.nulls(len(numbers), pa.int64()),
            "v": numbers,
            "ts": pa.nulls(len(numbers), pa.timestamp("us")),
        }
    )
    with tsql.connect() as session:
        session.register("events", events())
        plan = plan_of(session, "SELECT DISTINCT id, v FROM events")
        query = LiveQuery(plan, {"events": "ts"}, Run(Settings(memory_limit=8 << 20)))
        with pytest.raises(tsql.OutOfMemoryError, match="hold .* bytes for rows to come"):
            for _ in range(5):
                query.consume("events", many)


def test_sums_are_as_wide_as_later_batches_need() -> None:
    """A kernel that was made for one row would add a thousand of them in 64 bits."""
    value = 2**31 - 1
    one = pa.table({"a": pa.array([value], pa.int32())})
    with tsql.connect(threads=2) as session:
        session.register("t", one)
        query = LiveQuery(plan_of(session, "SELECT sum(a::BIGINT * a::BIGINT) AS s FROM t"), {"t": None})
        query.consume("t", one)
        query.consume("t", pa.concat_tables([one] * 1000).combine_chunks())
        assert [int(row["s"]) for batch in query.punctuate("t") for row in batch.to_pylist()] == [1001 * value**2]
