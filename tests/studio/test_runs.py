"""Queries that a page runs: their snapshots, what steers them, and the types of their rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.studio.page import Frame, GatedBackend, Page, opened
from tsql.studio import Studio
from tsql.studio.outbox import Message, Outbox

GROUPED = "SELECT g, count(*) AS n, avg(x) AS m FROM t GROUP BY g ORDER BY g"
TENTHS = f"{GROUPED} PROGRESSIVE EVERY 10 PERCENT"


def run_of(studio: Studio, panel: Any = None) -> Any:
    """The server's side of the run of a panel."""
    (connection,) = studio._connections
    return connection.panels[panel]


def test_rows_that_may_leave_the_result(page: Page) -> None:
    """Where LIMIT chooses by estimates, each row says whether it is possible only; the last result has none."""
    sql = "SELECT k % 90 AS p, sum(x) AS s FROM t GROUP BY p ORDER BY s DESC LIMIT 5"
    told = page.run(sql, progressive=True)
    shown = [frame.table for frame in told.frames]
    assert "possible" not in shown[-1].column_names and len(shown) > 2
    assert all(set(one["possible"].to_pylist()) <= {True, False} for one in shown[:-1])
    assert any(any(one["possible"].to_pylist()) for one in shown[:-1])


def test_snapshots(db: tsql.Session, page: Page) -> None:
    told = page.run(GROUPED, progressive=True)
    assert told.started["columns"] == [
        {"name": "g", "type": "VARCHAR"}, {"name": "n", "type": "BIGINT"}, {"name": "m", "type": "DOUBLE"}
    ]  # fmt: skip
    assert told.started["is_progressive"] is True and told.started["why"] is None
    numbers = [one["number"] for one in told.snapshots]
    assert numbers == sorted(set(numbers)) and len(told.snapshots) == len(told.frames)
    last = told.snapshots[-1]
    assert last["is_final"] and last["progress"] == 1 and last["rows_read"] == 9000 and last["rows"] == 4
    assert sorted(last["bounds"]) == ["m", "n"]
    assert told.rows == db.sql(GROUPED).fetchall()
    assert told.table.column_names == ["0", "1", "2", "1 low", "1 high", "2 low", "2 high"]
    assert told.table["1 low"].to_pylist() == told.table["1 high"].to_pylist() == [2250.0] * 4
    done = told.last
    assert done["type"] == "done" and done["rows"] == 4 and done["is_final"] and not done["stopped"] and done["ms"] > 0
    assert done["message"] is None and "tables" not in done
    # Each frame stands before the snapshot that it belongs to.
    for before, after in zip(told.messages, told.messages[1:], strict=False):
        if isinstance(before, Frame):
            assert after["type"] == "snapshot" and after["number"] == before.header["number"]
            assert before.header == {"id": after["id"], "kind": "rows", "number": after["number"], "first": 0,
                                     "rows": after["rows"], "total": after["rows"]}  # fmt: skip


def test_snapshots_before_the_last(gated: Studio, backend: GatedBackend) -> None:
    with opened(gated) as page:
        run = page.ask("run", sql=GROUPED, progressive=True)
        seen = []
        for _ in range(4):
            backend.gate.release()
            seen.append(page.snapshot(run))
        assert [one["number"] for one in seen] == [1, 2, 3, 4] and not any(one["is_final"] for one in seen)
        assert [round(one["progress"], 2) for one in seen] == [0.02, 0.04, 0.06, 0.08]
        assert all(one["rows_read"] == pytest.approx(9000 * one["progress"]) for one in seen)


def test_flow(page: Page) -> None:
    told = page.run(GROUPED, progressive=True)
    last = told.flows[-1]
    assert last["progress"] == 1 and last["steps"]["t"] == 9000
    steps = {one["name"] for one in page.answer("plan", sql=TENTHS)["steps"]}
    assert set(last["steps"]) <= steps
    # Without snapshots too: the scan, and the rows that were sorted.
    told = page.run("SELECT k FROM t ORDER BY k")
    assert told.flows[-1]["steps"]["t"] == 9000 and told.flows[-1]["steps"]["sorted"] == 9000


