"""Plans that deal out the rows of a sorted table by ranges of the column that it is sorted by, instead of moving
them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan, is_sorted
from tsql.planner.physical.step import Step


def dealt_by_ranges(step: Step, column: str, shards: int, shared: Collection[int]) -> Step | None:
    """The step with its rows in so many shards by ranges of a column; None if they do not come from a table sorted by
    it, or if a step has other users (`shared`, by id) who would compute its rows once more."""
    if id(step) in shared:
        return None
    match step:
        case Scan() if step.ranges is None and is_sorted(step.source, column):
            return replace(step, ranges=column, shards=shards)
        case Filter():
            return _with_input(step, 0, dealt_by_ranges(step.inputs[0], column, shards, shared))
        case Project():
            expr = dict(step.columns)[column]
            return (
                _with_input(step, 0, dealt_by_ranges(step.inputs[0], expr.name, shards, shared))
                if isinstance(expr, Column)
                else None
            )
        case HashJoin() if not step.marks and step.kind != "full":
            probed = 1 if step.build == "left" else 0
            name = column if column in step.inputs[probed].schema else _equal(step, column, probed)
            return (
                None
                if name is None
                else _with_input(step, probed, dealt_by_ranges(step.inputs[probed], name, shards, shared))
            )
    return None


def is_in_order(step: Step, column: str) -> bool:
    """Whether every worker meets the rows of a step in the order of a column, because the table is sorted by it."""
    match step:
        case Scan():
            return is_sorted(step.source, column)
        case Filter():
            return is_in_order(step.inputs[0], column)
        case Project():
            expr = dict(step.columns)[column]
            return isinstance(expr, Column) and is_in_order(step.inputs[0], expr.name)
        case HashJoin() if not step.marks and step.kind != "full":
            probed = 1 if step.build == "left" else 0
            return column in step.inputs[probed].schema and is_in_order(step.inputs[probed], column)
    return False


def _equal(step: HashJoin, column: str, probed: int) -> str | None:
    """The column of the probed side that an inner join equates with one of the built side."""
    for key in step.keys if step.kind == "inner" else ():
        sides = (key.left, key.right)
        other, mine = sides[1 - probed], sides[probed]
        if isinstance(other, Column) and isinstance(mine, Column) and other.name == column:
            return mine.name
    return None


def _with_input(step: Step, at: int, found: Step | None) -> Step | None:
    return (
        None if found is None else step.with_inputs(tuple(found if i == at else s for i, s in enumerate(step.inputs)))
    )
