"""Logical nodes of overlapping time windows: `Hop` and `Cumulate`. Each gives a row once per window that contains it.

Both are a `Series` over each row, of window starts or of window ends, so every rule for series applies. They also know
the grid of the windows: `planner/logical/panes.py` uses it to combine aggregates from panes without repeating rows. All
lengths are in microseconds; the time of a row is neither NULL nor infinite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from math import gcd
from typing import Self

from tsql.kernels.expr.nodes import Call, Expr, Literal
from tsql.kernels.expr.types import BIGINT, INTERVAL, TIMESTAMP
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.calendar import TIMESTAMP_MAX, TIMESTAMP_MIN
from tsql.planner.logical.generating import Series
from tsql.planner.logical.nodes import Node


def floor(time: Expr, width: int, offset: int) -> Expr:
    """The start of the pane of a time."""
    return Call("time_floor", (time, Literal(width, BIGINT), Literal(offset, BIGINT)), TIMESTAMP)


def later(time: Expr, by: int) -> Expr:
    """A time moved by `by` microseconds."""
    return Call("+", (time, length(by)), TIMESTAMP) if by else time


def length(by: int) -> Literal:
    return Literal((0, 0, by), INTERVAL)


def margins(slide: int, size: int, offset: int) -> tuple[int, int]:
    """How far a time must be from the first and from the last TIMESTAMP so that all its windows stay in range. There is
    one window of `size` at each point of the grid `offset + n * slide`. With gaps between the windows the margin is a
    little larger, so that the next window is in range too."""
    first = (offset - TIMESTAMP_MIN) % slide
    if slide > size:
        return first, slide
    return first + size - slide, (TIMESTAMP_MAX - size - offset) % slide + size - slide + 1


@dataclass(frozen=True)
class Hop(Series):
    """Adds `column`, the start of a window `[s, s + size)`, for each `s` of the grid `offset + n * slide` whose window
    holds the time."""

    time: Expr = field(kw_only=True)
    slide: int = 0
    size: int = 0
    offset: int = 0

    @classmethod
    def of(cls, input: Node, column: str, time: Expr, slide: int, size: int, offset: int) -> Self:
        first = floor(later(time, slide - size), slide, offset)
        return cls(
            input, column, first, floor(time, slide, offset), length(slide), True, slide, size, offset, time=time
        )

    @property
    def pane(self) -> int:
        """The width of the panes that every window consists of."""
        return gcd(self.slide, self.size)

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        time = change(self.time)
        return self if time is self.time else self.of(self.input, self.column, time, self.slide, self.size, self.offset)

    def describe(self) -> str:
        return f"hop {self.column} of {self.time} slide {self.slide} size {self.size} offset {self.offset}"


@dataclass(frozen=True)
class Cumulate(Series):
    """Adds `column`, the end of a window `[s, s + n * step)`, for each of the windows that begin with the `size` of the
    grid that the time is in, and that hold the time."""

    time: Expr = field(kw_only=True)
    step_size: int = 0
    size: int = 0
    offset: int = 0

    @classmethod
    def of(cls, input: Node, column: str, time: Expr, step: int, size: int, offset: int) -> Self:
        first = later(floor(time, step, offset), step)
        last = later(floor(time, size, offset), size)
        return cls(input, column, first, last, length(step), True, step, size, offset, time=time)

    def map_expressions(self, change: Callable[[Expr], Expr]) -> Self:
        time = change(self.time)
        return (
            self
            if time is self.time
            else self.of(self.input, self.column, time, self.step_size, self.size, self.offset)
        )

    def describe(self) -> str:
        return f"cumulate {self.column} of {self.time} step {self.step_size} size {self.size} offset {self.offset}"
