"""Queries over more rows than memory_limit holds: the same answers as DuckDB's, within the limit, and no file that
stays."""

from __future__ import annotations

import errno
import gc
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.backends.local.run import host, spill
from tsql.backends.local.run.pipelines import Pipelines
from tsql.kernels.expr.errors import CancelledError, ExecutionError, OutOfMemoryError

pytestmark = pytest.mark.usefixtures("settled")

SPILLED = {"spill_after": 1}
LIMIT = 6 << 20
LARGE_ROWS = 250_000


def random_table(rows: int, keys: int, seed: int) -> pa.Table:
    """Columns of the common types, a tenth of the values NULL; keys repeat."""
    rng = random.Random(seed)

    def some(make: Any) -> list[Any]:
        return [None if rng.random() < 0.1 else make() for _ in range(rows)]

    return pa.table({
        "k": pa.array(some(lambda: rng.randrange(keys)), pa.int64()),
        "s": pa.array(some(lambda: "key " * rng.randrange(4) + str(rng.randrange(keys))), pa.string()),
        "f": pa.array(some(lambda: rng.choice([0.0, -0.0, float("nan"), rng.uniform(-5, 5)])), pa.float64()),
        "d": pa.array(some(lambda: rng.randrange(20_000)), pa.int32()).cast(pa.date32()),
        "b": pa.array(some(lambda: rng.random() < 0.5), pa.bool_()),
        "n": pa.array(range(rows), pa.int32()),
    })  # fmt: skip


A, B = random_table(1500, 300, 1), random_table(900, 400, 2)

QUERIES = {
    "inner": "SELECT a.n, b.n AS m, a.s FROM a JOIN b ON a.k = b.k",
    "inner by strings": "SELECT a.n, b.n AS m FROM a JOIN b ON a.s = b.s AND a.b = b.b",
    "inner by an expression": "SELECT a.n, b.n AS m FROM a JOIN b ON a.k + 1 = b.k AND a.n < b.n",
    "inner without keys": "SELECT a.n, b.n AS m FROM a JOIN b ON a.n > b.n + 1400",
    "left": "SELECT a.n, b.s, b.d FROM a LEFT JOIN b ON a.k = b.k AND b.b",
    "left without keys": "SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.n > b.n + 1300",
    "right": "SELECT a.n, b.n AS m, a.f FROM a RIGHT JOIN b ON a.s = b.s",
    "right without keys": "SELECT a.n, b.n AS m FROM a RIGHT JOIN b ON a.n > b.n + 1300",
    "full": "SELECT a.n, b.n AS m, a.s, b.s AS t FROM a FULL JOIN b ON a.k = b.k",
    "full without keys": "SELECT a.n, b.n AS m FROM a FULL JOIN b ON a.n > b.n + 1300",
    "semi": "SELECT * FROM a SEMI JOIN b ON a.k = b.k",
    "semi without keys": "SELECT n FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.n > a.n + 200)",
    "anti": "SELECT * FROM a ANTI JOIN b ON a.s = b.s",
    "anti without keys": "SELECT n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.n > a.n + 200)",
    "mark": "SELECT n, k IN (SELECT k FROM b) AS m FROM a",
    "mark without NULLs": "SELECT n, k IN (SELECT k FROM b WHERE k IS NOT NULL) AS m FROM a",
    "mark without keys": "SELECT n, k > ANY (SELECT k FROM b WHERE n < 700) AS m FROM a",
    "single": "SELECT n, (SELECT max(b.s) FROM b WHERE b.k = a.k) AS m FROM a",
    "NULLs that are equal": "SELECT a.n, b.n AS m FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.s = b.s",
    "two joins": ("SELECT a.s, count(*) AS c, sum(c.n) AS t FROM a JOIN b ON a.k = b.k JOIN a AS c ON c.s = b.s "
                  "GROUP BY a.s"),
    "groups": "SELECT k, s, count(*) AS c, sum(n) AS t, avg(n) AS m, min(s) AS l, max(d) AS g FROM a GROUP BY k, s",
    "groups of floats": "SELECT f, count(*) AS c FROM a GROUP BY f",
    "groups with strings": "SELECT k, string_agg(s, ',' ORDER BY n) AS j, first(s ORDER BY n) AS f FROM a GROUP BY k",
    "holistic": "SELECT k, median(n) AS m, mode(b) AS o, quantile_disc(d, 0.3) AS q FROM a GROUP BY k",
    "distinct aggregates": "SELECT k, count(DISTINCT s) AS c, sum(DISTINCT n) AS t FROM a GROUP BY k",
    "distinct aggregates of one group": ("SELECT count(DISTINCT s) AS c, min(DISTINCT s) AS l, sum(n) AS t, "
                                         "count(*) AS r FROM a WHERE k > 5"),
    "distinct": "SELECT DISTINCT s, b FROM a",
    "rollup": "SELECT k, b, count(*) AS c FROM a GROUP BY ROLLUP (k, b)",
    "union": "SELECT s FROM a UNION SELECT s FROM b",
    "union all": "SELECT s, n FROM a UNION ALL SELECT s, n FROM b",
    "intersect": "SELECT k, b FROM a INTERSECT SELECT k, b FROM b",
    "intersect all": "SELECT k FROM a INTERSECT ALL SELECT k FROM b",
    "except": "SELECT s FROM a EXCEPT SELECT s FROM b",
    "except all": "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
    "shared": ("WITH c AS (SELECT k, count(*) AS c FROM a GROUP BY k) SELECT x.k, y.c FROM c AS x JOIN c AS y "
               "ON x.k = y.c"),
    "host function": "SELECT regexp_replace(s, '1', 'x') AS r, count(*) AS c FROM a GROUP BY r",
}  # fmt: skip
SORTS = {
    "numbers": "SELECT k, n FROM a ORDER BY k, n",
    "descending": "SELECT k, s, n FROM a ORDER BY k DESC NULLS LAST, s DESC, n",
    "strings": "SELECT s, d, n FROM a ORDER BY s NULLS FIRST, d DESC NULLS FIRST, n DESC",
    "floats": "SELECT f, n FROM a ORDER BY f DESC, n",
    "an expression": "SELECT n FROM a ORDER BY n % 7 DESC, n",
    "a limit": "SELECT s, n FROM a ORDER BY s, n LIMIT 50 OFFSET 20",
}


