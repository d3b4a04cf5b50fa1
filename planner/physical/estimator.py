"""The cost of a physical plan: the estimates of its steps, each computed once.

The choice between plans uses it, and `tsql plan --candidates` prints it. Costs never change a result.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.cost.constants import DEFAULT, Costs
from tsql.planner.physical.estimate import Cost, Estimate, Machine
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.step import Step


class Estimator:
    """Estimates steps of plans for a number of shards. Each step is estimated once."""

    def __init__(self, shards: int, costs: Costs = DEFAULT, is_cluster: bool = False):
        self.machine = Machine(shards, costs, is_cluster)
        self.known: dict[int, tuple[Step, Estimate]] = {}
        """By id, with the step. The reference keeps a rejected candidate alive, so its id cannot be reused."""

    def of(self, root: Step) -> Estimate:
        """The estimate of one step."""
        for step in root.walk():
            if id(step) not in self.known:
                given = tuple(self.known[id(i)][1] for i in step.inputs)
                self.known[id(step)] = (step, step.estimate(given, self.machine))
        return self.known[id(root)][1]

    def total(self, root: Step) -> Cost:
        """What a plan costs: each of its steps once."""
        self.of(root)
        return sum((self.known[id(step)][1].cost for step in root.walk()), Cost())


def with_groups(root: Step, shards: int) -> Step:
    """The same plan with the expected numbers of groups. Tables are sized by them, and plan files do not store them."""
    estimator = Estimator(shards)
    made: dict[int, Step] = {}
    for step in root.walk():
        changed = step.with_inputs(tuple(made[id(i)] for i in step.inputs))
        if isinstance(changed, Aggregate) and changed.by and changed.groups is None:
            (below,) = step.inputs
            changed = replace(changed, groups=int(changed.expected_groups(estimator.of(below))))
        made[id(step)] = changed
    return made[id(root)]
