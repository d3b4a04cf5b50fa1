"""prune_moved: columns that nothing above needs do not move between machines.

    filtered = filter rows where=(price > 1)         filtered  = filter rows where=(price > 1)
    keyed    = rekey filtered key=(ad)          →    projected = project filtered ad=ad
    placed   = redistribute keyed ..                 keyed     = rekey projected key=(ad)
                                                     placed    = redistribute keyed ..

Within a machine, rows stay where they are and a column that nobody reads costs nothing. Each byte that moves, or that a
machine keeps for its tasks (`broadcast how=read`), does."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tsql.kernels.expr.nodes import Column
from tsql.planner.physical.estimate import width
from tsql.planner.physical.movement import Gather, Movement, Rekey
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.recursive import loose_tables
from tsql.planner.physical.step import Step, rebuild


def prune_moved(root: Step, wanted: Set[str]) -> Step:
    """The plan in which movement between machines takes only the columns that are needed for the wanted ones of the
    result."""
    needed = _needed(root, wanted)
    rounds = loose_tables(root)
    users: dict[int, list[Step]] = {}
    for step in root.walk():
        for below in step.inputs:
            users.setdefault(id(below), []).append(step)

    def prune(old: Step, new: Step) -> Step:
        if rounds[id(old)]:
            return new
        keys = isinstance(old, Rekey) and all(_moves(user) for user in users.get(id(old), ()))
        if not keys and (not _moves(old) or isinstance(old.inputs[0], Rekey)):
            return new
        (below,) = new.inputs
        return new.with_inputs((_with_only(below, needed[id(old.inputs[0])]),))

    return rebuild(root, prune)


def _moves(step: Step) -> bool:
    return isinstance(step, Gather) or (isinstance(step, Movement) and step.scope == "global")


def _needed(root: Step, wanted: Set[str]) -> dict[int, set[str]]:
    """The columns that the users of each step need, by the id of the step."""
    found: dict[int, set[str]] = {id(root): set(wanted)}
    for step in reversed(list(root.walk())):
        if len(step.inputs) > 1 and not isinstance(step, HashJoin):
            # Columns of a union meet by their places.
            needs = tuple(frozenset(below.schema.names) for below in step.inputs)
        else:
            needs = step.needs(frozenset(found[id(step)]))
        for below, names in zip(step.inputs, needs, strict=True):
            found.setdefault(id(below), set()).update(names)
    return found


def _with_only(step: Step, names: Set[str]) -> Step:
    """The rows of a step with these columns, at least one."""
    kept = [field for field in step.schema if field.name in names]
    if not kept and len(step.schema):
        kept = [min(step.schema, key=lambda field: width(type(step.schema)((field,))))]
    if len(kept) == len(step.schema):
        return step
    if isinstance(step, Project):
        wanted = {field.name for field in kept}
        return replace(step, columns=tuple(column for column in step.columns if column[0] in wanted))
    return Project((step,), columns=tuple((f.name, Column(f.name, f.type, f.nullable)) for f in kept))
