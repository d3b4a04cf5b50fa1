"""Groups over a union, made from parts: each input of the union has its own partial groups.

    rows = union a b                          parts_a = aggregate a' phase=partial ..
    part = aggregate rows phase=partial ..    parts_b = aggregate b' phase=partial ..
                                              part    = union parts_a parts_b

So the scans of all inputs end in groups that a snapshot can read, and the rows of the union lie nowhere. Joins with a
small side are made for each input."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.step import Step


def by_parts(partial: Aggregate) -> Step:
    """A partial aggregate with its work below the union that its rows come from, if they do."""
    path: list[Step] = []
    below = partial.inputs[0]
    while isinstance(below, Filter | Project | HashJoin) and below.streamed is not None:
        path.append(below)
        below = below.inputs[below.streamed]
    if not isinstance(below, Union):
        return partial
    parts: list[Step] = []
    for rows in below.inputs:
        found = by_parts(_over(partial, path, _renamed(rows, below)))
        parts += found.inputs if isinstance(found, Union) else [found]
    return Union(tuple(parts))


def _over(partial: Aggregate, path: list[Step], rows: Step) -> Aggregate:
    """The aggregate with the steps of a path, over other rows."""
    for step in reversed(path):
        inputs = list(step.inputs)
        inputs[step.streamed or 0] = rows
        rows = replace(step, inputs=tuple(inputs))
    return replace(partial, inputs=(rows,))


def _renamed(rows: Step, union: Step) -> Step:
    """The rows of an input under the names of the union, whose columns may be NULL."""
    columns = tuple(
        (field.name, Column(own.name, own.type, own.nullable))
        for field, own in zip(union.schema, rows.schema, strict=True)
    )
    return rows if all(name == expr.name for name, expr in columns) else Project((rows,), columns=columns)
