"""enforce: inserts the movement that makes an input meet a step's requirement.

The choice of steps (`planner/choose/`) adds movement too, where there is a choice: a hint, the number of shards, the
broadcast side of a join. Required movement that is still missing is added only here.

Between machines, the rounds of a recursion run on one machine. Whatever they compute from the working table stays in
one shard, so movement chosen there is dropped, and inputs from outside are gathered."""

from __future__ import annotations

from tsql.planner.physical.movement import Broadcast, Gather, Movement, Redistribute, Rekey
from tsql.planner.physical.operators.recursive import loose_tables
from tsql.planner.physical.properties import SINGLE, Properties, Requirement
from tsql.planner.physical.step import Step


def enforce(root: Step, shards: int, scope: str, gathers: bool = True) -> Step:
    """The plan with movement wherever a requirement is unmet; the same plan if it needs none. `gathers`: the result is
    in one shard."""
    done: dict[int, tuple[Step, Properties]] = {}
    rounds = loose_tables(root) if scope == "global" else {}
    for step in root.walk():
        in_round = bool(rounds.get(id(step)))
        if in_round and isinstance(step, Rekey | Movement):
            done[id(step)] = done[id(step.inputs[0])]
            continue
        inputs, given = [], []
        requirements = _requirements(step, tuple(done[id(i)][1] for i in step.inputs), scope, in_round)
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
    return Gather((final,)) if gathers and properties.shards != 1 else final


def _requirements(step: Step, given: tuple[Properties, ...], scope: str, in_round: bool) -> tuple[Requirement, ...]:
    """What a step requires of its inputs. Machines share no memory: a requirement of shared memory becomes a single
    shard between machines."""
    alone = (SINGLE,) * len(step.inputs)
    if in_round:
        return alone
    found = step.requires_of(given)
    shares = any(
        requirement.kind == "copies" and not requirement.met_by(has)
        for requirement, has in zip(found, given, strict=True)
    )
    return alone if shares and scope == "global" else found


def _fix(step: Step, requirement: Requirement, given: Properties, shards: int, scope: str) -> Step:
    if requirement.kind in ("replicated", "copies"):
        return Broadcast((step,), scope=scope, shards=shards)
    if requirement.kind in ("single", "once") or given.replicated:
        return Gather((step,))
    return Redistribute((Rekey((step,), key=requirement.columns),), scope=scope, shards=shards)


def _properties(step: Step, child: Step, done: dict[int, tuple[Step, Properties]], shards: int) -> Properties:
    """Properties after the inserted steps, whose innermost input is the already processed child."""
    if step is done[id(child)][0]:
        return done[id(child)][1]
    return step.provides((_properties(step.inputs[0], child, done, shards),), shards)
