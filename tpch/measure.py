"""Runs the same work on several engines in turn, reports times as ratios with their spread, and compares answers. Used
by every benchmark."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Times:
    """The measured runs of one piece of work, in milliseconds."""

    runs_ms: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.runs_ms)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.runs_ms):.2f}..{max(self.runs_ms):.2f})"

    @property
    def spread(self) -> Spread:
        return Spread.of(self.runs_ms)


@dataclass(frozen=True)
class Spread:
    """The median of some numbers, with the first and third quartile."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(low, median, high)

    @classmethod
    def mean(cls, spreads: Sequence[Spread]) -> Spread:
        """The geometric means of the quartiles and of the medians."""
        return cls(
            geometric_mean(s.low for s in spreads),
            geometric_mean(s.median for s in spreads),
            geometric_mean(s.high for s in spreads),
        )

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.low)}..{short(self.high)})"


def ratios(theirs: Times, ours: Times) -> Spread:
    """How many times longer they take than we do. Runs of the same round are compared: what slows the machine slows
    both."""
    return Spread.of([a / b for a, b in zip(theirs.runs_ms, ours.runs_ms, strict=True)])


def geometric_mean(values: Iterable[float]) -> float:
    """The mean for ratios and for times of different size."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def short(value: float) -> str:
    """A number with about three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def interleaved(
    work: Mapping[str, Callable[[], object]], runs: int, warmup: int = 2, least_ms: float = 0.0
) -> dict[str, Times]:
    """Time each piece of work `runs` times, taking turns; see `taking_turns`."""
    return taking_turns({name: partial(_timed, call) for name, call in work.items()}, runs, warmup, least_ms)


def taking_turns(
    work: Mapping[str, Callable[[], float]], runs: int, warmup: int = 2, least_ms: float = 0.0
) -> dict[str, Times]:
    """Do each piece of work, which returns its own milliseconds, `runs` times in turn, so that a slow moment of the
    machine affects all of them.

    The order rotates from round to round. Short work gets more rounds, until each has been timed for `least_ms` in
    total."""
    for _ in range(warmup):
        for call in work.values():
            call()
    taken: dict[str, list[float]] = {name: [] for name in work}
    names = list(work)
    gc.collect()
    gc.disable()
    try:
        turn = 0
        while turn < runs or (turn < 50 * runs and any(sum(times) < least_ms for times in taken.values())):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                taken[name].append(work[name]())
            turn += 1
    finally:
        gc.enable()
    return {name: Times(tuple(times)) for name, times in taken.items()}


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    result = call()
    spent = (time.perf_counter() - start) * 1000
    del result
    return spent


def difference(left: pa.Table, right: pa.Table, ordered: bool) -> str | None:
    """Why two answers differ, or None. Decimals and integers must be equal, floats within 1e-9 of each other."""
    if left.column_names != right.column_names:
        return f"columns {left.column_names} and {right.column_names}"
    if left.num_rows != right.num_rows:
        return f"{left.num_rows} and {right.num_rows} rows"
    left, right = plain(left), plain(right)
    if left.schema.types != right.schema.types:
        return f"types {left.schema.types} and {right.schema.types}"
    if not ordered:
        keys = [(name, "ascending") for name in left.column_names]
        left, right = left.sort_by(keys), right.sort_by(keys)
    for name in left.column_names:
        a, b = left.column(name).combine_chunks(), right.column(name).combine_chunks()
        if pa.types.is_floating(a.type):
            same = a.is_null().equals(b.is_null()) and np.allclose(
                pc.fill_null(a, 0).to_numpy(), pc.fill_null(b, 0).to_numpy(), rtol=1e-9, atol=1e-12, equal_nan=True
            )
        else:
            same = a.equals(b)
        if not same:
            return f"column {name} differs"
    return None


def plain(table: pa.Table) -> pa.Table:
    """The table with plain strings: dictionaries, large strings and views are the same answer in another form."""
    columns = []
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            kind = pa.string()
        columns.append(column if kind == column.type else column.cast(kind))
    return pa.table(columns, names=table.column_names)
