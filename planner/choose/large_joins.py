"""Joins of two large sides, which make progress by their keys: while one side is built, there is nothing to show."""

from __future__ import annotations

from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.progressive import Progressive
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven_keys import can_be_parted

BUILT_SHARE, WAITED_MS = 0.25, 200.0
"""Building a side keeps a scan waiting if it has so large a share of the rows of the other side, and if the join takes
so long: then it is faster to look for the rows of some keys on both sides. The same time counts where no scan could
make the progress."""


def large_join(root: Step, found: Step | None, estimator: Estimator) -> HashJoin | None:
    """The join that makes better progress by its keys; None if none does. `found`: the plan in which a scan makes the
    progress, if there is one."""
    waiting = None if found is None else _path_of(found)
    best, most = None, WAITED_MS * 1e6
    for step in root.walk():
        if not isinstance(step, HashJoin) or not can_be_parted(step):
            continue
        built = 0 if step.build == "left" else 1
        if waiting is not None:
            scans = (one for one in step.inputs[1 - built].walk() if isinstance(one, Scan))
            rows = [estimator.of(side).rows for side in step.inputs]
            if not any(id(one.source) in waiting for one in scans) or rows[built] < BUILT_SHARE * rows[1 - built]:
                continue
        time = estimator.total(step).elapsed_ns
        if time >= most:
            best, most = step, time
    return best


def _path_of(found: Step) -> set[int]:
    """The sources of the scans that make the progress."""
    return {id(one.inputs[0].source) for one in found.walk()
            if isinstance(one, Progressive) and isinstance(one.inputs[0], Scan)}  # fmt: skip
