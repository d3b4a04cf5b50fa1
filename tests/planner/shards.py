"""The rows of each shard of a step, as a backend really places them, and what a step's `provides()` claims of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from tsql.backends import Run
from tsql.backends.local.run.execution import Execution
from tsql.backends.local.run.host import Chunk, result_array
from tsql.backends.local.run.kernels import Kernels
from tsql.backends.local.run.repeat import to_batch
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import PhysicalPlan, Step

Row = tuple[Any, ...]


def rows_of(chunks: list[Chunk], schema: Schema) -> list[Row]:
    """Collected chunks as rows."""
    found: list[Row] = []
    for chunk in chunks:
        shown = Chunk(
            chunk.order, chunk.rows, [result_array(a, f.type) for a, f in zip(chunk.arrays, schema, strict=True)]
        )
        columns = [column.to_pylist() for column in to_batch(shown, schema.to_arrow()).columns]
        found += zip(*columns, strict=True) if columns else [()] * chunk.rows
    return found


def shards_of(plan: PhysicalPlan, step: Step, settings: Any, interpret: bool) -> list[list[Row]]:
    """The rows of a step of a plan, by shard."""
    executor = Execution(Run(settings=settings), Kernels(), interpret)
    try:
        return [rows_of(chunks, step.schema) for chunks in executor.collected(step, plan.shards).data.chunks]
    finally:
        executor.close()


def assert_claims(
    claims: Properties, shards: list[list[Row]], names: tuple[str, ...], expected: Counter[Row] | None
) -> None:
    """The shards are as the properties say. `expected` are the rows of the step, however they are placed."""
    places = {name: i for i, name in enumerate(names)}
    ordered = [key.expr.name for key in claims.order if isinstance(key.expr, Column)]
    for what, columns in (
        ("placed", claims.placed),
        ("key", claims.key),
        ("order", ordered),
        *(("equal", group) for group in claims.equal),
    ):
        assert set(columns or ()) <= set(names), f"{what} by {columns}: the columns are {names}"
    if claims.shards == 1 or claims.placed or claims.replicated or claims.copies is not None:
        assert len(shards) == claims.shards
    if claims.placed:
        homes: dict[Row, set[int]] = {}
        for number, rows in enumerate(shards):
            for row in rows:
                homes.setdefault(tuple(row[places[c]] for c in claims.placed), set()).add(number)
        apart = {key for key, found in homes.items() if len(found) > 1}
        assert not apart, f"placed by {claims.placed}, but {apart} are in several shards"
    for group in claims.equal:
        assert all(len({row[places[c]] for c in group}) == 1 for rows in shards for row in rows), (
            f"{set(group)} are not equal"
        )
    assert_order(claims, shards, places)
    if expected is None:
        return
    found = Counter(row for rows in shards for row in rows)
    if claims.replicated and claims.shards > 1:
        assert all(Counter(rows) == expected for rows in shards), "not every shard has all rows"
    elif claims.is_once:
        assert found == expected, (
            f"too many {list((found - expected).items())[:3]}, missing {list((expected - found).items())[:3]}"
        )
    else:
        assert set(found) <= set(expected)
        assert all(count <= expected[row] * (claims.copies or 1) for row, count in found.items())


def assert_order(claims: Properties, shards: list[list[Row]], places: dict[str, int]) -> None:
    for key in reversed(range(len(claims.order))):
        keys = claims.order[: key + 1]
        if all(isinstance(k.expr, Column) for k in keys):
            break
    else:
        return

    def comes_after(row: Row, other: Row) -> bool:
        for k in keys:
            a, b = row[places[k.expr.name]], other[places[k.expr.name]]
            if a == b:
                continue
            if a is None or b is None:
                return (a is None) != k.nulls_first
            return (a > b) != k.descending
        return False

    for rows in shards:
        assert not any(comes_after(a, b) for a, b in pairwise(rows)), f"not in the order {claims.order}"
    if claims.in_sequence:
        ends = [row for rows in shards if rows for row in (rows[0], rows[-1])]
        assert not any(comes_after(a, b) for a, b in pairwise(ends)), "the shards do not follow each other"
