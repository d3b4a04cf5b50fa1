"""project: computed and renamed columns."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Column, Expr, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.estimate import Cost, Estimate, Machine
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import assignment

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Project(Step):
    """Keeps rows where they are; placement and order survive as far as their columns do."""

    columns: tuple[tuple[str, Expr], ...] = ()

    op = "project"
    label = "projected"
    is_stateless = True

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(n, e.type, e.nullable if isinstance(e, Column) else True) for n, e in self.columns))

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        renamed = {e.name: n for n, e in self.columns if isinstance(e, Column)}
        order = []
        for by in given[0].order:
            if not isinstance(by.expr, Column) or by.expr.name not in renamed:
                break
            order.append(SortKey(replace(by.expr, name=renamed[by.expr.name]), by.descending, by.nulls_first))
        equal = (frozenset(renamed[c] for c in group if c in renamed) for group in given[0].equal)
        placed, key = (given[0].follow(columns, renamed) for columns in (given[0].placed, given[0].key))
        return replace(
            given[0], placed=placed, key=key, order=tuple(order), equal=tuple(g for g in equal if len(g) > 1)
        )

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return [(self.inputs[0], e.name) for n, e in self.columns if n == column and isinstance(e, Column)]

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used()

    @property
    def streamed(self) -> int | None:
        return 0

    def follows(self, column: str) -> tuple[int, str] | None:
        expr = dict(self.columns)[column]
        return (0, expr.name) if isinstance(expr, Column) else None

    def promised(self, below: list[Progress]) -> Progress:
        return below[0].of(self.columns)

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        computed = sum(not isinstance(e, Column) for _, e in self.columns)
        return machine.work(given[0].rows * computed * machine.costs.row_ns, properties.shards)

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        return logical.Project(given[0].shadow, self.columns) if given[0].knows(self.columns) else self.unknown

    def attributes(self) -> list[tuple[str, str]]:
        return [assignment(n, e) for n, e in self.columns]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        schema = inputs[0].schema
        return cls(inputs, columns=tuple((n, context.expression(t, schema)) for n, t in attributes.assignments()))
