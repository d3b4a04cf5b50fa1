"""Counts how often the bounds of snapshots hold: for each group and value, at every look, over the whole run, and where
a query stops by itself. Called by `bench/coverage.py` and by tests.

Only `relation.snapshots()` is used. What a run with UNTIL ERROR relies on is taken to be the bounds that it shows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

import tsql
from bench.snapshots.kinds import STOPPING, TOGETHER, VALUES, Kind, exact

LOOKS = 20
"""A snapshot is counted with those of the nearest twentieth of the input."""
TENTH = LOOKS // 10
ROUNDING = 1e-9
"""Sums in another order differ by this share."""
NEVER = "0.000000000001"
"""An error that no estimate has: such a query looks until the end."""


def _zeros() -> np.ndarray:
    return np.zeros(LOOKS, np.int64)


@dataclass
class Cell:
    """The counts of one value of one kind of data. A value of a group at a look is `shown`, `bounded` if it has bounds,
    and `held` if they hold the exact result."""

    shown: np.ndarray = field(default_factory=_zeros)
    bounded: np.ndarray = field(default_factory=_zeros)
    held: np.ndarray = field(default_factory=_zeros)
    runs: int = 0
    """Runs in which the value of a group had bounds at some look, with bounds for all looks together."""
    runs_held: int = 0
    """Those in which they held at every look."""
    asked: int = 0
    """Values in runs that may stop."""
    stopped: int = 0
    """Those in runs that did before the end."""
    stopped_held: int = 0
    stopped_close: int = 0
    """Those that were as close to the exact result as was asked."""
    errors: list[float] = field(default_factory=list)
    """Half the widths of bounds as shares of the value, at a tenth of the input."""
    progress: list[float] = field(default_factory=list)
    """How much of the input had been read at a stop."""
    note: str = ""

    def add(self, other: Cell) -> None:
        """Count what the other one has counted too."""
        for one in fields(self):
            if one.name == "note":
                self.note = self.note or other.note
            else:
                setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


Cells = dict[tuple[str, str], Cell]
"""By the name of the cell's groups, and the value."""