def rows_of(table: pa.Table, ordered: bool = False) -> list[str]:
    rows = [repr(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    return rows if ordered else sorted(rows)


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with empty_duckdb() as connection:
        connection.register("a", A)
        connection.register("b", B)
        yield connection


def session(**settings: Any) -> Any:
    db = tsql.connect(threads=2, **settings)
    db.register("a", A)
    db.register("b", B)
    return db


@pytest.mark.parametrize(
    "settings",
    [{"shards": 1}, {"shards": 3}, {"shards": 2, "batch_rows": 50}],
    ids=["1 shard", "3 shards", "small batches"],
)
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.in_turn(3)
def test_the_answer_is_the_same(name: str, settings: dict[str, int], oracle: Any) -> None:
    with session(**SPILLED, **settings) as db:
        assert rows_of(db.sql(QUERIES[name]).arrow()) == rows_of(oracle.sql(QUERIES[name]).to_arrow_table())


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", SORTS)
@pytest.mark.in_turn(2)
def test_the_order_is_the_same(name: str, shards: int, oracle: Any) -> None:
    with session(**SPILLED, shards=shards) as db:
        assert rows_of(db.sql(SORTS[name]).arrow(), True) == rows_of(oracle.sql(SORTS[name]).to_arrow_table(), True)


@pytest.mark.parametrize("query", ["SELECT b, n FROM a ORDER BY b", "SELECT k % 3 AS m, s, n FROM a ORDER BY m DESC"])
def test_ties_keep_the_order_of_the_input(query: str) -> None:
    with session() as db, session(**SPILLED) as spilling:
        assert rows_of(spilling.sql(query).arrow(), True) == rows_of(db.sql(query).arrow(), True)


def test_spilled_bytes_are_shown() -> None:
    with session(**SPILLED) as db:
        text = db.sql(QUERIES["inner"]).explain("analyze")
        assert "spilled bytes" in text and "build side 1 of 3" in text
    with session() as db:
        assert "spilled" not in db.sql(QUERIES["inner"]).explain("analyze")


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> list[host.Shared]:
    """The counters of every query that runs."""
    made: list[host.Shared] = []
    begin = host.Shared.__init__
    monkeypatch.setattr(host.Shared, "__init__", lambda self, run: (begin(self, run), made.append(self))[0])
    return made


def large_table(rows: int) -> pa.Table:
    """Some 80 bytes for each row; every key about twice, and a string to each."""
    rng = np.random.default_rng(7)
    keys = rng.integers(0, rows // 2, rows)
    return pa.table(
        {
            "k": keys,
            "s": pa.array(keys * 7919 % rows).cast(pa.string()),
            "v": np.arange(rows),
            "w": rng.normal(size=rows),
        }
    )


@pytest.fixture(scope="module")
def large() -> pa.Table:
    return large_table(LARGE_ROWS)


LARGE = {
    "groups": "SELECT count(*), sum(c), max(s) FROM (SELECT s, count(*) AS c, min(v) AS v FROM t GROUP BY s)",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT k, s FROM t)",
    "distinct values": "SELECT count(DISTINCT s), count(*), max(v) FROM t",
    "join": "SELECT count(*), sum(x.v - y.v), max(y.s) FROM t AS x JOIN t AS y ON x.k = y.k",
    "full join": (
        "SELECT count(*), count(x.v), sum(y.v) FROM (SELECT * FROM t WHERE v % 3 > 0) AS x FULL JOIN (SELECT "
        "* FROM t WHERE v % 3 < 2) AS y ON x.s = y.s"
    ),
    "sort": (
        "SELECT sum(n * v) % 1000003 FROM (SELECT v, k, s, w, k % 10 AS n FROM t ORDER BY s, v LIMIT "
        f"{LARGE_ROWS * 3 // 4})"
    ),
    "except": "SELECT count(*), min(s) FROM (SELECT s FROM t EXCEPT SELECT s FROM t WHERE v % 2 = 0)",
}


AHEAD = 3 * (128 << 10)
"""Kernels look at the memory in use every some rows: each of two threads may have taken as much before it stops, and as
much again may be on its way to a file."""


@pytest.mark.parametrize("name", LARGE)
def test_ten_times_the_limit(name: str, large: pa.Table, counters: list[host.Shared]) -> None:
    with empty_duckdb() as oracle:
        oracle.register("t", large)
        expected = oracle.sql(LARGE[name]).fetchall()
    with tsql.connect(threads=2, memory_limit=LIMIT // 3) as db:
        db.register("t", large)
        relation = db.sql(LARGE[name])
        table = relation.arrow()
        assert list(zip(*(c.to_pylist() for c in table.columns), strict=True)) == expected
        del table
    gc.collect()
    assert 0 < counters[-1].peak <= LIMIT // 3 + AHEAD
    assert sum(step.get("spilled", 0) for step in counters[-1].run.steps.values()) > LIMIT // 3
    assert counters[-1].memory == 0


def test_the_process_stays_small() -> None:
    """Over twice the rows with twice the limit: beside them, what compilation takes for itself must be little."""
    large, limit = large_table(2 * LARGE_ROWS), 2 * LIMIT

    def resident() -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20

    with tsql.connect(threads=2, memory_limit=limit) as db:
        db.register("t", large)
        for _ in db.sql("SELECT * FROM t ORDER BY w LIMIT 100000").batches():
            pass
        before = grown = resident()
        for query in (
            "SELECT * FROM t ORDER BY s",
            "SELECT x.*, y.v FROM t AS x JOIN t AS y ON x.s = y.s",
            "SELECT s, count(*), max(w) FROM t GROUP BY s",
        ):
            for _ in db.sql(query).batches():
                grown = max(grown, resident())
    assert grown - before < 4 * limit / 2**20


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_results_are_written_in_bounded_memory(
    kind: str, large: pa.Table, tmp_path: Path, counters: list[host.Shared]
) -> None:
    pq.write_table(large, tmp_path / "t.parquet")
    with tsql.connect(threads=2, memory_limit=LIMIT) as db:
        db.register("file", db.read_parquet(tmp_path / "t.parquet"))
        db.register("arrow", large)
        db.execute("SET memory_limit = '1GB'")
        db.execute("CREATE TABLE blocks AS SELECT * FROM arrow")
        db.execute(f"SET memory_limit = {LIMIT}")
        for source in ("file", "arrow", "blocks"):
            relation = db.sql(f"SELECT * FROM {source}")
            assert relation.write(tmp_path / f"out.{kind}") == LARGE_ROWS
            assert counters[-1].peak <= LIMIT
    with empty_duckdb() as oracle:
        assert oracle.sql(f"SELECT count(*), sum(v) FROM '{tmp_path / f'out.{kind}'}'").fetchall() == [
            (LARGE_ROWS, LARGE_ROWS * (LARGE_ROWS - 1) // 2)
        ]


def test_a_partition_of_one_key_is_joined_in_blocks(counters: list[host.Shared]) -> None:
    rows = 120_000
    one = pa.table(
        {"k": np.zeros(rows, np.int64), "v": np.arange(rows), "s": pa.array(np.arange(rows)).cast(pa.string())}
    )
    few = pa.table({"k": [0, 0, 1, None], "n": [1, 2, 3, 4]})
    with tsql.connect(threads=2, memory_limit="6MB") as db:
        db.register("one", one)
        db.register("few", few)
        left = db.sql(
            "SELECT count(*), count(v), sum(n), max(s) FROM few LEFT JOIN one ON few.k = one.k AND one.v >= 0"
        ).fetchall()
        assert left == [(2 * rows + 2, 2 * rows, 3 * rows + 7, "99999")]
        self_join = db.sql(
            "SELECT count(*) FROM one AS x JOIN one AS y ON x.k = y.k AND x.v = y.v + 119999 AND x.s <> y.s"
        ).fetchall()
        assert self_join == [(1,)]
    assert all(c.peak <= 6_000_000 for c in counters)


def test_what_cannot_spill_is_refused(large: pa.Table) -> None:
    with tsql.connect(threads=2, memory_limit="2MB") as db:
        db.register("t", large)
        for query in ("SELECT * FROM t", "SELECT median(w) FROM t", "SELECT repeat(s, 2000000) FROM t LIMIT 3"):
            with pytest.raises(OutOfMemoryError, match="memory_limit allows"):
                db.sql(query).arrow()
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(LARGE_ROWS,)]


def open_files() -> list[str]:
    """The files without a name that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    return [path for path in found if path.endswith("(deleted)") and "tsql" not in path.rsplit("/", 1)[-1][:4]]


@pytest.mark.parametrize("name", ["inner", "full", "groups", "union"])
def test_nothing_is_left_behind(name: str, tmp_path: Path) -> None:
    before = open_files()
    with session(**SPILLED, temp_directory=str(tmp_path / "new")) as db:
        assert db.sql(QUERIES[name]).arrow().num_rows > 0
        assert os.listdir(tmp_path / "new") == []
        assert open_files() == before
        batches = db.sql(QUERIES[name]).batches()
        next(batches)
        batches.close()
        assert open_files() == before
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_files_are_of_nobody_else(tmp_path: Path) -> None:
    file = spill.SpillFile(str(tmp_path))
    try:
        status = os.fstat(file.descriptor)
        assert (status.st_nlink, status.st_mode & 0o777, status.st_uid) == (0, 0o600, os.getuid())
    finally:
        file.close()


@pytest.mark.parametrize("name", ["inner", "left without keys", "groups", "full", "shared"])
def test_a_full_disk_is_one_error(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, counters: list[host.Shared]
) -> None:
    writes = 0

    def full(descriptor: int, buffers: list[Any], offset: int) -> int:
        nonlocal writes
        writes += 1
        if writes > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwritev(descriptor, buffers, offset)

    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", full)
    before = open_files()
    with session(**SPILLED, temp_directory=str(tmp_path)) as db:
        with pytest.raises(ExecutionError, match="no space left on device") as problem:
            db.sql(QUERIES[name]).arrow()
        assert str(tmp_path) in str(problem.value)
        del problem
        gc.collect()
        assert open_files() == before and os.listdir(tmp_path) == []
        assert counters[-1].memory == 0
        monkeypatch.setattr(os, "pwritev", pwritev)
        assert db.sql(QUERIES[name]).arrow().num_rows > 0


def test_a_write_in_pieces(monkeypatch: pytest.MonkeyPatch, oracle: Any) -> None:
    """The system may write less than it was asked to."""
    pwritev = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda descriptor, buffers, offset: pwritev(descriptor, [b"".join(buffers)[:100]], offset)
    )
    with session(**SPILLED) as db:
        assert rows_of(db.sql(QUERIES["groups"]).arrow()) == rows_of(oracle.sql(QUERIES["groups"]).to_arrow_table())


def test_a_folder_that_cannot_be_written_to() -> None:
    with (
        session(**SPILLED, temp_directory="/proc/nowhere") as db,
        pytest.raises(ExecutionError, match="temporary directory /proc/nowhere"),
    ):
        db.sql(QUERIES["groups"]).arrow()


@pytest.mark.parametrize(
    "query",
    ["SELECT x.*, y.v AS u FROM t AS x JOIN t AS y ON x.s = y.s ORDER BY u", "SELECT s, max(w) FROM t GROUP BY s"],
)
def test_cancellation_while_spilling(
    query: str, large: pa.Table, monkeypatch: pytest.MonkeyPatch, counters: list[host.Shared]
) -> None:
    before, started = open_files(), threading.Event()
    write = spill.SpillFile.write

    def noted(self: spill.SpillFile, buffers: list[Any]) -> int:
        started.set()
        return write(self, buffers)

    monkeypatch.setattr(spill.SpillFile, "write", noted)
    with tsql.connect(threads=2, memory_limit=LIMIT) as db:
        db.register("t", large)
        relation = db.sql(query)
        canceller = threading.Thread(target=lambda: (started.wait(60), relation.cancel()))
        canceller.start()
        with pytest.raises(CancelledError):
            for _ in relation.batches():
                pass
        canceller.join()
        # The caller is let go at once; what still works lets go when it next looks.
        for _ in range(1200):
            gc.collect()
            if open_files() == before and counters[-1].memory == 0:
                break
            threading.Event().wait(0.05)
        assert open_files() == before
        assert counters[-1].memory == 0


def test_workers_that_have_no_room_together_go_one_by_one(large: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """What two workers cannot partition for lack of memory is partitioned by one."""
    run, failed = Pipelines.run, []

    def once(self: Pipelines, step: Any, role: str, *rest: Any, **more: Any) -> Any:
        if role.startswith("partition") and not failed:
            failed.append(role)
            raise OutOfMemoryError("no room")
        return run(self, step, role, *rest, **more)

    with empty_duckdb() as oracle:
        oracle.register("t", large)
        expected = oracle.sql(LARGE["distinct"]).fetchall()
    monkeypatch.setattr(Pipelines, "run", once)
    with tsql.connect(threads=2, memory_limit=LIMIT // 3) as db:
        db.register("t", large)
        assert db.sql(LARGE["distinct"]).fetchall() == expected
    assert failed


@pytest.mark.parametrize("threads", [1, 2])
def test_a_recursion_in_a_recursion(threads: int) -> None:
    """The groups of the inner one are given up for lack of memory and made again by partitions; the table of its join,
    which stays for all rounds of the outer one, stays for that too."""
    inner = "WITH RECURSIVE i(m) AS (SELECT 1 UNION ALL SELECT m + 1 FROM i WHERE m < o.n) SELECT max(m) FROM i"
    sql = (
        f"WITH RECURSIVE o(n) AS (SELECT 1 UNION ALL SELECT n + ({inner}) FROM o WHERE n < 20) SELECT n FROM "
        "o ORDER BY n"
    )
    with tsql.connect(threads=threads, spill_after=1) as db, empty_duckdb() as oracle:
        assert db.sql(sql).fetchall() == oracle.sql(sql).fetchall() == [(1,), (2,), (4,), (8,), (16,), (32,)]
