"""Aggregates of a live plan in two phases: partial states of groups are held, and not rows.

A plan with one phase moves all rows of a group into one shard, which is the cheaper way where they come once and there
are many groups, or one thread. A live aggregate would hold every row of its open groups."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.logical.aggregate_states import can_split
from tsql.planner.physical.movement import Movement, Rekey
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.step import Step


def in_two_phases(root: Step, moving: Set[int], kept: Set[int]) -> Step:
    """The plan with two phases for each aggregate over rows that arrive (`moving`, steps by id) whose states can be
    handed on. Steps of `kept` stay as they are."""
    done: dict[int, Step] = {}
    for step in root.walk():
        inputs = tuple([done[id(i)] for i in step.inputs])
        if isinstance(step, Aggregate) and id(step) in moving and id(step) not in kept and _holds_rows(step):
            (below,) = inputs
            while isinstance(below, Movement | Rekey):
                (below,) = below.inputs
            partial = replace(step, inputs=(below,), phase="partial", name=f"{step.name}_states")
            by = tuple((n, Column(n, e.type)) for n, e in step.by)
            done[id(step)] = replace(step, inputs=(partial,), by=by, phase="final")
        else:
            done[id(step)] = step.with_inputs(inputs)
    return done[id(root)]


def _holds_rows(step: Aggregate) -> bool:
    """Whether it holds rows and could hold states."""
    return (
        step.phase == "complete"
        and not step.depends_on_order
        and bool(step.calls)
        and all(can_split(call) for _, call in step.calls)
    )
