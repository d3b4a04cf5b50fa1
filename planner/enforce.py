"""enforce: the only pass that inserts movement. Where an input does not meet what a step requires, the step that fixes it is put in between."""

from __future__ import annotations

from tsql.planner.movement import Broadcast, Gather, Redistribute, Rekey
from tsql.planner.properties import Properties, Requirement
from tsql.planner.step import Step


def enforce(root: Step, shards: int, scope: str) -> Step:
    """The plan with movement wherever a requirement is unmet; a plan that needs none comes back as it is."""
    done: dict[int, tuple[Step, Properties]] = {}
    for step in root.walk():
        inputs, given = [], []
        requirements = step.requires_of(tuple(done[id(i)][1] for i in step.inputs))
        for requirement, child in zip(requirements, step.inputs, strict=True):
            fixed, properties = done[id(child)]
            if not requirement.met_by(properties):
                fixed = _fix(fixed, requirement, properties, shards, scope)
                properties = _properties(fixed, child, done, shards)
            inputs.append(fixed)
            given.append(properties)
        rebuilt = step.with_inputs(tuple(inputs))
        done[id(step)] = (rebuilt, rebuilt.provides(tuple(given), shards))
    final, properties = done[id(root)]
    return Gather((final,)) if properties.shards != 1 else final


def _fix(step: Step, requirement: Requirement, given: Properties, shards: int, scope: str) -> Step:
    if requirement.kind in ("replicated", "copies"):
        return Broadcast((step,), scope=scope if requirement.kind == "replicated" else "local", shards=shards)
    if requirement.kind in ("single", "once") or given.replicated:
        return Gather((step,))
    return Redistribute((Rekey((step,), key=requirement.columns),), scope=scope, shards=shards)


def _properties(step: Step, child: Step, done: dict[int, tuple[Step, Properties]], shards: int) -> Properties:
    """Properties after the inserted steps, whose innermost input is the already processed child."""
    if step is done[id(child)][0]:
        return done[id(child)][1]
    return step.provides((_properties(step.inputs[0], child, done, shards),), shards)
