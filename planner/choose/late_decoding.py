"""mark_late: which scans of files decode some of their columns only for the rows that filters and joins above them
leave."""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.cost import constants as cost
from tsql.planner.cost.estimate import Estimator
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan, reads_late
from tsql.planner.physical.step import Step


def mark_late(root: Step, estimator: Estimator) -> Step:
    """The plan with `late=yes` on each scan that can do it and that is expected to gain: where few of its rows pass the
    filters above it, or a join looks for the partners of its rows early."""
    users: dict[int, list[Step]] = {}
    for step in root.walk():
        for child in step.inputs:
            users.setdefault(id(child), []).append(step)
    done: dict[int, Step] = {}
    for step in root.walk():
        rebuilt = step.with_inputs(tuple(done[id(i)] for i in step.inputs))
        if (
            isinstance(step, Scan)
            and step.ranges is None
            and step.progress is None
            and len(step.columns) > 1
            and reads_late(step.source)
            and _gains(step, users, estimator)
        ):
            rebuilt = replace(rebuilt, late=True)
        done[id(step)] = rebuilt
    return done[id(root)]


def _adds_up(step: Step, users: dict[int, list[Step]]) -> bool:
    """Whether the rows of a scan only pass filters on their way to an aggregate of one group. There filters need no
    branches, all columns are decoded, and what a stage would spare is less than what it costs."""
    while len(users.get(id(step), ())) == 1 and isinstance(users[id(step)][0], Filter | Project):
        step = users[id(step)][0]
    above = users.get(id(step), ())
    return len(above) == 1 and isinstance(above[0], Aggregate) and not above[0].by


def _gains(scan: Scan, users: dict[int, list[Step]], estimator: Estimator) -> bool:
    if _adds_up(scan, users):
        return False
    rows, step = estimator.of(scan).rows, scan
    while len(users.get(id(step), ())) == 1:
        above = users[id(step)][0]
        match above:
            case Project():
                pass
            case Filter():
                if estimator.of(above).rows <= cost.LATE_WORTH * rows:
                    return True
            case HashJoin():
                if above.inputs[0 if above.build == "right" else 1] is not step:
                    return False
                if above.early:
                    return True
            case _:
                return False
        step = above
    return False
