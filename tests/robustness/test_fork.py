"""A child of fork() runs queries, parallel ones too, whatever other threads of its parent were doing."""

import csv
import gc
import importlib.abc
import importlib.util
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
from tsql.backends.io.csv import input as csv_input
from tsql.kernels.codegen import llvm, memory, object_cache
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.process import forks, garbage
from tsql.kernels.runtime import pool

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
    """Other threads are anywhere: analyzing, planning, emitting, compiling, in kernels. No lock that they hold may stay
    held in the child."""
    monkeypatch.setenv("TSQL_CACHE", "")
    stop, failures = threading.Event(), []

    def work(start):
        number = start
        while not stop.is_set():
            number += 2
            try:
                found = db.sql(
                    f"SELECT count(*) + {number} FROM (SELECT s, sum(a % {number}) AS n FROM t WHERE a % "
                    f"{number % 5 + 2} >= 0 GROUP BY s)"
                ).fetchall()
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
                assert db.sql(f"SELECT count(*) FROM t WHERE a + {round} >= {round} AND length(s) > 0").fetchall() == [
                    (ROWS,)
                ]

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
        assert (
            pool.map_async(_in_pool, [GROUPS, WINDOWS] * 2).get(PATIENCE_SECONDS) == [rows[GROUPS], rows[WINDOWS]] * 2
        )


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
                numbers = range(first, first + 30)
                calls = ", ".join(f"sum(CASE WHEN a % {i + 2} = 0 THEN a * {i} ELSE a + {i} END)" for i in numbers)
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
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_SECONDS,
        env=environment,
    )
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


def run_program(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_SECONDS,
        env=os.environ | environment,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


class Collects:
    """Stands for a lock; while locks are freed in the child, garbage is collected."""

    def _at_fork_reinit(self):
        gc.collect()


class Cycle:
    """Garbage that only the collector finds, with memory of the pool."""

    def __init__(self):
        self.me, self.rows = self, memory.PoolMemory(pool.SMALLEST * 4)


def test_garbage_that_is_found_while_locks_are_freed(db, rows):
    check(db, rows)
    collects = Collects()
    forks._locks.add(collects)
    with garbage.paused():
        Cycle()
        in_child(lambda: check(db, rows))
        gc.collect()
    forks._locks.discard(collects)
    assert gc.isenabled()


def test_no_garbage_is_searched_for_while_the_pool_is_held():
    """Hooks of a library that was imported earlier are called between ours and the fork, in the parent and in the
    child."""
    run_program("""
        import gc, os

        def allocate():
            searches.append(gc.isenabled())
        searches = []
        os.register_at_fork(before=allocate, after_in_parent=allocate, after_in_child=allocate)

        import tsql
        from tests.robustness.forked import in_child
        from tests.robustness.test_fork import Cycle

        with tsql.connect(threads=2) as db:
            query = "SELECT count(*) FROM (SELECT i % 10007 AS k FROM range(300000) t(i) GROUP BY ALL)"
            count = lambda: db.sql(query).fetchall()
            assert count() == [(10007,)]
            gc.collect()
            Cycle()

            def child():
                assert searches == [False, False] and gc.isenabled()
                gc.collect()
                assert count() == [(10007,)]

            in_child(child)
            assert searches == [False, False] and gc.isenabled()
            gc.disable()
            in_child(count)
            assert not gc.isenabled()
        print("done")
    """)


def test_a_fork_between_another_librarys_lock_and_an_import():
    """Another library's hook waits for a lock, as that of logging does, and the thread that has the lock imports
    something."""
    run_program("""
        import os, threading
        from tests.patience import PATIENCE_SECONDS
        held, reached, shared, answers = threading.Event(), threading.Event(), threading.Lock(), []

        def wait_for_the_lock():
            reached.set()
            answers.append(shared.acquire(timeout=PATIENCE_SECONDS / 2))
        os.register_at_fork(before=wait_for_the_lock)

        import tsql
        from tests.robustness.forked import in_child
        assert tsql.connect().sql("SELECT 1").fetchall() == [(1,)]

        def configure():
            with shared:
                held.set()
                reached.wait(PATIENCE_SECONDS)
                import wave

        thread = threading.Thread(target=configure)
        thread.start()
        held.wait(PATIENCE_SECONDS)
        in_child(lambda: tsql.connect().sql("SELECT 1").fetchall())
        thread.join()
        assert answers == [True]
        print("done")
    """)


def test_a_fork_waits_for_imports_while_nothing_is_shut(db, rows, monkeypatch):
    """What another thread imports may need memory and the compiler."""
    check(db, rows)
    is_importing, begun, waits, whole = forks._is_importing, threading.Event(), threading.Event(), threading.Event()

    class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            return importlib.util.spec_from_loader(name, self) if name == "pyarrow.slow_to_import" else None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            begun.set()
            waits.wait(PATIENCE_SECONDS)
            memory.free(memory.allocate(pool.SMALLEST * 4))
            with llvm._gate:
                whole.set()

    def looks():
        found = is_importing()
        waits.set()
        return found

    monkeypatch.setattr(sys, "meta_path", [Slow(), *sys.meta_path])
    monkeypatch.setattr(forks, "_is_importing", looks)
    thread = threading.Thread(target=importlib.import_module, args=("pyarrow.slow_to_import",))
    thread.start()
    begun.wait(PATIENCE_SECONDS)

    def work():
        assert whole.is_set()
        check(db, rows)

    in_child(work)
    thread.join(PATIENCE_SECONDS)
    del sys.modules["pyarrow.slow_to_import"]


def test_an_import_that_begins_while_the_compiler_is_shut(db, rows, monkeypatch):
    """What was shut is opened again until the import is over."""
    check(db, rows)
    answers = iter([False, True, True, False, False])
    opened = []
    monkeypatch.setattr(forks, "_is_importing", lambda: next(answers))
    monkeypatch.setattr(forks.time, "sleep", lambda _: opened.append((llvm._gate._shut, list(memory._held))))
    pid = os.fork()
    if not pid:
        os._exit(0)
    monkeypatch.undo()
    os.waitpid(pid, 0)
    assert opened == [(False, [])]
    in_child(lambda: check(db, rows))


def test_two_threads_that_fork(db, rows):
    check(db, rows)
    failures = []

    def work():
        try:
            for _ in range(5):
                in_child(lambda: check(db, rows))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_SECONDS)
    assert not failures
    check(db, rows)
    assert gc.isenabled()


def test_the_limit_of_csv_fields():
    """It is that of the whole process while somebody reads; in the child nobody does, also not who left there what was
    begun before."""
    before, read = csv.field_size_limit(), csv_input.fields_of_any_length()
    read.__enter__()

    def work():
        assert csv.field_size_limit() == before
        with csv_input.fields_of_any_length():
            read.__exit__(None, None, None)
            assert csv.field_size_limit() == sys.maxsize
        assert csv.field_size_limit() == before

    in_child(work)
    assert csv.field_size_limit() == sys.maxsize
    read.__exit__(None, None, None)
    assert csv.field_size_limit() == before


def test_the_locks_of_the_cache_are_free_in_the_child():
    held = [object_cache._writing, object_cache._opening]
    for lock in held:
        lock.acquire()

    def work():
        assert [object_cache._writing, object_cache._opening] == held
        assert not any(lock.locked() for lock in held)

    in_child(work)
    for lock in held:
        lock.release()
