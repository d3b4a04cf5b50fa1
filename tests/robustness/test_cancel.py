"""A query ends soon after it is cancelled, whatever it is doing, and the session works on.

The promise is 100 ms on an idle machine; the tests allow more, because others may be using the cores.
"""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tsql.kernels.errors import CancelledError

ALLOWED_SECONDS = 1.0
ROWS = 3_000_000

QUERIES = {
    "group by a string": "SELECT s, count(*), max(a) FROM t GROUP BY s",
    "sort of strings": "SELECT s, a FROM t ORDER BY s, a",
    "sort of numbers": "SELECT a FROM t ORDER BY a DESC",
    "count distinct": "SELECT count(DISTINCT md5(s)) FROM t",
    "digests": "SELECT max(md5(md5(md5(md5(s))))) FROM t",
    "host function": "SELECT count(*) FROM t WHERE regexp_matches(s, '(1|2|3).*(4|5).*6') AND regexp_matches(s, '7.*(8|9)+')",
    "file": "SELECT s, count(*), min(md5(s)) FROM f GROUP BY s",
    "long rows": "SELECT sum(length(repeat(s, 100000))) FROM t",
    "window": "SELECT sum(w) FROM (SELECT median(a) OVER (ORDER BY s ROWS 100000 PRECEDING) AS w FROM t)",
    "window, long rows": "SELECT count(w) FROM (SELECT mode(a) OVER (ORDER BY a ROWS 20000 PRECEDING) AS w FROM t)",
    "compilation": "SELECT " + ", ".join(f"sum(CASE WHEN a % {i + 2} = 0 THEN a * {i} ELSE a + {i} END)" for i in range(150)) + " FROM t",
}


@pytest.fixture(scope="module")
def table():
    numbers = np.random.default_rng(7).integers(0, 1 << 40, ROWS)
    return pa.table({"a": numbers, "s": pa.array(numbers % 1_000_000).cast(pa.string())})


@pytest.fixture(scope="module", params=(2, 1), ids=("2 threads", "1 thread"))
def db(request, table, tmp_path_factory):
    path = tmp_path_factory.mktemp("cancel") / "f.parquet"
    pq.write_table(table.slice(0, 1_000_000), path)
    with tsql.connect(threads=request.param) as session:
        session.register("t", table)
        session.register("f", session.read_parquet(path))
        yield session


class Started:
    """A query that runs in a thread of its own."""

    def __init__(self, relation):
        self.relation, self.error, self.ended, self.rows = relation, None, None, None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.rows = sum(batch.num_rows for batch in self.relation.batches())
        except BaseException as error:
            self.error = error
        self.ended = time.perf_counter()

    def cancel_after(self, seconds):
        time.sleep(seconds)
        begun = time.perf_counter()
        while not self.relation._runs and self.ended is None:
            time.sleep(0.001)
        self.relation.cancel()
        self.thread.join(30)
        return self.ended - begun


@pytest.mark.parametrize("name", QUERIES)
def test_cancel_from_another_thread(db, name, monkeypatch):
    monkeypatch.setenv("TSQL_CACHE", "")
    query = Started(db.sql(QUERIES[name]))
    taken = query.cancel_after(0.15)
    if query.error is None:
        assert query.rows is not None  # it was quicker than the cancellation
    else:
        assert isinstance(query.error, CancelledError)
        assert taken < ALLOWED_SECONDS
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
    begun = time.perf_counter()
    for batch in db.sql("SELECT a, s || 'x' FROM t").batches():
        assert batch.num_rows
        break
    batches = db.sql("SELECT s, count(*) FROM t GROUP BY s").batches()
    next(batches)
    middle = time.perf_counter()
    batches.close()
    assert time.perf_counter() - middle < ALLOWED_SECONDS
    assert middle - begun < 60
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(ROWS,)]


PROGRAM = """
    import sys, time
    import numpy as np, pyarrow as pa
    import tsql

    numbers = np.random.default_rng(7).integers(0, 1 << 40, 3_000_000)
    db = tsql.connect(threads=2)
    db.register("t", pa.table({"a": numbers, "s": pa.array(numbers % 1_000_000).cast(pa.string())}))
    relation = db.sql(sys.argv[1])
    print("ready", flush=True)
    try:
        while True:
            relation.arrow()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(db.sql("SELECT count(*) FROM t").fetchall(), flush=True)
"""


@pytest.mark.parametrize("query", ["SELECT s, count(*) FROM t GROUP BY s", "SELECT s, a FROM t ORDER BY s, a", "SELECT max(md5(s)) FROM t"])
def test_ctrl_c(query):
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), query], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.4)
        begun = time.perf_counter()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert time.perf_counter() - begun < ALLOWED_SECONDS
        assert child.stdout.readline() == f"[({ROWS},)]\n"
        assert child.wait(30) == 0, child.stderr.read()
    finally:
        child.kill()
        child.communicate()


def test_the_check_for_cancellation_leaves_inner_loops_vectorised(db):
    text = db.sql("SELECT sum(a * 3), count(*) FROM t WHERE a > 1000 AND a < 100000 AND a <> 5000").explain("llvm")
    assert " x i64>" in text
