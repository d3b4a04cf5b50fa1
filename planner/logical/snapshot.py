"""The logical node of a grouping per snapshot, beside those of `planner/logical/nodes.py`;
`tsql/analyze/time/snapshot.py` makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Self

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, check_columns
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.calls import map_calls
from tsql.planner.logical.nodes import Filter, Node, Project, Unary

ENDS = ("any", "in_order", "none")
"""What is known of the ends of lifetimes: nothing; rows end in the order in which they start; no row ends."""


@dataclass(frozen=True)
class SnapshotAggregate(Unary):
    """One row per group and maximal time span in which the results do not change; none where the group has no live row.

    `keys` are columns. A row is alive from the column `start` to `end`; neither is NULL, and infinity is an open end.
    `span` names the lifetime of the results. Each aggregate can follow the rows that are alive (`is_foldable`)."""

    keys: tuple[str, ...]
    start: str
    end: str
    span: tuple[str, str]
    aggregates: tuple[tuple[str, AggregateCall], ...]
    ends: str = "any"

    def __post_init__(self) -> None:
        if self.ends not in ENDS:
            raise ValueError(f"lifetimes whose ends are {self.ends}")
        for name in (self.start, self.end):
            if self.input.schema[name].type != TIMESTAMP:
                raise ValueError(f"a lifetime of {self.input.schema[name].type}")
        for _, call in self.aggregates:
            for expr in call.expressions():
                check_columns(expr, self.input.schema)

    @cached_property
    def schema(self) -> Schema:
        fields = [Field(name, self.input.schema[name].type) for name in self.keys]
        fields += [Field(name, call.type) for name, call in self.aggregates]
        return Schema((*fields, *(Field(name, TIMESTAMP, False) for name in self.span)))

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        calls = map_calls(self.aggregates, change)
        return self if calls is self.aggregates else replace(self, aggregates=calls)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        # All results are compared to know when they change: none can be left out.
        return [{*self.keys, self.start, self.end} | self.named()]

    def describe(self) -> str:
        calls = " ".join(f"{name}={call}" for name, call in self.aggregates)
        lifetime = f"lifetime=({self.start}, {self.end}) ends={self.ends}"
        return f"snapshot by=({', '.join(self.keys)}) {lifetime} {calls}".rstrip()


def ends_of(plan: Node, start: str, end: str) -> str:
    """What is known of the ends of lifetimes, from how a plan computes them."""
    while True:
        match plan:
            case Filter():
                plan = plan.input
            case Project():
                columns = dict(plan.columns)
                first, last = columns[start], columns[end]
                if not (isinstance(first, Column) and isinstance(last, Column)):
                    return _ends_by(first, last)
                start, end, plan = first.name, last.name, plan.input
            case _:
                return "any"


def _ends_by(start: Expr, end: Expr) -> str:
    match end:
        case Literal(value) if value == 2**63 - 1:
            return "none"
        case Call("coalesce", (inner, Literal())):
            return _ends_by(start, inner)
        case Call("+", (time, Literal((0, _, _)))) if time == start:
            # The same length for all: days of a TIMESTAMP have 24 hours, months differ.
            return "in_order"
    return "any"
