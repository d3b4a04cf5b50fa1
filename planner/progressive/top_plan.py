"""The plan of a snapshot of the first rows: the part of a plan above its driven sort, over the rows known so far.

given  = input columns=(columns of the sort, #sure)     in their order, at most as many as the limit
..                                                      the steps of the plan; projections keep #sure"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import PhysicalPlan, Step, named
from tsql.planner.progressive.driven_top import DrivenTop
from tsql.planner.progressive.ranking import SURE


@dataclass(frozen=True)
class TopPlan:
    """plan: its last column is `#sure`. given: the step whose rows are the first rows."""

    plan: PhysicalPlan
    given: Input


def top_plan(plan: PhysicalPlan, found: DrivenTop) -> TopPlan:
    """The plan of the snapshots of a plan."""
    root: Step = Input((), fields=Schema((*found.final.schema, Field(SURE, BOOLEAN, False))), name="given")
    for step in found.above:
        above = step.with_inputs((root,))
        if isinstance(above, Project):
            above = replace(above, columns=(*above.columns, (SURE, Column(SURE, BOOLEAN, False))))
        root = above
    root = named(root)
    shown = replace(plan, root=root, columns=(*plan.columns, SURE), names=(*plan.names, SURE), query="", notes=(),
                    shards=1)  # fmt: skip
    return TopPlan(shown, next(step for step in root.walk() if isinstance(step, Input)))