def test_why_there_is_one_snapshot(page: Page) -> None:
    ranked = "SELECT row_number() OVER (ORDER BY k) AS n FROM t"
    told = page.run(ranked, progressive=True)
    assert not told.started["is_progressive"] and "the final result only" in told.started["why"]
    assert len(told.snapshots) == 1 and told.snapshots[0]["is_final"]
    assert page.run(ranked).started["why"] is None
    page.run("SET memory_limit = '1GB'")
    told = page.run(GROUPED, progressive=True)
    assert not told.started["is_progressive"] and "memory limit" in told.started["why"]
    assert len(told.snapshots) == 1 and told.last["is_final"] and len(told.rows) == 4
    page.run("RESET memory_limit")
    # A query that speaks of it itself is left as it is.
    told = page.run(f"{GROUPED} PROGRESSIVE UNTIL ERROR <= 10", progressive=True)
    assert not told.last["is_final"] and not told.last["stopped"]


def test_stop(gated: Studio, backend: GatedBackend) -> None:
    """A run that is stopped in the middle ends, and its last snapshot stands."""
    with opened(gated) as page:
        run = page.ask("run", sql=TENTHS)
        for _ in range(3):
            backend.gate.release()
            page.snapshot(run)
        page.ask("stop", of=run)
        told = page.told(run)
        assert told.last["stopped"] and not told.last["is_final"] and told.last["rows"] == 4
        assert backend.released.wait(PATIENCE_SECONDS)
        frame = page.rows(run, 0, 100)
        assert frame.header["number"] == 3 and frame.table.num_rows == 4
        page.ask("stop", of=run)  # no harm
        assert page.answer("history")["history"][0]["error"] is None


def test_stop_hours_of_work(page: Page) -> None:
    run = page.ask("run", sql="SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 3")
    page.until(run, lambda one: one["type"] == "started")
    page.ask("stop", of=run)
    told = page.told(run)
    assert told.last["stopped"] and told.last["rows"] == 0 and told.snapshots == []


def test_stop_a_statement_that_runs_at_once(studio: Studio, page: Page, tmp_path: Path) -> None:
    """COPY is in the middle of its work, in the call that makes its result."""
    sql = f"COPY (SELECT a.range FROM range(10000000) a, range(10000000) b) TO '{tmp_path / 'never.csv'}'"
    run = page.ask("run", sql=sql)
    assert wait_until(lambda: any(tmp_path.iterdir()))
    page.ask("stop", of=run)
    assert page.told(run).last["stopped"]
    assert not (tmp_path / "never.csv").exists()


def test_pause_and_resume(gated: Studio, backend: GatedBackend) -> None:
    with opened(gated) as page:
        run = page.ask("run", sql=TENTHS)
        backend.gate.release()
        page.snapshot(run)
        page.ask("pause", of=run)
        assert wait_until(lambda: run_of(gated)._is_paused)
        backend.gate.release(100)
        assert wait_until(lambda: run_of(gated).is_resting)
        resting = run_of(gated).result.number
        assert resting in (1, 2), "at most the snapshot that was being made"
        assert page.rows(run, 0, 1).header["number"] == resting, "other requests are answered"
        page.ask("resume", of=run)
        told = page.told(run)
        assert told.last["is_final"] and told.snapshots[-1]["number"] == 10
        with tsql.connect() as plain:
            plain.register("t", gated.served.session.sql("FROM t").arrow())
            assert told.rows == plain.sql(GROUPED).fetchall()


def test_stop_and_finish_while_it_rests(gated: Studio, backend: GatedBackend) -> None:
    for op in ("stop", "finish"):
        with opened(gated) as page:
            run = page.ask("run", sql=TENTHS)
            backend.gate.release()
            page.snapshot(run)
            page.ask("pause", of=run)
            assert wait_until(lambda: run_of(gated)._is_paused)
            backend.gate.release(100)
            assert wait_until(lambda: run_of(gated).is_resting)
            page.ask(op, of=run)
            told = page.told(run)
            assert told.last["stopped"] == (op == "stop") and told.last["is_final"] == (op == "finish")
        backend.gate = threading.Semaphore(0)
        assert wait_until(lambda: not gated._connections)


def test_finish(gated: Studio, backend: GatedBackend) -> None:
    """What is shown next is the exact result."""
    with opened(gated) as page:
        run = page.ask("run", sql=TENTHS)
        backend.gate.release()
        page.snapshot(run)
        page.ask("finish", of=run)
        assert wait_until(lambda: run_of(gated)._is_finishing)
        backend.gate.release(100)
        told = page.told(run)
        assert [one["number"] for one in told.snapshots if one["number"] > 2] == [10]
        assert told.last["is_final"] and not told.last["stopped"]


