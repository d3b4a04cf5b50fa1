"""The memory limit, and memory that comes back: after a query, a failure, a cancellation or an early end."""

import gc
import threading
import time
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import wait_until
from tsql.backends.local.run import host, spill
from tsql.kernels.expr.errors import ExecutionError, OutOfMemoryError, TsqlError

pytestmark = pytest.mark.usefixtures("settled")

ROWS = 200_000
BAD = "CAST(s || CASE WHEN a = 190000 THEN 'x' ELSE '' END AS INT)"

QUERIES = {
    "groups": "SELECT s, count(*), max(s) FROM t GROUP BY s",
    "few groups": "SELECT g, max(s), count(DISTINCT s), string_agg(s, ',') FROM t GROUP BY g",
    "one group": "SELECT max(s), count(DISTINCT s), median(a) FROM t",
    "top": "SELECT s, g FROM t ORDER BY s DESC LIMIT 5000",
    "sort": "SELECT s, a FROM t ORDER BY s",
    "distinct": "SELECT DISTINCT s FROM t",
    "union": "SELECT s FROM t UNION SELECT s || 'x' FROM t",
    "except": "SELECT s FROM t EXCEPT ALL SELECT s FROM t WHERE a % 2 = 0",
    "rollup": "SELECT g, s, count(*) FROM t GROUP BY ROLLUP (g, s)",
    "host function": "SELECT regexp_replace(s, '1', 'xyz') FROM t",
    "file": "SELECT a, s FROM f",
    "window": (
        "SELECT s, lag(s IGNORE NULLS) OVER (PARTITION BY g ORDER BY a), max(s) OVER (PARTITION BY g ORDER "
        "BY a ROWS 500 PRECEDING) FROM t"
    ),
    "window, values in order": (
        "SELECT median(a) OVER (ORDER BY s ROWS 50 PRECEDING), count(DISTINCT g) OVER (ORDER BY s ROWS 9 "
        "PRECEDING) FROM t"
    ),
    "window, texts": (
        "SELECT string_agg(s, ',') OVER (ORDER BY a ROWS 3 PRECEDING), mode(g) OVER (ORDER BY a ROWS 5 "
        "PRECEDING) FROM t"
    ),
    "window, tree": (
        "SELECT max(a) OVER (ORDER BY s ROWS BETWEEN g PRECEDING AND 3 FOLLOWING EXCLUDE CURRENT ROW) FROM t"
    ),
}
FAILING = {
    "projection": f"SELECT s, {BAD} FROM t",
    "groups": f"SELECT s, max(s), sum({BAD}) FROM t GROUP BY s",
    "few groups": f"SELECT g, string_agg(s, ','), max(s), count(DISTINCT s), sum({BAD}) FROM t GROUP BY g",
    "top": f"SELECT s, {BAD} AS n FROM t ORDER BY s, n LIMIT 2000",
    "window": (
        f"SELECT sum({BAD}) OVER (PARTITION BY g ORDER BY a ROWS 5 PRECEDING), max(s) OVER (PARTITION BY g "
        "ORDER BY a ROWS 9 PRECEDING) FROM t"
    ),
    "window, while it runs": (
        "SELECT string_agg(s, ',') OVER (ORDER BY a ROWS CASE WHEN a = 190000 THEN NULL ELSE 3 END "
        "PRECEDING), median(a) OVER (ORDER BY a ROWS 9 PRECEDING) FROM t"
    ),
    "scratch": f"SELECT max(length(repeat(s, 50))), sum({BAD}) FROM t",
}


@pytest.fixture
def shared(monkeypatch):
    """The counters of every query that runs."""
    made = []
    begin = host.Shared.__init__
    monkeypatch.setattr(host.Shared, "__init__", lambda self, run: (begin(self, run), made.append(self))[0])
    return made


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    numbers = np.arange(ROWS)
    table = pa.table({"a": numbers, "s": pa.array(numbers * 7919 % ROWS).cast(pa.string()), "g": numbers % 10})
    path = tmp_path_factory.mktemp("memory") / "f.parquet"
    pq.write_table(table, path)
    with tsql.connect(threads=2) as session:
        session.register("t", table)
        session.register("f", session.read_parquet(path))
        yield session


@pytest.fixture
def limit(db):
    yield lambda size: db.sql(f"SET memory_limit = '{size}'")
    db.settings.memory_limit = None


def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


# Of many groups, less would make thousands of partitions on disk before their result is too large.
LIMITS = {"groups": "1MB", "distinct": "1MB"}


@pytest.mark.parametrize("name", QUERIES)
def test_the_limit_is_enforced(db, limit, shared, name):
    limit(LIMITS.get(name, "500KB"))
    with pytest.raises(OutOfMemoryError, match="memory_limit allows"):
        db.sql(QUERIES[name]).arrow()
    gc.collect()
    limit("1GB")
    assert db.sql(QUERIES[name]).arrow().num_rows > 0


def test_partitions_end_where_memory_does(db, limit, monkeypatch):
    """A result that cannot fit is refused after some partitions, not after all that a few bytes could be split into;
    and their files are closed on the way."""
    made, live, most = 0, set(), 0
    begin, close = spill.SpillFile.__init__, spill.SpillFile.close

    def count(self, folder):
        nonlocal made, most
        begin(self, folder)
        live.add(id(self))
        made, most = made + 1, max(most, len(live))

    monkeypatch.setattr(spill.SpillFile, "__init__", count)
    monkeypatch.setattr(spill.SpillFile, "close", lambda self: (live.discard(id(self)), close(self))[1])
    limit("500KB")
    with pytest.raises(OutOfMemoryError, match="memory_limit allows"):
        db.sql(QUERIES["union"]).arrow()
    assert 2 <= made <= 500 and most <= 20


