"""The logical node of ASOF joins. It is not a `Join`, so that no rule moves conditions between its sides, swaps sides
or reorders it. Which row is the nearest depends on all right rows, so a filter on right columns stays above it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import Self

from tsql.kernels.expr.nodes import Call, Expr, Literal, check_columns
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.nodes import Binary, Node, joined_schema

ASOF_KINDS = ("inner", "left")
NEAREST = (">=", ">", "<=", "<")


@dataclass(frozen=True)
class AsofJoin(Binary):
    """Joins each left row with one right row: the nearest in time of those for which `at` and `condition` are true. Of
    several right rows with the same time, the last in the input wins. inner: only left rows with a match. left: all
    left rows, with NULLs where there is no match.

    at: a comparison of a left with a right expression, in this order. condition: equalities and any other conditions on
    pairs. tolerance: the maximum distance of the two times: an INTERVAL without months, or a number of their type."""

    kind: str
    left: Node
    right: Node
    at: Call
    condition: Expr | None = None
    tolerance: Literal | None = None
    position: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in ASOF_KINDS or self.at.name not in NEAREST:
            raise ValueError(f"an asof join of kind {self.kind} at {self.at}")
        both = set(self.left.schema.names) & set(self.right.schema.names)
        if both:
            raise ValueError(f"both sides of a join have columns {sorted(both)}")
        for side, expr in zip(self.inputs, self.at.args, strict=True):
            check_columns(expr, side.schema)
        if self.condition is not None:
            if self.condition.type != BOOLEAN:
                raise ValueError(f"a join condition is BOOLEAN, not {self.condition.type}")
            check_columns(self.condition, Schema((*self.left.schema, *self.right.schema)))

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        sides = tuple(map(change, self.at.args))
        condition = None if self.condition is None else change(self.condition)
        if condition is self.condition and all(a is b for a, b in zip(sides, self.at.args, strict=True)):
            return self
        return replace(self, at=replace(self.at, args=sides), condition=condition)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        used = wanted | self.named()
        return [used & set(side.schema.names) for side in self.inputs]

    @cached_property
    def schema(self) -> Schema:
        return joined_schema(self.kind, self.left.schema, self.right.schema, None)

    def describe(self) -> str:
        on = f" on {self.condition}" if self.condition is not None else ""
        within = f" tolerance {self.tolerance}" if self.tolerance is not None else ""
        return f"asof {self.kind} join at {self.at}{on}{within}"
