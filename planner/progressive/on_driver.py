"""Whether the driver of a cluster has room for what a snapshot reads: the groups of all tasks, and the rows of the
steps beside them."""

from __future__ import annotations

from tsql.planner.cost import constants as cost
from tsql.planner.physical.estimate import width
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import driven
from tsql.planner.progressive.snapshot_plan import beside

COPIES = 3
"""The driver has each group so many times, before it merges them and while it does."""


def too_much(root: Step, estimator: Estimator) -> str | None:
    """Why a plan that makes progress shows no snapshots on a cluster; None if its driver has room for them."""
    found = driven(root)
    assert found is not None, "groups make its progress"
    if COPIES * estimator.of(found.final).rows * width(found.states) > cost.DRIVER_BYTES:
        return f"the groups of {found.final.name or found.final.suggested_name()} are too many for the driver"
    for step in beside(root, found.final):
        if estimator.of(step).rows * width(step.schema) > cost.DRIVER_BYTES:
            return (
                f"the groups meet the rows of {step.name or step.suggested_name()}, which are too many for the driver"
            )
    return None
