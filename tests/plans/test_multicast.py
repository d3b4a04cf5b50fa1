"""multicast: joins in which the plan says where rows meet, with DuckDB's rows; and what a multicast does to single
rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.planner.support import assert_same_rows
from tsql.kernels.expr.errors import ExecutionError, PlanError

TABLES = {
    "l": pa.table(
        {
            "a": range(40),
            "x": [None if i % 11 == 0 else i * 3 % 17 for i in range(40)],
            "s": [f"left {i}" for i in range(40)],
        }
    ),
    "r": pa.table({"b": range(25), "y": [None if i % 7 == 0 else i * 5 % 17 for i in range(25)]}),
    "t": pa.table({"c": range(12), "z": [i * 2 % 17 for i in range(12)]}),
}

SQUARE = """
l     = scan l columns=(a, x, s)
rows  = multicast l to=(a % 2 * 3, a % 2 * 3 + 1, a % 2 * 3 + 2) shards=6
r     = scan r columns=(b, y)
cols  = multicast r to=(b % 3, b % 3 + 3) shards=6
"""
"""Shards in a square of 2 x 3: a left row goes to a line of it, a right row to a column, and each pair meets once."""

RANGES = """
l     = scan l columns=(a, x, s)
near  = multicast l to=(coalesce(x // 6, 0)) shards=3
r     = scan r columns=(b, y)
wide  = multicast r to=(y // 6, CASE WHEN y % 6 < 2 AND y >= 6 THEN y // 6 - 1 END, \
CASE WHEN y % 6 > 3 AND y < 12 THEN y // 6 + 1 END) shards=3
"""
"""A left row is in the shard of its value; a right row also in a neighbour, if that has values within 2 of its own."""

CUBE = """
l     = scan l columns=(a, x)
lm    = multicast l to=(coalesce(x % 2, 0) * 2, coalesce(x % 2, 0) * 2 + 1) shards=4
r     = scan r columns=(b, y)
rm    = multicast r to=(coalesce(y % 2, 0) * 2 + b % 2) shards=4
t     = scan t columns=(c, z)
tm    = multicast t to=(c % 2, c % 2 + 2) shards=4
two   = hash_join lm rm kind=inner on=(x = y) build=right
"""

PLANS = {
    "theta": (
        SQUARE + "pairs = hash_join rows cols kind=inner where=(x < y) build=right",
        "a, s, b",
        "SELECT a, s, b FROM l JOIN r ON x < y",
    ),
    "product": (SQUARE + "pairs = hash_join rows cols kind=inner build=left", "a, b", "SELECT a, b FROM l, r"),
    "range": (
        SQUARE + "pairs = hash_join rows cols kind=inner range=(x < y) build=right",
        "a, b",
        "SELECT a, b FROM l JOIN r ON x < y",
    ),
    "band": (
        RANGES + "pairs = hash_join near wide kind=inner where=(y BETWEEN x - 2 AND x + 2) build=right",
        "a, b",
        "SELECT a, b FROM l JOIN r ON y BETWEEN x - 2 AND x + 2",
    ),
    "left": (
        RANGES + "pairs = hash_join near wide kind=left where=(y BETWEEN x - 2 AND x + 2) build=right",
        "a, b",
        "SELECT a, b FROM l LEFT JOIN r ON y BETWEEN x - 2 AND x + 2",
    ),
    "left, built": (
        RANGES + "pairs = hash_join near wide kind=left where=(y BETWEEN x - 2 AND x + 2) build=left",
        "a, b",
        "SELECT a, b FROM l LEFT JOIN r ON y BETWEEN x - 2 AND x + 2",
    ),
    "anti": (
        RANGES + "pairs = hash_join near wide kind=anti where=(y BETWEEN x - 2 AND x + 2) build=right",
        "a, s",
        "SELECT a, s FROM l ANTI JOIN r ON y BETWEEN x - 2 AND x + 2",
    ),
    "three": (
        CUBE + "pairs = hash_join two tm kind=inner on=(b = c) build=right",
        "a, b, c",
        "SELECT a, b, c FROM l, r, t WHERE x = y AND b = c",
    ),
}


def session(**settings: Any) -> Any:
    db = tsql.connect(**{"threads": 2, "shards": 3, **settings})
    for name, table in TABLES.items():
        db.register(name, table)
    return db


@pytest.mark.parametrize(
    "settings", [{}, {"backend": "interp"}, {"threads": 1, "batch_rows": 1}, {"spill_after": 1}], ids=str
)
@pytest.mark.parametrize("name", PLANS)
def test_joins(name: str, settings: dict[str, Any]) -> None:
    steps, columns, sql = PLANS[name]
    duck = empty_duckdb()
    for table, rows in TABLES.items():
        duck.register(table, rows)
    text = f"plan version 1\ntarget local shards=3\n{steps}\nlast = gather pairs\noutput last ({columns})\n"
    with session(**settings) as db:
        relation = tsql.load_plan_text(text).run(db)
        assert_same_rows(relation.arrow(), duck.sql(sql).to_arrow_table())
        assert tsql.load_plan_text(relation.plan()).run(db).plan() == relation.plan()


def shards_of(to: str, shards: int = 4) -> list[tuple[int, int]]:
    """(row, shard) pairs: each shard marks its rows by a join with the one row that it got of a table of numbers."""
    text = f"""plan version 1
target local shards={shards}
l       = scan l columns=(a, x)
sent    = multicast l to=({to})
numbers = scan t columns=(c)
own     = multicast numbers to=(CASE WHEN c < {shards} THEN c END)
marked  = hash_join sent own kind=inner build=right
last    = gather marked
output last (a, c)
"""
    with session() as db:
        return sorted(tsql.load_plan_text(text).run(db).fetchall())


def test_where_rows_go() -> None:
    assert shards_of("a % 4") == [(a, a % 4) for a in range(40)]
    assert shards_of("2, a % 2, 2") == sorted({(a, s) for a in range(40) for s in (2, a % 2)}), (
        "a shard gets a row once"
    )
    assert shards_of("CASE WHEN a < 3 THEN 1 END, CASE WHEN a = 2 THEN 3 END") == [(0, 1), (1, 1), (2, 1), (2, 3)], (
        "NULL is no shard"
    )
    assert shards_of("CAST(a % 2 AS UTINYINT)", 2) == [(a, a % 2) for a in range(40)]
    assert shards_of("length(s) % 3".replace("s", "regexp_replace('ab', 'b', 'cd')")) == [(a, 0) for a in range(40)], (
        "a function that the host computes"
    )


@pytest.mark.parametrize("to", ["a", "-1", "CASE WHEN a = 39 THEN 4 ELSE 0 END", "0, 9223372036854775807"])
def test_a_shard_that_does_not_exist(to: str) -> None:
    with pytest.raises(ExecutionError, match="multicast to a shard that does not exist: there are 4, numbered from 0"):
        shards_of(to)


def test_other_numbers_of_shards() -> None:
    text = (
        "plan version 1\ntarget local "
        f"shards=3\n{SQUARE.replace('b % 3 + 3) shards=6', 'b % 3 + 3) shards=7')}\npairs = hash_join rows "
        "cols kind=inner build=right\nlast = gather pairs\noutput last (a)\n"
    )
    with (
        session() as db,
        pytest.raises(
            PlanError,
            match=(
                "rows in 7 shards as a multicast names them, like those of the other side; it has 6 shards, "
                "multicast, up to 3 copies"
            ),
        ),
    ):
        tsql.load_plan_text(text).run(db)


def test_builder() -> None:
    with session() as db:
        left = db.sharded("l", ["a", "x"], shards=2).multicast("0", "1", scope="local")
        right = db.sharded("r", ["b", "y"], shards=2).multicast("b % 2")
        pairs = left.query(lambda a, b: a.step("hash_join", b, kind="inner", on="(x = y)", build="right"), right)
        assert str(right.properties) == "2 shards, multicast, up to 1 copy"
        assert "multicast l to=(0, 1) scope=local" in pairs.plan()
        duck = empty_duckdb()
        for table, rows in TABLES.items():
            duck.register(table, rows)
        assert_same_rows(pairs.run().arrow(), duck.sql("SELECT a, x, b, y FROM l JOIN r ON x = y").to_arrow_table())
