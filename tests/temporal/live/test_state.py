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
from tsql.backends.live import fragments
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
    "no partner in a band": (
        "SELECT e.id FROM events e WHERE NOT EXISTS (SELECT 1 FROM others o WHERE o.k = e.k AND o.v < 5 AND "
        "o.ts BETWEEN e.ts AND e.ts + INTERVAL '20 seconds')"
    ),
    "asof join": "SELECT e.id, o.id AS other FROM events e ASOF LEFT JOIN others o ON e.k = o.k AND e.ts >= o.ts",
    "temporal join": (
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
    """Of 260 rows (520 of two inputs) those of about a minute are held, and the rows are those of the run over all at
    once."""
    with tsql.connect(threads=2) as session:
        found = arriving(session, SHRINKING[name])
        expected = session.sql(SHRINKING[name]).arrow()
        ours = found.run()
        assert sorted(map(repr, ours)) == sorted(map(repr, to_rows(expected)))
        assert len(ours) > 20
        assert found.most < ROWS // 3, f"{found.most} rows were held"
        assert found.query.rows_held() == 0


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


@pytest.mark.parametrize(
    ("least", "runs"), [(2 << 20, False), (16 << 20, True)], ids=["too little is left", "too much is held"]
)
def test_what_is_held_counts_against_the_limit(least: int, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch needs more memory than the first has left: an error of its fragment. One that may take so much
    runs, and then too much is held."""
    monkeypatch.setattr(fragments, "LEAST_BYTES", least)
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
        with pytest.raises(tsql.OutOfMemoryError, match="hold .* bytes for rows to come") as refused:
            for _ in range(5):
                query.consume("events", many)
        assert ("the query needs more memory" in str(refused.value.__cause__)) == (not runs)


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
