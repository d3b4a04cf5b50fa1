"""Which step makes the progress by its keys, some of them after the other: a join of two large sides, groups that are
grouped again, or windows of the rows of a key.

    rows   = hash_join orders lines on=(o_id = l_id)     both sides are large
    some   = progressive rows every=5 unit=percent       the join, for some keys
    kept   = filter some ..                              rows pass these one by one
    part   = aggregate kept phase=partial ..
    all    = aggregate part phase=final ..

A part of the keys, chosen by their hash, has all of its pairs in the join of the rows with these keys, and all rows of
its groups and windows. So a sample of keys is a sample of the result, whatever the kind of the join, and the parts
together are the whole."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Column
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
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
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.values import Values
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step
from tsql.planner.progressive.dealing import FIRST, HASHED, SPREAD, Dealing, Keys
from tsql.planner.progressive.driven import Groups, end_of, groups_of, passes, starts_of, users_of
from tsql.planner.progressive.part_filters import (
    KINDS,
    counts_rows,
    hashes_alike,
    is_at_scans,
    is_near_scans,
    leaves_windows_whole,
    limited,
)

MOVED = (Broadcast, Gather, Redistribute, Rekey, Reshard)

REPEATED = (
    *MOVED,
    *(Aggregate, Combine, Filter, HashJoin, MergeJoin, Project, Scan, Series, Union, Values, Window),
)
"""Steps that have the same rows whenever they run. (A LIMIT may take others.)"""


Grouped = Aggregate | Combine | Window
"""Groups, windows of panes or rows, window functions over partitions."""

Parted = HashJoin | Grouped
"""What has keys."""


@dataclass(frozen=True)
class DrivenKeys:
    """The parts of a plan that make and show progress. below: the step with the keys; start: the step above it. states:
    the columns of the partial groups."""

    spec: Progression
    start: Progressive
    below: Parted
    partial: Aggregate
    states: Schema
    final: Aggregate | Combine

    @property
    def groups(self) -> Groups:
        return groups_of(self.final)


def driven_keys(root: Step) -> DrivenKeys | None:
    """The step of a plan that makes progress by its keys; None if there is none."""
    starts = starts_of(root)
    if len(starts) != 1:
        return None
    (start,) = starts
    below, users = start.inputs[0], users_of(root)
    if not isinstance(below, Parted) or not can_be_parted(below):
        return None
    partial = _last_groups(start, below, users)
    if partial is None:
        return None
    final, union = end_of(partial, users)
    if final is None or union is not None:
        return None
    return DrivenKeys(start.spec, start, below, partial, partial.schema, final)


def dealing_of(below: Grouped) -> Dealing:
    """How the keys of groups or windows are dealt into parts: by those that can be looked at where rows are scanned, or
    by all, if none can. Groups are complete in a part of any of their keys. NULL is a group too, perhaps a large one.
    What windows are partitioned by may also be computed from rows as they are scanned."""
    keys = keys_of(below)
    is_near = is_at_scans if isinstance(below, Aggregate) or counts_rows(below) else is_near_scans
    near = tuple(key for key in keys if is_near(limited(below, Dealing((key,), FIRST))))
    return Dealing(near or keys, FIRST)


def sides_of(below: Parted) -> list[tuple[Step, Dealing]]:
    """The rows that are dealt into parts: those of a join's sides, of groups or of windows."""
    if not isinstance(below, HashJoin):
        return [(below, dealing_of(below))]
    left, right = tuple(key.left for key in below.keys), tuple(key.right for key in below.keys)
    nulls = SPREAD if below.kind in ("left", "anti") else HASHED
    return [(below.inputs[0], Dealing(left, nulls)), (below.inputs[1], Dealing(right))]


def keys_of(below: Grouped) -> Keys:
    """The keys, over the columns of the step."""
    if isinstance(below, Aggregate):
        return tuple(Column(name, e.type) for name, e in below.by)
    if isinstance(below, Window):
        return below.by
    return tuple(Column(name, below.schema[name].type) for name in below.by)


def _last_groups(start: Step, below: Parted, users: dict[int, list[Step]]) -> Aggregate | None:
    """The partial groups that a part of the keys adds to. Groups by the same keys are complete in each part, so what
    reads these groups is part of it too. None if all groups are: they are no sample of others."""
    names = _names_of_keys(below)
    found: Aggregate | None = None
    step = start
    while len(above := users.get(id(step), [])) == 1:
        (user,) = above
        if isinstance(user, Aggregate):
            own = [(name, e.name) for name, e in user.by if isinstance(e, Column)]
            grouped = [{name for name, below in own if below in key} for key in names]
            if user.phase == "partial":
                found = None if all(grouped) else user
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


def _names_of_keys(below: Parted) -> list[set[str]]:
    """The columns of a step that are each of its keys."""
    if not isinstance(below, HashJoin):
        return [{key.name} if isinstance(key, Column) else set() for key in dealing_of(below).keys]
    sides = ((key.left, key.right) if below.kind == "inner" else (key.left,) for key in below.keys)
    return [{one.name for one in side if isinstance(one, Column)} for side in sides]


def can_be_parted(step: Step) -> bool:
    """Whether a step has the same rows for each part of its keys as for all of them at once, and no windows below it
    would be computed for all keys again in each run."""
    if isinstance(step, Aggregate):
        fits = bool(step.by) and not step.exports
    elif isinstance(step, Combine | Window):
        fits = bool(step.by)
    else:
        fits = isinstance(step, HashJoin) and _has_parts(step)
    if not fits or any(type(one) not in REPEATED for one in step.walk()):
        return False
    assert isinstance(step, Parted)
    return not any(leaves_windows_whole(limited(rows, dealing)) for rows, dealing in sides_of(step))


def _has_parts(join: HashJoin) -> bool:
    is_plain = type(join) in (HashJoin, MergeJoin) and join.kind in KINDS
    return is_plain and bool(join.keys) and all(map(hashes_alike, join.keys))
