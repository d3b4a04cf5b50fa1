"""The tables of fixtures that state a plan instead of a query: `a`, `b` and `c`, with NULLs in all but their first
columns."""

from __future__ import annotations

import pyarrow as pa

from tsql.backends.io.arrow import ArrowSource


def _table(name: str, columns: dict[str, list[int | None]]) -> ArrowSource:
    return ArrowSource(pa.table({n: pa.array(values, pa.int64()) for n, values in columns.items()}), name)


TABLES = {
    "a": _table("a", {"a": [1, 2, 3, 4, 5, 5], "ax": [1, 2, None, 2, 5, 7], "ay": [None, 0, 1, 1, 6, 6]}),
    "b": _table("b", {"b": [1, 2, 3, 5, 5, 9], "bx": [1, None, 2, 5, 5, 6], "by": [3, 6, None, 6, 7, 1]}),
    "c": _table("c", {"c": [1, 2, 5, 6], "cx": [None, 2, 2, 5]}),
}
