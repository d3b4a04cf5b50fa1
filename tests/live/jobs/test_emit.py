"""EMIT: at any moment the changes that have left add up to the result of the rows that have come."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import tsql
from tests.live.jobs.driven import Clock, check_changes, drive
from tests.live.scripted import cut, scripted
from tests.temporal.asking import ask_engine
from tests.temporal.data import assert_same_rows, to_rows, to_table
from tests.temporal.reference.rows import SECOND, Rows
from tsql.backends.live.jobs.changes import with_change
from tsql.backends.live.sinks.sink import Output
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, TINYINT
from tsql.live_view import LEAST_ROWS, LiveView

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
WINDOWS = (
    "SELECT k, window_start, count(*) AS n, sum(v)::BIGINT AS s FROM TUMBLE(events, ts, INTERVAL '10 seconds') "
    "GROUP BY k, window_start"
)
QUERIES = {
    "windows": WINDOWS,
    "groups": "SELECT k, count(*) AS n, max(v) AS most FROM events GROUP BY k",
    "sessions": (
        "SELECT k, window_start, count(*) AS n FROM SESSION(events PARTITION BY k, ts, gap => INTERVAL '3 seconds') "
        "GROUP BY k, window_start, window_end"
    ),
    "join": "SELECT e.id, o.v FROM events e JOIN events o ON e.k = o.k AND o.ts BETWEEN e.ts - INTERVAL '4 s' AND e.ts",
    "over": "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts, id)::BIGINT AS s FROM events",
    "best": (
        "SELECT k, v, id FROM TUMBLE(events, ts, INTERVAL '10 seconds') "
        "QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY v DESC, id) <= 2"
    ),
    "outer join": (
        "SELECT e.id, o.id AS other FROM events e LEFT JOIN events o "
        "ON e.k = o.v AND o.ts BETWEEN e.ts - INTERVAL '2 s' AND e.ts"
    ),
    "rows": "SELECT id, v FROM events WHERE v > 3",
}
DELAY = "ts - INTERVAL '6 seconds'"


def events(seed: int, rows: int = 60, behind: int = 5) -> pa.Table:
    choose = random.Random(f"emit {seed}")
    made: Rows = [
        {
            "id": number,
            "k": choose.randrange(4),
            "v": choose.randrange(10),
            "ts": (number - choose.randrange(behind + 1)) * SECOND,
        }
        for number in range(rows)
    ]
    return to_table(made, SCHEMA)


@pytest.mark.parametrize("emit", ["EMIT CHANGES", "EMIT EVERY INTERVAL '1 second' BEFORE WATERMARK"])
@pytest.mark.parametrize("name", QUERIES)
def test_changes_add_up_to_the_result_so_far(name: str, emit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    script = {"p": cut(events(seed), seed, most=12)}
    clock = Clock()
    with tsql.connect(threads=1) as session:
        scripted(session, "events", script, SCHEMA, "ts", seed=seed, ends=False, watermark=DELAY)
        job = drive(session, f"{QUERIES[name]} {emit}", clock, monkeypatch)
        try:
            while job.place < len(script["p"]):
                clock.seconds += 1
                job.round()
                taken = job.taken(script["p"])
                assert_same_rows(to_rows(job.sink.result()), to_rows(ask_engine(QUERIES[name], {"events": taken})))
            check_changes(job.sink.table())
        finally:
            job.close()


@pytest.mark.parametrize("allowed", [0, 8])
def test_changes_after_the_watermark(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window is shown when the watermark has passed it, and late rows within the allowed lateness change it."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    # Some rows are behind the watermark, and some of them too far.
    script = {"p": cut(events(seed, behind=20), seed, most=4)}
    clock = Clock()
    with tsql.connect(threads=1) as session:
        scripted(session, "events", script, SCHEMA, "ts", seed=seed, ends=False, watermark=DELAY,
                 allowed_lateness_us=allowed * SECOND)  # fmt: skip
        job = drive(session, f"{WINDOWS} EMIT FINAL, CHANGES AFTER WATERMARK", clock, monkeypatch)
        try:
            while job.place < len(script["p"]):
                clock.seconds += 1
                job.round()
                kept = on_time(to_rows(job.taken(script["p"])), allowed * SECOND)
                watermark = job.watermark
                rows = to_rows(ask_engine(WINDOWS, {"events": to_table(kept, SCHEMA)}))
                known = [r for r in rows if watermark is not None and r["window_start"] + 10 * SECOND <= watermark]
                assert_same_rows(to_rows(job.sink.result()), known)
            check_changes(job.sink.table())
            assert job.sink.table().num_rows > 0
        finally:
            job.close()


def on_time(rows: Rows, allowed: int) -> Rows:
    kept, watermark = [], -(2**62)
    for row in rows:
        if row["ts"] >= watermark - allowed:
            kept.append(row)
        watermark = max(watermark, row["ts"] - 6 * SECOND)
    return kept


@pytest.mark.parametrize("emit", ["", " BEFORE WATERMARK"])
def test_rows_leave_at_most_so_often(emit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = {"p": cut(events(7), 7, most=2)}
    clock = Clock()
    with tsql.connect(threads=1) as session:
        scripted(session, "events", script, SCHEMA, "ts", ends=False, watermark=DELAY)
        job = drive(session, f"{WINDOWS} EMIT EVERY INTERVAL '5 seconds'{emit}", clock, monkeypatch)
        try:
            moments, rows = [], 0
            while job.place < len(script["p"]):
                clock.seconds += 1
                job.round()
                if job.run.emitter.rows > rows:
                    rows = job.run.emitter.rows
                    moments.append(clock.seconds)
            assert moments
            assert all(later - sooner >= 5 for sooner, later in zip(moments, moments[1:]))
        finally:
            job.close()


def test_a_view_that_nobody_reads_stays_small() -> None:
    """Its changes are made as they come, not kept until somebody looks."""
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    view = LiveView("v", Schema.from_arrow(schema))
    view.open(Output(with_change(schema), (BIGINT, BIGINT, TINYINT), "job-a", True, ("k",)))
    keys = list(range(1000))
    for epoch in range(1, 400):
        gone = pa.table([keys, [epoch - 1] * 1000, pa.array([-1] * 1000, pa.int8())], schema=with_change(schema))
        come = pa.table([keys, [epoch] * 1000, pa.array([1] * 1000, pa.int8())], schema=with_change(schema))
        for table in ([] if epoch == 1 else [gone]) + [come]:
            for batch in table.to_batches():
                view.write(batch)
        view.commit(epoch, view.prepare(epoch))
        assert sum(batch.num_rows for batch in view._changes) <= LEAST_ROWS + 2000
    assert view.table().sort_by("k").to_pydict() == {"k": keys, "n": [399] * 1000}
