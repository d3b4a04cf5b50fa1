"""Decides whether a scan reads its files in the order of a time (`progress`), so that groups can be closed as time
passes.

A candidate is a plan with one source that knows the bounds of its parts, and with an aggregate or windows keyed by a
time of that source. Progress saves memory but costs some time: each part of the input is held until its time has
passed. So only large states use it. Files that are not in the order of the time are read in another order, so progress
is not used where the result depends on their order."""

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
"""Bytes of a table entry besides the columns of its group."""


def with_progress(root: Step, estimator: Estimator, memory_limit: int | None) -> Step:
    """The plan, with `progress` on its scan where that is worth it."""
    scans = [s for s in root.walk() if isinstance(s, Scan)]
    if len(scans) != 1 or scans[0].ranges is not None:
        return root
    scan = scans[0]
    columns = [c for c in scan.columns if has_progress(scan.source, c, scan.columns)]
    if memory_limit is not None and cost.PROGRESS_ROWS * cost.PROGRESS_OVERLAP * width(scan.schema) > memory_limit / 2:
        return root  # the held input would not fit either, and cannot be spilled
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
    """Whether a step can close its groups or windows as a time of the scan passes."""

    def known(below: Step) -> Progress | None:
        return Progress({column: 0}) if below is scan else Progress() if not below.inputs else None

    return step.closes(lambda: through(step.inputs[0], known))


def is_in_order(scan: Scan, column: str) -> bool:
    """Whether the time ranges of a source's parts hardly overlap."""
    bounds = [scan.source.split_bounds(split, column) for split in scan.source.splits(scan.columns, scan.where)]
    if len(bounds) < cost.PROGRESS_PARTS or None in bounds:
        return False
    whole = max(high for _, high in bounds) - min(low for low, _ in bounds)
    return bool(sum(high - low for low, high in bounds) <= cost.PROGRESS_OVERLAP * whole)


def depends_on_order(root: Step) -> bool:
    """Whether a step of the plan depends on the order of its input: the first row of a group, ties, the first n
    rows."""
    return any(s.depends_on_order for s in root.walk())


def keeps_order(scan: Scan, column: str) -> bool:
    """Whether the parts of a source are already in the order of their least times."""
    lows = [
        bounds[0]
        for split in scan.source.splits(scan.columns, scan.where)
        if (bounds := scan.source.split_bounds(split, column)) is not None
    ]
    return lows == sorted(lows)


def _bytes(step: Step, estimator: Estimator) -> float:
    """The approximate memory of a step's groups, or of the panes of its windows."""
    return estimator.of(step.held).rows * (width(step.held.schema) + ENTRY_BYTES)
