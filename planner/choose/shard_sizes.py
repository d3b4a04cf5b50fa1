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
        for step in steps:
            wanted[id(step)] = shards_for(largest, cores)

    def size(old: Step, new: Step) -> Step:
        if id(old) in wanted and isinstance(new, Redistribute | Arrange) and new.shards != wanted[id(old)]:
            return replace(new, shards=wanted[id(old)])
        return new

    return rebuild(root, size)


def shards_for(moved_bytes: float, cores: int) -> int:
    """The number of shards for so many bytes: a multiple of the cores, so that none waits for a last straggler, or
    fewer than there are cores, where shards and the blocks of a shuffle would become small."""
    cores = min(cores, MAX_SHARDS)
    wanted = -(-int(moved_bytes) // cost.SHARD_BYTES)
    if wanted > cost.MANY_SHARDS:
        wanted = max(cost.MANY_SHARDS, -(-int(moved_bytes) // cost.LARGE_SHARD_BYTES))
    if wanted <= cores:
        return max(wanted, min(cores, cost.MANY_SHARDS))
    return min(MAX_SHARDS // cores, -(-wanted // cores)) * cores


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
