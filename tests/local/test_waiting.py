"""Rows that wait for their groups in arrays that are larger than the cache; here in all. The answers are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.operators.aggregate import groups as aggregate
from tsql.kernels.operators.aggregate import waiting_rows as waiting

TABLE = """CREATE TABLE t AS SELECT
    ((range * 7919) % 1009)::INTEGER AS k,
    (range % 3 = 1) AS b,
    CASE WHEN range % 7 = 0 THEN NULL ELSE ((range * 131) % 2003 - 1000)::INTEGER END AS x,
    ((range * 17) % 900)::DECIMAL(9, 2) AS d,
    (range % 1000) / 8 AS f,
    (range::HUGEINT << 64) AS h,
    'text ' || range % 5 AS s
    FROM range(20_000)"""
CALLS = (
    "count(*)", "sum(x)", "min(x)", "max(f), bool_or(b)", "bool_and(x > 0)", "sum(d)", "sum(f)", "sum(x), count(*)",
    "count(x), sum(d), avg(f), avg(x)", "count(*), sum(x) FILTER (WHERE d > 500), count(*) FILTER (WHERE s = 'text 3')",
    "count(*), sum(x + d * 3)", "sum(x + d * 3)", "count(*), sum(CASE WHEN b THEN x END)", "count(*), sum(b::INTEGER)",
)  # fmt: skip


@pytest.fixture(autouse=True)
def all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "WAITED_BYTES", 0)


@pytest.fixture
def engines() -> Iterator[tuple[Any, Any]]:
    with tsql.connect(threads=2) as db, empty_duckdb() as duck:
        for engine in (db, duck):
            engine.execute(TABLE)
        yield db, duck


def check(engines: tuple[Any, Any], sql: str, waits: bool = True) -> None:
    db, duck = engines
    assert ("fetched ahead" in db.sql(sql).explain("kir")) == waits
    assert db.sql(sql).fetchall() == duck.sql(sql).fetchall()


@pytest.mark.parametrize("calls", CALLS)
def test_aggregates(engines: tuple[Any, Any], calls: str) -> None:
    check(engines, f"SELECT k, {calls} FROM t GROUP BY k ORDER BY k")
    check(engines, f"SELECT b, k, {calls} FROM t WHERE x > 0 GROUP BY b, k ORDER BY b, k")


@pytest.mark.parametrize(
    "calls",
    [
        "sum(h), count(*)",
        "count(*), count(s)",
        "count(*), max(s)",
        "count(DISTINCT x), count(*)",
        "count(*), first(x ORDER BY d)",
    ],
)
def test_those_that_do_not_wait(engines: tuple[Any, Any], calls: str) -> None:
    """States that take more than numbers, own memory, or may fail."""
    check(engines, f"SELECT k, {calls} FROM t GROUP BY k ORDER BY k", waits=False)


@pytest.mark.parametrize("rows", [0, 1, waiting.ROWS - 1, waiting.ROWS, waiting.ROWS + 1, 3 * waiting.ROWS + 5])
def test_few_rows(engines: tuple[Any, Any], rows: int) -> None:
    """No place of the ring is taken in twice, and none is forgotten."""
    for engine in engines:
        engine.execute(f"CREATE TABLE few AS SELECT * FROM t LIMIT {rows}")
    check(engines, "SELECT k, count(*), sum(x), sum(f) FROM few GROUP BY k ORDER BY k", waits=rows > 0)


@pytest.mark.parametrize(
    "settings", [{"backend": "interp"}, {"shards": 3}, {"batch_rows": 1}, {"spill_after": 1}], ids=str
)
def test_configurations(engines: tuple[Any, Any], settings: dict[str, Any]) -> None:
    sql = "SELECT k, count(*), sum(x), min(d), sum(f) FILTER (WHERE b) FROM few GROUP BY k ORDER BY k"
    for engine in engines:
        engine.execute("CREATE TABLE few AS SELECT * FROM t LIMIT 300")
    with tsql.connect(threads=2, **settings) as db:
        db.register("rows", engines[0].sql("FROM few").arrow())
        db.execute("CREATE TABLE few AS FROM rows")
        assert "fetched ahead" in db.sql(sql).explain("kir")
        assert db.sql(sql).fetchall() == engines[1].sql(sql).fetchall()


def test_many_rows_of_one_group(engines: tuple[Any, Any]) -> None:
    check(engines, "SELECT k // 2000 AS g, count(*), sum(x) FROM t GROUP BY g ORDER BY g")


def test_rows_of_joins(engines: tuple[Any, Any]) -> None:
    """Sums whose rows nobody can count beforehand have 128 bits."""
    for engine in engines:
        engine.execute(
            "CREATE TABLE u AS SELECT (range % 400)::INTEGER AS id, (range * 3)::INTEGER AS y FROM range(0, 1000, 2)"
        )
    check(
        engines,
        "SELECT t.k, count(*), sum(y), sum(x), sum(y + x) FROM t LEFT JOIN u ON t.x = u.id GROUP BY t.k ORDER BY t.k",
    )


def test_an_argument_that_fails(engines: tuple[Any, Any]) -> None:
    db, _ = engines
    with pytest.raises(tsql.ExecutionError, match="Overflow"):
        db.sql("SELECT k, sum((x * 2_000_000_000 * 2_000_000_000)::BIGINT) FROM t GROUP BY k").arrow()
