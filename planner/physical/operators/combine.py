"""combine: the windows of each key, from the states of panes.

The input has a row for each key and pane: the key, the pane, and exported states (phase=partial of `aggregate`);
several rows of one pane, from several shards, are merged. No row of the query's input is repeated: what a window costs
does not depend on how many panes it has. The rows of a key must be in one shard; without `by` there is one key, and one
shard.

kind=hop       windows `[s, s + size)` for each s that is a multiple of `slide`; sizes are in panes of `width`
microseconds
kind=cumulate  windows that begin at a multiple of `size` and grow by one pane, up to `size`
kind=rows      windows of `size` rows of a key, in the order of `first`, each `slide` rows behind the one before; `id`
is its number
kind=session   panes are no wider than `gap`, and have `first` and `last`, the times of their rows: those no further
apart are one window

With over=rows the input has rows, each of which is a pane by itself: cheaper where a pane has hardly more than one row.
Aggregates that depend on the order of rows follow that of the input in windows of kind hop and cumulate, and that of
time in the others; states have positions in the input in them, so that sessions have over=rows then."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.kernels.operators.aggregate.combine import KINDS, Windows
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.aggregate_states import can_combine
from tsql.planner.physical.estimate import Cost, Estimate, Machine, levels, width
from tsql.planner.physical.operators.aggregate import Aggregate, partial_of
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.properties import SINGLE, Properties, Requirement, by_keys
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import assignment, identifier

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext

NAMES = ("pane", "first", "last", "start", "end", "id")
NUMBERS = ("slide", "size", "width", "offset", "gap")


@dataclass(frozen=True)
class Combine(Step):
    """`by` are the key columns, `calls` (name, aggregate) pairs as in the partial step; `windows` says which windows
    there are."""

    by: tuple[str, ...] = ()
    calls: tuple[tuple[str, AggregateCall], ...] = ()
    windows: Windows = field(kw_only=True)

    op = "combine"
    label = "windows"

    @cached_property
    def schema(self) -> Schema:
        fields = [self.inputs[0].schema[n] for n in self.by]
        fields += [Field(n, TIMESTAMP, False) for n in (self.windows.start, self.windows.end) if n]
        fields += [Field(self.windows.id, BIGINT, False)] if self.windows.id is not None else []
        return Schema((*fields, *(Field(n, c.type) for n, c in self.calls)))

    def requires(self) -> tuple[Requirement, ...]:
        return (Requirement("placed", self.by) if self.by else SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return by_keys(given[0], {name: name for name in self.by})

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return [(self.inputs[0], column)] if column in self.by else []

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        if self.windows.over == "states":
            return super().needs(wanted)
        return self.used(*self.by, *(n for n in (self.windows.pane, self.windows.first, self.windows.last) if n))

    @property
    def depends_on_order(self) -> bool:
        return self.windows.kind == "rows" or any(
            function.ordered for _, c in self.calls for function in AGGREGATES.overloads.get(c.name, ())
        )

    def closes(self, below: Callable[[], Progress]) -> bool:
        return self.windows.kind != "rows" and bool({self.windows.pane or self.windows.first} & below().bounds.keys())

    @property
    def held(self) -> Step:
        return self.inputs[0]

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        entering = given[0].rows
        return machine.work(
            entering * levels(given[0]) * machine.costs.sort_ns + rows * machine.costs.row_ns,
            properties.shards,
            entering * width(self.inputs[0].schema),
            breaks=True,
        )

    def attributes(self) -> list[tuple[str, str]]:
        spec = self.windows
        numbers = [(n, str(getattr(spec, n))) for n in NUMBERS if getattr(spec, n) is not None]
        names = [(n, identifier(getattr(spec, n))) for n in NAMES if getattr(spec, n) is not None]
        over = [("over", spec.over)] if spec.over != "states" else []
        return [
            ("kind", spec.kind),
            *over,
            ("by", f"({', '.join(map(identifier, self.by))})"),
            *numbers,
            *names,
            *(assignment(n, c, ("kind", "over", "by", *NUMBERS, *NAMES)) for n, c in self.calls),
        ]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        schema = inputs[0].schema
        kind = attributes.choice("kind", KINDS)
        about: dict[str, Any] = {name: attributes.integer(name) for name in NUMBERS}
        about |= {
            n: attributes.column(n, schema, inputs[0].name, BIGINT if n == "pane" else TIMESTAMP)
            for n in ("pane", "first", "last")
        }
        about |= {n: None if attributes.optional(n) is None else attributes.name(n) for n in ("start", "end", "id")}
        try:
            windows = Windows(kind, **about, over=attributes.choice("over", ("states", "rows"), "states"))
        except ValueError as error:
            raise context.error(str(error)) from None
        by = attributes.columns("by", schema, inputs[0].name)
        if windows.over == "rows":
            calls = tuple((n, context.aggregate(t, schema)) for n, t in attributes.assignments())
            return cls(inputs, by=by, calls=_checked(calls, context), windows=windows)
        origin = partial_of(inputs[0])
        if origin is None:
            raise context.error("combine needs an input that comes from an aggregate with phase=partial")
        calls = tuple((n, context.aggregate(t, origin.inputs[0].schema)) for n, t in attributes.assignments())
        Aggregate(
            (inputs[0],), by=tuple((n, Column(n, schema[n].type)) for n in by), calls=calls, phase="final"
        ).check_states(origin, context)
        return cls(inputs, by=by, calls=_checked(calls, context), windows=windows)


def _checked(
    calls: tuple[tuple[str, AggregateCall], ...], context: LineContext
) -> tuple[tuple[str, AggregateCall], ...]:
    for name, call in calls:
        if not can_combine(call):
            raise context.error(f"{name}={call} cannot be combined from panes")
    return calls
