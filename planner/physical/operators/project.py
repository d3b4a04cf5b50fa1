"""project: computed and renamed columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tsql.kernels.expr.nodes import Column, Expr, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Project(Step):
    """Keeps rows where they are; placement and order survive as far as their columns do."""

    columns: tuple[tuple[str, Expr], ...] = ()

    op = "project"
    label = "projected"

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(n, e.type, e.nullable if isinstance(e, Column) else True) for n, e in self.columns))

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        renamed = {e.name: n for n, e in self.columns if isinstance(e, Column)}
        order = []
        for key in given[0].order:
            if not isinstance(key.expr, Column) or key.expr.name not in renamed:
                break
            order.append(SortKey(replace(key.expr, name=renamed[key.expr.name]), key.descending, key.nulls_first))
        equal = (frozenset(renamed[c] for c in group if c in renamed) for group in given[0].equal)
        placed, key = (given[0].follow(columns, renamed) for columns in (given[0].placed, given[0].key))
        return replace(
            given[0], placed=placed, key=key, order=tuple(order), equal=tuple(g for g in equal if len(g) > 1)
        )

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return [(self.inputs[0], e.name) for n, e in self.columns if n == column and isinstance(e, Column)]

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.physical.planfile import assignment

        return [assignment(n, e) for n, e in self.columns]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        schema = inputs[0].schema
        return cls(inputs, columns=tuple((n, context.expression(t, schema)) for n, t in attributes.assignments()))
