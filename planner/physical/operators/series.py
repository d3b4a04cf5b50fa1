"""series: numbers or times at equal steps, as a separate table or for each row of an input."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Expr, Literal
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, INTERVAL, TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.types import castable, coerce
from tsql.planner.cost.columns import series_rows
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import check_series
from tsql.planner.physical.estimate import Estimate, Machine
from tsql.planner.physical.progress import Progress, is_upward
from tsql.planner.physical.properties import Properties, Requirement
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import identifier

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Series(Step):
    """Adds `column`. Without an input the bounds are constants, and the values are generated on all shards; with
    `spread=no` on one."""

    column: str = ""
    start: Expr = field(kw_only=True)
    stop: Expr = field(kw_only=True)
    by: Expr = field(kw_only=True)
    inclusive: bool = False
    spread: bool = True

    op = "series"
    label = "series"
    arity = (0, 1)
    is_stateless = True

    @cached_property
    def schema(self) -> Schema:
        return Schema((*(self.inputs[0].schema if self.inputs else ()), Field(self.column, self.start.type, False)))

    def requires(self) -> tuple[Requirement, ...]:
        return tuple(Requirement() for _ in self.inputs)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        if not given:
            return Properties(shards if self.spread else 1)
        return replace(given[0], order=())

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used(*wanted) if self.inputs else ()

    def promised(self, below: list[Progress]) -> Progress:
        if not below:
            return super().promised(below)
        start = below[0].lower(self.start)
        upward = isinstance(self.by, Literal) and is_upward(self.by.value)
        return Progress(
            below[0].bounds | ({self.column: start} if start is not None and upward else {}), below[0].ended
        )

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return (given[0].rows if given else 1.0) * series_rows(self.start, self.stop, self.by)

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        return self.unknown

    def attributes(self) -> list[tuple[str, str]]:
        text = [
            ("column", identifier(self.column)),
            ("from", f"({self.start})"),
            ("to", f"({self.stop})"),
            ("by", f"({self.by})"),
        ]
        text += [("inclusive", "yes")] if self.inclusive else []
        return text + ([("spread", "no")] if not self.spread else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        schema = inputs[0].schema if inputs else Schema(())
        column = attributes.name("column")
        start, stop, by = (context.expression(attributes.text(name), schema) for name in ("from", "to", "by"))
        if by.type == INTERVAL and all(castable(e.type, TIMESTAMP) for e in (start, stop)):
            start, stop = (e if e.type.name.startswith("TIMESTAMP") else coerce(e, TIMESTAMP) for e in (start, stop))
        else:
            start, stop, by = (coerce(e, BIGINT) if e.type.is_integer else e for e in (start, stop, by))
        try:
            check_series(start, stop, by)
        except ValueError as error:
            raise context.error(str(error)) from None
        return cls(
            inputs,
            column=column,
            start=start,
            stop=stop,
            by=by,
            inclusive=attributes.flag("inclusive"),
            spread=attributes.flag("spread", True),
        )
