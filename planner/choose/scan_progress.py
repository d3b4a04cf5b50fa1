"""Decides where a scan reads its files in the order of a time (`progress`): where groups that a time closes would take
much memory.

A plan with one source that can tell the bounds of its parts, and an aggregate or windows among whose keys is a time of
it, is a candidate. It pays in memory and costs some time (each part of the input is held until its time has passed), so
that only large states ask for it. Files that are not in the order of the time are then read in another order than they
have: not where the result depends on it."""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.cost import constants as cost
from tsql.planner.logical.sources import has_progress
from tsql.planner.physical.estimate import width
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.progress import Progress
from tsql.planner.physical.step import Step, rebuild, through

ENTRY_BYTES = 16
"""What a table needs for a group besides its columns."""


def with_progress(root: Step, estimator: Estimator, memory_limit: int | None) -> Step:
    """The plan, with `progress` on its scan where that is worth it."""
    scans = [s for s in root.walk() if isinstance(s, Scan)]
    if len(scans) != 1 or scans[0].ranges is not None:
        return root
    scan = scans[0]
    columns = [c for c in scan.columns if has_progress(scan.source, c, scan.columns)]
    if memory_limit is not None and cost.PROGRESS_ROWS * cost.PROGRESS_OVERLAP * width(scan.schema) > memory_limit / 2:
        return root  # what is held would not fit either, and cannot be spilled
    allowed = min(cost.PROGRESS_BYTES, cost.PROGRESS_BYTES if memory_limit is None else memory_limit // 4)
    for column in columns:
        closed = [s for s in root.walk() if closes(s, scan, column)]
        if (
            any(_bytes(s, estimator) > allowed for s in closed)
            and is_in_order(scan, column)
            and (not depends_on_order(root) or keeps_order(scan, column))
        ):
            return _with_column(root, scan, column)
    return root


def _with_column(root: Step, scan: Scan, column: str) -> Step:
    ordered = replace(scan, progress=column)
    return rebuild(root, lambda old, new: ordered if old is scan else new)


def closes(step: Step, scan: Scan, column: str) -> bool:
    """Whether the groups or windows of a step are over when a time of a scan has passed them."""

    def known(below: Step) -> Progress | None:
        return Progress({column: 0}) if below is scan else Progress() if not below.inputs else None

    return step.closes(lambda: through(step.inputs[0], known))


def is_in_order(scan: Scan, column: str) -> bool:
    """Whether the parts of a source hardly overlap in a time."""
    bounds = [scan.source.split_bounds(split, column) for split in scan.source.splits(scan.columns, scan.where)]
    if len(bounds) < cost.PROGRESS_PARTS or None in bounds:
        return False
    whole = max(high for _, high in bounds) - min(low for low, _ in bounds)
    return bool(sum(high - low for low, high in bounds) <= cost.PROGRESS_OVERLAP * whole)


def depends_on_order(root: Step) -> bool:
    """Whether some step of a plan tells rows apart by their places in the input: the first of a group, ties, the first
    so many."""
    return any(s.depends_on_order for s in root.walk())


def keeps_order(scan: Scan, column: str) -> bool:
    """Whether the parts of a source are in the order of their least times as they lie."""
    lows = [
        bounds[0]
        for split in scan.source.splits(scan.columns, scan.where)
        if (bounds := scan.source.split_bounds(split, column)) is not None
    ]
    return lows == sorted(lows)


def _bytes(step: Step, estimator: Estimator) -> float:
    """What the groups of a step, or the panes of its windows, take, about."""
    return estimator.of(step.held).rows * (width(step.held.schema) + ENTRY_BYTES)
