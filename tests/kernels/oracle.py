"""Compares calls of scalar functions with DuckDB: the same function over the same Arrow table, compiled, interpreted
and by the oracle."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from tests.duck import empty_duckdb
from tests.kernels.harness import both, evaluate, stored
from tsql.kernels import functions  # noqa: F401  (fills the registry)
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, VARCHAR, Type, from_arrow
from tsql.kernels.functions.registry import SCALARS


def lit(value: Any, type: Type | None = None) -> Literal:
    """A constant; the type of plain Python values is guessed."""
    if type is None:
        type = (
            BOOLEAN
            if isinstance(value, bool)
            else INTEGER
            if isinstance(value, int) and abs(value) < 2**31
            else BIGINT
            if isinstance(value, int)
            else DOUBLE
            if isinstance(value, float)
            else VARCHAR
        )
    return Literal(value, type)


def col(table: pa.Table, name: str) -> Column:
    return Column(name, from_arrow(table.schema.field(name).type))


def call(name: str, *args: Expr) -> Call:
    """A call of the overload that fits, with its implicit casts made explicit."""
    found = SCALARS.resolve(name, tuple(a.type for a in args))
    assert found is not None, f"no overload {name}({', '.join(str(a.type) for a in args)})"
    function, types = found
    cast = tuple(a if a.type == t else _cast(a, t) for a, t in zip(args, types, strict=True))
    values = tuple(a.value if isinstance(a, Literal) else None for a in cast)
    return Call(name, cast, function.return_type(types, values))


def _cast(arg: Expr, target: Type) -> Expr:
    if isinstance(arg, Literal) and arg.value is not None and target == DOUBLE:
        return Literal(float(arg.value), target)
    if isinstance(arg, Literal) and (arg.value is None or (arg.type.is_integer and target.is_integer)):
        return Literal(arg.value, target)
    return Cast(arg, target)


@cache
def connect() -> duckdb.DuckDBPyConnection:
    """The connection of all tests here: they only register tables."""
    connection = empty_duckdb()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def oracle(sql: list[str], table: pa.Table | None = None) -> list[pa.Array]:
    """The columns that DuckDB computes."""
    connection = connect()
    if table is not None:
        connection.register("t", table)
    result = connection.sql(
        f"SELECT {', '.join(f'{s} AS c{i}' for i, s in enumerate(sql))} {'FROM t' if table is not None else ''}"
    ).to_arrow_table()
    return [c.combine_chunks() for c in result.columns]


def plain(array: pa.Array) -> list[Any]:
    """Values that compare: times as integers (Python's datetimes end at the year 9999), intervals as tuples."""
    t, array = array.type, stored(array)
    return [
        tuple(v) if v is not None and not isinstance(v, str | bytes) and pa.types.is_interval(t) else v
        for v in array.to_pylist()
    ]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or math.isclose(a, b, rel_tol=1e-14)
    return a == b and (a is None) == (b is None)


def check(pairs: list[tuple[str, Expr]], table: pa.Table | None = None, interpret: bool = True) -> None:
    """Each (SQL, expression) gives DuckDB's values and type, compiled and (unless `interpret` is off) interpreted."""
    expressions = [e for _, e in pairs]
    ours = both(expressions, table) if interpret else evaluate(expressions, table)
    theirs = oracle([sql for sql, _ in pairs], table)
    for (sql, expr), mine, expected in zip(pairs, ours, theirs, strict=True):
        assert mine.type == expected.type or from_arrow(mine.type) == from_arrow(expected.type), (
            f"{sql}: {mine.type}, not {expected.type}"
        )
        for row, (x, y) in enumerate(zip(plain(mine), plain(expected), strict=True)):
            assert same(x, y), f"{sql}{_row(table, expr, row)}: {x!r}, but DuckDB says {y!r}"


def _row(table: pa.Table | None, expr: Expr, row: int) -> str:
    """The arguments in one row, for a message."""
    return (
        "" if table is None else f" of {[str(stored(table.column(c).combine_chunks())[row]) for c in expr.columns()]}"
    )
