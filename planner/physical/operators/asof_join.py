"""asof_join: each row of the left input with the nearest right row in time, among those with equal keys.

Semantics: `at` compares a number or time of the left with one of the right. Of the right rows that satisfy it, the keys
(`on`) and the condition (`where`), the nearest wins; of several with the same time, the last in input order. NULL never
matches. Requires: all right rows in every shard (`broadcast`), or both sides placed by the keys (`redistribute` both).
State: the right side, sorted by (keys, time). Cost: the sort, and a search per left row, which is short where left rows
come in time order (`walks=yes`). Not done: right and full joins, and right sides without keys, or with one key, that do
not fit memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.asof import ASOF_KINDS, NEAREST
from tsql.planner.physical.operators.join import HashJoin, read_key, read_sides
from tsql.planner.physical.properties import ANY, ONCE, REPLICATED, Properties, Requirement
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext

DAY_US = 86_400_000_000


@dataclass(frozen=True)
class AsofJoin(HashJoin):
    """The comparison is the one part of `range`; the right side is built. `tolerance`: an INTERVAL or a number."""

    tolerance: Literal | None = None

    op = "asof_join"
    label = "nearest"

    @property
    def at(self) -> Call:
        (found,) = self.range
        return found

    @property
    def last_first(self) -> bool:
        """Whether rows of equal times are searched from the first one on, so that the last row of the input must come
        first."""
        return self.at.name[0] == "<"

    @property
    def needs_places(self) -> bool:
        return True

    @property
    def distance(self) -> int | float | None:
        """The tolerance in units of the compared numbers."""
        if self.tolerance is None:
            return None
        value: Any = self.tolerance.value
        length: int | float = value[1] * DAY_US + value[2] if isinstance(value, tuple) else value
        return length

    def needed(self, built: int) -> set[str]:
        used = set(self.condition.columns()) if self.condition is not None else set()
        return used | {f.name for f in self.schema if f.name in self.inputs[built].schema}

    def requires_of(self, given: tuple[Properties, ...]) -> tuple[Requirement, ...]:
        return (ANY, ANY) if self._meet(given) else (ONCE, REPLICATED)

    @property
    def depends_on_order(self) -> bool:
        return True

    def attributes(self) -> list[tuple[str, str]]:
        text = [("kind", self.kind)]
        if self.keys:
            text.append(("on", f"({', '.join(k.sql() for k in self.keys)})"))
        text.append(("at", f"({self.at})"))
        if self.tolerance is not None:
            text.append(("tolerance", f"({self.tolerance})"))
        if self.condition is not None:
            text.append(("where", f"({self.condition})"))
        return text + ([("walks", "yes")] if self.walks else [])

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        kind = attributes.choice("kind", ASOF_KINDS, "inner")
        left, right, both = read_sides(inputs, context)
        keys = (
            tuple(read_key(context, item, both, left, right) for item in attributes.items("on"))
            if attributes.optional("on")
            else ()
        )
        at = context.expression(attributes.text("at"), both)
        if not isinstance(at, Call) or not _is_comparison(at, left, right):
            raise attributes.error(
                "at",
                (
                    f"at={at}: it compares a number or time of the left input with one of the right by "
                    f"{', '.join(NEAREST)}"
                ),
            )
        condition, tolerance = attributes.condition("where", both), attributes.expression("tolerance", both)
        if tolerance is not None and not (isinstance(tolerance, Literal) and is_tolerance(tolerance, at.args[0])):
            raise attributes.error(
                "tolerance",
                (
                    f"tolerance={tolerance}: it is a constant interval without months, or a number of the type "
                    f"{at.args[0].type}"
                ),
            )
        return cls(
            inputs,
            kind=kind,
            keys=keys,
            condition=condition,
            range=(at,),
            walks=attributes.flag("walks"),
            tolerance=tolerance if isinstance(tolerance, Literal) else None,
        )


def is_sortable(t: Type) -> bool:
    """Whether values of a type can be compared and ordered as one word."""
    exact = (t.is_integer or t.is_decimal) and t.bits <= 64
    return exact or t.is_float or t.name in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ")


def _is_comparison(at: Call, left: Schema, right: Schema) -> bool:
    if not (at.name in NEAREST and is_sortable(at.args[0].type)):
        return False
    return all(
        expr.columns() and all(c in side for c in expr.columns())
        for expr, side in zip(at.args, (left, right), strict=True)
    )


def is_tolerance(expr: Expr, time: Expr) -> bool:
    """Whether an expression is a valid tolerance for a time or a number."""
    if not isinstance(expr, Literal) or expr.value is None:
        return False
    if time.type.name in ("TIME", "TIMESTAMP", "TIMESTAMPTZ"):
        return isinstance(expr.value, tuple) and expr.value[0] == 0 and expr.value[1] * DAY_US + expr.value[2] >= 0
    return expr.type == time.type and time.type.is_numeric and expr.value >= 0
