"""Aggregates over distinct values: tasks make the values distinct before the rows of a group meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.spark.cluster import InProcess
from tests.spark.queries import bag
from tsql.planner.choose.choice import Choice

ROWS = pa.table({
    "g": pa.array([i % 3 if i % 5 else None for i in range(3000)], pa.int64()),
    "a": pa.array([i % 50 if i % 7 else None for i in range(3000)], pa.int64()),
    "b": pa.array([i // 9 for i in range(3000)], pa.int64()),
    "x": pa.array([float("nan") if i % 3 == 0 else -0.0 if i % 3 == 1 else 0.0 for i in range(3000)]),
    "s": [f"x{i % 11}" for i in range(3000)],
    "grouping_set": [i % 2 for i in range(3000)],
})  # fmt: skip

ALLOWED = (
    "SELECT count(DISTINCT a) FROM t",
    "SELECT g, count(DISTINCT a), sum(b), count(*), min(s), max(b) FROM t GROUP BY g",
    "SELECT count(DISTINCT a), count(DISTINCT b), count(DISTINCT s), count(*), sum(b) FROM t",
    "SELECT g, count(DISTINCT a), count(DISTINCT g), sum(DISTINCT a + 1), avg(DISTINCT a), count(a) FROM t GROUP BY g",
    "SELECT count(DISTINCT a), count(*) FILTER (WHERE b > 100), sum(b) FILTER (WHERE b < 0) FROM t",
    "SELECT count(DISTINCT a), count(DISTINCT s), max(b) FILTER (WHERE grouping_set = 1) FROM t",
    "SELECT count(DISTINCT a), count(*), sum(b), min(b) FROM t WHERE b < 0",
    "SELECT g, count(DISTINCT a) FROM t WHERE b < 0 GROUP BY g",
    "SELECT count(DISTINCT a), count(DISTINCT b), count(*) FROM t WHERE b < 0",
    "SELECT g % 2, count(DISTINCT g % 2), count(DISTINCT b % 10) FROM t GROUP BY g % 2",
    "SELECT count(DISTINCT x), min(DISTINCT s) FROM t",
    "SELECT s, g, count(DISTINCT a), sum(b) FROM t GROUP BY ROLLUP (s, g)",
    "SELECT g, count(DISTINCT a) AS n FROM t GROUP BY g HAVING count(*) > 700",
)
OTHERS = (
    "SELECT count(DISTINCT a), median(b) FROM t",
    "SELECT count(DISTINCT a) FILTER (WHERE b > 9) FROM t",
    "SELECT string_agg(DISTINCT s, ',' ORDER BY s) FROM t",
    "SELECT count(DISTINCT a), avg(b) FROM t",
)


@pytest.fixture
def db() -> Iterator[Any]:
    with tsql.connect(spark=InProcess(4)) as session:
        session.register("t", ROWS)
        yield session


def forced(self: Choice, options: dict[str, Any]) -> Any:
    """Two groupings wherever they are possible."""
    return options["by_values"] if "by_values" in options else cheapest(self, options)


cheapest = Choice.cheapest


@pytest.mark.parametrize("sql", [*ALLOWED, *OTHERS])
def test_answers(db: Any, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Choice, "cheapest", forced)
    relation = db.sql(sql)
    plan = relation.plan()
    assert ("value_0" in plan) == (sql in ALLOWED)
    with empty_duckdb() as duck:
        duck.register("t", ROWS)
        expected = bag(duck.sql(sql).fetchall())
    assert bag(relation.fetchall()) == expected
    assert bag(tsql.load_plan_text(plan).run(db).fetchall()) == expected


@pytest.mark.parametrize("keys", ["", "g, "])
def test_many_rows_do_not_meet(keys: str, tmp_path: Path) -> None:
    """Without groups one machine would get all rows, and with few of them as many machines as there are groups."""
    rows = 1_000_000
    table = pa.table({"u": pa.array(range(rows), pa.int64()), "g": pa.array([i % 3 for i in range(rows)], pa.int64())})
    pq.write_table(table.set_column(0, "u", pa.compute.bit_wise_and(table["u"], 0xFFF)), tmp_path / "a.parquet")
    cluster = InProcess(16)
    with tsql.connect(spark=cluster) as db:
        sql = f"SELECT {keys}count(DISTINCT u) FROM '{tmp_path}/a.parquet' {'GROUP BY g' if keys else ''}"
        lines = [line.split("#")[0].split(" = ") for line in db.sql(sql).plan().splitlines() if " = " in line]
        steps = {name.strip(): text for name, text in lines}
        # Whoever moves rows moves states.
        moved = [text.split()[1] for text in steps.values() if text.startswith(("redistribute", "gather"))]
        assert all("phase=partial" in steps[name] or "rekey" in steps[name] for name in moved), steps
        assert any("value_0" in text for text in steps.values())


def test_one_machine_makes_no_copies() -> None:
    with tsql.connect(shards=4) as local:
        local.register("t", ROWS)
        assert "value_0" not in local.sql("SELECT count(DISTINCT a) FROM t").plan()