def test_two_panels_at_once(gated: Studio, backend: GatedBackend) -> None:
    with opened(gated) as page:
        one = page.ask("run", sql=TENTHS, panel="one")
        two = page.ask("run", sql="SELECT count(*) AS n FROM t PROGRESSIVE EVERY 10 PERCENT", panel="two")
        begun = set()
        while begun != {one, two}:
            message = page.next()
            if not isinstance(message, Frame) and message["type"] == "started":
                begun.add(message["id"])
        backend.gate.release(1000)
        ended: dict[int, Any] = {}
        while len(ended) < 2:
            message = page.next()
            if not isinstance(message, Frame) and message["type"] in ("done", "error"):
                ended[message["id"]] = message
        assert ended[one]["rows"] == 4 and ended[two]["rows"] == 1
        assert page.rows(two, 0, 9).table.to_pydict()["0"] == [9000]
        assert page.rows(one, 3, 9).table.to_pydict()["0"] == ["g3"]


def test_a_new_run_ends_the_old_one(gated: Studio, backend: GatedBackend) -> None:
    with opened(gated) as page:
        old = page.ask("run", sql=TENTHS, panel=1)
        backend.gate.release()
        page.snapshot(old)
        new = page.ask("run", sql=TENTHS, panel=1)
        assert page.told(old).last["stopped"]
        backend.gate.release(1000)
        assert page.told(new).last["is_final"]
        refused = page.answer("rows", of=old, first=0, count=1)
        assert refused["type"] == "error"


def test_scripts(db: tsql.Session, page: Page) -> None:
    told = page.run("CREATE TABLE a AS SELECT 1 AS x; INSERT INTO a VALUES (2); SELECT sum(x) FROM a; DROP TABLE a;")
    assert told.rows == [("3",)] and told.started["columns"] == [{"name": "sum(x)", "type": "HUGEINT"}]
    assert [one["name"] for one in told.last["tables"]] == ["t"]

    told = page.run("CREATE TABLE a AS SELECT 1 AS x; SELECT 'first'; INSERT INTO a VALUES (2), (3)")
    assert told.rows == [("first",)]
    told = page.run("INSERT INTO a VALUES (4), (5)")
    assert told.started["columns"] == [] and told.frames == [] and told.last["message"] == "2 rows"
    assert told.last["rows"] == 0
    assert ("a", 5) in {(one["name"], one["rows"]) for one in told.last["tables"]}
    assert page.run("INSERT INTO a VALUES (6) RETURNING x * 2 AS y").rows == [(12,)]

    # What stands before the statement that fails has run; the place is in the whole text.
    told = page.run("INSERT INTO a VALUES (7);\nSELECT 'b'::INTEGER;\nDROP TABLE a")
    assert told.last["type"] == "error" and (told.last["line"], told.last["column"]) == (2, 8)
    assert db.sql("SELECT max(x) FROM a").fetchall() == [(7,)]
    told = page.run("SELECT 1;\nSELECT nothing FROM a;\nSELECT 2")
    assert (told.last["line"], told.last["column"], told.last["end_column"]) == (2, 8, 15) and told.frames == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SHOW TABLES", [("t",)]),
        ("DESCRIBE SELECT 1 AS a", [("a", "INTEGER", "YES", None, None, None)]),
        ("FROM (VALUES (1), (2)) AS v(x) ORDER BY x", [(1,), (2,)]),
        ("VALUES (1)", [(1,)]),
        ("SELECT 1 UNION ALL SELECT 2 ORDER BY 1", [(1,), (2,)]),
        ("PREPARE p AS SELECT 7 AS x; EXECUTE p", [(7,)]),
    ],
)
def test_other_statements_with_rows(page: Page, sql: str, expected: list[tuple[Any, ...]]) -> None:
    assert page.run(sql, progressive=True).rows == expected


def test_explain_and_plan_files(db: tsql.Session, page: Page, tmp_path: Path) -> None:
    ((key, text),) = page.run(f"EXPLAIN ANALYZE {GROUPED}").rows
    assert key == "analyze_plan" and ", 4 rows\n" in text
    file = page.answer("plan", sql=GROUPED)["file"]
    told = page.told(page.ask("run", plan=file))
    assert told.rows == db.sql(GROUPED).fetchall() and told.last["is_final"]
    changed = file.replace("(g asc nulls last)", "(g desc nulls last)")
    assert changed != file
    assert page.told(page.ask("run", plan=changed)).rows == db.sql(GROUPED).fetchall()[::-1]
    progressive = page.answer("plan", sql=TENTHS)["file"]
    told = page.told(page.ask("run", plan=progressive))
    assert told.started["is_progressive"] and told.rows == db.sql(GROUPED).fetchall()


