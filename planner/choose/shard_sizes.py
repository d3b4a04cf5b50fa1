"""size_shards: chooses the number of shards that movement between machines sends rows to, by the bytes that move.

Too few shards do not fit the memory of a task; too many cost a task and a block of every sender each. All movement into
one part of the plan gets the same number: its rows meet there."""

from __future__ import annotations

from dataclasses import replace

from tsql.planner.cost import constants as cost
from tsql.planner.physical.estimate import width
from tsql.planner.physical.estimator import Estimator
from tsql.planner.physical.movement import Arrange, Broadcast, Gather, Movement, Redistribute
from tsql.planner.physical.properties import MAX_SHARDS
from tsql.planner.physical.step import Step, rebuild


def size_shards(root: Step, cores: int, estimator: Estimator) -> Step:
    """The plan with as many shards behind each movement as its bytes want: a multiple of the cores."""
    groups = _meeting(root)
    wanted: dict[int, int] = {}
    for steps in groups:
        largest = max(estimator.of(step.inputs[0]).rows * width(step.schema) for step in steps)
        rounds = max(1, -(-int(largest) // (cost.SHARD_BYTES * cores)))
        for step in steps:
            wanted[id(step)] = min(MAX_SHARDS // cores, rounds) * cores

    def size(old: Step, new: Step) -> Step:
        if id(old) in wanted and isinstance(new, Redistribute | Arrange) and new.shards != wanted[id(old)]:
            return replace(new, shards=wanted[id(old)])
        return new

    return rebuild(root, size)


def _meeting(root: Step) -> list[list[Step]]:
    """Movement by hash or by ranges, in groups that enter the same part of the plan. A part with other movement keeps
    the number of the plan."""
    leader: dict[int, int] = {}
    steps = {id(step): step for step in root.walk()}

    def find(number: int) -> int:
        while leader.setdefault(number, number) != number:
            number = leader[number]
        return number

    for step in steps.values():
        for below in step.inputs:
            if not _moves(step):
                leader[find(id(below))] = find(id(step))
    groups: dict[int, list[Step]] = {}
    for step in steps.values():
        # A movement enters the part of its users.
        if _moves(step) and not isinstance(step, Broadcast | Gather):
            groups.setdefault(find(id(step)), []).append(step)
    return [found for found in groups.values() if all(isinstance(s, Redistribute | Arrange) for s in found)]


def _moves(step: Step) -> bool:
    return isinstance(step, Gather) or (isinstance(step, Movement) and step.scope == "global")
