"""ORDER BY across tasks: ranges from a sample, sorted shard by shard. The rows are DuckDB's, in its order."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tsql
from tests.spark.cluster import InProcess
from tsql.backends.local.run.arranging import boundaries
from tsql.kernels.expr.nodes import Column, SortKey
from tsql.kernels.expr.types import BIGINT

ORDERS = (
    "a ASC NULLS LAST, i",
    "a DESC NULLS FIRST, f ASC NULLS LAST, i",
    "f DESC NULLS LAST, i",
    "s ASC NULLS FIRST, i DESC",
    "d DESC, b ASC NULLS FIRST, i",
    "m DESC NULLS FIRST, ts ASC, i",
    "a + length(coalesce(s, '')) DESC NULLS LAST, i",
)
PLAN = """plan version 1
target {target} shards=4

rows  = scan t columns=(a, f, s, d, m, b, ts, i)
there = arrange rows by=({by}) scope={scope} shards={shards}
order = sort there by=({by})
last  = gather order
output last (a, f, s, d, m, b, ts, i)
"""


def rows(seed: int, count: int) -> pa.Table:
    rng = random.Random(seed)

    def some(make: Any) -> list[Any]:
        return [None if rng.random() < 0.1 else make() for _ in range(count)]

    day = dt.datetime(2024, 1, 1)
    return pa.table(
        {
            "a": pa.array(some(lambda: rng.randrange(20)), pa.int64()),
            "f": pa.array(some(lambda: rng.choice([float("nan"), -0.0, 0.0, 1.5, float("inf"), rng.gauss(0, 1)]))),
            "s": pa.array(some(lambda: rng.choice(["", "é", "z" * 40, f"{rng.random():.3f}"]))),
            "d": pa.array([day.date() + dt.timedelta(days=rng.randrange(-9000, 9000)) for _ in range(count)]),
            "m": pa.array(some(lambda: Decimal(rng.randrange(-999, 999)) / 100), pa.decimal128(12, 2)),
            "b": pa.array(some(lambda: rng.choice([b"", b"\x00", b"\xff\x01"])), pa.binary()),
            "ts": pa.array([day + dt.timedelta(seconds=rng.randrange(9)) for _ in range(count)], pa.timestamp("us")),
            "i": list(range(count)),
        }
    )


def text_of(found: list[tuple[Any, ...]]) -> list[str]:
    """Rows as text: NaN equals nothing, and -0.0 is printed as 0.0."""
    return [str(tuple(0.0 if v == 0 and isinstance(v, float) else v for v in row)) for row in found]


@pytest.fixture(scope="module")
def data() -> pa.Table:
    return rows(7, 700)


def test_many_shards(data: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks get as many shards as what was written asks for, but ranges stay in their order."""
    monkeypatch.setattr("tsql.planner.cost.constants.DRIVER_BYTES", -1)
    monkeypatch.setattr("tsql.backends.spark.stages.stages.tasks_for", lambda bytes, most, cores: min(most, 6))
    monkeypatch.setattr("tsql.backends.spark.backend.WAVE", 1)
    with tsql.connect(spark=InProcess(2), shards=24) as db:
        db.register("t", data)
        sql = "SELECT a, count(*) AS n, median(i) AS m FROM t GROUP BY a ORDER BY a NULLS LAST"
        assert "= arrange" in db.sql(sql).plan()
        assert db.sql(sql).fetchall() == duckdb.sql(sql.replace("t GROUP", "data GROUP")).fetchall()
        assert text_of(db.sql("SELECT * FROM t ORDER BY i DESC").fetchall()) == text_of(
            duckdb.sql("SELECT * FROM data ORDER BY i DESC").fetchall()
        )


@pytest.mark.parametrize("order", ORDERS)
def test_queries(data: pa.Table, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.planner.cost.constants.DRIVER_BYTES", -1)
    with tsql.connect(spark=InProcess(4)) as db:
        db.register("t", data)
        relation = db.sql(f"SELECT * FROM t ORDER BY {order}")
        assert "= arrange" in relation.plan()
        assert text_of(relation.fetchall()) == text_of(duckdb.sql(f"SELECT * FROM data ORDER BY {order}").fetchall())


@pytest.mark.parametrize("target", ["local", "spark"])
@pytest.mark.parametrize("shards", [1, 2, 5, 40])
@pytest.mark.parametrize("count", [0, 1, 3, 700])
def test_plans(target: str, shards: int, count: int) -> None:
    found = rows(count, count)
    by = "a desc nulls first, f asc nulls last, i asc nulls last"
    settings = {"spark": InProcess(3)} if target == "spark" else {}
    with tsql.connect(**settings) as db:
        db.register("t", found)
        scope = "global" if target == "spark" else "local"
        plan = tsql.load_plan_text(PLAN.format(target=target, by=by, scope=scope, shards=shards))
        ours = plan.run(db).fetchall()
    assert text_of(ours) == text_of(duckdb.sql(f"SELECT * FROM found ORDER BY {by}").fetchall())


def test_most_rows_share_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows keep the order of the input."""
    monkeypatch.setattr("tsql.planner.cost.constants.DRIVER_BYTES", -1)
    found = pa.table({"k": [5] * 900 + [1, 9] * 20, "i": list(range(940))})
    with tsql.connect(spark=InProcess(4)) as db:
        db.register("t", found)
        assert db.sql("SELECT k, i FROM t ORDER BY k").fetchall() == sorted(
            zip(found["k"].to_pylist(), found["i"].to_pylist(), strict=True), key=lambda row: row[0]
        )


def test_boundaries() -> None:
    key = (SortKey(Column("x", BIGINT), descending=True),)
    assert boundaries([(n,) for n in range(100)], key, 4) == [(74,), (49,), (24,)]
    assert boundaries([(1,)] * 50, key, 4) == [(1,)]
    assert boundaries([], key, 4) == []


def test_intervals_are_refused() -> None:
    text = """plan version 1
target local shards=2
t = scan t columns=(v)
r = arrange t by=({}) shards=2
g = gather r
output g (v)
"""
    with tsql.connect() as db:
        db.sql("CREATE TABLE t AS SELECT INTERVAL 1 DAY AS v")
        for by in ("v asc nulls last", "v + INTERVAL 1 DAY asc nulls last", ""):
            with pytest.raises(tsql.PlanError, match="arrange"):
                tsql.load_plan_text(text.format(by)).run(db).fetchall()