def test_types(page: Page) -> None:
    told = page.run(
        "SELECT 1::TINYINT a, 2::BIGINT b, 3::HUGEINT c, 1.50 d, 0.5::FLOAT e, 0.25::DOUBLE f, true g, 'ä' h, "
        "DATE '2024-02-29' i, TIMESTAMP '2024-02-29 01:02:03.5' j, TIME '01:02:03' k, INTERVAL '1 day 2 hours' l, "
        "'\\xAA'::BLOB m, NULL n, 18446744073709551615::UBIGINT o, TIMESTAMPTZ '2024-02-29 01:02:03+00' p, 1 a"
    )
    assert [one["type"] for one in told.started["columns"]] == [
        "TINYINT", "BIGINT", "HUGEINT", "DECIMAL(3,2)", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "DATE", "TIMESTAMP",
        "TIME", "INTERVAL", "BLOB", "INTEGER", "UBIGINT", "TIMESTAMPTZ", "INTEGER",
    ]  # fmt: skip
    assert [str(field.type) for field in told.table.schema] == [
        "int8", "int64", "string", "string", "float", "double", "bool", "string", "date32[day]", "timestamp[us]",
        "time64[us]", "string", "string", "int32", "uint64", "timestamp[us, tz=UTC]", "int32",
    ]  # fmt: skip
    assert told.table.column_names == [str(place) for place in range(17)]
    values = [column[0].as_py() for column in told.table.columns]
    assert values[2] == "3" and values[3] == "1.50" and values[11] == "1 day 02:00:00" and values[12] == "\\xAA"
    assert values[14] == 2**64 - 1
    assert page.run("SELECT 1 AS x WHERE false").frames[-1].table.num_rows == 0


def test_a_million_rows(db: tsql.Session, page: Page) -> None:
    """Any window of a large result is that slice of all of its rows."""
    rows = 1_000_000
    rng = np.random.default_rng(1)
    data = pa.table({"i": rng.permutation(rows), "s": pa.array(rng.integers(0, 99, rows)).cast(pa.string())})
    db.register("big", data)
    order = np.argsort(data["i"].to_numpy())
    expected = data.take(pa.array(order))
    told = page.run("SELECT i, s FROM big ORDER BY i", progressive=True)
    assert told.last["rows"] == rows and told.frames[0].header["rows"] == 1000
    id = told.last["id"]
    windows = [(0, 1), (999, 3), (65_530, 40), (123_456, 1000), (999_990, 100), (rows, 5), (rows + 7, 5), (-3, 2)]
    for first, count in windows:
        frame = page.rows(id, first, count)
        begin = min(max(first, 0), rows)
        wanted = expected.slice(begin, count)
        assert frame.header["first"] == begin and frame.header["total"] == rows
        assert frame.header["rows"] == wanted.num_rows
        assert frame.table["0"].to_pylist() == wanted["i"].to_pylist()
        assert frame.table["1"].to_pylist() == wanted["s"].to_pylist()
    assert page.rows(id, 0, rows).header["rows"] == 50_000


