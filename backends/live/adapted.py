"""What is changed in a plan whose rows arrive, before it is taken apart.

*Two phases*: a plan with one phase of an aggregate moves all rows of a group into one shard, which is the cheaper way
where they come once and there are many groups, or one thread. A live aggregate would hold every row of its open groups;
with two phases it holds partial states.

*The side that stays is built*: the table of an inner join is built of the side whose rows do not change, once, even
where the plan took the other one for the smaller."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.physical.movement import Movement, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.step import Step


def adapted(root: Step, moving: Set[int], kept: Set[int]) -> Step:
    """The plan for rows that arrive (`moving`, steps by id). Steps of `kept` stay as they are."""
    done: dict[int, Step] = {}
    for step in root.walk():
        inputs = tuple([done[id(i)] for i in step.inputs])
        if id(step) not in moving or id(step) in kept:
            done[id(step)] = step.with_inputs(inputs)
        elif isinstance(step, Aggregate) and _holds_rows(step):
            partial = replace(step, inputs=(_unmoved(inputs[0]),), phase="partial", name=f"{step.name}_states")
            by = tuple((n, Column(n, e.type)) for n, e in step.by)
            done[id(step)] = replace(step, inputs=(partial,), by=by, phase="final")
        elif type(step) is HashJoin and _builds_what_moves(step, moving):
            # Movement was chosen for the other side; what is required is added where the join runs.
            build = "right" if step.build == "left" else "left"
            done[id(step)] = replace(step, inputs=tuple(map(_unmoved, inputs)), build=build, early=False)
        else:
            done[id(step)] = step.with_inputs(inputs)
    return done[id(root)]


def _unmoved(step: Step) -> Step:
    while isinstance(step, Movement | Rekey):
        (step,) = step.inputs
    return step


def _holds_rows(step: Aggregate) -> bool:
    """Whether it holds rows and could hold states."""
    return (
        step.phase == "complete"
        and not step.depends_on_order
        and bool(step.calls)
        and all(can_split(call) for _, call in step.calls)
    )


def _builds_what_moves(step: HashJoin, moving: Set[int]) -> bool:
    """Whether the table of an inner join is made of rows that arrive, and the others are there."""
    built = 0 if step.build == "left" else 1
    is_free = step.kind == "inner" and not step.marks and not step.range
    return is_free and id(step.inputs[built]) in moving and id(step.inputs[1 - built]) not in moving
