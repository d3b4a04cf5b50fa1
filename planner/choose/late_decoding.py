"""mark_late: chooses the file scans that decode some columns only for the rows that pass the filters and joins
above."""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.logical.sources import reads_late
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step, rebuild


def mark_late(root: Step, estimator: Estimator) -> Step:
    """The plan with `late=yes` on each scan that supports it and is expected to gain: few of its rows pass the filters
    above, or a join probes for partners early."""
    users: dict[int, list[Step]] = {}
    for step in root.walk():
        for child in step.inputs:
            users.setdefault(id(child), []).append(step)

    def mark(old: Step, new: Step) -> Step:
        if (
            isinstance(new, Scan)
            and new.ranges is None
            and new.progress is None
            and len(new.columns) > 1
            and reads_late(new.source)
            and _gains(old, users, estimator)
        ):
            return replace(new, late=True)
        return new

    return rebuild(root, mark)


def _adds_up(step: Step, users: dict[int, list[Step]]) -> bool:
    """Whether the rows of a scan pass only filters on their way to an aggregate with one group. Filters then need no
    branches, all columns are decoded, and late decoding would cost more than it saves."""
    above = users.get(id(step), ())
    while len(above) == 1 and len(above[0].inputs) == 1 and above[0].streamed == 0:
        above = users.get(id(above[0]), ())
    return len(above) == 1 and isinstance(above[0], Aggregate) and not above[0].by


def _gains(scan: Step, users: dict[int, list[Step]], estimator: Estimator) -> bool:
    if _adds_up(scan, users):
        return False
    rows, step = estimator.of(scan).rows, scan
    while len(users.get(id(step), ())) == 1:
        (above,) = users[id(step)]
        if above.streamed is None or above.inputs[above.streamed] is not step:
            return False
        if above.spares(estimator.of(above).rows, rows):
            return True
        step = above
    return False
