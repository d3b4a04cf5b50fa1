"""Bounds of the values of groups of which a sample of rows is known: from quantiles of the sample, from its replicates,
and from what is proven."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.bootstrap import REPLICATES, errors, replicates
from tsql.backends.local.progressive.confidence import BOUNDED_BATCHES, LEAST_BATCHES
from tsql.backends.local.progressive.group_codes import GroupCodes, group_codes
from tsql.backends.local.progressive.quantiles import Bounds, Width, quantile_bounds
from tsql.backends.local.progressive.samples import Sample
from tsql.backends.local.run.host import Chunk
from tsql.planner.progressive.row_plans import GROUP, REPLICATE, GivenPlan, RowPlans, argument, replicated
from tsql.planner.progressive.row_values import RowValue

Computed = Callable[[GivenPlan, list[list[Chunk]]], pa.Table]
"""The rows of a plan over these rows."""


class RowBounds:
    """Of the groups of a sample. most: its rows that may be replicated. shards: in which plans run. width: the half
    width of bounds in errors, by the number of units."""

    def __init__(self, plans: RowPlans, sample: Sample, most: int, computed: Computed, shards: int, width: Width):
        self.plans, self.sample, self.most = plans, sample, most
        self.computed, self.shards, self.width = computed, shards, width

    @cached_property
    def _rows(self) -> dict[str, pa.Array]:
        """The rows of the sample that reach the groups: their places, their keys, and what quantiles are of."""
        table = self.computed(self.plans.rows, self.sample.chunks(self.shards)).combine_chunks()
        return {name: _whole(table.column(place)) for place, name in enumerate(self.plans.rows.plan.columns)}

    @cached_property
    def groups(self) -> GroupCodes:
        keys = [column for name, column in self._rows.items() if name.startswith("#key ")]
        return group_codes(np.asarray(self._rows[GROUP]), keys, self.sample.batch, self.sample.batches)

    def of(self, value: RowValue, middle: np.ndarray, of: np.ndarray, hidden: dict[str, pa.ChunkedArray]) -> Bounds:
        """The bounds of a value in each row of the result; NaN where there are none. middle: the value; of: the row's
        group; hidden: the other columns of the result."""
        low = high = np.full(len(middle), np.nan)
        if value.quantile is not None:
            low, high = (_of_groups(one, of) for one in self._quantiles(value.quantile))
        elif value.place in self._reach:
            down, up = (_of_groups(one, of) for one in self._reach[value.place])
            low, high = middle - down, middle + up
        if value.proof is not None:
            least, most = (doubles(hidden[name]) for name in self.plans.proofs[value.place])
            proven = np.isfinite(least) & np.isfinite(most) & np.isfinite(middle)
            low = np.where(proven, np.minimum(np.fmax(low, least), most), low)
            high = np.where(proven, np.maximum(np.fmin(high, most), least), high)
        return low, high

    def _quantiles(self, call: str) -> Bounds:
        """The bounds of a quantile in each group."""
        values = self._rows[argument(call)]
        there = np.asarray(values.is_valid())
        known, rows = np.asarray(values.filter(pa.array(there)), np.float64), np.asarray(self._rows[GROUP])[there]
        return quantile_bounds(known, rows, self.groups, self.plans.quantiles[call], self.sample.share, self.width)

    @cached_property
    def _reach(self) -> dict[int, Bounds]:
        """How far the bounds that replicates of the sample give reach down and up, by column and group; NaN where there
        are none."""
        plan, sample, groups = self.plans.replicates, self.sample, self.groups
        part = None if plan is None or sample.rows == 0 else sample.part(self.most)
        if plan is None or part is None:
            return {}
        table = self.computed(plan, replicates(part, plan.given.schema.names, self.shards))
        codes, number = groups.of(table[GROUP]), np.asarray(table[REPLICATE])
        seen = groups.part(part.batches)
        smaller = part.source_rows.sum() / sample.source_rows.sum() * (1 - sample.share)
        # Both the units and the replicates are few: the inverses of their degrees of freedom add up.
        freedom = 1 / (1 / np.maximum(seen - 1, 1) + 1 / (REPLICATES - 1))
        found = {}
        for place, value in self.plans.values.items():
            if value.is_replicated:
                error, bias = errors(number, codes, doubles(table[replicated(place)]), groups.groups, part.batches)
                least = min(BOUNDED_BATCHES, part.batches) if value.grows else LEAST_BATCHES
                enough = seen >= max(least, LEAST_BATCHES)
                reach = np.where(enough, self.width(freedom + 1) * error * np.sqrt(smaller), np.nan)
                found[place] = reach + np.fmax(bias * smaller, 0), reach + np.fmax(-bias * smaller, 0)
        return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _of_groups(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The values of groups, by their number; NaN for none."""
    return np.append(values, np.nan)[of]


def doubles(column: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers; NaN for NULL, and for what is no number."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return np.full(len(column), np.nan)
    return column.cast(pa.float64(), False).to_numpy().astype(np.float64)


def nullable(values: np.ndarray) -> pa.ChunkedArray:
    """Numbers as a column; NULL for what is not finite."""
    return pa.chunked_array([pa.array(values, mask=~np.isfinite(values))])


def answer_of(kind: str, middle: np.ndarray, low: np.ndarray, high: np.ndarray) -> pa.ChunkedArray:
    """What lower_bound and its like give."""
    if kind == "is_certain":
        return pa.chunked_array([pa.array(low == high)])
    if kind == "relative_error":
        with np.errstate(divide="ignore", invalid="ignore"):
            return nullable(np.where(low == high, 0.0, (high - low) / 2 / np.abs(middle)))
    return nullable(low if kind == "lower_bound" else high)
