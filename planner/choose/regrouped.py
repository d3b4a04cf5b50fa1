"""Groups that are grouped again. A part of the rows says little of them: not all groups have been met, and the values
of those that have are not complete. A part of the keys has complete groups, and says how many of which kind there
are."""

from __future__ import annotations

from collections.abc import Iterator

from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import driven
from tsql.planner.progressive.driven_keys import DrivenKeys, Parted, can_be_parted


def regrouped(root: Step, found: Step | None) -> Iterator[Parted]:
    """The steps whose keys can make better progress than the rows of a scan do in the plan `found`, the topmost ones
    first."""
    by_rows = None if found is None else driven(found)
    if found is None or by_rows is None:
        return
    above = [step for step in found.walk() if step is not by_rows.final and _reads(step, by_rows.final)]
    if not any(isinstance(step, Aggregate) for step in above):
        return
    for step in reversed(list(root.walk())):
        if isinstance(step, HashJoin | Aggregate | Combine) and can_be_parted(step):
            yield step


def is_outermost(root: Step, found: DrivenKeys) -> bool:
    """Whether the groups of a plan that makes progress by keys are its last ones."""
    return not any(
        isinstance(step, Aggregate) and step is not found.final and _reads(step, found.final) for step in root.walk()
    )


def _reads(step: Step, below: Step) -> bool:
    return any(one is below for one in step.walk())
