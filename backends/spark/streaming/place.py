"""`placed`: the plan of a live query with its rows in shards. Movement that was chosen for other machines is dropped,
and steps that hold rows get theirs by the key that they require.

    scan clicks ─ filter ─ aggregate partial ─ rekey ─ redistribute ─ aggregate final ─ gather ─ output

A planner of bounded queries puts small results on one machine, and sends a small side of a join to all. How much a
stream holds is not known before it runs, so here all state is in shards by its key, where a key is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.check import check
from tsql.planner.physical.movement import Broadcast, Gather, Movement, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.properties import ANY, Properties, Requirement
from tsql.planner.physical.step import PhysicalPlan, Step, named, rebuild

Placed = tuple[Step, Properties]

Border = Movement | Gather
"""The steps between two parts of a placed plan."""


def placed(plan: PhysicalPlan, shards: int) -> PhysicalPlan:
    """The plan for so many shards. Each step that holds rows is behind a movement; what is behind the last gather has
    one shard."""
    root = rebuild(plan.root, lambda _, step: step.inputs[0] if step.is_movement else step)
    done: dict[int, Placed] = {}
    for step in root.walk():
        if isinstance(step, Scan):
            step_placed: Step = replace(step, shards=None, ranges=None, progress=None)
            done[id(step)] = (step_placed, Properties(shards))
            continue
        given = [done[id(child)] for child in step.inputs]
        if isinstance(step, HashJoin | AsofJoin):
            given = _by_keys(step, given, shards)
        given = [
            _met(requirement, one, shards)
            for requirement, one in zip(step.requires_of(tuple(p for _, p in given)), given, strict=True)
        ]
        if not _holds_nothing(step) or len({_reads_at_once(below) for below, _ in given}) > 1:
            given = [_behind_movement(one, shards) for one in given]
        if len(given) > 1 and len({p.shards for _, p in given}) > 1:
            given = [_spread(one, shards) for one in given]
        rebuilt = step.with_inputs(tuple(below for below, _ in given))
        done[id(step)] = (rebuilt, rebuilt.provides(tuple(p for _, p in given), shards))
    final, properties = done[id(root)]
    final = final if properties.shards == 1 else Gather((final,))
    found = replace(plan, root=named(final), shards=shards, target="spark")
    check(found)
    return found


def _holds_nothing(step: Step) -> bool:
    return step.is_stateless or (isinstance(step, Aggregate) and step.exports)


def _by_keys(step: HashJoin | AsofJoin, given: list[Placed], shards: int) -> list[Placed]:
    """Both sides in the shards of the columns that are equal."""
    pairs = [
        (key.left.name, key.right.name)
        for key in step.keys
        if isinstance(key.left, Column) and isinstance(key.right, Column) and _same_type(key.left, key.right)
    ]
    if not pairs or len(pairs) != len(step.keys) and isinstance(step, HashJoin) and step.is_open:
        return given
    keys = tuple(zip(*pairs, strict=True))
    moved = [
        one if _is_placed(one[1], key, shards) else _redistributed(one[0], key, shards)
        for one, key in zip(given, keys, strict=True)
    ]
    wanted = step.requires_of(tuple(p for _, p in moved))
    return moved if all(requirement == ANY for requirement in wanted) else given


def _is_placed(properties: Properties, key: Iterable[str], shards: int) -> bool:
    return properties.placed == tuple(key) and properties.shards == shards and not properties.replicated


def _same_type(left: Column, right: Column) -> bool:
    return str(left.type) == str(right.type)


def _redistributed(step: Step, key: Iterable[str], shards: int) -> Placed:
    keyed = Rekey((step,), key=tuple(key))
    moved = Redistribute((keyed,), scope="global", shards=shards)
    return moved, Properties(shards, placed=keyed.key, key=keyed.key)


def _met(requirement: Requirement, given: Placed, shards: int) -> Placed:
    """The rows as a step requires them."""
    step, properties = given
    if requirement.met_by(properties):
        return given
    if requirement.kind in ("replicated", "copies"):
        moved: Step = Broadcast((step,), scope="global", shards=shards)
    elif requirement.kind in ("single", "once") or properties.replicated:
        moved = Gather((step,))
    else:
        return _redistributed(step, requirement.columns, shards)
    return moved, moved.provides((properties,), shards)


def _behind_movement(given: Placed, shards: int) -> Placed:
    """Rows for a step that holds them: a partition of a stream is another one in each batch, a shard stays."""
    step, properties = given
    if properties.shards == 1 or not _reads_at_once(step):
        return given
    moved = Reshard((step,), scope="global", shards=shards)
    return moved, moved.provides((properties,), shards)


def _reads_at_once(step: Step) -> bool:
    """Whether nothing is between a step and a scan but steps that hold nothing."""
    while True:
        if isinstance(step, Scan):
            return True
        if isinstance(step, Border) or not _holds_nothing(step):
            return False
        if len(step.inputs) != 1:
            return any(map(_reads_at_once, step.inputs))
        (step,) = step.inputs


def _spread(given: Placed, shards: int) -> Placed:
    """Rows of one shard beside others that are in many."""
    step, properties = given
    if properties.shards != 1 or shards == 1:
        return given
    moved = Reshard((step,), scope="global", shards=shards)
    return moved, moved.provides((properties,), shards)
