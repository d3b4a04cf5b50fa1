"""Runs that repeat the calls of an earlier one (backends/local/run/repeat.py): the same rows as the executor gives and
DuckDB expects, run after run."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends.local import LocalBackend
from tsql.backends.local.run.repeat import Recording
from tsql.kernels.expr.errors import CancelledError, ExecutionError
from tsql.session import Session

ROWS = """
SELECT i AS id, i % 7 AS k, (i * 37) % 1000 AS v, CAST(i % 100 AS DECIMAL(15, 2)) AS d,
       CASE i % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' END AS s
FROM range(200000) r(i)
"""
REPEATED = (
    "SELECT sum(v * d) AS x FROM t WHERE v > 10 AND v < 500",
    (
        "SELECT k, count(*) AS n, sum(d) AS d, avg(v) AS a, min(id) AS low, max(id) AS high FROM t WHERE v < "
        "900 GROUP BY k ORDER BY k"
    ),
    "SELECT k % 3 AS m, s, sum(v) AS v FROM t GROUP BY m, s ORDER BY s DESC NULLS LAST, m DESC",
    "SELECT count(*) AS n, stddev(v) AS deviation FROM t WHERE id < 0",
    "SELECT k, sum(v) AS v FROM t WHERE (id + 1) % 7 = 8 GROUP BY k ORDER BY k",
    "SELECT count(*) AS n FROM t WHERE s = 'b' AND id % 3 = 1",
    "SELECT sum(n) AS n FROM (SELECT k, count(*) AS n FROM t GROUP BY k)",
)
AS_EVER = (
    "SELECT v, count(DISTINCT k) AS n FROM t GROUP BY v ORDER BY v LIMIT 3",
    "SELECT s, string_agg(CAST(id AS VARCHAR), ',' ORDER BY id) AS ids FROM t WHERE id < 9 GROUP BY s ORDER BY s",
    "SELECT max(s) AS s FROM t",
    "SELECT k, sum(v) AS v FROM t GROUP BY k ORDER BY v DESC LIMIT 2",
    "SELECT count(*) AS n FROM t JOIN (SELECT DISTINCT k FROM t) u USING (k)",
)


@pytest.fixture(params=(1, 2))
def db(request: pytest.FixtureRequest) -> Iterator[Session]:
    with tsql.connect(threads=request.param) as session:
        session.execute(f"CREATE TABLE t AS {ROWS}")
        yield session


@pytest.fixture(scope="module")
def expected() -> dict[str, list[tuple[Any, ...]]]:
    duck = empty_duckdb()
    duck.execute(f"CREATE TABLE t AS {ROWS}")
    return {sql: duck.execute(sql).fetchall() for sql in (*REPEATED, *AS_EVER)}


def recording(db: Session, sql: str, params: Any = None) -> Recording | None:
    """What the plan of a query has to repeat."""
    db.sql(sql, params)
    prepared = next(p for p in db._plans._plans.values() if p.piece.text == sql)
    return db.backend.kernels.of(prepared.physical).recording


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("sql", REPEATED)
def test_every_run_gives_the_same_rows(db: Session, expected: dict[str, list[tuple[Any, ...]]], sql: str) -> None:
    tables = [db.sql(sql).arrow() for _ in range(5)]
    assert recording(db, sql) is not None
    for table in tables:
        assert rows(table) == expected[sql]
        assert table.schema == tables[0].schema


@pytest.mark.parametrize("sql", AS_EVER)
def test_what_cannot_be_repeated_runs_as_ever(
    db: Session, expected: dict[str, list[tuple[Any, ...]]], sql: str
) -> None:
    assert [rows(db.sql(sql).arrow()) for _ in range(4)] == [expected[sql]] * 4
    assert recording(db, sql) is None


def test_rows_of_a_small_table(db: Session) -> None:
    db.execute("CREATE TABLE few AS SELECT range AS x FROM range(100)")
    sql = "SELECT x + 1 AS y FROM few WHERE x % 30 = $rest ORDER BY x DESC"
    assert [rows(db.sql(sql, {"rest": rest}).arrow()) for rest in (1, 2, 3, 4, 20)] == [
        [(x + 1,) for x in range(99, -1, -1) if x % 30 == rest] for rest in (1, 2, 3, 4, 20)
    ]
    assert recording(db, sql, {"rest": 1}) is not None


def test_parameters_are_those_of_the_run(db: Session) -> None:
    sql = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE s = $s AND id < $most"
    duck = empty_duckdb()
    duck.execute(f"CREATE TABLE t AS {ROWS}")
    for s, most in (("a", 10), ("b", 1000), ("no such", 5), ("b", 200_000), ("a", 10)):
        assert rows(db.sql(sql, {"s": s, "most": most}).arrow()) == duck.execute(sql, {"s": s, "most": most}).fetchall()
    assert recording(db, sql, {"s": "a", "most": 1}) is not None


def test_results_outlive_the_runs_after_them(db: Session) -> None:
    sql = REPEATED[1]
    first = db.sql(sql).arrow()
    db.sql(sql).arrow()
    third = db.sql(sql).arrow()
    copy = pa.table(third.to_pydict(), schema=third.schema)
    for _ in range(20):
        db.sql(sql).arrow()
    assert third == copy == first


def test_a_run_beside_a_repetition_goes_through_the_executor(
    db: Session, expected: dict[str, list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = REPEATED[0]
    for _ in range(3):
        db.sql(sql).arrow()
    found = recording(db, sql)
    ran: list[int] = []
    batches = LocalBackend._batches
    monkeypatch.setattr(LocalBackend, "_batches", lambda self, plan, run: (ran.append(1), batches(self, plan, run))[1])
    with found.lock:
        assert rows(db.sql(sql).arrow()) == expected[sql]
    assert ran == [1]
    assert rows(db.sql(sql).arrow()) == expected[sql] and ran == [1]


def test_many_threads_at_once(db: Session, expected: dict[str, list[tuple[Any, ...]]]) -> None:
    sql = REPEATED[2]
    found: list[list[tuple[Any, ...]]] = []

    def ask() -> None:
        found.extend(rows(db.sql(sql).arrow()) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected[sql]] * 80


def test_a_failure_is_told_with_its_position_and_ends_the_recording(db: Session) -> None:
    sql = "SELECT sum(CAST(v AS TINYINT)) AS x FROM t WHERE id < $most"
    for _ in range(3):
        db.sql(sql, {"most": 3}).arrow()
    assert recording(db, sql, {"most": 3}) is not None
    for _ in range(2):
        with pytest.raises(ExecutionError, match="TINYINT") as caught:
            db.sql(sql, {"most": 200_000}).arrow()
        assert "line 1, column" in str(caught.value)
    assert rows(db.sql(sql, {"most": 3}).arrow()) == [(111,)]


def test_a_recording_that_breaks_while_another_run_waits_for_it_is_not_used(
    db: Session, expected: dict[str, list[tuple[Any, ...]]]
) -> None:
    sql = REPEATED[0]
    for _ in range(3):
        db.sql(sql).arrow()
    found = recording(db, sql)
    found.broken = True
    assert not found.begin(db.sql(sql)._new_run()) and not found.lock.locked()
    assert rows(db.sql(sql).arrow()) == expected[sql]


def test_what_a_later_run_takes_for_its_values_is_freed(db: Session) -> None:
    """The recorded run makes no text, so that it needs no memory for it."""
    sql = "SELECT count(*) AS n FROM t WHERE id >= $least AND upper(s || $text) = 'BX'"
    for _ in range(3):
        assert rows(db.sql(sql, {"least": 1_000_000, "text": "x"}).arrow()) == [(0,)]
    found = recording(db, sql, {"least": 1, "text": "x"})
    assert rows(db.sql(sql, {"least": 199_990, "text": "x"}).arrow()) == [
        (sum(i % 3 == 1 for i in range(199_990, 200_000)),)
    ]
    contexts = [call.context for stage in found.stages for call in stage]
    assert any(context.has_scratch for context in contexts)
    found.broken = True
    found.end()
    assert all(context.closed and not context.has_scratch for context in contexts)


def test_a_cancelled_run_stays_cancelled(db: Session) -> None:
    sql = REPEATED[0]
    for _ in range(3):
        db.sql(sql).arrow()
    found = recording(db, sql)
    run = db.sql(sql)._new_run()
    run.cancel()
    with found.lock, pytest.raises(CancelledError):
        found.chunks(run)


def test_who_cancels_a_run_that_is_over_ends_no_other(db: Session) -> None:
    sql = REPEATED[0]
    for _ in range(3):
        db.sql(sql).arrow()
    found, over = recording(db, sql), db.sql(sql)._new_run()
    with found.lock:
        found.chunks(over)
        run = db.sql(sql)._new_run()
        found.shared.restart(run)
        over.cancel()
        assert found.shared.words[0] == 0
        run.cancel()
        assert found.shared.words[0] == 1


def test_memory_goes_with_the_plan(db: Session) -> None:
    """The states of a recording are freed when its plan is dropped."""
    sql = REPEATED[1]
    for _ in range(3):
        db.sql(sql).arrow()
    found = recording(db, sql)
    states = [weakref.ref(call.context.state) for stage in found.stages for call in stage]
    del found
    db.execute("CREATE TABLE other AS SELECT 1 AS x")
    db.sql("SELECT x FROM other").arrow()
    gc.collect()
    assert states and not any(state() for state in states)


def test_a_long_run_is_left_to_a_thread(db: Session, expected: dict[str, list[tuple[Any, ...]]]) -> None:
    sql = REPEATED[0]
    for _ in range(3):
        db.sql(sql).arrow()
    found = recording(db, sql)
    found.seconds = 10.0
    assert rows(db.sql(sql).arrow()) == expected[sql]
    assert found.seconds < 10.0


def test_changes_are_seen(db: Session) -> None:
    sql = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE id >= 199999"
    before = [rows(db.sql(sql).arrow()) for _ in range(3)]
    db.execute("INSERT INTO t VALUES (200000, 1, 5, 1.00, 'c')")
    after = [rows(db.sql(sql).arrow()) for _ in range(3)]
    assert before == [[(1, 963)]] * 3 and after == [[(2, 968)]] * 3


def test_settings_and_profiles_go_their_own_way(db: Session, expected: dict[str, list[tuple[Any, ...]]]) -> None:
    sql = REPEATED[1]
    for _ in range(3):
        db.sql(sql).arrow()
    assert "rows" in db.sql(sql).explain("analyze")
    db.execute("SET memory_limit = '1GB'")
    assert rows(db.sql(sql).arrow()) == expected[sql]


def test_progress_and_times_are_told(db: Session) -> None:
    sql = REPEATED[0]
    for _ in range(3):
        db.sql(sql).arrow()
    relation = db.sql(sql)
    relation.arrow()
    assert relation.progress == 1.0 and relation.timings["run"] > 0 and relation.timings["compile"] == 0
