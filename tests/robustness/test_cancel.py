"""A query ends when it is cancelled, whatever it is doing, and the session works on. How soon it ends, `bench.cancel`
measures, with the same queries."""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import tsql
from bench.cancel import QUERIES, ROWS, numbers_and_texts, register
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.kernels.expr.errors import CancelledError


@pytest.fixture(scope="module")
def table():
    return numbers_and_texts()


@pytest.fixture(scope="module", params=(2, 1), ids=("2 threads", "1 thread"))
def db(request, table, tmp_path_factory):
    with tsql.connect(threads=request.param) as session:
        register(session, table, tmp_path_factory.mktemp("cancel"))
        yield session


class Started:
    """A query that runs in a thread of its own."""

    def __init__(self, relation):
        self.relation, self.error, self.rows = relation, None, None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.rows = sum(batch.num_rows for batch in self.relation.batches())
        except BaseException as error:
            self.error = error

    def cancel(self):
        """Cancel it while it runs, and wait for its end."""
        wait_until(lambda: bool(self.relation._runs) or not self.thread.is_alive())
        # Somewhere in the middle, wherever that is on this machine.
        time.sleep(0.1)
        self.relation.cancel()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive() and not self.relation._runs


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.in_turn(2)
def test_cancel_from_another_thread(db, name, monkeypatch):
    monkeypatch.setenv("TSQL_CACHE", "")
    query = Started(db.sql(QUERIES[name]))
    query.cancel()
    if query.error is None:
        assert query.rows is not None  # it was quicker than the cancellation
    else:
        assert isinstance(query.error, CancelledError)
    assert db.sql("SELECT count(*) FROM t WHERE a < 0").fetchall() == [(0,)]


def test_cancel_before_the_first_batch_is_asked_for(db):
    relation = db.sql("SELECT a FROM t")
    batches = relation.batches()
    next(batches)
    relation.cancel()
    with pytest.raises(CancelledError):
        for _ in batches:
            pass
    assert relation.arrow().num_rows == ROWS


def test_an_iterator_that_is_closed_early_stops_the_query(db):
    for batch in db.sql("SELECT a, s || 'x' FROM t").batches():
        assert batch.num_rows
        break
    relation = db.sql("SELECT s, count(*) FROM t GROUP BY s")
    batches = relation.batches()
    next(batches)
    assert relation._runs
    batches.close()
    assert not relation._runs
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(ROWS,)]


PROGRAM = """
    import sys, time
    import numpy as np, pyarrow as pa
    import tsql

    numbers = np.random.default_rng(7).integers(0, 1 << 40, 1_000_000)
    db = tsql.connect(threads=2)
    db.register("t", pa.table({"a": numbers, "s": pa.array(numbers % 300_000).cast(pa.string())}))
    relation = db.sql(sys.argv[1])
    print("ready", flush=True)
    try:
        while True:
            relation.arrow()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(db.sql("SELECT count(*) FROM t").fetchall(), flush=True)
"""


@pytest.mark.parametrize(
    "query", ["SELECT s, count(*) FROM t GROUP BY s", "SELECT s, a FROM t ORDER BY s, a", "SELECT max(md5(s)) FROM t"]
)
def test_ctrl_c(query):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), query],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        # It runs the query again and again until it is interrupted, at whatever moment.
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert child.stdout.readline() == "[(1000000,)]\n"
        assert child.wait(PATIENCE_SECONDS) == 0, child.stderr.read()
    finally:
        child.kill()
        child.communicate()


def test_the_check_for_cancellation_leaves_inner_loops_vectorised(db):
    text = db.sql("SELECT sum(a * 3), count(*) FROM t WHERE a > 1000 AND a < 100000 AND a <> 5000").explain("llvm")
    assert " x i64>" in text
