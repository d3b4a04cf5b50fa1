"""aggregate: groups and aggregates, in one phase or two.

phase=partial turns the rows of a shard into exported states (columns `n`, or `n__0 n__1 ..` if the state has several
values). phase=merge merges such states within a shard; phase=final turns them into results. Without a phase, and for
phase=final, the rows of a group must be in one shard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tsql.kernels.aggregates.bodies import plain_body, state_names
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.emit.dense import KEYS_PER_GROUP, LARGEST_DENSE
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.physical.estimate import Cost, Estimate, Machine, seen, width
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.properties import ONCE, SINGLE, Properties, Requirement, by_keys
from tsql.planner.physical.step import Step
from tsql.planner.physical.text import assignment, assignments, identifier

if TYPE_CHECKING:
    from tsql.planner.physical.attributes import Attributes
    from tsql.planner.physical.line import LineContext

PHASES = ("partial", "merge", "final", "complete")
WORDS = ("phase", "by")


@dataclass(frozen=True)
class Aggregate(Step):
    """`by` are (name, expression) pairs; `calls` (name, aggregate) pairs over the rows that the first phase sees."""

    by: tuple[tuple[str, Expr], ...] = ()
    calls: tuple[tuple[str, AggregateCall], ...] = ()
    phase: str = "complete"
    groups: int | None = field(default=None, compare=False)
    """The estimated number of groups, over all shards; only costs depend on it."""

    op = "aggregate"

    @property
    def absorbs(self) -> bool:
        """Whether the input holds exported states rather than rows."""
        return self.phase in ("merge", "final")

    @property
    def exports(self) -> bool:
        """Whether the output holds exported states rather than results."""
        return self.phase in ("partial", "merge")

    def suggested_name(self) -> str:
        return {"partial": "partial", "merge": "merged", "final": "total"}.get(self.phase, "groups")

    @cached_property
    def schema(self) -> Schema:
        fields = [Field(n, e.type) for n, e in self.by]
        for name, call in self.calls:
            if self.exports:
                types = plain_body(call).exported()
                fields += [Field(n, t) for n, t in zip(state_names(name, len(types)), types, strict=True)]
            else:
                fields.append(Field(name, call.type))
        return Schema(tuple(fields))

    def requires(self) -> tuple[Requirement, ...]:
        if self.exports:
            return (ONCE,)
        names = tuple(e.name for _, e in self.by if isinstance(e, Column))
        return (Requirement("placed", names),) if names and len(names) == len(self.by) else (SINGLE,)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        found = by_keys(given[0], {e.name: n for n, e in self.by if isinstance(e, Column)})
        return replace(found, shards=1) if self.requires() == (SINGLE,) else found

    def carries(self, column: str) -> list[tuple[Step, str]]:
        found = [(self.inputs[0], e.name) for n, e in self.by if n == column and isinstance(e, Column)]
        return found if found or self.phase != "merge" else [(self.inputs[0], column)]

    def needs(self, wanted: Set[str]) -> tuple[frozenset[str], ...]:
        return super().needs(wanted) if self.absorbs else self.used()

    @property
    def depends_on_order(self) -> bool:
        return any(function.ordered for _, c in self.calls for function in AGGREGATES.overloads.get(c.name, ()))

    def promised(self, below: list[Progress]) -> Progress:
        if self.phase != "partial":
            return super().promised(below)
        # The state of a minimum or maximum over rows to come has the bound of its argument.
        ends = [
            (n, c.args[0]) for n, c in self.calls if c.name in ("min", "max") and len(c.args) == 1 and n in self.schema
        ]
        return below[0].of([*self.by, *ends])

    def closes(self, below: Callable[[], Progress]) -> bool:
        return not self.exports and bool(below().of(self.by).bounds)

    def expected_groups(self, given: Estimate) -> float:
        """Over all shards, and never more than there are rows."""
        if self.groups is not None:
            return max(1.0, min(float(self.groups), given.rows))
        product = 1.0
        for _, key in self.by:
            known = given.distinct(key)
            product *= max(1.0, given.rows * cost.GROUPS_OF_UNKNOWN_KEYS) if known is None else known
        return max(1.0, min(product, given.rows))

    def _tables(self, given: Estimate, machine: Machine) -> int:
        """The number of group tables: one per shard, but partial groups of more shards than cores share one table per
        core."""
        shards = given.properties.shards
        return min(shards, machine.shards) if self.exports else shards

    def _is_dense(self, given: Estimate, groups: float) -> bool:
        """Whether the groups will be in an array, by the bounds of the keys."""
        possible = 1.0
        for _, key in self.by:
            known = given.bounds(key)
            if known is None:
                return False
            possible *= known[1] - known[0] + 1
        return possible <= min(LARGEST_DENSE, KEYS_PER_GROUP * groups)

    def expected_rows(self, given: tuple[Estimate, ...], machine: Machine) -> float:
        groups, tables = self.expected_groups(given[0]), self._tables(given[0], machine)
        return tables * seen(groups, given[0].rows / tables) if self.exports else groups

    def expected_cost(self, given: tuple[Estimate, ...], rows: float, properties: Properties, machine: Machine) -> Cost:
        (below,) = given
        groups, tables, costs = self.expected_groups(below), self._tables(below, machine), machine.costs
        placed = below.properties.placed is not None and not self.exports
        here = groups / tables if placed or tables == 1 else seen(groups, below.rows / tables)
        fits = here <= cost.CACHED_GROUPS or self._is_dense(below, groups)
        if self.absorbs:
            each = costs.merge_ns if fits else costs.merge_ns + costs.miss_ns - costs.group_ns
        else:
            each = costs.group_ns if fits else costs.miss_ns
        # Rows of one group are one machine's work.
        busy = min(tables, math.ceil(groups)) if placed and machine.is_cluster else tables
        return machine.work(below.rows * each, busy, here * tables * width(self.schema))

    def shadow(self, given: tuple[Estimate, ...]) -> logical.Node:
        if self.absorbs or not given[0].knows(self.by):
            return self.unknown
        return logical.Aggregate(given[0].shadow, self.by, ())

    def attributes(self) -> list[tuple[str, str]]:
        phase = [] if self.phase == "complete" else [("phase", self.phase)]
        if self.absorbs:
            # The arguments were consumed by the partial phase; the types say which state is merged.
            calls = [assignment(n, c, WORDS) for n, c in self.calls]
            return [*phase, ("by", f"({', '.join(identifier(n) for n, _ in self.by)})"), *calls]
        return [*phase, ("by", assignments(self.by)), *(assignment(n, c, WORDS) for n, c in self.calls)]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Attributes, context: LineContext) -> Self:
        phase = attributes.choice("phase", PHASES, "complete")
        schema = inputs[0].schema
        by = tuple((n, context.expression(t, schema)) for n, t in context.assignments(attributes.items("by")))
        origin = partial_of(inputs[0]) if phase in ("merge", "final") else None
        if phase in ("merge", "final") and origin is None:
            raise context.error(f"phase={phase} needs an input that comes from an aggregate with phase=partial")
        argument_schema = origin.inputs[0].schema if origin is not None else schema
        calls = tuple((n, context.aggregate(t, argument_schema)) for n, t in attributes.assignments())
        step = cls(inputs, by=by, calls=calls, phase=phase)
        for name, call in calls:
            if phase != "complete" and not can_split(call):
                raise context.error(
                    f"{name}={call} has no state that a second phase could merge",
                    "aggregate it in one step, behind redistribute or gather",
                )
        if origin is not None:
            step.check_states(origin, context)
        return step

    def check_states(self, origin: Aggregate, context: LineContext) -> None:
        known = dict(origin.calls)
        for name, call in self.calls:
            if known.get(name) != call:
                raise context.error(
                    f"{name}={call}: the partial step {origin.name} has "
                    f"{f'{name}={known[name]}' if name in known else 'no such aggregate'}"
                )
            for column in state_names(name, len(plain_body(call).exported())):
                if column not in self.inputs[0].schema:
                    raise context.error(f"the state column {column} of {name} does not reach this step")
                other = other_origin(self.inputs[0], column, origin)
                if other is not None:
                    step, there = other
                    raise context.error(
                        f"{column} is not the state of {name} any more: it is the column {there} of {step.name}"
                    )


def other_origin(step: Step, column: str, origin: Aggregate) -> tuple[Step, str] | None:
    """The origin of a column that should be the state of `origin` by that name and is not; None if it is. If several
    partial steps are united, each must have the same aggregate."""
    waiting, seen = [(step, column)], set()
    while waiting:
        at, name = waiting.pop()
        if (id(at), name) in seen:
            continue
        seen.add((id(at), name))
        if isinstance(at, Aggregate) and at.phase == "partial":
            if (
                name != column
                or name in dict(at.by)
                or (at is not origin and _states(at).get(name) != _states(origin).get(name))
            ):
                return at, name
            continue
        below = at.carries(name)
        if not below:
            return at, name
        waiting += below
    return None


def _states(partial: Aggregate) -> dict[str, object]:
    """The aggregate of each state column, as its text and types: whether its arguments can be NULL makes no other
    state."""
    found: dict[str, object] = {}
    for name, call in partial.calls:
        types = plain_body(call).exported()
        kind = str(call), tuple(e.type for e in call.expressions()), tuple(types)
        found |= dict.fromkeys(state_names(name, len(types)), kind)
    return found


def partial_of(step: Step) -> Aggregate | None:
    """The partial aggregate from which a step's rows come, through movement, filters and merges."""
    while not (isinstance(step, Aggregate) and step.phase == "partial"):
        if not step.inputs or (isinstance(step, Aggregate) and step.phase != "merge"):
            return None
        step = step.inputs[0]
    return step
