"""A child of fork() runs queries, parallel ones too, whatever other threads of its parent were doing."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS
from tests.robustness.forked import in_child
from tsql.kernels import forks
from tsql.kernels.errors import ExecutionError

GROUPS = "SELECT count(*), sum(n), max(m) FROM (SELECT s, count(*) AS n, max(a) AS m FROM t GROUP BY s)"
WINDOWS = "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY b ORDER BY a) AS r FROM t)"
ROWS = 200_000


@pytest.fixture(scope="module")
def table():
    numbers = np.random.default_rng(7).integers(0, 1 << 40, ROWS)
    return pa.table({"a": numbers, "b": numbers % 100, "s": pa.array(numbers % 10_000).cast(pa.string())})


@pytest.fixture(scope="module")
def db(table):
    with tsql.connect(threads=3) as session:
        session.register("t", table)
        yield session


@pytest.fixture(scope="module")
def rows(table):
    """What the queries must give, computed by other means."""
    numbers = table.column("a").to_numpy()
    sizes = np.unique(numbers % 100, return_counts=True)[1].astype(object)
    return {
        GROUPS: [(len(np.unique(numbers % 10_000)), ROWS, int(numbers.max()))],
        WINDOWS: [(sum(size * (size + 1) // 2 for size in sizes),)],
    }


def check(db, rows):
    for query, expected in rows.items():
        assert db.sql(query).fetchall() == expected


def test_after_a_parallel_query(db, rows):
    check(db, rows)
    in_child(lambda: check(db, rows))
    check(db, rows)


def test_a_new_session_in_the_child(db, table, rows):
    check(db, rows)

    def work():
        with tsql.connect(threads=2) as fresh:
            fresh.register("t", table)
            check(fresh, rows)

    in_child(work)


def test_a_child_of_a_child(db, rows):
    check(db, rows)

    def work():
        check(db, rows)
        in_child(lambda: check(db, rows))
        check(db, rows)

    in_child(work)


def test_while_other_threads_run_queries(db, rows, monkeypatch):
    """Other threads are anywhere: analyzing, planning, emitting, compiling, in kernels. No lock that they hold may stay held in the child."""
    monkeypatch.setenv("TSQL_CACHE", "")
    stop, failures = threading.Event(), []

    def work(start):
        number = start
        while not stop.is_set():
            number += 2
            try:
                found = db.sql(f"SELECT count(*) + {number} FROM (SELECT s, sum(a % {number}) AS n FROM t WHERE a % {number % 5 + 2} >= 0 GROUP BY s)").fetchall()
                assert found == [(rows[GROUPS][0][0] + number,)]
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=work, args=(start,)) for start in (10, 11)]
    for thread in threads:
        thread.start()
    try:
        for round in range(12):

            def child(round=round):
                check(db, rows)
                assert db.sql(f"SELECT count(*) FROM t WHERE a + {round} >= {round} AND length(s) > 0").fetchall() == [(ROWS,)]

            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert not failures


def test_a_query_that_the_parent_began(db, rows):
    batches = db.sql("SELECT a, s FROM t").batches()
    first = next(batches).num_rows

    def work():
        with pytest.raises(ExecutionError, match="began before this process was forked"):
            next(batches)
        check(db, rows)

    in_child(work)
    assert first + sum(batch.num_rows for batch in batches) == ROWS


def test_a_fork_pool_of_multiprocessing(db, rows):
    check(db, rows)
    _shared["db"] = db
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_in_pool, [GROUPS, WINDOWS] * 2).get(PATIENCE_SECONDS) == [rows[GROUPS], rows[WINDOWS]] * 2


_shared = {}


def _in_pool(query):
    return _shared["db"].sql(query).fetchall()


def test_while_code_is_compiled_in_the_background():
    """LLVM is not forked in the middle of its work."""
    program = """
        import numpy as np, pyarrow as pa, tsql
        from tests.robustness.forked import in_child
        from tsql.kernels.codegen.promote import promoter

        with tsql.connect(threads=2, small_rows=0) as db:
            db.register("t", pa.table({"a": np.arange(100_000)}))

            def query(first):
                calls = ", ".join(f"sum(CASE WHEN a % {i + 2} = 0 THEN a * {i} ELSE a + {i} END)" for i in range(first, first + 30))
                return db.sql(f"SELECT count(*), {calls} FROM t").fetchall()[0][0]

            for first in range(3):
                assert query(first) == 100_000

            def child():
                assert query(7) == 100_000
                promoter.wait()
                assert query(7) == 100_000

            for _ in range(3):
                in_child(child)
            promoter.wait()
        print("done")
    """
    environment = os.environ | {"TSQL_CACHE": "", "TSQL_BETTER_CODE": "1"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=5 * PATIENCE_SECONDS, env=environment)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_locks_are_free_in_the_child():
    plain, again = forks.lock(), forks.rlock()
    held, let_go = threading.Event(), threading.Event()

    def hold():
        with plain, again:
            held.set()
            let_go.wait(PATIENCE_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE_SECONDS)
    before = forks.generation()

    def work():
        assert forks.generation() == before + 1
        assert plain.acquire(blocking=False)
        assert again.acquire(blocking=False)

    in_child(work)
    assert forks.generation() == before
    assert not plain.acquire(blocking=False)
    let_go.set()
    thread.join(PATIENCE_SECONDS)
