"""positional_join: the first row of the left with the first of the right, the second with the second, and so on; the
shorter side goes on with NULLs.

Rows meet by their places, so both sides are in one shard. The output has no order that is known: the left side may end
in rows of NULLs, wherever its order wants those."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.nodes import joined_schema
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.properties import SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class PositionalJoin(Step):
    """Pairs of rows at the same place."""

    op = "positional_join"
    label = "paired"
    arity = (2, 2)

    @cached_property
    def schema(self) -> Schema:
        return joined_schema("full", self.inputs[0].schema, self.inputs[1].schema, None)

    def requires(self) -> tuple[Requirement, ...]:
        return (SINGLE, SINGLE)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return Properties(1)

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return []  # either side may go on with NULLs

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(n for n in i.schema.names if n in wanted) for i in self.inputs)

    @property
    def depends_on_order(self) -> bool:
        return True

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return max(g.rows for g in given)

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        both = set(inputs[0].schema.names) & set(inputs[1].schema.names)
        if both:
            raise context.error(f"both sides have columns {', '.join(sorted(both))}")
        return cls(inputs)
