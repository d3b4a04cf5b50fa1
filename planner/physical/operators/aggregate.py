"""aggregate: groups and aggregates, complete or in two phases.

phase=partial turns the rows of a shard into exported states (columns `n`, or `n__0 n__1 ..` if the state has several
values); phase=merge turns such states of a shard into fewer of them, phase=final into results. Without a phase, and for
phase=final, the rows of a group must be in one shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tsql.kernels.aggregates.bodies import plain_body, state_names
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.planner.physical.properties import ONCE, SINGLE, Properties, Requirement, by_keys
from tsql.planner.physical.step import Step

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
        if not self.by:
            return (SINGLE,)
        if not all(isinstance(e, Column) for _, e in self.by):
            return (SINGLE,)
        return (Requirement("placed", tuple(e.name for _, e in self.by)),)

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        found = by_keys(given[0], {e.name: n for n, e in self.by if isinstance(e, Column)})
        return replace(found, shards=1) if self.requires() == (SINGLE,) else found

    def carries(self, column: str) -> list[tuple[Step, str]]:
        found = [(self.inputs[0], e.name) for n, e in self.by if n == column and isinstance(e, Column)]
        return found if found or self.phase != "merge" else [(self.inputs[0], column)]

    def attributes(self) -> list[tuple[str, str]]:
        from tsql.planner.physical.planfile import assignment, assignments, identifier

        phase = [] if self.phase == "complete" else [("phase", self.phase)]
        if self.absorbs:
            # The arguments were consumed by the partial phase; the types say which state is merged.
            calls = [assignment(n, c, WORDS) for n, c in self.calls]
            return [*phase, ("by", f"({', '.join(identifier(n) for n, _ in self.by)})"), *calls]
        return [*phase, ("by", assignments(self.by)), *(assignment(n, c, WORDS) for n, c in self.calls)]

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
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

    def check_states(self, origin: Aggregate, context: Any) -> None:
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


def can_split(call: AggregateCall) -> bool:
    """Whether a partial state of the call can be handed on and merged."""
    return plain_body(call).decomposable and not call.distinct and not call.order


def other_origin(step: Step, column: str, origin: Aggregate) -> tuple[Step, str] | None:
    """Where a column comes from that should be a state of `origin` by that name, and is not; None if it is. Of several
    partial steps that are united each must have the same aggregate."""
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


def _states(partial: Aggregate) -> dict[str, AggregateCall]:
    """The aggregate of each state column."""
    return {
        column: call for name, call in partial.calls for column in state_names(name, len(plain_body(call).exported()))
    }


def partial_of(step: Step) -> Aggregate | None:
    """The partial aggregate from which a step's rows come, through movement, filters and merges."""
    while not (isinstance(step, Aggregate) and step.phase == "partial"):
        if not step.inputs or (isinstance(step, Aggregate) and step.phase != "merge"):
            return None
        step = step.inputs[0]
    return step