class Counting:
    """One kind of data in a session, and the counts of its cells."""

    def __init__(self, kind: Kind, rows: int, every: float = 100 / LOOKS, values: Iterable[str] = tuple(VALUES)):
        self.kind, self.every = kind, every
        tables = kind.tables(rows)
        self.values = tuple(values)
        self.exact = exact(kind, tables, self.values)
        self.db = tsql.connect(threads=1)
        for name, table in tables.items():
            self.db.register(f"{name}_arrow", table)
            self.db.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
        self.cells: Cells = {(kind.cell(group), value): Cell() for group in sorted(self.exact) for value in self.values}
        self.notes = dict.fromkeys(self.values, "final only")
        for values in self._asked(TOGETHER, self.values):
            # A value that cannot progress keeps those beside it from it.
            if not self._probe(values) and len(values) > 1:
                for value in values:
                    self._probe((value,))
        self.bounded = [value for value in self.values if not self.notes[value]]
        for (_, value), cell in self.cells.items():
            cell.note = self.notes[value]

    def close(self) -> None:
        self.db.close()

    def _probe(self, values: tuple[str, ...]) -> bool:
        """Note which values have bounds before the end for any group, and tell whether the query progresses. Where they
        have none, there is nothing to count."""
        progresses = False
        for snap in self._snapshots(values, 0):
            if not snap.is_final:
                progresses = True
                for value in values:
                    has = value in snap.bounds and snap.bounds[value].lower.null_count < snap.table.num_rows
                    self.notes[value] = "" if has or not self.notes[value] else "no bounds"
        return progresses

    def _snapshots(self, values: Iterable[str], seed: int, rest: str | None = None) -> Iterator[Any]:
        clause = rest or f"EVERY {self.every:g} PERCENT"
        with self.db.sql(f"{self.kind.query(values)} PROGRESSIVE {clause} SEED {seed}").snapshots() as snapshots:
            yield from snapshots

    def looks(self, seed: int) -> None:
        """Count at every look of a run."""
        for values in self._asked(TOGETHER, self.bounded):
            for snap in self._snapshots(values, seed):
                if not snap.is_final:
                    self._look(snap, values)

    def _look(self, snap: Any, values: tuple[str, ...]) -> None:
        place = min(round(snap.progress * LOOKS), LOOKS - 1)
        for value in values:
            found = self._found(snap, value)
            for group in self.exact:
                cell = self.cells[self.kind.cell(group), value]
                cell.shown[place] += 1
                if group in found:
                    estimate, low, high = found[group]
                    cell.bounded[place] += 1
                    cell.held[place] += holds(low, self.exact[group][value], high)
                    if place == TENTH and estimate:
                        cell.errors.append((high - low) / 2 / abs(estimate))

    def whole_run(self, seed: int) -> None:
        """Count over all looks of a run that may stop at each of them, and does not."""
        for values in self._asked(TOGETHER, self.bounded):
            held: dict[tuple[int, str], bool] = {}
            for snap in self._snapshots(values, seed, f"EVERY {self.every:g} PERCENT UNTIL ERROR <= {NEVER}"):
                if snap.is_final:
                    continue
                for value in values:
                    for group, (_, low, high) in self._found(snap, value).items():
                        here = holds(low, self.exact[group][value], high)
                        held[group, value] = held.get((group, value), True) and here
            for (group, value), always in held.items():
                cell = self.cells[self.kind.cell(group), value]
                cell.runs += 1
                cell.runs_held += always

    def stop(self, seed: int, error: float) -> None:
        """Count where runs stop."""
        for values in self._asked(STOPPING, self.bounded):
            *_, last = self._snapshots(values, seed, f"UNTIL ERROR <= {error:g}")
            for value in values:
                found = self._found(last, value)
                for group, results in self.exact.items():
                    cell, true = self.cells[self.kind.cell(group), value], results[value]
                    cell.asked += 1
                    if last.is_final or group not in found:
                        continue
                    estimate, low, high = found[group]
                    cell.stopped += 1
                    cell.stopped_held += holds(low, true, high)
                    cell.stopped_close += abs(estimate - true) <= error * abs(estimate) * (1 + ROUNDING)
                    cell.progress.append(last.progress)

    def _asked(self, lists: Iterable[tuple[str, ...]], of: Collection[str]) -> list[tuple[str, ...]]:
        chosen = [tuple(value for value in values if value in of) for values in lists]
        return [values for values in chosen if values]

    def _found(self, snap: Any, value: str) -> dict[int, tuple[float, float, float]]:
        """The value of each group with its bounds, where it has bounds."""
        if value not in snap.bounds:
            return {}
        bounds, column = snap.bounds[value], snap.table[value].cast(pa.float64())
        rows = zip(snap.table["g"].to_pylist(), column.to_pylist(), bounds.lower.to_pylist(), bounds.upper.to_pylist())
        return {
            group: (estimate, low, high)
            for group, estimate, low, high in rows
            if estimate is not None and low is not None and high is not None and math.isfinite(high - low)
        }


def holds(low: float, true: float, high: float) -> bool:
    """Whether a value is within its bounds, but for the rounding of sums."""
    slack = ROUNDING * abs(true)
    return low - slack <= true <= high + slack


def count(
    kind: Kind, rows: int, seeds: Iterable[int], error: float = 0.02, values: tuple[str, ...] = tuple(VALUES)
) -> Cells:
    """The counts of a kind of data over seeds."""
    counting = Counting(kind, rows, values=values)
    try:
        for seed in seeds:
            counting.looks(seed)
            counting.whole_run(seed)
            counting.stop(seed, error)
    finally:
        counting.close()
    return counting.cells
