"""Cuts a plan at global movement: which steps run in tasks, which on the driver, and where rows enter each part.

A *part* is what one task computes for one shard: from its `top` down to its *entries*, the steps whose rows come from
elsewhere (a scan, a movement between tasks, a step with one shard). Steps after `gather` have one shard and run on the
driver, or in a single task if tasks need their rows again."""

from __future__ import annotations

import random
from dataclasses import replace

from tsql.backends.spark.heavy import check_heavy
from tsql.kernels.expr.errors import PlanError
from tsql.planner.physical.movement import Arrange, Broadcast, Gather, Movement, Multicast
from tsql.planner.physical.operators.input import Input
from tsql.planner.physical.operators.recursive import loose_tables
from tsql.planner.physical.operators.sample import Sample
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.properties import Properties
from tsql.planner.physical.step import PhysicalPlan, Step


class Cut:
    """A plan, with the place where each step runs. there: steps whose rows the driver has already, by id."""

    def __init__(self, plan: PhysicalPlan, there: frozenset[int] = frozenset()):
        self.plan, self.there = plan, there
        self.in_tasks: dict[int, bool] = {}
        for step in plan.root.walk():
            self.in_tasks[id(step)] = id(step) not in there and (
                isinstance(step, Scan)
                or crosses(step)
                or (not isinstance(step, Gather) and any(self.in_tasks[id(i)] for i in step.inputs))
            )
        self.rounds = loose_tables(plan.root)
        check_rounds(plan, self.in_tasks)
        self.properties = task_properties(plan)
        check_scopes(plan, self.properties)
        check_heavy(plan.root, self.properties)
        check_scopes(plan, self.properties_inside())

    def entries(self, top: Step, on_driver: bool = False) -> list[Step]:
        """The steps whose rows enter the part that ends with `top`. `top` is one of them if it computes nothing
        itself."""
        found: dict[int, Step] = {}
        stack = [top]
        seen: set[int] = set()
        while stack:
            step = stack.pop()
            if id(step) in seen:
                continue
            seen.add(id(step))
            if self._enters(step, on_driver) or self._is_alone(step, top, on_driver):
                found[id(step)] = step
            else:
                stack.extend(reversed(step.inputs))
        return list(found.values())

    def _enters(self, step: Step, on_driver: bool) -> bool:
        if id(step) in self.there:
            return True
        if on_driver:
            return self.in_tasks[id(step)] or (isinstance(step, Gather) and self.in_tasks[id(step.inputs[0])])
        if isinstance(step, Scan) or crosses(step):
            return True
        # Rows of the driver are divided by scope=local in the task that gets them. The rounds of a recursion run where
        # the recursion does.
        return not (self.in_tasks[id(step)] or isinstance(step, Movement) or self.rounds[id(step)])

    def properties_inside(self) -> dict[int, Properties]:
        """Properties of the rows that one task has, in the shards of movement with scope=local. What enters a part is
        in one shard of these, or for all of them if it is broadcast."""
        found: dict[int, Properties] = {}
        for step in self.plan.root.walk():
            outside = self.properties[id(step)]
            if not self._enters(step, on_driver=False):
                found[id(step)] = step.provides(tuple(found[id(i)] for i in step.inputs), self.plan.shards)
            elif outside.replicated:
                found[id(step)] = Properties(self.plan.shards, replicated="local", key=outside.key)
            else:
                found[id(step)] = Properties(1, key=outside.key, order=outside.order)
        return found

    def _is_alone(self, step: Step, top: Step, on_driver: bool) -> bool:
        """Whether a step has its rows in one shard, and the part has several. In each of them, it would count, cut and
        sort what it finds there."""
        if on_driver or not self.in_tasks[id(step)]:
            return False
        return self.properties[id(step)].shards == 1 and self.properties[id(top)].shards > 1

    def shards(self, step: Step) -> int:
        """The number of shards that the rows of an entry are spread over."""
        return self.properties[id(step)].shards if self.in_tasks[id(step)] else 1

    def travelling(self) -> PhysicalPlan:
        """The plan as it is sent to the tasks: scans are inputs, so it can be parsed without a catalog."""
        done: dict[int, Step] = {}
        for step in self.plan.root.walk():
            if isinstance(step, Scan):
                done[id(step)] = Input((), fields=step.schema, where=step.where, name=step.name)
                continue
            if isinstance(step, Sample) and step.seed is None:
                # A task that runs again must choose the same rows.
                done[id(step)] = replace(
                    step, inputs=tuple(done[id(i)] for i in step.inputs), seed=random.getrandbits(31)
                )
            else:
                done[id(step)] = step.with_inputs(tuple(done[id(i)] for i in step.inputs))
        return replace(self.plan, root=done[id(self.plan.root)], query="")


def crosses(step: Step) -> bool:
    """Whether a step moves rows between tasks (`gather` moves them to the driver)."""
    return isinstance(step, Movement) and step.scope == "global"


def task_properties(plan: PhysicalPlan) -> dict[int, Properties]:
    """Properties over all tasks. Movement with scope=local stays inside each task, or on the driver, so it places
    nothing. A broadcast reaches every task of its stage, however few shards it names."""
    found: dict[int, Properties] = {}
    for step in plan.root.walk():
        given = tuple(found[id(i)] for i in step.inputs)
        if isinstance(step, Movement) and step.scope == "local":
            found[id(step)] = replace(given[0], order=())
        else:
            found[id(step)] = step.provides(given, plan.shards)
            if isinstance(step, Broadcast) and crosses(step):
                found[id(step)] = replace(found[id(step)], shards=max(2, plan.shards, found[id(step)].shards))
    return found


def check_rounds(plan: PhysicalPlan, in_tasks: dict[int, bool]) -> None:
    """Refuse a plan in which a round of a recursion is in tasks: the rows of the previous round are in the process that
    runs the rounds."""
    rounds = loose_tables(plan.root)
    for step in plan.root.walk():
        if rounds[id(step)] and in_tasks[id(step)]:
            outside = next((i.name for i in step.inputs if in_tasks[id(i)]), None)
            hint = (
                f"leave {step.name} out, or use scope=local"
                if outside is None
                else f"put gather between {outside} and {step.name}"
            )
            table = min(rounds[id(step)])
            raise PlanError(
                (
                    f"step {step.name}: rows of the working table {table} are in one process on Spark, and "
                    "tasks do not reach them"
                ),
                hint=hint,
            )


def check_scopes(plan: PhysicalPlan, properties: dict[int, Properties]) -> None:
    """Refuse a plan that relies on scope=local to bring rows of several tasks together."""
    for step in plan.root.walk():
        alone = isinstance(step, Multicast | Arrange) and step.scope == "local"
        if alone and properties[id(step.inputs[0])].shards > 1:
            raise PlanError(
                f"step {step.name}: {_a(step.op)} with scope=local sends rows to shards inside one task only, which "
                "meet no rows of other tasks",
                hint="use scope=global",
            )
        requirements = step.requires_of(tuple(properties[id(i)] for i in step.inputs))
        for requirement, child in zip(requirements, step.inputs, strict=True):
            given = properties[id(child)]
            if not requirement.met_by(given):
                message = (
                    f"step {step.name}: {step.op} requires {requirement} of {child.name}, which has {given} on "
                    "Spark: scope=local moves rows inside one task only"
                )
                raise PlanError(
                    message,
                    hint=f"use scope=global, or put {requirement.fix(given)} between {child.name} and {step.name}",
                )


def _a(op: str) -> str:
    return f"{'an' if op[0] in 'aeiou' else 'a'} {op}"
