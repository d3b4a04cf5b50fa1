"""Random tables for the campaign: a few small ones, with NULLs, duplicates, skew, and empty ones among them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

TYPES = {
    "int": pa.int32(),
    "big": pa.int64(),
    "text": pa.string(),
    "date": pa.date32(),
    "bool": pa.bool_(),
    "dec": pa.decimal128(9, 2),
}
"""The kinds of columns; `int` and `big` meet in comparisons and joins."""

WORDS = ("a", "b", "ab", "", "B", "ba", "é", "a b")


@dataclass(frozen=True)
class Table:
    """A table with the kind of each of its columns."""

    name: str
    columns: dict[str, str]
    data: pa.Table


def random_tables(rng: Random) -> list[Table]:
    """Two to four tables. The first has rows and an integer column; columns of different tables share names."""
    return [_table(rng, f"t{number}", number == 0) for number in range(rng.randint(2, 4))]


def _table(rng: Random, name: str, is_first: bool) -> Table:
    kinds = ["int", *(rng.choice(tuple(TYPES)) for _ in range(rng.randint(1, 3)))]
    columns = {f"{'abcd'[i]}": kind for i, kind in enumerate(kinds)}
    rows = rng.choice((1, 3, 8, 20, 40)) if is_first else rng.choice((0, 1, 4, 10, 25, 60))
    nulls = rng.choice((0.0, 0.1, 0.4))
    spread = rng.choice((2, 5, 20))
    arrays = {}
    for column, kind in columns.items():
        values = [None if rng.random() < nulls else _value(rng, kind, spread) for _ in range(rows)]
        arrays[column] = pa.array(values, TYPES[kind])
    return Table(name, columns, pa.table(arrays))


def _value(rng: Random, kind: str, spread: int) -> Any:
    match kind:
        case "int" | "big":
            return rng.randint(-spread, spread)
        case "text":
            return rng.choice(WORDS[: spread + 1])
        case "date":
            return datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randint(-spread, spread))
        case "bool":
            return rng.random() < 0.5
    return pa.scalar(rng.randint(-spread * 10, spread * 10), pa.int64()).cast(pa.decimal128(21, 2)).as_py() / 4


def script(tables: list[Table]) -> str:
    """The statements that make the tables, for a report or a regression."""
    names = {
        "int": "INTEGER",
        "big": "BIGINT",
        "text": "VARCHAR",
        "date": "DATE",
        "bool": "BOOLEAN",
        "dec": "DECIMAL(9, 2)",
    }
    parts = []
    for table in tables:
        casts = ", ".join(f"CAST({c} AS {names[k]}) AS {c}" for c, k in table.columns.items())
        rows = [f"({', '.join(_text(v) for v in row.values())})" for row in table.data.to_pylist()]
        listed = ", ".join(rows) if rows else f"({', '.join('NULL' for _ in table.columns)})"
        parts.append(
            f"CREATE TABLE {table.name} AS SELECT {casts} FROM (VALUES {listed}) "
            f"v({', '.join(table.columns)}){'' if rows else ' WHERE false'};"
        )
    return "\n".join(parts)


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str | datetime.date) else str(value)
