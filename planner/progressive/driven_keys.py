"""Which step makes the progress by its keys, some of them after the other: a join of two large sides, or groups that
are grouped again.

    rows   = hash_join orders lines on=(o_id = l_id)     both sides are large
    some   = progressive rows every=5 unit=percent       the join, for some keys
    kept   = filter some ..                              rows pass these one by one
    part   = aggregate kept phase=partial ..
    all    = aggregate part phase=final ..

A part of the keys, chosen by their hash, has all of its pairs in the join of the rows with these keys, and all rows of
its groups. So a sample of keys is a sample of the result, whatever the kind of the join, and the parts together are the
whole."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.logical.progression import Progression
from tsql.planner.physical.movement import Broadcast, Gather, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.merge_join import MergeJoin
from tsql.planner.physical.operators.progressive import Progressive
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.step import Step
from tsql.planner.progressive.driven import Groups, end_of, groups_of, passes, starts_of, users_of

KINDS = ("inner", "left", "semi", "anti")

MOVED = (Broadcast, Gather, Redistribute, Rekey, Reshard)

REPEATED = (*MOVED, Aggregate, Filter, HashJoin, MergeJoin, Project, Scan, Union, Values)
"""Steps that have the same rows whenever they run. (A LIMIT may take others.)"""


@dataclass(frozen=True)
class DrivenKeys:
    """The parts of a plan that make and show progress. below: the join or the groups; start: the step above it. states:
    the columns of the partial groups."""

    spec: Progression
    start: Progressive
    below: HashJoin | Aggregate
    partial: Aggregate
    states: Schema
    final: Aggregate | Combine

    @property
    def groups(self) -> Groups:
        return groups_of(self.final)


def driven_keys(root: Step) -> DrivenKeys | None:
    """The join of a plan that makes progress by its keys; None if there is none."""
    starts = starts_of(root)
    if len(starts) != 1:
        return None
    (start,) = starts
    below, users = start.inputs[0], users_of(root)
    if not isinstance(below, HashJoin | Aggregate) or not can_be_parted(below):
        return None
    partial = _last_groups(start, below, users)
    if partial is None:
        return None
    final, union = end_of(partial, users)
    if final is None or union is not None:
        return None
    return DrivenKeys(start.spec, start, below, partial, partial.schema, final)


def _last_groups(start: Step, below: HashJoin | Aggregate, users: dict[int, list[Step]]) -> Aggregate | None:
    """The partial groups that a part of the keys adds to. Groups by the same keys are complete in each part, so what
    reads these groups is part of it too."""
    names = _names_of_keys(below)
    found: Aggregate | None = None
    step = start
    while len(above := users.get(id(step), [])) == 1:
        (user,) = above
        if isinstance(user, Aggregate):
            own = [(name, e.name) for name, e in user.by if isinstance(e, Column)]
            grouped = [{name for name, below in own if below in key} for key in names]
            if user.phase == "partial":
                found = user
            if not all(grouped) or user.phase == "merge":
                break
            names = grouped
        elif isinstance(user, Project):
            own = [(name, e.name) for name, e in user.columns if isinstance(e, Column)]
            names = [{name for name, below in own if below in key} for key in names]
        elif not isinstance(user, MOVED) and not passes(user, step):
            break
        step = user
    return found


def _names_of_keys(below: HashJoin | Aggregate) -> list[set[str]]:
    """The columns of a step that are each of its keys."""
    if isinstance(below, Aggregate):
        return [{name} for name, _ in below.by]
    sides = ((key.left, key.right) if below.kind == "inner" else (key.left,) for key in below.keys)
    return [{one.name for one in side if isinstance(one, Column)} for side in sides]


def can_be_parted(step: Step) -> bool:
    """Whether a step has the same rows for each part of its keys as for all of them at once."""
    if isinstance(step, Aggregate):
        fits = bool(step.by) and not step.exports
    else:
        fits = type(step) in (HashJoin, MergeJoin) and isinstance(step, HashJoin) and _has_parts(step)
    return fits and all(type(one) in REPEATED for one in step.walk())


def _has_parts(join: HashJoin) -> bool:
    return join.kind in KINDS and bool(join.keys) and all(hashes_alike(key) for key in join.keys)


def hashes_alike(key: JoinKey) -> bool:
    """Whether equal keys have equal hashes."""
    left, right = key.left.type, key.right.type
    return left == right or (_is_whole(left) and _is_whole(right))


def _is_whole(type: Type) -> bool:
    return type.is_integer
