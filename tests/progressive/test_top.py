"""The first rows of an order while they are read. The last snapshot is DuckDB's answer, whatever the seed, the threads
and the table; a certain row is at its place in it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.planner.support import physical_plan, session
from tsql.backends.local.run import host
from tsql.kernels.expr.errors import CancelledError

ROWS = 4_000
KINDS = ("blocks", "grown", "parquet", "arrow")


@pytest.fixture(autouse=True)
def small_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kernels.blocks.encode", "backends.local.progressive.zones"):
        monkeypatch.setattr(f"tsql.{module}.FINE_ROWS", 32)


def table(seed: int, rows: int = ROWS) -> pa.Table:
    """Columns with NULLs, ties, NaN, infinities, and order; `id` is unique."""
    rng = np.random.default_rng(seed)

    def some(values: Any, share: float = 0.05) -> pa.Array:
        return pa.array(values, mask=rng.random(rows) < share)

    x = np.round(rng.normal(0, 50, rows), 1)
    x[rng.random(rows) < 0.002] = np.nan
    x[rng.random(rows) < 0.001] = -np.inf
    return pa.table({
        "id": rng.permutation(rows),
        "i": some(rng.integers(-500, 500, rows)),
        "n": rng.integers(-2**62, 2**62, rows),
        "s": np.sort(rng.integers(0, 300, rows)),
        "x": some(x),
        "y": np.sort(rng.normal(0, 1, rows)),
        "d": some(rng.integers(-9999, 9999, rows)).cast(pa.decimal128(21, 0)).cast(pa.decimal128(21, 2)),
        "day": some((np.arange(rows) // 7).astype(np.int32)).cast(pa.date32()),
        "ts": pa.array(np.sort(rng.integers(0, 5 * 86_400, rows)) * 1_000_000, pa.timestamp("us")),
        "w": some([f"w{v:02}" for v in np.sort(rng.integers(0, 40, rows))]),
        "u": some([f"{v}" for v in rng.integers(0, 10**9, rows)], 0.01),
        "b": some(rng.random(rows) < 0.5),
        "g": rng.integers(0, 7, rows),
    })  # fmt: skip


SIDE = pa.table({"g": [0, 1, 2, 3, 3], "name": ["a", "b", "c", "d", "e"], "size": [5, 4, 3, 2, 1]})

QUERIES = (
    "SELECT * FROM t ORDER BY id LIMIT 10",
    "SELECT id, i FROM t ORDER BY i DESC, id LIMIT 7",
    "SELECT id, i FROM t ORDER BY i DESC NULLS FIRST, id LIMIT 300",
    "SELECT id, i FROM t ORDER BY i NULLS FIRST, id DESC LIMIT 5 OFFSET 190",
    "SELECT id, n FROM t ORDER BY n DESC LIMIT 4",
    "SELECT id, s FROM t ORDER BY s DESC, id LIMIT 20",
    "SELECT s + 1 AS k, id FROM t ORDER BY -s, id LIMIT 20",
    "SELECT id, x FROM t ORDER BY x DESC, id LIMIT 12",
    "SELECT id, x FROM t ORDER BY x, id LIMIT 12",
    "SELECT id, y FROM t ORDER BY y DESC LIMIT 12 OFFSET 3",
    "SELECT id FROM t ORDER BY y * 2 - 1, id LIMIT 6",
    "SELECT id, d FROM t ORDER BY d DESC, id LIMIT 9",
    "SELECT id FROM t ORDER BY d * 2 + 1, id LIMIT 9",
    "SELECT id, day FROM t ORDER BY day DESC, id LIMIT 9",
    "SELECT id, date_trunc('day', ts) AS day FROM t ORDER BY day DESC, id LIMIT 9",
    "SELECT id, ts FROM t ORDER BY ts DESC, id LIMIT 9",
    "SELECT id, w FROM t ORDER BY w, id DESC LIMIT 9",
    "SELECT id, w FROM t ORDER BY w DESC NULLS FIRST, id LIMIT 9",
    "SELECT id, u FROM t ORDER BY u DESC, id LIMIT 9",
    "SELECT id, b FROM t ORDER BY b DESC, id LIMIT 9",
    "SELECT id, u FROM t WHERE s > 150 AND i < 100 ORDER BY s, i DESC, id LIMIT 9",
    "SELECT id FROM t WHERE w IN ('w03', 'w05') AND id % 3 = 1 ORDER BY w DESC, id LIMIT 9",
    "SELECT id FROM t WHERE s > 100000 ORDER BY s, id LIMIT 9",
    "SELECT id FROM t WHERE s < 2 ORDER BY s, id LIMIT 1000",
    "SELECT id, name FROM t JOIN side USING (g) ORDER BY s DESC, id, name LIMIT 9",
    "SELECT id, name FROM t LEFT JOIN side USING (g) ORDER BY s, id, name LIMIT 9 OFFSET 2",
    "SELECT id, name FROM t JOIN side USING (g) WHERE name <> 'a' ORDER BY size, id LIMIT 9",
    "SELECT id FROM t WHERE g IN (SELECT g FROM side) ORDER BY ts DESC, id LIMIT 9",
    "SELECT id + 1 FROM (SELECT id, s FROM t ORDER BY s DESC, id LIMIT 30) WHERE id % 2 = 0",
    "SELECT id, s FROM (SELECT id, s FROM t ORDER BY s DESC, id LIMIT 30) ORDER BY id LIMIT 5",
    "SELECT id, i FROM t ORDER BY i, s, id LIMIT 2000",
    "SELECT id FROM t ORDER BY s, id LIMIT 0",
    "SELECT id FROM t ORDER BY s, id LIMIT 10000",
)


def fill(db: Any, kind: str, rows: pa.Table, path: Path) -> None:
    db.register("side", SIDE)
    if kind == "parquet":
        pq.write_table(rows, path, row_group_size=150)
        db.register("t", db.read_parquet(path))
    elif kind == "arrow":
        db.register("t", rows)
    else:
        first = len(rows) // 3 if kind == "grown" else len(rows)
        for start, count, sql in ((0, first, "CREATE TABLE t AS"), (first, len(rows) - first, "INSERT INTO t")):
            if count:
                db.register("arrow", rows.slice(start, count))
                db.execute(f"{sql} SELECT * FROM arrow")


def expected(rows: pa.Table, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as duck:
        duck.register("t", rows)
        duck.register("side", SIDE)
        return plain(duck.sql(sql).fetchall())


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """NaN equals NaN."""
    return [tuple("NaN" if isinstance(v, float | Decimal) and v != v else v for v in row) for row in rows]


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    return plain(list(zip(*(column.to_pylist() for column in table.columns), strict=True)))


def check(db: Any, sql: str, clause: str, exact: list[tuple[Any, ...]]) -> list[Any]:
    """The snapshots of a query."""
    snapshots = list(db.sql(f"{sql} PROGRESSIVE {clause}").snapshots())
    *before, last = snapshots
    assert last.is_final and last.progress == 1.0, sql
    assert shown(last.table) == exact, sql
    for snap in before:
        assert not snap.is_final and snap.table.schema.equals(last.table.schema)
        assert not snap.bounds and snap.row_status is not None
        rows, status = shown(snap.table), snap.row_status.to_pylist()
        assert len(rows) == len(status) and set(status) <= {"certain", "possible"}
        for place, one in enumerate(status):
            assert one == "possible" or rows[place] == exact[place], (sql, place, rows[place], exact[place])
    return snapshots


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table(1)


@pytest.fixture(scope="module")
def answers(rows: pa.Table) -> list[list[tuple[Any, ...]]]:
    return [expected(rows, sql) for sql in QUERIES]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_queries(kind: str, threads: int, rows: pa.Table, answers: Any, tmp_path: Path) -> None:
    certain = 0
    with tsql.connect(threads=threads) as db:
        fill(db, kind, rows, tmp_path / "t.parquet")
        for seed, (sql, exact) in enumerate(zip(QUERIES, answers, strict=True)):
            snapshots = check(db, sql, f"EVERY 4 PERCENT SEED {seed}", exact)
            certain += sum(snap.row_status.to_pylist().count("certain") for snap in snapshots[:-1])
    # Arrow memory has no zones.
    assert (certain > 0) == (kind != "arrow")


ORDERS = ("i", "x", "y", "s", "d", "day", "ts", "w", "u", "-i", "i + s", "abs(x)", "x * 0.5", "n", "b", "d - i")


def test_random_queries(tmp_path: Path) -> None:
    """Of random tables."""
    certain = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows = table(seed, int(rng.integers(1, 3_000)))
        if rng.random() < 0.5:
            # Sorted by one column, so that its zones tell much.
            rows = rows.sort_by(str(rng.choice(["i", "x", "d", "w", "day"])))
        kind, threads = str(rng.choice(KINDS)), int(rng.integers(1, 4))
        with tsql.connect(threads=threads) as db:
            fill(db, kind, rows, tmp_path / f"{seed}.parquet")
            for _ in range(4):
                keys = [
                    f"{key} {rng.choice(['ASC', 'DESC'])} {rng.choice(['', 'NULLS FIRST', 'NULLS LAST'])}"
                    for key in rng.choice(ORDERS, int(rng.integers(1, 3)))
                ]
                where = rng.choice(["", "WHERE i > 0", "WHERE s < 100 OR x > 20", "WHERE y BETWEEN -1 AND 1"])
                sql = f"SELECT * FROM t {where} ORDER BY {', '.join(keys)}, id LIMIT {rng.integers(1, 60)}"
                sql += str(rng.choice(["", " OFFSET 5"]))
                print(f"seed {seed}: {kind}, {threads} threads, {len(rows)} rows: {sql}")
                every = rng.choice(["3 PERCENT", "10 PERCENT", "200 ROWS", "INTERVAL '1 microsecond'"])
                for snap in check(db, sql, f"EVERY {every} SEED {seed}", expected(rows, sql))[:-1]:
                    certain += snap.row_status.to_pylist().count("certain")
    assert certain > 100


SORTED = ("s", "s DESC", "ts", "ts DESC", "y", "day DESC", "-s", "s + 1")


@pytest.mark.parametrize(
    ("kind", "key"), [*((kind, key) for kind in ("blocks", "parquet") for key in SORTED), ("blocks", "w DESC")]
)
def test_sorted_tables_are_known_soon(kind: str, key: str, rows: pa.Table, tmp_path: Path) -> None:
    """The best units are read first, and the others not at all."""
    with tsql.connect(threads=2) as db:
        fill(db, kind, rows, tmp_path / "t.parquet")
        sql = f"SELECT * FROM t ORDER BY {key}, id LIMIT 5"
        *_, last = check(db, sql, "EVERY 5 PERCENT", expected(rows, sql))
        assert last.rows_read < 0.3 * ROWS


def test_numbers_of_files_may_be_nan(tmp_path: Path) -> None:
    """Statistics leave NaN out, and it is above all numbers."""
    x = np.arange(3_000, dtype=np.float64)
    x[7] = np.nan
    rows = pa.table({"id": np.arange(3_000), "x": x})
    with tsql.connect(threads=2) as db:
        fill(db, "parquet", rows, tmp_path / "t.parquet")
        for key in ("x DESC", "-x", "x"):
            sql = f"SELECT * FROM t ORDER BY {key}, id LIMIT 3"
            *_, last = check(db, sql, "EVERY 5 PERCENT", expected(rows, sql))
            assert (last.rows_read < 3_000) == (key != "x DESC")


TYPES = {
    "f": lambda rng, n: np.sort(rng.normal(0, 1e30, n)).astype(np.float32),
    "ub": lambda rng, n: pa.array(np.sort(rng.integers(0, 2**63, n, dtype=np.uint64) * 2), pa.uint64()),
    "us": lambda rng, n: np.sort(rng.integers(0, 200, n)).astype(np.uint8),
    "tz": lambda rng, n: pa.array(np.sort(rng.integers(0, 10**15, n)), pa.timestamp("us", tz="UTC")),
    "time": lambda rng, n: pa.array(np.sort(rng.integers(0, 86_400 * 10**6, n)), pa.time64("us")),
    "wide": lambda rng, n: pa.array([Decimal(int(v)) * 10**15 for v in np.sort(rng.integers(-(10**9), 10**9, n))],
                                    pa.decimal128(38, 2)),
    "none": lambda _, n: pa.nulls(n, pa.int64()),
    "zero": lambda rng, n: np.where(rng.random(n) < 0.5, -0.0, 0.0),
    "blob": lambda _, n: pa.array([bytes([v % 3, v % 200]) for v in range(n)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["blocks", "files"])
def test_types(kind: str, tmp_path: Path) -> None:
    """Keys whose order is easily lost: more than 64 bits, unsigned, signed zeros; over several files."""
    rng = np.random.default_rng(4)
    rows = pa.table({"id": rng.permutation(1_500)} | {name: make(rng, 1_500) for name, make in TYPES.items()})
    with tsql.connect(threads=2) as db:
        fill(db, "blocks", rows, tmp_path / "t.parquet")
        if kind == "files":
            for number in range(3):
                pq.write_table(rows.slice(number * 500, 500), tmp_path / f"{number}.parquet", row_group_size=60)
            db.register("t", db.read_parquet(tmp_path / "*.parquet"))
        for name in TYPES:
            for order in ("", "DESC", "DESC NULLS FIRST"):
                sql = f"SELECT id FROM t ORDER BY {name} {order}, id LIMIT 12 OFFSET 3"
                check(db, sql, "EVERY 10 PERCENT", expected(rows, sql))


def test_a_limit_that_is_a_parameter(rows: pa.Table, tmp_path: Path) -> None:
    """The plan is the same for all limits, also for one that is too large for heaps."""
    with tsql.connect(threads=2) as db:
        fill(db, "arrow", rows, tmp_path / "t.parquet")
        sql = "SELECT id FROM t ORDER BY x DESC, id LIMIT ? PROGRESSIVE EVERY 10 PERCENT"
        for limit in (3, 0, 7, 1_000_000):
            relation = db.sql(sql, [limit])
            snapshots = list(relation.snapshots())
            exact = expected(rows, sql.partition("PROGRESSIVE")[0].replace("?", str(limit)))
            assert shown(snapshots[-1].table) == exact
            assert (len(snapshots) > 1) == (limit in (3, 7))
            assert (limit > 10) == (relation.notes == ["the first rows are too many for heaps: the final result only"])


def test_ties_follow_the_table(rows: pa.Table, tmp_path: Path) -> None:
    """Rows that are equal in all keys: those that are first in the table, whatever the order of the units."""
    groups = rows["g"].to_pylist()
    first = sorted(range(ROWS), key=lambda place: (-groups[place], place))[:50]
    exact = [(rows["id"][place].as_py(),) for place in first]
    with tsql.connect(threads=3) as db:
        for kind in ("blocks", "arrow"):
            db.execute("DROP TABLE IF EXISTS t")
            fill(db, kind, rows, tmp_path / "t.parquet")
            for seed in range(3):
                check(db, "SELECT id FROM t ORDER BY g DESC LIMIT 50", f"EVERY 10 PERCENT SEED {seed}", exact)


def test_pieces_are_read_once_each(rows: pa.Table, tmp_path: Path) -> None:
    """Where nothing is known of the key, all of the input is read, in the order of the seed."""
    with tsql.connect(threads=1) as db:
        fill(db, "blocks", rows, tmp_path / "t.parquet")
        sql = "SELECT id, u FROM t ORDER BY u, id LIMIT 3 PROGRESSIVE EVERY 10 PERCENT SEED "
        firsts = set()
        for seed in range(4):
            snapshots = list(db.sql(sql + str(seed)).snapshots())
            assert len(snapshots) == 10 and snapshots[-1].rows_read == ROWS
            assert {one for snap in snapshots[:-1] for one in snap.row_status.to_pylist()} == {"possible"}
            assert snapshots[0].table.equals(next(iter(db.sql(sql + str(seed)).snapshots())).table)
            firsts.add(str(snapshots[0].table.to_pylist()))
        assert len(firsts) > 1


def test_until_and_within(rows: pa.Table, tmp_path: Path) -> None:
    with tsql.connect(threads=2) as db:
        fill(db, "blocks", rows, tmp_path / "t.parquet")
        sql = "SELECT id, s FROM t ORDER BY s DESC, id LIMIT 5 PROGRESSIVE EVERY 5 PERCENT UNTIL ERROR <= 0.1"
        assert db.sql(sql).fetchall() == expected(rows, sql.partition("PROGRESSIVE")[0])
        sql = "SELECT id, u FROM t ORDER BY u, id LIMIT 5 PROGRESSIVE EVERY 10 PERCENT"
        (only,) = db.sql(f"{sql} WITHIN INTERVAL '1 microsecond'").snapshots()
        assert not only.is_final and 0 < only.progress < 0.3 and len(only.table) == 5


def test_plans_of_the_same_text(rows: pa.Table, tmp_path: Path) -> None:
    """The step is a line of the plan file, and runs from there. A plan whose two sorts differ shows the result only."""
    with tsql.connect(shards=3) as db:
        fill(db, "parquet", rows, tmp_path / "t.parquet")
        sql = f"SELECT id, i FROM '{tmp_path / 't.parquet'}' ORDER BY i DESC, id LIMIT 5 OFFSET 40"
        relation = db.sql(f"{sql} PROGRESSIVE EVERY 5 PERCENT SEED 7")
        text = relation.plan()
        assert " = progressive t every=5 unit=percent confidence=0.95 seed=7" in text
        assert relation.notes == [] and "the final result only" not in text
        exact = expected(rows, sql.replace(f"'{tmp_path / 't.parquet'}'", "t"))
        loaded = tsql.load_plan_text(text).run(db)
        assert loaded.plan() == text and loaded.fetchall() == exact
        found = list(loaded.snapshots())
        assert len(found) > 1 and shown(found[-1].table) == exact
        keys = "phase=partial by=(i desc nulls last"
        other = text.replace(f"{keys}, id asc nulls last)", f"{keys})")
        assert other != text
        assert [one.is_final for one in tsql.load_plan_text(other).run(db).snapshots()] == [True]


REASONS = {
    "SELECT id FROM t ORDER BY s": "ORDER BY without LIMIT",
    "SELECT id FROM t LIMIT 5": "LIMIT without ORDER BY",
    "SELECT id, s FROM t WHERE s > 3": "the rows of t are shown as they are",
    "SELECT median(i) FROM (SELECT i, row_number() OVER (ORDER BY s) AS n FROM t) WHERE n > 3": "window",
    "SELECT avg(id) FROM (SELECT id FROM t ORDER BY s LIMIT 5)": "the first rows of t are ",
    "SELECT id, row_number() OVER (ORDER BY s) FROM t": "window",
    "SELECT 1": "the query reads no table",
}


@pytest.mark.parametrize("shards", [1, 3])
def test_why_only_the_final_result(shards: int, rows: pa.Table, tmp_path: Path) -> None:
    with tsql.connect(shards=shards) as db:
        fill(db, "blocks", rows, tmp_path / "t.parquet")
        for sql, why in REASONS.items():
            relation = db.sql(f"{sql} PROGRESSIVE" + (" EVERY 5 PERCENT" if sql == "SELECT 1" else ""))
            _, _, said = relation.explain().partition("PROGRESSIVE shows the final result only: ")
            assert why in said, (sql, said)
            assert len(list(relation.snapshots())) == 1
            assert [note.partition(": ")[2] for note in relation.notes] == [said.strip()]


def test_a_cluster_shows_groups_only() -> None:
    with session() as db:
        plan = physical_plan(db, "SELECT ad_id FROM clicks ORDER BY ad_id LIMIT 5 PROGRESSIVE", target="spark")
    assert plan.notes == ("PROGRESSIVE shows the final result only: on a cluster, only groups show progress",)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[host.Shared]]:
    """The accounts of memory of all runs."""
    made: list[host.Shared] = []
    begin = host.Shared.__init__
    monkeypatch.setattr(host.Shared, "__init__", lambda self, run: (begin(self, run), made.append(self))[0])
    yield made


@pytest.mark.parametrize("end", ["stopped", "dropped", "finished", "over", "cancelled", "watched"])
def test_nothing_is_left(end: str, rows: pa.Table, shared: list[host.Shared], tmp_path: Path) -> None:
    """Heaps hold strings. Wherever a run ends, they are gone."""
    with tsql.connect(threads=2) as db:
        fill(db, "parquet", rows, tmp_path / "t.parquet")
        relation = db.sql("SELECT * FROM t ORDER BY u, id LIMIT 100 PROGRESSIVE EVERY 10 PERCENT")
        found = relation.snapshots()
        next(found), next(found)
        if end == "stopped":
            found.stop()
        elif end == "finished":
            found.finish()
        elif end == "over":
            list(found)
        elif end == "cancelled":
            relation.cancel()
            with pytest.raises(CancelledError):
                next(found)
        elif end == "watched":
            for _ in range(5):
                # Stopped while the engine works.
                seen = threading.Event()
                watch = relation.watch(lambda _, seen=seen: seen.set())  # type: ignore[misc]
                assert seen.wait(PATIENCE_SECONDS)
                watch.stop()
                assert watch.wait()
                del watch
        del found
        gc.collect()
        assert wait_until(lambda: [one.memory for one in shared] == [0] * len(shared))
        assert wait_until(lambda: not relation._runs and not db._running.at_work)
