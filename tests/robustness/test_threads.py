"""Threads: how many there may be, what happens where the system has none left, and that they end with the sessions that
need them."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends import Run
from tsql.backends.local.run import workers
from tsql.backends.local.run.query_threads import end_idle_threads
from tsql.kernels.expr.errors import CatalogError, ExecutionError


@pytest.mark.parametrize(("name", "most"), [("threads", 1024), ("shards", 16384)])
def test_settings_have_a_maximum(name, most):
    with tsql.connect() as db:
        for value in (most + 1, 10**6, 10**9, 10**30):
            with pytest.raises(CatalogError, match=f"{name} is at most {most}, not {value}"):
                db.sql(f"SET {name} = {value}")
            with pytest.raises(CatalogError, match=f"{name} is at most {most}, not {value}"):
                tsql.connect(**{name: value})
        assert db.sql("SELECT 1").fetchall() == [(1,)]


def test_the_most_shards_work():
    with tsql.connect(shards=4096, threads=2) as db:
        db.register("t", pa.table({"a": np.arange(10_000), "b": np.arange(10_000) % 13}))
        found = db.sql("SELECT b, count(*), sum(a) FROM t GROUP BY b ORDER BY b").fetchall()
    assert found == [(b, len(range(b, 10_000, 13)), sum(range(b, 10_000, 13))) for b in range(13)]


def pool_threads(size):
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"tsql-{size}-")]


def test_threads_end_with_the_last_session_that_needs_them():
    size = 37
    query = "SELECT b, count(*) FROM t GROUP BY b"
    table = pa.table({"a": np.arange(2_000_000), "b": np.arange(2_000_000) % 1000})
    first, second = tsql.connect(threads=size), tsql.connect(threads=size)
    for db in (first, second):
        db.register("t", table)
        assert db.sql(query).arrow().num_rows == 1000
    assert pool_threads(size)
    first.close()
    assert pool_threads(size)
    assert second.sql(query).arrow().num_rows == 1000
    second.close()
    assert wait_until(lambda: not pool_threads(size))
    with tsql.connect(threads=size) as again:
        again.register("t", table)
        assert again.sql(query).arrow().num_rows == 1000


def test_threads_end_with_a_session_that_nobody_has_closed():
    size = 41
    db = tsql.connect(threads=size)
    db.register("t", pa.table({"a": np.arange(2_000_000)}))
    db.sql("SELECT a % 1000, count(*) FROM t GROUP BY 1").arrow()
    assert pool_threads(size)
    del db

    def gone():
        import gc

        gc.collect()
        return not pool_threads(size)

    assert wait_until(gone)


def test_a_pool_that_is_in_use_ends_with_its_last_user():
    size = 43
    user = workers.users.add()
    workers.users.uses(user, size)
    begun, go_on = threading.Event(), threading.Event()

    def work(index):
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        return index

    found = []
    thread = threading.Thread(target=lambda: found.append(workers.parallel(work, 3, size, Run())))
    thread.start()
    begun.wait(PATIENCE_SECONDS)
    workers.users.remove(user)
    assert pool_threads(size)
    go_on.set()
    thread.join(PATIENCE_SECONDS)
    assert found == [[0, 1, 2]]
    assert wait_until(lambda: not pool_threads(size))


@pytest.mark.parametrize("kind", ["tsql-query", "tsql-47-"])
def test_no_thread_left_is_a_clear_error_and_no_more(monkeypatch, kind):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith(kind):
            raise RuntimeError("can't start new thread")
        start(thread)

    end_idle_threads()
    with tsql.connect(threads=47) as db:
        db.register("t", pa.table({"a": np.arange(2_000_000)}))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(ExecutionError, match="the system lets this process start no more threads") as error:
                db.sql("SELECT a % 1000, count(*) FROM t GROUP BY 1").arrow()
        assert "SET threads" in error.value.hint
        assert db.sql("SELECT a % 1000, count(*) FROM t GROUP BY 1").arrow().num_rows == 1000


def test_the_system_has_few_threads_left():
    """With a limit of the system itself, in a process of its own; another session works on."""
    program = """
        import resource, threading
        import numpy as np, pyarrow as pa, tsql

        with tsql.connect(threads=1024) as db, tsql.connect(threads=2) as small:
            for session in (db, small):
                session.register("t", pa.table({"a": np.arange(3_000_000)}))
            small.sql("SELECT a % 1000, count(*) FROM t GROUP BY 1").arrow()
            threading.stack_size(1 << 34)
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 31), resource.RLIM_INFINITY))
            try:
                db.sql("SELECT a % 1000, count(*) FROM t GROUP BY 1").arrow()
            except tsql.TsqlError as error:
                print(type(error).__name__, str(error).partition(";")[0])
            print(small.sql("SELECT a % 1000, count(*) FROM t GROUP BY 1").arrow().num_rows)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.stdout, done.stderr) == (
        "ExecutionError the system lets this process start no more threads\n1000\n",
        "",
    )
