"""Turns logical ASOF joins into steps. The right side is built in every shard, or both sides are placed by the keys."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.choose.between_machines import between_machines
from tsql.planner.choose.choice import Choice
from tsql.planner.choose.ranges import is_in_order
from tsql.planner.cost import stats
from tsql.planner.logical.asof import AsofJoin as Asof
from tsql.planner.logical.predicates import conjunction, conjuncts, join_key
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.step import Step


def asof_step(choice: Choice, node: Asof) -> Step:
    """The step of an ASOF join. Between machines, a small right side is broadcast."""
    left, right = node.left.schema.names, node.right.schema.names
    keys, rest = [], []
    for part in conjuncts(node.condition):
        key = join_key(part, left, right)
        if key is None:
            rest.append(part)
        else:
            keys.append(key)
    inputs = (choice.step(node.left), choice.step(node.right))
    joined = AsofJoin(
        inputs,
        node.kind,
        tuple(keys),
        conjunction(rest),
        range=(node.at,),
        tolerance=node.tolerance,
        position=node.position,
        rows=stats.rows(node),
    )
    time = node.at.args[0]
    if isinstance(time, Column) and is_in_order(inputs[0], time.name):
        joined = replace(joined, walks=True)
    if choice.scope == "local" or choice.shards == 1:
        return joined
    return between_machines(choice, joined, node.left, node.right)
