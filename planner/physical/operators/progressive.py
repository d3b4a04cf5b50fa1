"""progressive: the rows of a scan in a seeded random order, from which snapshots of the result are estimated.

It stands directly above the scan that makes the progress. What is below an aggregate in the same pipeline (filters,
projections, joins whose other side is built first) sees the rows as they come; the aggregate keeps its groups, and a
snapshot is computed from them while it does. Above a join of two large sides, above groups that are grouped again, or
above windows over the rows of a key, it has the rows for some keys after the other. A run that wants the whole result
at once ignores this step."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field, replace
from typing import TYPE_CHECKING, Self

from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.progression import UNITS, Progression
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import Step

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext

MOST = 2**63 - 1


@dataclass(frozen=True)
class Progressive(Step):
    """Keeps the rows where they are, in another order."""

    spec: Progression = field(default_factory=Progression)

    op = "progressive"
    label = "sampled"
    is_stateless = True

    @property
    def may_stop(self) -> bool:  # type: ignore[override]
        return self.spec.may_stop

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(wanted),)

    @property
    def streamed(self) -> int | None:
        return 0

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return replace(given[0], order=())

    def attributes(self) -> list[tuple[str, str]]:
        spec = self.spec
        found = [("every", _text(spec.every)), ("unit", spec.unit)]
        if spec.until_error is not None:
            found.append(("until_error", _text(spec.until_error)))
        if spec.within_us is not None:
            found.append(("within_us", str(spec.within_us)))
        return [*found, ("confidence", _text(spec.confidence)), ("seed", str(spec.seed))]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        if not isinstance(inputs[0], Scan | Input | HashJoin | Aggregate | Combine | Window):
            hint = f"{inputs[0].name} is a step {inputs[0].op}"
            raise context.error("progressive reads a scan, a join, groups or windows", hint)
        unit = attributes.choice("unit", UNITS, "percent")
        every = attributes.real("every", 0, 100 if unit == "percent" else MOST)
        confidence = attributes.real("confidence", 0, 1)
        default = Progression()
        if every == 0 or confidence in (0, 1):
            raise context.error("every is more than 0, and confidence is between 0 and 1")
        spec = Progression(
            default.every if every is None else every,
            unit,
            attributes.real("until_error", 0, MOST),
            attributes.integer("within_us", 0),
            default.confidence if confidence is None else confidence,
            attributes.integer("seed", 0) or 0,
        )
        return cls(inputs, spec=spec)


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
