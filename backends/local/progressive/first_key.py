"""What the zones of units tell of the first sort key, before the units are read: in which order they are read, and
which rows no unread unit can hold a row before.

The rank of a row is a double that is larger the earlier the row comes by its first key: the key, or the negative key in
ascending order; NULLs are at the end where they sort. Equal ranks say nothing, so rounding is harmless as long as it
never swaps two keys. A unit has the rank of the best row that it may hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.populations import Populations, whole_numbers
from tsql.backends.local.progressive.ranges import may_be_null, range_of
from tsql.backends.local.progressive.units import SplitUnits, Units
from tsql.backends.local.progressive.zones import Zone
from tsql.kernels.expr.nodes import Column, Expr, SortKey
from tsql.kernels.expr.types import Type

SLACK = 4e-16
"""Bounds of a computed key are wider by this part of them: a decimal is rounded when it becomes a double."""


class FirstKey:
    """best: the rank of each unit; None if nothing is known. bounds: what no row of a unit can be before, which is the
    same where it is proven and infinite elsewhere."""

    def __init__(self, key: SortKey, origin: Expr | None, units: Units):
        """`origin`: the key over the columns of the scan, if it comes from there."""
        self.key = key
        self.zone: Zone | None = None
        self.best = None if origin is None else self._best(origin, units)
        self.bounds = np.full(units.count, np.inf)
        if origin is not None and self.best is not None and self._is_proven(origin, units):
            self.bounds = self.best

    def _best(self, origin: Expr, units: Units) -> np.ndarray | None:
        ends: tuple[np.ndarray, np.ndarray] | None = None
        slack = 0.0
        if isinstance(origin, Column):
            self.zone = units.zone(origin.name)
            if self.zone is not None and self.zone.dictionary is not None:
                ends = self.zone.lows.astype(np.float64), self.zone.highs.astype(np.float64)
            elif self.zone is not None and is_ranked(self.zone.type):
                ends = self.zone.doubles()
        elif origin.type.is_numeric and origin.type.bits <= 64:
            ends, slack = range_of(origin, units.zone, units.count), SLACK
        if ends is None:
            return None
        found = ends[1] if self.key.descending else -ends[0]
        with np.errstate(invalid="ignore"):
            found = found + slack * np.abs(found)
        return np.where(np.isnan(found), np.inf, found)

    def _is_proven(self, origin: Expr, units: Units) -> bool:
        """Whether no row of a unit is before its rank: no NULL, and no NaN, which is above all numbers and left out of
        the statistics of files."""
        if self.key.nulls_first and may_be_null(origin, units.zone):
            return False
        has_floats = any(isinstance(node, Column) and node.type.is_float for node in origin.walk())
        return not (self.key.descending and has_floats and isinstance(units, SplitUnits))

    def ranks(self, keys: pa.Array) -> np.ndarray:
        """The ranks of rows."""
        if self.best is None:
            return np.full(len(keys), -np.inf)
        values = self._numbers(keys)
        ranks = np.where(np.isnan(values), np.inf, values) if self.key.descending else -values
        ranks = np.where(np.isnan(ranks), -np.inf, ranks)
        if keys.null_count:
            nulls = np.asarray(keys.is_null())
            ranks[nulls] = np.inf if self.key.nulls_first else -np.inf
        return ranks

    def _numbers(self, keys: pa.Array) -> np.ndarray:
        type = self.key.expr.type
        if self.zone is not None and self.zone.dictionary is not None:
            return Populations(0, self.zone).keys_of(keys).astype(np.float64)
        if type.is_float:
            return keys.to_numpy(zero_copy_only=False).astype(np.float64)
        numbers = whole_numbers(keys, type).astype(np.float64)
        return numbers / 10.0**type.scale if type.is_decimal else numbers


def is_ranked(type: Type) -> bool:
    """Whether values of a type have ranks."""
    return type.is_integer or type.is_decimal or type.is_temporal or type.is_float
