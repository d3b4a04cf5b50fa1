"""The logical node of MATCH_RECOGNIZE.

A filter moves below it only if it names nothing but PARTITION BY columns: any other filter would change which rows are
neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Self

from tsql.kernels.expr.nodes import Expr, check_columns
from tsql.kernels.expr.schema import Schema
from tsql.kernels.patterns.spec import MatchSpec
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.nodes import Unary


@dataclass(frozen=True)
class Match(Unary):
    """The matches of a row pattern in the input, or their rows, with measures."""

    spec: MatchSpec

    def __post_init__(self) -> None:
        taken = set(self.input.schema.names) & {name for name, _ in self.spec.measures}
        if taken:
            raise ValueError(f"a measure has the name of a column: {sorted(taken)}")
        for expr in self.spec.expressions():
            check_columns(expr, self.input.schema)

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        spec = self.spec.changed(change)
        return self if spec is self.spec else replace(self, spec=spec)

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [self.spec.used(wanted)]

    @cached_property
    def schema(self) -> Schema:
        return self.spec.schema(self.input.schema)

    def describe(self) -> str:
        return f"match {self.spec.sql()}"
