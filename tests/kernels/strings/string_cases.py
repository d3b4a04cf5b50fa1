"""What the tests of string functions share: nasty strings, calls built by hand, and DuckDB's answer to the same
call."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from tests.duck import empty_duckdb
from tests.kernels.harness import both
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.types import VARCHAR, from_arrow
from tsql.kernels.functions.registry import SCALARS

NASTY = [
    None, "", " ", "a", "A", "ab", "abc", "aaa", "aXbXc", "Hello, World", "hello", "  padded  ", "\ttab\n", "a,b,,c,",
    ",", ",,", "é", "éa", "aé", "ÀÉÎ", "straße", "ẞ", "İıIi", "ŉ", "ǅ", "日本語", "語", "🦆", "🦆a🦆", "a🦆b",
    "\u00a0nbsp\u3000", "e\u0301", "xe\u0301y", "\u0301", "a\u200db", "ΑΣΣ", "Ⱥⱥɐ", "𐐀𐐨", "a%b_c", "100%", "_", "%",
    "a\\b", "a\0b", "\0", "a longer string of more than sixteen bytes", "éléphant ça va très bien aujourd'hui",
    "x" * 40, "日本語日本語日本語日本語", "abababababababababababab",
]  # fmt: skip

NUMBERS = [None, 0, 1, -1, 2, -2, 3, -3, 4, 5, -5, 7, 16, -17, 40, 100, -100]


def call(name: str, *args: Expr) -> Call:
    """A call of the overload that fits the argument types exactly."""
    found = SCALARS.resolve(name, tuple(a.type for a in args))
    assert found is not None, f"{name} of {[str(a.type) for a in args]}"
    function, casts = found
    assert casts == tuple(a.type for a in args)
    return Call(name, args, function.return_type(casts))


def text(value: str | None) -> Literal:
    return Literal(value, VARCHAR)


def nasty_table(rows: int, seed: int, **columns: Any) -> pa.Table:
    """A column per keyword: "text" and "short" are strings, "number" and "int" integers, a list is drawn from."""
    rng = random.Random(seed)
    data = {}
    for name, kind in columns.items():
        match kind:
            case "text":
                values = [rng.choice(NASTY) for _ in range(rows)]
                values[: min(rows, len(NASTY))] = NASTY[:rows]
                data[name] = pa.array(values, pa.string())
            case "short":
                data[name] = pa.array(
                    [
                        rng.choice(
                            [None, "", "a", "b", "l", "é", ",", "X", "ab", "aa", "🦆", "\u0301", "語", "%", "\0", " "]
                        )
                        for _ in range(rows)
                    ],
                    pa.string(),
                )
            case "number":
                data[name] = pa.array([rng.choice(NUMBERS) for _ in range(rows)], pa.int64())
            case "int":
                data[name] = pa.array([rng.choice(NUMBERS) for _ in range(rows)], pa.int32())
            case "blob":
                data[name] = pa.array(
                    [
                        None if v is None else v.encode() + b"\xff" * rng.randrange(2)
                        for v in (rng.choice(NASTY) for _ in range(rows))
                    ],
                    pa.binary(),
                )
            case _:
                data[name] = pa.array([rng.choice(kind) for _ in range(rows)])
    return pa.table(data)


def check_nasty(name: str, table: pa.Table, sql: str | None = None) -> None:
    """As `check`, for a table made by `nasty_table`."""
    check(name, table, sql, random_from=len(NASTY))


def columns_of(table: pa.Table) -> list[Column]:
    return [Column(name, from_arrow(table.schema.field(name).type)) for name in table.column_names]


@cache
def oracle() -> duckdb.DuckDBPyConnection:
    return empty_duckdb()


def duckdb_values(sql: str, table: pa.Table | None = None) -> list[Any]:
    """DuckDB's values of a scalar expression over the table `t`."""
    connection = oracle()
    if table is None:
        return [row[0] for row in connection.execute(f"SELECT {sql}").fetchall()]
    connection.register("t", table)
    return [row[0] for row in connection.execute(f"SELECT {sql} FROM t").fetchall()]


def check(name: str, table: pa.Table, sql: str | None = None, random_from: int | None = None) -> None:
    """The function of all columns of `table`, compiled and interpreted, must give what DuckDB gives. (`both` has
    `random_from`.)"""
    columns = columns_of(table)
    expected = duckdb_values(sql or f"{name}({', '.join(table.column_names)})", table)
    (result,) = both([call(name, *columns)], table, random_from=random_from)
    for row, (got, want) in enumerate(zip(result.to_pylist(), expected, strict=True)):
        assert got == want, (
            f"{name}{tuple(table.slice(row, 1).to_pylist()[0].values())!r}: {got!r}, DuckDB has {want!r}"
        )
