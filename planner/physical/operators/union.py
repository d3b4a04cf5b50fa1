"""union: the rows of all inputs, the first input's first; the columns are matched by position and named as the first
input's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tsql.kernels.expr.schema import Field, Schema
from tsql.planner.physical.properties import ONCE, Properties, Requirement
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Union(Step):
    """UNION ALL. One shard if all inputs have one; otherwise rows are anywhere."""

    op = "union"
    label = "all_rows"

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(f.name, f.type) for f in self.inputs[0].schema))

    def requires(self) -> tuple[Requirement, ...]:
        return tuple(ONCE for _ in self.inputs)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(max(p.shards for p in given))

    def carries(self, column: str) -> list[tuple[Step, str]]:
        place = self.schema.names.index(column)
        return [(i, i.schema.names[place]) for i in self.inputs]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        first = [f.type for f in inputs[0].schema]
        for other in inputs[1:]:
            if [f.type for f in other.schema] != first:
                raise context.error(f"{inputs[0].name} and {other.name} have columns of other types")
        return cls(inputs)
