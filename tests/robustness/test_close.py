"""Ctrl-C, `cancel()` and `close()` end a query in any of its stages, once, and `close()` waits for what it ends.

A query here would run for hours. Planning and analysis take seconds, but fail inside of their own functions, as the
traceback tells. How soon a query ends, `bench.cancel` measures.
"""

import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from pathlib import Path

import pyarrow as pa
import pytest

import tsql
import tsql.statements.dml as dml
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends import Run
from tsql.kernels.expr.errors import CancelledError, CatalogError
from tsql.kernels.process import stopping
from tsql.running import AtWork, Running

ENDLESS = "SELECT sum(x.a * y.a) FROM t x, t y WHERE md5((x.a + y.a)::VARCHAR) > 'a'"
TABLES = 100
LONG_PLANNING = "SELECT count(*) FROM {} WHERE {}".format(
    ", ".join(f"t t{i}" for i in range(TABLES)),
    " AND ".join(f"t{i}.a = t{j}.a" for i in range(TABLES) for j in range(i + 1, min(TABLES, i + 4))),
)
"""The order of a hundred joins takes half a minute."""
LONG_ANALYSIS = "SELECT {} FROM t".format(", ".join(f"a + {i} * (a - {i}) AS c{i}" for i in range(4000)))


@pytest.fixture
def db():
    with tsql.connect(threads=2) as session:
        session.register("t", pa.table({"a": range(30_000)}))
        yield session


class Waiting:
    """A thread that does something with a session, and tells what came of it."""

    def __init__(self, work):
        self.error = None
        self.thread = threading.Thread(target=self._run, args=(work,))
        self.thread.start()

    def _run(self, work):
        try:
            work()
        except BaseException as error:
            self.error = error

    def end_by(self, stop):
        """Stop it, and wait for its end."""
        stop()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()


def ended_in(error, folder):
    """Whether the cancellation was seen by code of this folder."""
    return any(folder in Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__))


def is_planning(relation):
    return relation._last is not None and relation._last.planning


def test_close_ends_a_running_query_and_waits_for_it(db):
    relation = db.sql(ENDLESS)
    waiting = Waiting(relation.fetchall)
    assert wait_until(lambda: bool(relation._runs))
    waiting.end_by(db.close)
    assert isinstance(waiting.error, CancelledError)
    assert "the connection was closed while the query ran" in str(waiting.error)
    assert not db._running.at_work


def test_close_ends_planning(db):
    relation = db.sql(LONG_PLANNING)
    waiting = Waiting(relation.fetchall)
    assert wait_until(lambda: is_planning(relation))
    waiting.end_by(db.close)
    assert isinstance(waiting.error, CancelledError) and ended_in(waiting.error, "planner")


def test_cancel_ends_planning(db):
    relation = db.sql(LONG_PLANNING)
    waiting = Waiting(relation.fetchall)
    assert wait_until(lambda: is_planning(relation))
    waiting.end_by(relation.cancel)
    assert isinstance(waiting.error, CancelledError) and ended_in(waiting.error, "planner")
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(30_000,)]


def test_close_ends_analysis(db):
    waiting = Waiting(lambda: db.sql(LONG_ANALYSIS))
    assert wait_until(lambda: bool(db._running.at_work))
    time.sleep(0.1)
    waiting.end_by(db.close)
    assert isinstance(waiting.error, CancelledError) and ended_in(waiting.error, "analyze")


def test_close_ends_what_explain_plans(db):
    waiting = Waiting(lambda: db.sql("EXPLAIN " + LONG_PLANNING).fetchall())
    assert wait_until(lambda: bool(db._running.at_work))
    waiting.end_by(db.close)
    assert isinstance(waiting.error, CancelledError) and ended_in(waiting.error, "planner")


def test_close_ends_a_statement_that_changes_a_table(db):
    db.sql("CREATE TABLE kept (n DOUBLE)")
    waiting = Waiting(lambda: db.sql("INSERT INTO kept " + ENDLESS))
    assert wait_until(lambda: len(db._running.at_work) > 1)
    waiting.end_by(db.close)
    assert isinstance(waiting.error, CancelledError)


def test_a_result_that_is_half_read_ends_with_its_connection(db):
    batches = db.sql("SELECT a, a + 1 FROM t").batches()
    next(batches)
    db.close()
    with pytest.raises(CancelledError, match="the connection was closed"):
        list(batches)


def test_a_loop_may_close_its_own_connection(db):
    with pytest.raises(CancelledError, match="the connection was closed"):
        for _ in db.sql("SELECT a FROM t").batches():
            db.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda db: db.sql("SELECT 1"),
        lambda db: db.execute("SELECT 1"),
        lambda db: db.register("u", pa.table({"a": [1]})),
        lambda db: db.unregister("t"),
        lambda db: db.table("t"),
        lambda db: db.tables(),
        lambda db: db.read_csv("a.csv"),
        lambda db: db.sharded("t"),
        lambda db: list(db.statements("SELECT 1")),
    ],
)
def test_a_closed_connection_is_a_clear_error(db, use):
    db.close()
    db.close()
    with pytest.raises(CatalogError, match="the session is closed"):
        use(db)


