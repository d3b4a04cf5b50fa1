"""The steps of a plan above the groups that make the progress: what they are, and what their columns are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.expr.nodes import Column, Expr, substitute
from tsql.kernels.expr.schema import Schema
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.limit import Limit
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.sort import Sort
from tsql.planner.physical.step import Step

Traced = dict[str, Expr] | None
"""The columns of a step as expressions over the groups; None where it has no groups to speak of."""


def steps_above(root: Step, final: Step) -> list[Step]:
    """The steps that depend on the final aggregate, inputs first; itself is the first of them."""
    found: list[Step] = []
    known: set[int] = set()
    for step in root.walk():
        if step is final or any(id(i) in known for i in step.inputs):
            known.add(id(step))
            found.append(step)
    return found


def columns_above(above: list[Step], final: Step) -> dict[int, Traced]:
    """The columns of the steps above the groups, over the groups."""
    known: dict[int, Traced] = {}
    for step in above:
        if step is final:
            known[id(step)] = {f.name: Column(f.name, f.type) for f in step.schema}
            continue
        below = known.get(id(step.inputs[0])) if len(step.inputs) == 1 and keeps_columns(step) else None
        if below is not None and isinstance(step, Project):
            below = {name: substitute(expr, below) for name, expr in step.columns}
        known[id(step)] = below
    return known


def lifted(
    step: Step, done: dict[int, Step], carries: dict[int, bool], hidden: Callable[[], list[tuple[str, Expr]]]
) -> tuple[Step, bool]:
    """A step above the groups over their estimates, and whether its rows still have the hidden columns."""
    inputs = tuple(done.get(id(i), i) for i in step.inputs)
    has = len(inputs) == 1 and carries.get(id(step.inputs[0]), False)
    if has and keeps_columns(step):
        return with_columns(step, inputs, hidden), True
    plain = tuple(
        only(new, old.schema) if carries.get(id(old), False) else new
        for old, new in zip(step.inputs, inputs, strict=True)
    )
    return step.with_inputs(plain), False


def with_columns(step: Step, inputs: tuple[Step, ...], more: Callable[[], list[tuple[str, Expr]]]) -> Step:
    """A step that keeps columns, over inputs with more of them."""
    if not isinstance(step, Project):
        return step.with_inputs(inputs)
    return replace(step, inputs=inputs, columns=(*step.columns, *more()))


def depends(step: Step, final: Step) -> bool:
    return any(below is final for below in step.walk())


def keeps_columns(step: Step) -> bool:
    """Whether a step passes on all columns of its input, whatever they are."""
    return isinstance(step, Project | Filter | Sort | Limit | Gather | Rekey | Movement)


def only(step: Step, schema: Schema) -> Step:
    """The rows of a step with the columns that they had in the plan."""
    return Project((step,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in schema))
