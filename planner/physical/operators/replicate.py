"""replicate: each row as often as an expression says (INTERSECT ALL and EXCEPT ALL)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import HUGEINT, UBIGINT
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Replicate(Step):
    """`times` is an integer of at most 64 bits; zero, less or NULL drops the row."""

    times: Expr

    op = "replicate"
    label = "replicated"
    is_stateless = True

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return replace(given[0], order=())

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted)

    def promised(self, below: list[Progress]) -> Progress:
        return below[0]

    def attributes(self) -> list[tuple[str, str]]:
        return [("times", f"({self.times})")]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        times = context.expression(attributes.text("times"), inputs[0].schema)
        if not times.type.is_integer or times.type in (HUGEINT, UBIGINT):
            raise attributes.error("times", f"times is a BIGINT or a smaller integer, not {times.type}")
        return cls(inputs, times=times)
