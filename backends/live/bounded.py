"""Runs a plan whose scans have `progress`: files are read in time order, and finished results are output and dropped on
the way.

Parts of files (row groups) are read in the order of their minimum time, those with unknown times first, several per
thread at once. After each round, the minimum time of the remaining parts is a punctuation. So the states of a year of
windows are never in memory together, if the files are roughly in order. If they are not, the result is the same but
nothing is dropped early."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.io import Split
from tsql.planner.cost import constants as cost
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.progress import DAY_US
from tsql.planner.physical.step import PhysicalPlan

Timed = tuple[int | None, Split]


def scans_of(plan: PhysicalPlan) -> list[Scan]:
    """The scans that report progress."""
    return [s for s in plan.root.walk() if isinstance(s, Scan) and s.progress is not None]


def batches_by_time(plan: PhysicalPlan, run: Run, interpret: bool = False) -> Iterator[pa.RecordBatch]:
    """The result of a plan with such scans."""
    scans = scans_of(plan)
    from tsql.backends.live.arrivals import Splits
    from tsql.backends.live.query import LiveQuery

    query = LiveQuery(plan, {s.name: s.progress for s in scans}, run, interpret=interpret)
    left = {s.name: timed_splits(s) for s in scans}
    run.total_rows = sum(split.rows or 0 for parts in left.values() for _, split in parts)
    try:
        for scan in scans:
            if not left[scan.name]:
                yield from query.punctuate(scan.name)
        while any(left.values()):
            run.check()
            # Advance the scan that is furthest behind: others wait for it.
            scan = min((s for s in scans if left[s.name]), key=lambda s: _first(left[s.name]))
            parts, left[scan.name] = _round(left[scan.name])
            yield from query.take(scan.name, Splits(scan, parts))
            run.done_rows += sum(split.rows or 0 for split in parts)
            rest = left[scan.name]
            yield from query.punctuate(scan.name, _first(rest) if rest else None)
    finally:
        query.close()


def timed_splits(scan: Scan) -> list[Timed]:
    """The parts of a scan with the minimum time of each (microseconds), in that order; parts without one first."""
    unit = DAY_US if scan.schema[scan.progress].type.name == "DATE" else 1
    found: list[Timed] = []
    for split in scan.source.splits(scan.columns, scan.where):
        bounds = scan.source.split_bounds(split, scan.progress)
        found.append((None if bounds is None else bounds[0] * unit, split))
    return sorted(found, key=lambda one: (one[0] is not None, one[0] or 0, one[1].order))


def _first(parts: list[Timed]) -> int:
    """A lower bound on the times of the rows in these parts."""
    return -(2**63) + 1 if parts[0][0] is None else parts[0][0]


def _round(parts: list[Timed]) -> tuple[list[Split], list[Timed]]:
    """The parts that are read together, and the rest."""
    taken, rows = 0, 0
    while taken < len(parts) and (rows < cost.PROGRESS_ROWS or parts[taken][0] is None):
        rows += parts[taken][1].rows or cost.PROGRESS_ROWS
        taken += 1
    return [split for _, split in parts[:taken]], parts[taken:]
