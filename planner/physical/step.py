"""`Step` and `PhysicalPlan`: the sharded algebra. Each operator is a subclass in `planner/operators/` or in
`movement.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner.physical.properties import ANY, Properties, Requirement

MOST_DEEP = 1000
"""A plan has at most so many steps in a row."""

SHALLOW = 50
"""Up to so many steps in a row need no more than Python's own limit of recursion."""


@dataclass(frozen=True)
class Step:
    """One line of a plan. Frozen; `name` and `comment` take no part in equality.

    Subclasses say what they `requires()` of each input, what they `provides()`, and print and read their attributes.
    """

    inputs: tuple[Step, ...]
    name: str = field(default="", compare=False, kw_only=True)
    line: int | None = field(default=None, compare=False, kw_only=True)

    op: ClassVar[str] = ""
    label: ClassVar[str] = ""
    """How the planner names steps of this kind."""

    @cached_property
    def schema(self) -> Schema:
        return self.inputs[0].schema

    def requires(self) -> tuple[Requirement, ...]:
        return tuple(ANY for _ in self.inputs)

    def requires_of(self, given: tuple[Properties, ...]) -> tuple[Requirement, ...]:
        """What is required of inputs with these properties: a join asks of one side what the other does not have."""
        return self.requires()

    def provides(self, given: tuple[Properties, ...], shards: int) -> Properties:
        """The properties of the output, from those of the inputs and the plan's number of shards."""
        return given[0]

    def carries(self, column: str) -> list[tuple[Step, str]]:
        """The columns of inputs whose values a column of the output has, as they are; none if it is computed here."""
        return [(i, column) for i in self.inputs if column in i.schema]

    def attributes(self) -> list[tuple[str, str]]:
        """(name, text) pairs as the plan file prints them; a name of "" prints the text alone."""
        return []

    @classmethod
    def read(cls, inputs: tuple[Step, ...], attributes: Any, context: Any) -> Step:
        """The step from its plan-file line; `attributes` and `context` are of `planfile`."""
        raise NotImplementedError

    def with_inputs(self, inputs: tuple[Step, ...]) -> Step:
        return self if all(a is b for a, b in zip(self.inputs, inputs, strict=True)) else replace(self, inputs=inputs)

    def walk(self) -> Iterator[Step]:
        """Every step once, inputs before users."""
        seen: set[int] = set()
        stack: list[tuple[Step, bool]] = [(self, False)]
        while stack:
            step, ready = stack.pop()
            if id(step) in seen:
                continue
            if ready or not step.inputs:
                seen.add(id(step))
                yield step
            else:
                stack.append((step, True))
                stack.extend((i, False) for i in reversed(step.inputs))


@dataclass(frozen=True)
class PhysicalPlan:
    """A plan that can run: the last step, the columns of the result and the names that users see."""

    root: Step
    columns: tuple[str, ...]
    names: tuple[str, ...]
    shards: int = 1
    target: str = "local"
    query: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        fields = self.root.schema
        return pa.schema(
            [pa.field(n, fields[c].type.to_arrow()) for c, n in zip(self.columns, self.names, strict=True)]
        )

    def text(self) -> str:
        """The plan file."""
        from tsql.planner.physical.planfile import print_plan

        return print_plan(self)

    @cached_property
    def depth(self) -> int:
        return depth_of(self.root)

    def deep(self) -> AbstractContextManager[None]:
        """Room for what goes through the plan by recursion: most plans need none."""
        return deep_recursion() if self.depth > SHALLOW else nullcontext()

    def properties(self) -> dict[int, Properties]:
        """The properties of each step's output, by id of the step."""
        found: dict[int, Properties] = {}
        for step in self.root.walk():
            found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), self.shards)
        return found


def depth_of(root: Step) -> int:
    """How many steps there are from a step without inputs to the last one, by the longest way."""
    found: dict[int, int] = {}
    for step in root.walk():
        found[id(step)] = 1 + max((found[id(i)] for i in step.inputs), default=0)
    return found[id(root)]


def named(root: Step) -> Step:
    """The same plan with a unique name on every step; given names are kept."""
    taken = {s.name for s in root.walk() if s.name}
    done: dict[int, Step] = {}
    for step in root.walk():
        rebuilt = step.with_inputs(tuple(done[id(i)] for i in step.inputs))
        if not rebuilt.name:
            base = rebuilt.suggested_name() if hasattr(rebuilt, "suggested_name") else rebuilt.label or rebuilt.op
            name, number = base, 2
            while name in taken:
                name, number = f"{base}{number}", number + 1
            taken.add(name)
            rebuilt = replace(rebuilt, name=name)
        done[id(step)] = rebuilt
    return done[id(root)]
