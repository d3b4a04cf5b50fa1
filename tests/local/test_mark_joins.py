"""IN and NOT IN over rows of several columns, with NULLs on both sides: three-valued answers, by hash, as DuckDB gives
them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.codegen import interp

SESSIONS = {
    "one shard": {"threads": 1, "shards": 1},
    "three shards": {"threads": 2, "shards": 3},
    "no optimizer": {"threads": 2, "shards": 3, "optimizer": False},
    "equal hashes": {"threads": 2, "shards": 2, "equal_hashes": True},
    "spilled": {"threads": 2, "shards": 3, "spill_after": 1},
    "single rows": {"threads": 2, "shards": 2, "batch_rows": 1},
}


def random_table(prefix: str, rows: int, values: int, nulls: float, rng: random.Random) -> pa.Table:
    def some(make: Any) -> list[Any]:
        return [None if rng.random() < nulls else make(rng.randrange(values)) for _ in range(rows)]

    return pa.table(
        {
            f"{prefix}n": pa.array(range(rows), pa.int32()),
            f"{prefix}i": pa.array(some(int), pa.int64()),
            f"{prefix}j": pa.array(some(int), pa.int32()),
            f"{prefix}s": pa.array(some(lambda v: "text " * (v % 3) + str(v)), pa.string()),
            f"{prefix}f": pa.array(some(lambda v: v / 2), pa.float64()),
        }
    )


CORRELATED = "SELECT ln, (li, lj) IN (SELECT ri, rj FROM r WHERE rf > lf) AS found FROM l"
ORACLES = {
    CORRELATED: (
        "SELECT ln, (SELECT CASE WHEN bool_or(li = ri AND lj = rj) THEN true WHEN bool_or((li = ri AND lj = "
        "rj) IS NULL) THEN NULL ELSE false END FROM r WHERE rf > lf) AS found FROM l"
    ),
}
"""What DuckDB does not support, in other words."""

QUERIES = [
    "SELECT ln, (li, lj) IN (SELECT ri, rj FROM r) AS found FROM l",
    "SELECT ln, (li, lj) NOT IN (SELECT ri, rj FROM r) AS missing FROM l",
    "SELECT ln, (ls, lf, li) IN (SELECT rs, rf, rj FROM r) AS found FROM l",
    "SELECT ln FROM l WHERE (ls, lj) NOT IN (SELECT rs, rj FROM r)",
    "SELECT ln, (li + 1, upper(ls)) IN (SELECT rj, upper(rs) FROM r) AS found FROM l",
    "SELECT ln, li IN (SELECT ri FROM r WHERE rj < lj) AS found FROM l",
    "SELECT ln, li NOT IN (SELECT ri FROM r WHERE rn < ln AND rs = ls) AS missing FROM l",
    CORRELATED,
    "SELECT ln, (li, ln) IN (SELECT ri, rn FROM r) AS found FROM l",
    "SELECT ln, (li, lj) IN (SELECT ri, rj FROM r WHERE rn < 0) AS found FROM l",
    "SELECT ln, (li, lj) = ANY (SELECT ri, rj FROM r) AS found FROM l",
]


Given = tuple[tuple[int, float], dict[str, pa.Table], dict[str, list[str]]]


@pytest.fixture(scope="module")
def given() -> list[Given]:
    """Tables of few and many NULLs, and what DuckDB answers to each query over them."""
    rng, made = random.Random(7), []
    for values, nulls in ((4, 0.3), (12, 0.05), (12, 0.0), (3, 0.9)):
        tables = {"l": random_table("l", 60, values, nulls, rng), "r": random_table("r", 45, values, nulls, rng)}
        with empty_duckdb() as duck:
            for name, rows in tables.items():
                duck.register(name, rows)
            made.append(
                (
                    (values, nulls),
                    tables,
                    {query: sorted(map(repr, duck.sql(ORACLES.get(query, query)).fetchall())) for query in QUERIES},
                )
            )
    return made


@pytest.mark.parametrize("name", SESSIONS)
def test_random_nulls(name: str, given: list[Given]) -> None:
    for kind, tables, expected in given:
        with tsql.connect(**SESSIONS[name]) as db:
            for table, rows in tables.items():
                db.register(table, rows)
            for query in QUERIES:
                assert sorted(map(repr, db.sql(query).fetchall())) == expected[query], (query, kind)


def test_a_null_on_one_side_only() -> None:
    with tsql.connect(threads=2, shards=3) as db:
        db.register("l", pa.table({"a": [1, 1, None, 4], "b": [2, 9, 2, None]}))
        db.register("r", pa.table({"x": [1, None, 3], "y": [2, 9, 3]}))
        found = dict(
            db.sql("SELECT coalesce(a, 0) * 10 + coalesce(b, 0), (a, b) IN (SELECT x, y FROM r) FROM l").fetchall()
        )
    assert found == {12: True, 19: None, 2: None, 40: None}


def test_plan() -> None:
    with tsql.connect(threads=2, shards=3) as db:
        db.register("l", random_table("l", 10, 4, 0.2, random.Random(1)))
        db.register("r", random_table("r", 10, 4, 0.2, random.Random(2)))
        plan = db.sql("SELECT ln, (li, lj) NOT IN (SELECT ri, rj FROM r WHERE rf > lf) AS missing FROM l").plan()
    assert "kind=mark on=(li = ri, lj = rj) where=(" in plan


def test_answers_that_are_open_are_not_placed_by_key() -> None:
    """A row with a NULL belongs to no one shard: between machines the table goes to all of them."""
    from tests.planner.support import physical_plan

    with tsql.connect() as db:
        db.register("l", random_table("l", 10, 4, 0.2, random.Random(1)))
        db.register("r", random_table("r", 10, 4, 0.2, random.Random(2)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
            for keys in ("li IN (SELECT ri FROM r)", "(li, lj) IN (SELECT ri, rj FROM r)"):
                text = physical_plan(db, f"SELECT ln, {keys} AS found FROM l", target="spark").text()
                assert "redistribute" not in text and "broadcast" in text, text


def test_few_nulls_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rows with a NULL are compared with more than the rows of their key: twice the rows take twice the reads of
    memory, where a nested loop would take four times as many."""
    read = interp.load
    reads = 0

    def load(type: str, address: int) -> Any:
        nonlocal reads
        reads += 1
        return read(type, address)

    monkeypatch.setattr(interp, "load", load)
    taken = []
    for rows in (300, 600):
        left = {"a": range(rows), "b": [None if key in (5, 50, 90) else key for key in range(rows)]}
        keys = random.Random(3).sample(range(rows), rows)
        right = {
            "x": [key if key % 2 else -key for key in keys],
            "y": [None if i in (7, 70) else key for i, key in enumerate(keys)],
        }
        with tsql.connect(backend="interp") as db:
            db.register("l", pa.table(left))
            db.register("r", pa.table(right))
            reads = 0
            rows_of = db.sql("SELECT (a, b) IN (SELECT x, y FROM r) AS found, count(*) FROM l GROUP BY found")
            found = dict(rows_of.fetchall())
        taken.append(reads)
        assert sum(found.values()) == rows and found[True] > rows // 3 and 1 <= found[None] <= 6
    assert 1.5 * taken[0] < taken[1] < 2.5 * taken[0]
