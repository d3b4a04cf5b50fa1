"""union: the rows of all inputs, in the order of the inputs. Columns are matched by position and named as in the first
input."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.estimate import Cost, Estimate, Machine
from tsql.planner.physical.progress import Progress, least
from tsql.planner.physical.properties import ONCE, Properties, Requirement
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Union(Step):
    """UNION ALL. One shard if all inputs have one; otherwise rows are anywhere."""

    op = "union"
    label = "all_rows"
    arity = (2, 1 << 20)
    is_stateless = True

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

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        places = [place for place, name in enumerate(self.schema.names) if name in wanted]
        return tuple(frozenset(i.schema.names[place] for place in places) for i in self.inputs)

    def promised(self, below: list[Progress]) -> Progress:
        names = self.schema.names
        return least(
            [
                Progress(
                    {n: p.bounds[f.name] for n, f in zip(names, i.schema, strict=True) if f.name in p.bounds},
                    p.ended,
                )
                for p, i in zip(below, self.inputs, strict=True)
            ]
        )

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return sum(g.rows for g in given)

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        return Cost()

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        first = [f.type for f in inputs[0].schema]
        for other in inputs[1:]:
            if [f.type for f in other.schema] != first:
                raise context.error(f"{inputs[0].name} and {other.name} have columns of other types")
        return cls(inputs)
