"""A query ends soon after it is cancelled, whatever it is doing, and the session works on.

The promise is 100 ms on an idle machine ; here it is counted how much the process still computes after the
cancellation, because others may be using the cores.
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
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.kernels.expr.errors import CancelledError

ALLOWED_CPU_SECONDS = 1.0
ROWS = 3_000_000

QUERIES = {
    "group by a string": "SELECT s, count(*), max(a) FROM t GROUP BY s",
    "sort of strings": "SELECT s, a FROM t ORDER BY s, a",
    "sort of numbers": "SELECT a FROM t ORDER BY a DESC",
    "count distinct": "SELECT count(DISTINCT md5(s)) FROM t",
    "digests": "SELECT max(md5(md5(md5(md5(s))))) FROM t",
    "host function": (
        "SELECT count(*) FROM t WHERE regexp_matches(s, '(1|2|3).*(4|5).*6') AND regexp_matches(s, '7.*(8|9)+')"
    ),
    "file": "SELECT s, count(*), min(md5(s)) FROM f GROUP BY s",
    "long rows": "SELECT sum(length(repeat(s, 100000))) FROM t",
    "window": "SELECT sum(w) FROM (SELECT median(a) OVER (ORDER BY s ROWS 100000 PRECEDING) AS w FROM t)",
    "window, long rows": "SELECT count(w) FROM (SELECT mode(a) OVER (ORDER BY a ROWS 20000 PRECEDING) AS w FROM t)",
    "compilation": "SELECT "
    + ", ".join(f"sum(CASE WHEN a % {i + 2} = 0 THEN a * {i} ELSE a + {i} END)" for i in range(150))
    + " FROM t",
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
        self.relation, self.error, self.spent, self.rows = relation, None, None, None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.rows = sum(batch.num_rows for batch in self.relation.batches())
        except BaseException as error:
            self.error = error
        self.spent = time.process_time()

    def cancel(self):
        """Cancel it while it runs; the CPU seconds that the process has taken from then until its caller was let go."""
        wait_until(lambda: bool(self.relation._runs) or self.spent is not None)
        # Somewhere in the middle, wherever that is on this machine.
        time.sleep(0.1)
        begun = time.process_time()
        self.relation.cancel()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        return self.spent - begun


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.in_turn(2)
def test_cancel_from_another_thread(db, name, monkeypatch):
    monkeypatch.setenv("TSQL_CACHE", "")
    query = Started(db.sql(QUERIES[name]))
    taken = query.cancel()
    if query.error is None:
        assert query.rows is not None  # it was quicker than the cancellation
    else:
        assert isinstance(query.error, CancelledError)
        assert taken < ALLOWED_CPU_SECONDS
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
    batches = db.sql("SELECT s, count(*) FROM t GROUP BY s").batches()
    next(batches)
    begun = time.process_time()
    batches.close()
    assert time.process_time() - begun < ALLOWED_CPU_SECONDS
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
