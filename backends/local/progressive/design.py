"""The design of a sample: what the zones of its units tell before any of them is read.

- `empty`: units that the conditions rule out; they are no part of the sample.
- `certain`: units that are read first and counted in full. Where a measure reaches far, a few units may have most of a
  sum, and a random sample that misses them is wrong.
- `populations`: in which units a group may be.
- `rest`: between which bounds the units that were not read lie for each measure."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from tsql.backends.local.progressive.populations import Populations, Sums
from tsql.backends.local.progressive.ranges import ZoneOf, always, may_be_null, never, range_of
from tsql.backends.local.progressive.zones import Zone, joined_zone
from tsql.kernels.expr.nodes import Literal
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.progressive.measures import Measure
from tsql.planner.progressive.origins import Origins

CERTAIN_SHARE = 0.03
"""At most this share of the units is read first and counted in full."""
FAR = 1.5
"""Only units that reach so many times as far as the median one are."""
LEAST_UNITS = 200
"""Of fewer units, none is: they would be too few to say how much the others differ."""


@dataclass(frozen=True)
class Reach:
    """What one row of a unit adds to a measure, at least and at most; `whole`: all rows of the unit add something."""

    lows: np.ndarray
    highs: np.ndarray
    whole: np.ndarray


class Design:
    """rows: of each unit. zone: of a column of the scan. measures: of which something may be known. keys: the zones of
    the group keys. knows_rows: the rows of the units are exact; otherwise they say nothing of what is left."""

    def __init__(
        self,
        rows: np.ndarray,
        zone: ZoneOf,
        origins: Origins,
        measures: tuple[Measure, ...],
        keys: list[Zone | None],
        knows_rows: bool = True,
    ):
        self.zone, self.origins, self.measures, self.knows_rows = zone, origins, measures, knows_rows
        self._begin(rows, keys)

    def _begin(self, rows: np.ndarray, keys: list[Zone | None]) -> None:
        self.rows, self.keys = rows, keys
        self.units = len(rows)
        self.is_grouped = bool(keys)
        self.populations = Populations.best(keys) if keys else None
        single = keys[0] if len(keys) == 1 and self.populations is not None else None
        self.one_key = None if single is None else (single.lows == single.highs)
        """The units whose rows are all of one group, where that is known."""

    @cached_property
    def empty(self) -> np.ndarray:
        """The units that no row passes."""
        found = np.zeros(self.units, np.bool_)
        for condition in self.origins.conditions:
            found |= never(condition, self.zone, self.units)
        return found

    @cached_property
    def full(self) -> np.ndarray:
        """The units that all rows pass."""
        found = np.full(self.units, self.origins.is_plain and self.knows_rows)
        for condition in self.origins.conditions:
            found &= always(condition, self.zone, self.units)
        return found

    @cached_property
    def reaches(self) -> dict[str, Reach]:
        """By measure, where it is known."""
        if not (self.origins.is_plain and self.knows_rows):
            # A join may make many rows of one.
            return {}
        found = {}
        for measure in self.measures:
            reach = self._reach(measure)
            if reach is not None and np.all(np.isfinite(reach.lows)) and np.all(np.isfinite(reach.highs)):
                found[measure.name] = reach
        return found

    def _reach(self, measure: Measure) -> Reach | None:
        if measure.each is None:
            return None
        each = self.origins.of(measure.each)
        if each is None:
            return None
        counts = isinstance(each, Literal)
        ends = (np.ones(self.units), np.ones(self.units)) if counts else range_of(each, self.zone, self.units)
        if ends is None:
            return None
        lows, highs = ends
        if measure.is_square:
            crosses = (lows < 0) & (highs > 0)
            squares = lows * lows, highs * highs
            lows, highs = np.where(crosses, 0.0, np.minimum(*squares)), np.maximum(*squares)
        whole = self.full.copy()
        nullable = measure.counted if measure.counted is not None else measure.each
        source = self.origins.of(nullable)
        is_one = isinstance(source, Literal)
        if measure.is_filtered or source is None or not (is_one or not may_be_null(source, self.zone)):
            whole[:] = False
        return Reach(lows, highs, whole)

    @cached_property
    def certain(self) -> np.ndarray:
        """The units that are read first, by how far their rows reach for a measure."""
        none = np.zeros(self.units, np.bool_)
        if self.units < LEAST_UNITS:
            return none
        far = np.zeros(self.units)
        for reach in self.reaches.values():
            size = self.rows * (reach.highs - reach.lows)
            middle = float(np.median(size[~self.empty])) if not np.all(self.empty) else 0.0
            if middle > 0:
                far = np.maximum(far, size / middle)
        far[self.empty] = 0.0
        most = int(CERTAIN_SHARE * self.units)
        chosen = np.argsort(-far, kind="stable")[:most]
        none[chosen[far[chosen] > FAR]] = True
        return none


class PlainDesign(Design):
    """A sample of which nothing is known before it is read."""

    def __init__(self, units: int, is_grouped: bool):
        self.rows, self.units, self.is_grouped = np.ones(units, np.int64), units, is_grouped
        self.populations = self.one_key = None

    @cached_property
    def empty(self) -> np.ndarray:
        return np.zeros(self.units, np.bool_)

    @cached_property
    def full(self) -> np.ndarray:
        return self.empty

    @cached_property
    def reaches(self) -> dict[str, Reach]:
        return {}


class JoinedDesign(Design):
    """The designs of several scans, whose units are one sample."""

    def __init__(self, parts: list[Design]):
        self.parts = parts
        keys = [joined_zone(list(zones)) for zones in zip(*(part.keys for part in parts), strict=True)]
        self._begin(np.concatenate([part.rows for part in parts]), keys)

    @cached_property
    def empty(self) -> np.ndarray:
        return np.concatenate([part.empty for part in self.parts])

    @cached_property
    def full(self) -> np.ndarray:
        return np.concatenate([part.full for part in self.parts])

    @cached_property
    def reaches(self) -> dict[str, Reach]:
        found = {}
        for name in self.parts[0].reaches:
            mine = [part.reaches.get(name) for part in self.parts]
            known = [one for one in mine if one is not None]
            if len(known) == len(mine):
                ends = (np.concatenate(arrays) for arrays in zip(*((r.lows, r.highs, r.whole) for r in known)))
                found[name] = Reach(*ends)
        return found


class Rest:
    """What the units that were not read can still add to a measure of a group: at least and at most."""

    def __init__(self, design: Design, unread: np.ndarray):
        """`unread`: the units, by number."""
        self.design, self.unread = design, unread
        populations = design.populations
        self.lows = None if populations is None else populations.zone.lows[unread]
        self.highs = None if populations is None else populations.zone.highs[unread]

    def bounds(self, name: str, keys: np.ndarray | None) -> tuple[np.ndarray | float, np.ndarray | float]:
        """For each of the groups with these keys, or for all of them."""
        d, unread = self.design, self.unread
        reach = d.reaches[name]
        rows = d.rows[unread].astype(np.float64)
        low, high = rows * reach.lows[unread], rows * reach.highs[unread]
        some_low, some_high = np.minimum(0.0, low), np.maximum(0.0, high)
        whole = reach.whole[unread]
        if keys is None:
            if d.is_grouped:
                return float(some_low.sum()), float(some_high.sum())
            return float(np.where(whole, low, some_low).sum()), float(np.where(whole, high, some_high).sum())
        assert self.lows is not None and self.highs is not None
        lowest, highest = (Sums(self.lows, self.highs, some).of(keys) for some in (some_low, some_high))
        if d.one_key is not None:
            mine = whole & d.one_key[unread]
            if np.any(mine):
                at = self.lows[mine]
                lowest += Sums(at, at, (low - some_low)[mine]).of(keys)
                highest += Sums(at, at, (high - some_high)[mine]).of(keys)
        return lowest, highest

    def ends(self, name: str) -> tuple[float, float]:
        """The least and the greatest value that a row of them may add; infinite where none is left."""
        reach, some = self.design.reaches[name], self.unread
        if len(some) == 0:
            return np.inf, -np.inf
        return float(reach.lows[some].min()), float(reach.highs[some].max())


def arrays_of(values: np.ndarray | float, rows: int) -> pa.Array:
    """A hidden column."""
    full = np.full(rows, values, np.float64) if np.ndim(values) == 0 else np.ascontiguousarray(values, np.float64)
    return pa.array(full)
