"""Steps of a recursion, and of the table that its rounds read."""

from __future__ import annotations

from itertools import count

from tsql.planner.choose.choice import Choice
from tsql.planner.logical import generating
from tsql.planner.physical.operators.recursive import Recursive, Working
from tsql.planner.physical.step import Step


def working_step(choice: Choice, node: generating.Working) -> Step:
    return Working((), table=_table(choice, node), fields=node.fields)


def recursive_step(choice: Choice, node: generating.Recursive) -> Step:
    """Between machines the rounds run on one: what they read is brought there."""
    table, outside = _table(choice, node), choice.gathers
    choice.gathers = choice.scope == "global"
    inputs = choice.step(node.initial), choice.step(node.step)
    choice.gathers = outside
    return Recursive(inputs, table=table, distinct=node.distinct)


def _table(choice: Choice, node: generating.Working | generating.Recursive) -> str:
    """The name of a recursion in the plan: its own, with a number where another has it."""
    if node.number not in choice.recursions:
        taken = set(choice.recursions.values())
        names = (node.name if n == 1 else f"{node.name}_{n}" for n in count(1))
        choice.recursions[node.number] = next(name for name in names if name not in taken)
    return choice.recursions[node.number]