def test_results_that_are_too_large(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.studio.runs.most_bytes", lambda: 50_000.0)
    told = page.run("SELECT * FROM t")
    assert told.last["type"] == "error" and "more than 50 kB" in told.last["message"] and "LIMIT" in told.last["hint"]
    assert page.run("SELECT k FROM t LIMIT 100").last["rows"] == 100


def test_queries_are_found_again(db: tsql.Session, studio: Studio, page: Page, tmp_path: Path) -> None:
    """A query that runs again keeps its plan, until its tables, its filters or its settings change."""
    first, again = page.run(GROUPED, progressive=True), page.run(GROUPED, progressive=True)
    assert first.rows == again.rows and len(studio.served.plans._plans) == 1
    filters = [{"column": "k", "values": [1, 2]}]
    assert page.run(GROUPED, filters=filters).rows != first.rows and len(studio.served.plans._plans) == 2
    assert page.run(GROUPED).snapshots[0]["is_final"] and len(studio.served.plans._plans) == 3
    db.sql("CREATE OR REPLACE TABLE t AS SELECT 'a' AS g, 1 AS x")
    assert page.run(GROUPED).rows == [("a", 1, 1.0)] and len(studio.served.plans._plans) == 1
    path = tmp_path / "rows.csv"
    for value in (1, 22):
        path.write_text(f"v\n{value}\n")
        assert page.run(f"SELECT v FROM '{path}'").rows == [(value,)]


def test_looking_at_texts_fails_no_transaction(db: tsql.Session, page: Page) -> None:
    page.run("BEGIN; CREATE TABLE own AS SELECT 1 AS x")
    assert page.answer("check", sql="SELECT nothing")["error"] and page.answer("plan", sql="SELECT nothing")["error"]
    assert page.run("SELECT x FROM own").rows == [(1,)]
    page.run("SELECT nothing")
    assert "aborted" in page.run("SELECT x FROM own").last["message"]
    assert page.run("ROLLBACK").last["type"] == "done"
    assert db.tables() == ["t"]


@pytest.fixture
def read_only(db: tsql.Session) -> Iterator[Page]:
    with db.studio(read_only=True) as studio, opened(studio) as page:
        yield page


@pytest.mark.parametrize(
    "sql",
    [
        "COPY t TO '{path}'",
        "COPY (SELECT 1) TO '{path}' (FORMAT csv)",
        "CREATE TABLE a AS SELECT 1 AS x",
        "CREATE VIEW a AS SELECT 1 AS x",
        "CREATE MACRO a() AS 1",
        "CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'csv', path = '{path}')",
        "INSERT INTO own VALUES (1)",
        "WITH q AS (SELECT 1 AS x) INSERT INTO own SELECT x FROM q",
        "UPDATE own SET x = 2",
        "DELETE FROM own",
        "TRUNCATE own",
        "DROP TABLE own",
        "ALTER TABLE own RENAME TO other",
        "COMPILE PLAN '{path}' FOR SELECT 1",
        "BEGIN",
        "CHECKPOINT",
        "SET temp_directory = '{path}'",
        "SET memory_limit = '1GB'",
        "SET spill_after = 1",
        "RESET temp_directory",
        "PREPARE p AS INSERT INTO own VALUES (1)",
        "EXECUTE writes",
        "SELECT 1; /* SELECT */ DELETE FROM own; SELECT 2",
        "-- SELECT\nDROP TABLE own",
        "EXECUTE writes; SELECT 1",
    ],
)
def test_read_only_refuses(db: tsql.Session, read_only: Page, tmp_path: Path, sql: str) -> None:
    db.sql("CREATE TABLE own AS SELECT 1 AS x")
    db.sql("PREPARE writes AS DELETE FROM own")
    sql = sql.format(path=tmp_path / "written")
    for found in (read_only.run(sql).last, read_only.answer("check", sql=sql)["error"]):
        assert "the studio is read-only" in found["message"], found
        assert found["line"] is not None
    assert db.sql("FROM own").fetchall() == [(1,)] and not any(tmp_path.iterdir())
    assert db.settings.temp_directory == "" and db.settings.memory_limit is None


@pytest.mark.parametrize(
    "sql",
    [
        GROUPED,
        "SUMMARIZE t",
        "DESCRIBE t",
        "SHOW TABLES",
        "EXPLAIN ANALYZE SELECT count(*) FROM t",
        "SELECT 'DROP TABLE t; COPY t TO x' AS delete",
        "SET threads = 1; SELECT 1",
        "RESET threads; SELECT 1",
        "PREPARE p AS SELECT 1; EXECUTE p",
        "FROM (VALUES (1)) AS v(x)",
    ],
)
def test_read_only_allows(read_only: Page, sql: str) -> None:
    found = read_only.run(sql)
    assert found.last["type"] == "done" and found.last["rows"] > 0, found.last


def test_read_only_runs_plans(read_only: Page) -> None:
    file = read_only.answer("plan", sql=GROUPED)["file"]
    assert read_only.told(read_only.ask("run", plan=file)).last["rows"] == 4


def test_only_the_newest_snapshot_waits() -> None:
    """While the page does not read, a snapshot replaces the one before it; nothing else is lost, and order holds."""
    begun, go_on, sent = threading.Event(), threading.Event(), []

    def send(message: Message) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        sent.append(message)

    box = Outbox(send, lambda: False, (OSError,))
    box.post("first")
    assert begun.wait(PATIENCE_SECONDS)
    for number in range(5):
        box.post(b"frame %d" % number, f"snapshot {number}", key="run")
        box.post(f"answer {number}")
    box.post("done")
    go_on.set()
    assert wait_until(lambda: len(sent) == 9)
    assert sent == ["first", b"frame 4", "snapshot 4", *(f"answer {number}" for number in range(5)), "done"]
    box.close()
    box.thread.join(PATIENCE_SECONDS)
    assert not box.thread.is_alive()


def test_an_outbox_whose_socket_breaks() -> None:
    def send(message: Message) -> None:
        raise OSError("gone")

    box = Outbox(send, lambda: False, (OSError,))
    box.post("first")
    box.thread.join(PATIENCE_SECONDS)
    assert not box.thread.is_alive()
    box.post("second")
    assert not box._waiting
