"""Ranges of sort keys: which shard a row belongs to, so that the rows of each shard come before those of the next.

In: a sample of the keys of all rows. Out: boundaries, and an expression that gives the shard of a row. Rows with equal
keys are in one shard, so sorting the shards gives the same order as sorting all rows. A key that most rows share makes
a large shard; that is the price of any order by ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pyarrow as pa

from tsql.backends.local.run.host import Chunk
from tsql.kernels.expr.nodes import Call, Case, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN, Type

SAMPLED_ROWS = 200
"""Keys that are sampled for each shard that rows come from."""

Boundary = tuple[Any, ...]
"""The stored values of the keys of a row: the first one of a shard."""


def sampled(chunks: Iterable[Chunk], places: Sequence[int], types: Sequence[Type], rows: int) -> list[Boundary]:
    """The keys of some rows, at even distances."""
    held = [chunk for chunk in chunks if chunk.rows]
    total = sum(chunk.rows for chunk in held)
    step = max(1, -(-total // max(1, rows)))
    found: list[Boundary] = []
    position = step // 2
    for chunk in held:
        picked = list(range(position, chunk.rows, step))
        position = (picked[-1] + step if picked else position) - chunk.rows
        if picked:
            columns = [
                stored_values(chunk.arrays[place].take(pa.array(picked)), kind)
                for place, kind in zip(places, types, strict=True)
            ]
            found += zip(*columns, strict=True)
    return found


def stored_values(array: pa.Array, kind: Type) -> list[Any]:
    """The values of an array in the form of literals."""
    if kind.is_temporal and not pa.types.is_integer(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    values = array.to_pylist()
    if kind.is_decimal:
        return [int(v.scaleb(kind.scale)) if isinstance(v, Decimal) else v for v in values]
    return values


def boundaries(sample: list[Boundary], keys: Sequence[SortKey], shards: int) -> list[Boundary]:
    """At most `shards - 1` rows of the sample, in order: each is the first of its shard."""

    def compare(a: Boundary, b: Boundary) -> int:
        return _compare(a, b, keys)

    rows = sorted(sample, key=cmp_to_key(compare))
    found: list[Boundary] = []
    for number in range(1, shards):
        if not rows:
            break
        row = rows[number * len(rows) // shards]
        if not found or _compare(found[-1], row, keys) < 0:
            found.append(row)
    return found


def _compare(a: Boundary, b: Boundary, keys: Sequence[SortKey]) -> int:
    """-1, 0 or 1: which of two rows comes first."""
    for x, y, key in zip(a, b, keys, strict=True):
        if x is None or y is None:
            if x is not y:
                return -1 if (x is None) == key.nulls_first else 1
            continue
        x, y = _ordered(x), _ordered(y)
        if x != y:
            return -1 if (x < y) != key.descending else 1
    return 0


def _ordered(value: Any) -> Any:
    """A value that compares as SQL compares it: NaN is greater than every number."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def shard_of(keys: Sequence[SortKey], bounds: Sequence[Boundary]) -> Expr:
    """The number of a row's shard, found by binary search."""

    def between(low: int, high: int) -> Expr:
        if low == high:
            return Literal(low, BIGINT)
        middle = (low + high) // 2
        return Case(((_before(keys, bounds[middle]), between(low, middle)),), between(middle + 1, high))

    return between(0, len(bounds))


def _before(keys: Sequence[SortKey], bound: Boundary) -> Expr:
    """Whether a row comes before a boundary. NULL stands for false."""
    key, value = keys[0], bound[0]
    is_null: Expr = Call("is_null", (key.expr,), BOOLEAN)
    less: Expr
    if value is None:
        less = Literal(False, BOOLEAN) if key.nulls_first else Call("is_not_null", (key.expr,), BOOLEAN)
        same = is_null
    else:
        constant = Literal(value, key.expr.type)
        less = Call(">" if key.descending else "<", (key.expr, constant), BOOLEAN)
        less = Call("or", (is_null, less), BOOLEAN) if key.nulls_first else less
        same = Call("=", (key.expr, constant), BOOLEAN)
    if len(keys) == 1:
        return less
    return Call("or", (less, Call("and", (same, _before(keys[1:], bound[1:])), BOOLEAN)), BOOLEAN)