def test_the_limit_holds_for_create_table(db, limit):
    limit("500KB")
    with pytest.raises(OutOfMemoryError):
        db.sql("CREATE TABLE u AS SELECT * FROM t")
    assert "u" not in db.tables()


def test_the_limit_holds_for_long_strings(db, limit):
    limit("50MB")
    with pytest.raises(OutOfMemoryError):
        db.sql("SELECT repeat(s, 100000) FROM t").arrow()
    with pytest.raises(OutOfMemoryError):
        db.sql("SELECT max(length(repeat(s, 40000000))) FROM t").arrow()


@pytest.mark.parametrize("name", QUERIES)
def test_memory_in_use_is_zero_when_the_result_is_gone(db, shared, name):
    db.sql(QUERIES[name]).arrow()
    gc.collect()
    assert [s.memory for s in shared] == [0] * len(shared)


@pytest.mark.parametrize("name", FAILING)
def test_memory_in_use_is_zero_after_a_failure(db, shared, name):
    with pytest.raises(ExecutionError, match="Could not convert|cannot be NULL"):
        db.sql(FAILING[name]).arrow()
    gc.collect()
    assert [s.memory for s in shared] == [0] * len(shared)


@pytest.mark.parametrize("name", [*FAILING])
def test_failures_do_not_leak(db, name):
    def fail():
        with pytest.raises(TsqlError):
            db.sql(FAILING[name]).arrow()

    assert grown_mib(fail) < 25


@pytest.mark.parametrize("name", [*FAILING])
def test_errors_are_freed_without_the_garbage_collector(db, name):
    """The error knows the frames that it went through; none of them may know the error, or all that the query held
    stays for a while."""
    gc.collect()
    gc.disable()
    try:
        try:
            db.sql(FAILING[name]).arrow()
            raise AssertionError("the query must fail")
        except TsqlError as error:
            reference = weakref.ref(error)
        assert wait_until(lambda: reference() is None, 5)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["groups", "few groups", "top", "sort", "host function"])
def test_queries_do_not_leak(db, name):
    assert grown_mib(lambda: db.sql(QUERIES[name]).arrow()) < 25


@pytest.mark.parametrize("name", ["groups", "sort"])
def test_queries_that_are_left_early_do_not_leak(db, name):
    def leave():
        batches = db.sql(QUERIES[name]).batches()
        next(batches)
        batches.close()

    assert grown_mib(leave) < 40


def test_cancelled_queries_do_not_leak(db):
    def cancel():
        relation = db.sql(QUERIES["groups"])
        # It is cancelled at some moment of its run, or has just ended: both must leave nothing.
        canceller = threading.Thread(target=lambda: (wait_until(lambda: bool(relation._runs), 1), relation.cancel()))
        canceller.start()
        try:
            relation.arrow()
        except TsqlError:
            pass
        canceller.join()

    assert grown_mib(cancel) < 40


def grown_mib(work, times=15):
    """By how much the process grows over some runs, after a few that warm the allocators up. Every leak that this looks
    for would be some MiB per run; when the garbage collector comes by itself is no matter of this, nor what was there
    before."""
    gc.freeze()
    for _ in range(6):
        work()
        gc.collect()
    gc.freeze()
    time.sleep(0.1)
    before = resident_mib()
    for _ in range(times):
        work()
        gc.collect()
    time.sleep(0.1)
    return resident_mib() - before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM (SELECT DISTINCT range FROM range(100000000))",
        "SELECT * FROM (SELECT range AS x FROM range(100000000)) ORDER BY x % 7",
    ],
)
def test_without_a_limit_the_machine_is_one(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system would end the process, and not the query."""
    monkeypatch.setattr(host, "machine_limit", lambda: 64 << 20)
    with tsql.connect(threads=2) as db:
        with pytest.raises(OutOfMemoryError, match="more memory than it may take of this machine") as caught:
            db.sql(sql).arrow()
        assert "memory_limit" in caught.value.hint
        assert db.sql("SELECT 1").fetchall() == [(1,)]


ENDLESS = {
    "windows": (
        "SELECT id, window_start FROM HOP(e, ts, slide => INTERVAL '1 microsecond', size => INTERVAL '1 hour') LIMIT 3",
        3,
    ),
    "windows behind an offset": (
        "SELECT id FROM HOP(e, ts, slide => INTERVAL '1 microsecond', size => INTERVAL '1 hour') LIMIT 5 OFFSET 100",
        5,
    ),
    "a product": ("SELECT a.id, b.id FROM e a, e b, e c, e d LIMIT 3", 3),
    "a join of nearly all": (
        "SELECT a.id, b.id FROM e a JOIN e b ON a.k = b.k JOIN e c ON c.k = b.k JOIN e d ON d.k = c.k LIMIT 7",
        7,
    ),
    "a series for each row": (
        "SELECT * FROM e, LATERAL (SELECT * FROM generate_series(0, id + 1000000000000)) LIMIT 4",
        4,
    ),
}


@pytest.fixture(scope="module")
def events():
    """Three thousand rows, with a limit of memory and without: four of them joined are 10^13 rows at least."""
    with tsql.connect(threads=2, memory_limit="200MB") as limited, tsql.connect(threads=2) as db:
        for session in (limited, db):
            session.execute(
                "CREATE TABLE e AS SELECT range AS id, range % 2 AS k, TIMESTAMP '2024-01-01' + "
                "to_hours(range::INT) AS ts FROM range(3000)"
            )
        yield limited, db


@pytest.mark.parametrize("name", ENDLESS)
def test_a_limit_ends_rows_that_become_many(events, name: str) -> None:
    sql, rows = ENDLESS[name]
    for session in events:
        assert session.sql(sql).arrow().num_rows == rows
