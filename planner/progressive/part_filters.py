"""The rows of a step for a part of its keys: a filter over the hash of the keys, as near to the scans as it can be, on
both sides of a join and of all joins below that have the same keys.

    orders = scan orders ..                                     lines = scan lines ..
    some   = filter orders where=(hash(o_id) % 1024 >= #from    ..
             AND hash(o_id) % 1024 < #to)
    rows   = hash_join some some2 on=(o_id = l_id)

A step with a rule of its own is an entry in `RULES`; above any other step the filter stands as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, substitute
from tsql.kernels.expr.types import BIGINT, Type
from tsql.planner.logical.predicates import JoinKey
from tsql.planner.physical.movement import Broadcast, Gather, Movement, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.combine import Combine
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.series import Series
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.operators.window import Window
from tsql.planner.physical.step import Step
from tsql.planner.progressive.dealing import FIRST, HASHED, Dealing, Keys, is_of_parts, keys_in

KINDS = ("inner", "left", "semi", "anti")
"""Joins whose rows for some keys depend on rows with these keys only."""


def limited(step: Step, dealing: Dealing) -> Step:
    """The rows of a step whose keys are in the parts of a run."""
    rule = next((rule for kind, rule in RULES.items() if isinstance(step, kind)), None)
    below = None if rule is None else rule(step, dealing)
    return _filtered(step, dealing) if below is None else below


def is_at_scans(root: Step) -> bool:
    """Whether the rows of other parts are left out where they are scanned: then no step sees a row in two runs."""
    return all(isinstance(step.inputs[0], Scan) for step in root.walk() if _is_of_parts(step))


def leaves_windows_whole(root: Step) -> bool:
    """Whether some windows are computed for all keys, in each run again."""
    return any(isinstance(step, Window | Combine) and not any(map(_is_of_parts, step.walk())) for step in root.walk())


def is_near_scans(root: Step) -> bool:
    """Whether nothing but projections, filters and movement is between the scans and these filters."""
    below = (one for step in root.walk() if _is_of_parts(step) for one in step.inputs[0].walk())
    return all(isinstance(one, Scan | Project | Filter | Rekey | Movement | Gather) for one in below)


def keys_at_scans(root: Step) -> list[tuple[Scan, Keys]]:
    """The scans above which rows of other parts are left out, and the keys that decide it."""
    filters = [step for step in root.walk() if isinstance(step, Filter) and is_of_parts(step.predicate)]
    return [(step.inputs[0], keys_in(step.predicate)) for step in filters if isinstance(step.inputs[0], Scan)]


def counts_rows(root: Step) -> bool:
    """Whether a filter counts the rows that it leaves out."""
    filters = (step.predicate for step in root.walk() if isinstance(step, Filter))
    return any(isinstance(e, Call) and e.name in ("has_time", "has_start") for one in filters for e in one.walk())


def hashes_alike(key: JoinKey) -> bool:
    """Whether equal keys have equal hashes."""
    left, right = key.left.type, key.right.type
    return left == right or (_is_whole(left) and _is_whole(right))


def _is_whole(type: Type) -> bool:
    return type.is_integer


def _is_of_parts(step: Step) -> bool:
    return isinstance(step, Filter) and is_of_parts(step.predicate)


def _filtered(step: Step, dealing: Dealing) -> Step:
    return Filter((step,), predicate=dealing.is_here(step), how="select" if isinstance(step, Scan) else "branch")


def _as_it_is(step: Step, dealing: Dealing) -> Step:
    return replace(step, inputs=(limited(step.inputs[0], dealing),))


def _below_project(step: Step, dealing: Dealing) -> Step | None:
    assert isinstance(step, Project)
    inner = tuple(substitute(key, dict(step.columns)) for key in dealing.keys)
    if not all(map(_is_cheap, inner)):
        return None
    return replace(step, inputs=(limited(step.inputs[0], dealing.over(inner)),))


def _below_groups(step: Step, dealing: Dealing) -> Step | None:
    """Rows of other groups change none. Those without a key are one group."""
    assert isinstance(step, Aggregate)
    by = dict(step.by)
    inner = tuple(substitute(key, by) for key in dealing.keys)
    if not by.keys() >= _names(dealing) or not all(map(_is_cheap, inner)):
        return None
    return replace(step, inputs=(limited(step.inputs[0], _of_groups(dealing).over(inner)),))


def _below_combine(step: Step, dealing: Dealing) -> Step | None:
    """Rows of other keys change no window."""
    assert isinstance(step, Combine)
    return _as_it_is(step, _of_groups(dealing)) if _names(dealing) <= set(step.by) else None


def _below_window(step: Step, dealing: Dealing) -> Step | None:
    """Rows of other partitions change none. What they are partitioned by has been computed for all rows below."""
    assert isinstance(step, Window)
    by = {e.name for e in step.by if isinstance(e, Column)}
    if not all(key in step.by or by.issuperset(key.columns()) for key in dealing.keys):
        return None
    below, inner = step.inputs[0], _of_groups(dealing)
    return replace(step, inputs=((limited if all(map(_is_cheap, inner.keys)) else _filtered)(below, inner),))


def _of_groups(dealing: Dealing) -> Dealing:
    """Rows without a key belong together."""
    return dealing.over(dealing.keys, FIRST if dealing.nulls == FIRST else HASHED)


def _below_series(step: Step, dealing: Dealing) -> Step | None:
    assert isinstance(step, Series)
    return None if not step.inputs or step.column in _names(dealing) else _as_it_is(step, dealing)


def _below_union(step: Step, dealing: Dealing) -> Step:
    inputs = []
    for below in step.inputs:
        own: dict[str, Expr] = {
            f.name: Column(o.name, o.type, o.nullable) for f, o in zip(step.schema, below.schema, strict=True)
        }
        inputs.append(limited(below, dealing.over(tuple(substitute(key, own) for key in dealing.keys))))
    return replace(step, inputs=tuple(inputs))


def _below_join(step: Step, dealing: Dealing) -> Step | None:
    """The side that the keys are of; and the other one, if the join is by the same keys."""
    assert isinstance(step, HashJoin)
    if step.is_open or step.kind not in KINDS:
        return None
    names = _names(dealing)
    sides = (0, 1) if step.kind == "inner" else (0,)
    at = next((side for side in sides if names <= set(step.inputs[side].schema.names)), None)
    if at is None:
        return None
    inputs = list(step.inputs)
    inputs[at] = limited(inputs[at], dealing)
    equal = {(key.left, key.right)[at]: (key.left, key.right)[1 - at] for key in step.keys if hashes_alike(key)}
    if all(key in equal for key in dealing.keys):
        others = dealing.over(tuple(equal[key] for key in dealing.keys))
        inputs[1 - at] = limited(inputs[1 - at], others)
    return replace(step, inputs=tuple(inputs))


def _names(dealing: Dealing) -> set[str]:
    return {name for key in dealing.keys for name in key.columns()}


def _is_cheap(expr: Expr) -> bool:
    """Whether an expression may be computed twice, and over rows that a filter leaves out."""
    return all(isinstance(e, Column) or (isinstance(e, Cast) and e.type == BIGINT and e.arg.type.is_integer)
               for e in expr.walk())  # fmt: skip


RULES: dict[type | tuple[type, ...], Callable[[Step, Dealing], Step | None]] = {
    (Filter, Rekey, Redistribute, Reshard, Broadcast, Gather): _as_it_is,
    Project: _below_project,
    Aggregate: _below_groups,
    Combine: _below_combine,
    Window: _below_window,
    Series: _below_series,
    Union: _below_union,
    HashJoin: _below_join,
}
