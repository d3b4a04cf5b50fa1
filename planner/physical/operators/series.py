"""series: numbers or times at equal steps, as a table of their own or for each row of an input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, INTERVAL, TIMESTAMP
from tsql.planner.bind.types import castable, coerce
from tsql.planner.logical.generating import check_series
from tsql.planner.physical.properties import Properties, Requirement
from tsql.planner.physical.step import Step


@dataclass(frozen=True)
class Series(Step):
    """Adds `column`. Without an input the bounds are constants, and the values are made where they are used, on all
    shards; with `spread=no` on one."""

    column: str = ""
    start: Expr | None = None
    stop: Expr | None = None
    by: Expr | None = None
    inclusive: bool = False
    spread: bool = True

    op = "series"
    label = "series"

    @cached_property
    def schema(self) -> Schema:
        return Schema((*(self.inputs[0].schema if self.inputs else ()), Field(self.column, self.start.type, False)))

    def requires(self) -> tuple[Requirement, ...]:
        return tuple(Requirement() for _ in self.inputs)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        if not given:
            return Properties(shards if self.spread else 1)
        return replace(given[0], order=())

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.physical.planfile import identifier

        text = [
            ("column", identifier(self.column)),
            ("from", f"({self.start})"),
            ("to", f"({self.stop})"),
            ("by", f"({self.by})"),
        ]
        text += [("inclusive", "yes")] if self.inclusive else []
        return text + ([("spread", "no")] if not self.spread else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
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
