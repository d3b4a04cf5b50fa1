"""snapshot: groups of lifetimes, to one row per group and maximal time span in which its results do not change.

The rows of a group must be in one shard; without `by` there is one group, and one shard. `ends` says what is known
about the lifetimes, and chooses how the kernel finds the row that ends next: see kernels/operators/snapshot.py."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.expr.nodes import Aggregate, Column, Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.foldable import is_foldable
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.snapshot import ENDS
from tsql.planner.physical.estimate import Cost, Estimate, Machine, levels, width
from tsql.planner.physical.properties import SINGLE, Properties, Requirement, by_keys
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import assignment, identifiers

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext


@dataclass(frozen=True)
class Snapshot(Step):
    """`lifetime` are the columns with start and end of a row, `span` those of a result; `aggregates` are (name, call)
    pairs."""

    by: tuple[str, ...] = ()
    lifetime: tuple[str, str] = ("", "")
    span: tuple[str, str] = ("", "")
    aggregates: tuple[tuple[str, Aggregate], ...] = ()
    ends: str = "any"

    op = "snapshot"
    label = "snapshots"

    @cached_property
    def schema(self) -> Schema:
        given = self.inputs[0].schema
        fields = [Field(name, given[name].type) for name in self.by]
        fields += [Field(name, call.type) for name, call in self.aggregates]
        return Schema((*fields, *(Field(name, TIMESTAMP, False) for name in self.span)))

    def expressions(self) -> tuple[Expr, ...]:
        """The expressions over a row: keys, lifetime, and the arguments of the aggregates."""
        given = self.inputs[0].schema
        columns = tuple(Column(name, given[name].type, given[name].nullable) for name in (*self.by, *self.lifetime))
        return (*columns, *(e for _, call in self.aggregates for e in call.expressions()))

    def requires(self) -> tuple[Requirement, ...]:
        return (Requirement("placed", self.by),) if self.by else (SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        return by_keys(given[0], {name: name for name in self.by})

    def carries(self, column: str) -> list[tuple[Step, str]]:
        return [(self.inputs[0], column)] if column in self.by else []

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return self.used()

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        return 2 * given[0].rows

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        work = given[0].rows * levels(given[0]) * machine.costs.sort_ns
        return machine.work(work, properties.shards, given[0].rows * width(self.schema), breaks=True)

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        return self.unknown

    def attributes(self) -> list[tuple[str, str]]:
        text = [
            ("by", identifiers(self.by)),
            ("lifetime", identifiers(self.lifetime)),
            ("span", identifiers(self.span)),
            ("ends", self.ends),
        ]
        return [*text, *(assignment(name, call, ("by", "lifetime", "span", "ends")) for name, call in self.aggregates)]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        schema = inputs[0].schema
        by = attributes.columns("by", schema, inputs[0].name)
        lifetime = _two("lifetime", attributes.columns("lifetime", schema, inputs[0].name, TIMESTAMP), attributes)
        span = _two("span", attributes.names("span"), attributes)
        ends = attributes.choice("ends", ENDS, "any")
        calls = tuple((name, context.aggregate(text, schema)) for name, text in attributes.assignments())
        for _, call in calls:
            if not is_foldable(call):
                raise context.error(
                    f"{call} cannot follow rows that come and go: it is computed over all rows of a time"
                )
        return cls(inputs, by=by, lifetime=lifetime, span=span, aggregates=calls, ends=ends)


def _two(name: str, found: tuple[str, ...], attributes: Attributes) -> tuple[str, str]:
    if len(found) != 2:
        raise attributes.error(name, f"{name}=(start, end) are two columns of type TIMESTAMP")
    return found[0], found[1]