def test_a_relation_of_a_closed_connection(db):
    relation, computed = db.sql("SELECT max(a) FROM t"), db.execute("SELECT min(a) FROM t")
    assert relation.fetchall() == [(29_999,)]
    db.close()
    with pytest.raises(CatalogError, match="the session is closed"):
        relation.fetchall()
    with pytest.raises(CatalogError, match="the session is closed"):
        relation.explain()
    assert computed.fetchall() == [(0,)]


@pytest.mark.parametrize(
    "query", [LONG_PLANNING, "EXPLAIN " + LONG_PLANNING, ENDLESS], ids=["planning", "explain", "running"]
)
def test_one_ctrl_c(db, query):
    relation = db.sql(query)

    def interrupt():
        assert wait_until(lambda: bool(relation._runs))
        time.sleep(0.2)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        relation.fetchall()
    thread.join(PATIENCE_SECONDS)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(30_000,)]


def test_one_ctrl_c_in_analysis(db):
    """Also where the analysis runs a query of its own, for the values of a PIVOT."""

    def interrupt():
        assert wait_until(lambda: len(db._running.at_work) > 1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        db.sql(
            "PIVOT (SELECT md5((x.a + y.a)::VARCHAR) > 'a' AS k, 1 AS v FROM t x, t y WHERE y.a < 2000) ON "
            "k USING sum(v)"
        )
    thread.join(PATIENCE_SECONDS)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(30_000,)]


def test_a_program_that_closes_while_it_runs_a_query_ends():
    program = f"""
        import threading, time, tsql
        db = tsql.connect(threads=2)
        db.sql("CREATE TABLE t AS SELECT range AS a FROM range(30000)")
        relation = db.sql({ENDLESS!r})
        def work():
            try:
                relation.fetchall()
            except tsql.CancelledError as error:
                print(str(error).splitlines()[0])
        thread = threading.Thread(target=work)
        thread.start()
        while not relation._runs:
            time.sleep(0.01)
        db.close()
        thread.join()
        print([t.name for t in threading.enumerate() if t.name.startswith("tsql-2-")])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.stdout, done.stderr) == ("the connection was closed while the query ran\n[]\n", "")


def test_check_is_for_the_run_of_its_thread():
    stopping.check()
    run = Run()
    with stopping.during(run):
        stopping.check()
        assert stopping.current() is run
        run.cancel()
        with pytest.raises(CancelledError):
            stopping.check()
        other = Waiting(stopping.check)
        other.thread.join(PATIENCE_SECONDS)
        assert other.error is None
    stopping.check()


def test_what_runs_inside_another_run_ends_with_it():
    outer, inner, running = Run(), Run(), Running()
    with AtWork(outer, running), AtWork(inner, running):
        outer.cancel("enough")
        with pytest.raises(CancelledError, match="enough"):
            stopping.check()
    assert not running.at_work


def test_what_runs_inside_another_run_leaves_nothing_with_it():
    """A statement may take millions of batches from a query."""
    outer, inner, running = Run(), Run(), Running()
    with AtWork(outer, running):
        for _ in range(3):
            with AtWork(inner, running):
                assert len(outer._on_cancel) == 1
        assert not outer._on_cancel
        outer.cancel("between two batches")
        with AtWork(inner, running), pytest.raises(CancelledError, match="between two batches"):
            stopping.check()


def test_close_waits_for_an_insert_that_is_known(tmp_path, monkeypatch):
    """A statement that has been run before is not analyzed again, and is work all the same."""
    inside, go_on = threading.Event(), threading.Event()
    check_not_null = dml.check_not_null

    def slow(*given):
        inside.set()
        go_on.wait(PATIENCE_SECONDS)
        return check_not_null(*given)

    db = tsql.connect(tmp_path / "db")
    db.execute("CREATE TABLE k (a BIGINT)")
    for number in range(3):
        db.execute("INSERT INTO k VALUES ($a)", {"a": number})
    monkeypatch.setattr(dml, "check_not_null", slow)
    waiting = Waiting(lambda: db.execute("INSERT INTO k VALUES ($a)", {"a": 9}))
    assert inside.wait(PATIENCE_SECONDS)
    closing = threading.Thread(target=db.close)
    closing.start()
    assert wait_until(lambda: db._running.closed)
    closing.join(0.1)
    is_waited_for = closing.is_alive()
    go_on.set()
    waiting.thread.join(PATIENCE_SECONDS)
    closing.join(PATIENCE_SECONDS)
    assert is_waited_for
    with tsql.connect(tmp_path / "db") as again:
        assert again.sql("SELECT count(*) FROM k").fetchall() == [(3 if waiting.error else 4,)]


def test_a_process_that_leaves_a_query_behind_ends_in_order():
    """A query of one task, which no pool knows of, is still in its kernel when the process ends."""
    program = f"""
        import threading, time, tsql
        db = tsql.connect(threads=1)
        db.sql("CREATE TABLE t AS SELECT range AS a FROM range(30000)")
        relation = db.sql({ENDLESS!r})
        threading.Thread(target=relation.fetchall, daemon=True).start()
        while not relation._runs:
            time.sleep(0.01)
        time.sleep(1)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "terminate" not in done.stderr
