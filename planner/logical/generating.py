"""Logical nodes that generate or sample rows: `Series`, `Recursive` with its `Working` table, `Sample`.

They extend `planner/logical/nodes.py`; `planner/unnest/push_dependent.py` knows how they depend on an outer row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Self

from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT, INTERVAL
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.nodes import Node, Unary


@dataclass(frozen=True)
class Series(Unary):
    """For each input row, a row for each value `start, start + step, ..` before `stop`, or up to it where `inclusive`.

    Values are BIGINT with a BIGINT step, or times with an INTERVAL step, which is added to the value before it (so the
    31st of January is followed by the last of February and the 29th of March). A NULL anywhere gives no rows; a step
    of zero is an error.
    """

    column: str
    start: Expr
    stop: Expr
    step: Expr
    inclusive: bool = False

    def __post_init__(self) -> None:
        check_series(self.start, self.stop, self.step)
        if self.column in self.input.schema:
            raise ValueError(f"a series called {self.column}, which the input has")

    @cached_property
    def schema(self) -> Schema:
        return Schema((*self.input.schema, Field(self.column, self.start.type, False)))

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        before = (self.start, self.stop, self.step)
        after = tuple(map(change, before))
        return (
            self
            if all(a is b for a, b in zip(after, before, strict=True))
            else replace(self, start=after[0], stop=after[1], step=after[2])
        )

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [(wanted - {self.column}) | self.named()]

    def describe(self) -> str:
        return f"series {self.column} from {self.start} to {self.stop} by {self.step}" + (
            " inclusive" if self.inclusive else ""
        )


def check_series(start: Expr, stop: Expr, step: Expr) -> None:
    """Raise ValueError unless the types of a series fit."""
    fits = (
        step.type == INTERVAL and start.type.name.startswith("TIMESTAMP")
        if start.type != BIGINT
        else step.type == BIGINT
    )
    if not fits or stop.type != start.type:
        raise ValueError(f"a series from {start.type} to {stop.type} by {step.type}")


@dataclass(frozen=True)
class Working(Node):
    """The rows that the last round of a recursion added: the table that the second part of a recursive query reads. It
    belongs to the `Recursive` with the same number."""

    name: str
    number: int
    fields: Schema

    @property
    def schema(self) -> Schema:
        return self.fields

    def describe(self) -> str:
        return f"working {self.name}"


@dataclass(frozen=True)
class Recursive(Node):
    """The rows of `initial`, then those of `step` over them, and so on until a round gives no rows.

    With `distinct` (UNION) a row is dropped if it has occurred before.
    """

    name: str
    number: int
    distinct: bool
    initial: Node
    step: Node

    def __post_init__(self) -> None:
        first, second = ([f.type for f in side.schema] for side in (self.initial, self.step))
        if first != second:
            raise ValueError(f"a recursion over {first} and {second}")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.initial, self.step)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        if inputs[0] is self.initial and inputs[1] is self.step:
            return self
        return replace(self, initial=inputs[0], step=inputs[1])

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(f.name, f.type, True) for f in self.initial.schema))

    def describe(self) -> str:
        return f"recursive {self.name}" + (" distinct" if self.distinct else "")


SAMPLE_METHODS = ("bernoulli", "system", "reservoir")


@dataclass(frozen=True)
class Sample(Unary):
    """A random sample of the rows: a `percent` of them, or `rows` rows.

    bernoulli decides for each row, system for runs of rows; both give about the percentage. reservoir gives the exact
    number. The same `seed` gives the same rows.
    """

    method: str
    rows: int | None
    percent: float | None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.method not in SAMPLE_METHODS or (self.rows is None) == (self.percent is None):
            raise ValueError(f"a sample by {self.method} of {self.rows} rows, {self.percent} percent")

    @property
    def schema(self) -> Schema:
        return self.input.schema

    def needs(self, wanted: set[str]) -> list[set[str]]:
        return [wanted]

    def describe(self) -> str:
        amount = f"{self.rows} rows" if self.rows is not None else f"{self.percent} percent"
        return f"sample {amount} by {self.method}" + (f" seed {self.seed}" if self.seed is not None else "")
