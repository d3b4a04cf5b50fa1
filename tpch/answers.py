"""Compares the answer to a TPC-H query with DuckDB's: rows and values, and the order as far as ORDER BY fixes it.

`check` compares this project's answers, including column types. The benchmark compares every engine's answers by value
before it times them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa

from tsql.tpch.measure import plain

TIES: dict[int, tuple[str, ...]] = {
    3: ("revenue", "o_orderdate"),
    5: ("revenue",),
    10: ("revenue",),
    11: ("value",),
    18: ("o_totalprice", "o_orderdate"),
}
"""Queries whose ORDER BY can have ties, with its columns. The other queries have a total order, or one row."""

SHOWN = 5
"""The most differences that a report lists."""

Row = tuple[Any, ...]


def differences(
    number: int, expected: pa.Table, found: pa.Table, *, types: bool, unlimited: Callable[[], pa.Table] | None = None
) -> list[str]:
    """Why `found` is not the answer to query `number`, one line per difference; empty if it is.

    Decimals, integers, dates and texts must be equal. Doubles may differ by 1e-9 of their size, and by one unit in the
    last place of an engine's decimal where DuckDB returns a double (avg, division). `types`: column types must equal
    DuckDB's. `unlimited` returns DuckDB's answer without the LIMIT; if rows tie for the last places, any of them are
    accepted."""
    if found.column_names != expected.column_names:
        return [f"columns are {', '.join(found.column_names)}, expected {', '.join(expected.column_names)}"]
    expected, found = plain(expected), plain(found)
    if types and found.schema.types != expected.schema.types:
        wrong = [
            (name, a, b)
            for name, a, b in zip(expected.column_names, expected.schema.types, found.schema.types)
            if a != b
        ]
        return [f"column {name} has type {b}, expected {a}" for name, a, b in wrong]
    if found.num_rows != expected.num_rows:
        return [f"{found.num_rows} rows, expected {expected.num_rows}"]
    left, right = _rows(expected), _rows(found)
    keys = [expected.column_names.index(name) for name in TIES.get(number, ())]
    if not keys:
        return _listed(_unequal(expected.column_names, left, right))
    if wrong_order := _listed(
        _unequal([expected.column_names[i] for i in keys], _picked(left, keys), _picked(right, keys))
    ):
        return wrong_order
    last = next((i for i, row in enumerate(left) if _pick(row, keys) == _pick(left[-1], keys)), 0)
    groups = _tie_groups(left, keys)
    left, right = _in_groups(left, groups), _in_groups(right, groups)
    inside = _listed(_unequal(expected.column_names, left[:last], right[:last]))
    if inside or unlimited is None:
        return inside or _listed(_unequal(expected.column_names, left[last:], right[last:], last))
    if not _listed(_unequal(expected.column_names, left[last:], right[last:])):
        return []
    candidates = Counter(_rows(plain(unlimited())))
    extra = Counter(right[last:]) - candidates
    return [
        f"row {_text(row)} ties for the last places and is not in the answer without LIMIT"
        for row in list(extra)[:SHOWN]
    ]


def without_limit(sql: str) -> str | None:
    """The query without its last LIMIT, or None if it has none."""
    text, count = re.subn(r"\s+LIMIT \d+\s*$", "", sql)
    return text if count else None


def same(expected: Any, found: Any) -> bool:
    """Whether two values are the same answer (see `differences`)."""
    if expected is None or found is None:
        return expected is None and found is None
    if isinstance(expected, float) or isinstance(found, float):
        if not isinstance(expected, int | float | Decimal) or not isinstance(found, int | float | Decimal):
            return False
        units = [
            10.0 ** int(v.as_tuple().exponent) for v in (expected, found) if isinstance(v, Decimal) and v.is_finite()
        ]
        a, b = float(expected), float(found)
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=max([1e-12, *units]))
    return bool(expected == found)


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns)))


def _pick(row: Row, places: list[int]) -> Row:
    return tuple(row[i] for i in places)


def _picked(rows: list[Row], places: list[int]) -> list[Row]:
    return [_pick(row, places) for row in rows]


def _tie_groups(rows: list[Row], keys: list[int]) -> list[int]:
    """For each row, the number of its run of equal keys."""
    groups: list[int] = []
    for i, row in enumerate(rows):
        groups.append(0 if i == 0 else groups[-1] + (_pick(row, keys) != _pick(rows[i - 1], keys)))
    return groups


def _in_groups(rows: list[Row], groups: list[int]) -> list[Row]:
    """The rows in order, with ties ordered by their values alone."""
    return [row for _, row in sorted(zip(groups, rows), key=lambda pair: (pair[0], [str(value) for value in pair[1]]))]


def _unequal(names: list[str], expected: list[Row], found: list[Row], first: int = 0) -> Iterator[str]:
    for i, (a, b) in enumerate(zip(expected, found), first + 1):
        for name, x, y in zip(names, a, b):
            if not same(x, y):
                yield f"row {i}, column {name}: {y}, expected {x}"


def _listed(found: Iterator[str]) -> list[str]:
    lines = list(islice(found, SHOWN))
    more = sum(1 for _ in found)
    return [*lines, f"and {more} more values"] if more else lines


def _text(row: Row) -> str:
    return "(" + ", ".join(str(value) for value in row) + ")"
