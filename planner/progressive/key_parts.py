"""The plan of a driven join, or of groups, for a part of its keys: a filter over the hash of the keys, as near to the
scans as it can be, on both sides of the join and of all joins below that have the same keys.

    orders = scan orders ..                                     lines = scan lines ..
    some   = filter orders where=(hash(o_id) % 1024 >= #from    ..
             AND hash(o_id) % 1024 < #to)
    rows   = hash_join some some2 on=(o_id = l_id)
    part   = aggregate rows phase=partial by=(#batch, ..)       a group for each batch of parts
    sums   = project part ..                                    with its measures and their products

`#batch` numbers the parts of the sample whose sums are compared. The last run needs no sample: it has the rest of the
keys, and no batches. Both have the columns that a snapshot needs, or the partial groups alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsql.kernels.aggregates.bodies import state_names
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal, Parameter, substitute
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE, UBIGINT
from tsql.planner.logical.predicates import call
from tsql.planner.physical.movement import Broadcast, Gather, Redistribute, Rekey, Reshard
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.step import PhysicalPlan, Step, named
from tsql.planner.progressive.driven_keys import KINDS, DrivenKeys, hashes_alike
from tsql.planner.progressive.measures import binary, number
from tsql.planner.progressive.snapshot_plan import SnapshotPlan
from tsql.planner.progressive.terms import SEEN
from tsql.planner.progressive.values import product_name

PARTS = 1024
"""The keys are in so many parts, by their hash."""

FROM, TO, WIDTH, COUNT, SEED = "#from", "#to", "#width", "#batches", "#seed"
"""Parameters: the first part of a run, the one behind its last, how many parts a batch has, how many batches there are,
and what decides which keys are in which part."""

BATCH = "#batch"

NO_BATCH = -1
"""The batch of groups that are counted in full, and are no part of the sample."""

HASHED, SPREAD, FIRST = "hashed", "spread", "first"
"""Where rows without a key are, of which there may be many: in the part of their hash, like others; in any part, by
their other columns; or in the first one, where they are counted in full."""

Keys = tuple[Expr, ...]


def plan_of_part(plan: PhysicalPlan, found: DrivenKeys, snapshot: SnapshotPlan | None) -> PhysicalPlan:
    """The plan of the partial groups of some parts. `snapshot`: they are a sample for this plan of snapshots."""
    below = found.below
    if isinstance(below, Aggregate):
        keys = parted_by(below)
        rows = limited(below, keys, FIRST)
        if snapshot is not None:
            rows = _numbered(rows, keys, FIRST)
    else:
        keys, others = tuple(key.left for key in below.keys), tuple(key.right for key in below.keys)
        nulls = SPREAD if below.kind in ("left", "anti") else HASHED
        left, right = limited(below.inputs[0], keys, nulls), limited(below.inputs[1], others)
        rows = replace(below, inputs=(left if snapshot is None else _numbered(left, keys, nulls), right))
    for step in _path(found):
        rows = _over(step, rows, snapshot is not None)
    root = named(rows if snapshot is None else _with_sums(rows, found, snapshot))
    names = tuple(f.name for f in root.schema)
    return replace(plan, root=root, columns=names, names=names, query="", notes=())


def parted_by(groups: Aggregate) -> Keys:
    """The keys of groups that can be looked at where rows are scanned; all of them, if none can. Groups are complete in
    a part of any of their keys."""
    keys: Keys = tuple(Column(name, e.type) for name, e in groups.by)
    near = tuple(key for key in keys if is_at_scans(limited(groups, (key,), FIRST)))
    return near or keys


def is_at_scans(root: Step) -> bool:
    """Whether the rows of other parts are left out where they are scanned: then no step sees a row in two runs."""
    filters = (step for step in root.walk() if isinstance(step, Filter) and _is_of_parts(step.predicate))
    return all(isinstance(step.inputs[0], Scan) for step in filters)


def _is_of_parts(condition: Expr) -> bool:
    return any(isinstance(e, Parameter) and e.name == FROM for e in condition.walk())


def counts_rows(root: Step) -> bool:
    """Whether a filter counts the rows that it leaves out."""
    filters = (step.predicate for step in root.walk() if isinstance(step, Filter))
    return any(isinstance(e, Call) and e.name in ("has_time", "has_start") for one in filters for e in one.walk())


def _numbered(rows: Step, keys: Keys, nulls: str) -> Step:
    """Rows with the batch of their keys."""
    columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in rows.schema)
    return Project((rows,), columns=(*columns, (BATCH, _batch(rows, keys, nulls))))


def _path(found: DrivenKeys) -> list[Step]:
    """The steps between the driven one and the partial groups, these included."""
    path: list[Step] = []
    step: Step = found.partial
    while step is not found.start:
        path.append(step)
        step = step.inputs[step.streamed or 0]
    return path[::-1]


def _over(step: Step, rows: Step, has_batches: bool) -> Step:
    inputs = list(step.inputs)
    inputs[step.streamed or 0] = rows
    step = replace(step, inputs=tuple(inputs))
    batch = (BATCH, Column(BATCH, BIGINT))
    if has_batches and isinstance(step, Project):
        return replace(step, columns=(*step.columns, batch))
    return replace(step, by=(batch, *step.by), groups=None) if has_batches and isinstance(step, Aggregate) else step


def _with_sums(rows: Step, found: DrivenKeys, snapshot: SnapshotPlan) -> Step:
    """The groups of all threads, merged, since the sums of a batch are squared."""
    assert isinstance(rows, Aggregate)
    by = tuple((name, Column(name, e.type)) for name, e in rows.by)
    merged = replace(rows, inputs=(Gather((rows,)),), phase="merge", by=by)
    return Project((merged,), columns=_sums(found, snapshot))


def _sums(found: DrivenKeys, snapshot: SnapshotPlan) -> tuple[tuple[str, Expr], ...]:
    """The columns of a group of one batch, as the plan of snapshots expects them."""
    columns: list[tuple[str, Expr]] = [(f.name, Column(f.name, f.type, f.nullable)) for f in found.states]
    if not snapshot.measures:
        return tuple(columns)
    values: list[Expr] = [Call("coalesce", (m.state, number(0.0)), DOUBLE) for m in snapshot.measures]
    in_full = call("<", Column(BATCH, BIGINT), Literal(0, BIGINT))
    sums: list[tuple[str, Expr]] = []
    for measure, value in zip(snapshot.measures, values, strict=True):
        sums += [(measure.name, value), (f"{measure.name} base", Case(((in_full, value),), number(0.0)))]
    per_part = binary("/", number(1.0), Cast(Parameter(WIDTH, BIGINT), DOUBLE))
    for a, b in snapshot.pairs:
        product = binary("*", binary("*", values[a], values[b]), per_part)
        sums.append((product_name((a, b)), Case(((in_full, number(0.0)),), product)))
    for name, value in (*sums, (SEEN, Case(((in_full, number(0.0)),), number(1.0)))):
        total, rows = state_names(name, 2)
        columns += [(total, value), (rows, Literal(1, BIGINT))]
    return tuple(columns)


def _part(keys: Keys) -> Expr:
    hashed = Call("hash", (*keys, Parameter(SEED, BIGINT)), UBIGINT)
    return Cast(Call("%", (hashed, Literal(PARTS, UBIGINT)), UBIGINT), BIGINT)


def _or_if_null(keys: Keys, part: Expr, otherwise: Expr) -> Expr:
    whens = tuple((Call("is_null", (key,), BOOLEAN), otherwise) for key in keys)
    return Case(whens, part)


def _columns(step: Step) -> Keys:
    return tuple(Column(f.name, f.type, f.nullable) for f in step.schema)


def _batch(step: Step, keys: Keys, nulls: str) -> Expr:
    first = Call("-", (_part(keys), Parameter(FROM, BIGINT)), BIGINT)
    batch = Call("//", (first, Parameter(WIDTH, BIGINT)), BIGINT)
    if nulls == HASHED:
        return batch
    spread = Call("%", (_part(_columns(step)), Parameter(COUNT, BIGINT)), BIGINT)
    return _or_if_null(keys, batch, spread if nulls == SPREAD else Literal(NO_BATCH, BIGINT))


def _filtered(step: Step, keys: Keys, nulls: str) -> Step:
    part = _part(keys)
    if nulls != HASHED:
        part = _or_if_null(keys, part, _part(_columns(step)) if nulls == SPREAD else Literal(0, BIGINT))
    condition = call("and", call(">=", part, Parameter(FROM, BIGINT)), call("<", part, Parameter(TO, BIGINT)))
    return Filter((step,), predicate=condition, how="select" if isinstance(step, Scan) else "branch")


def limited(step: Step, keys: Keys, nulls: str = HASHED) -> Step:
    """The rows of a step whose keys are in the parts of a run."""
    rule = next((rule for kind, rule in RULES.items() if isinstance(step, kind)), None)
    below = None if rule is None else rule(step, keys, nulls)
    return _filtered(step, keys, nulls) if below is None else below


def _as_it_is(step: Step, keys: Keys, nulls: str) -> Step:
    return replace(step, inputs=(limited(step.inputs[0], keys, nulls),))


def _below_project(step: Step, keys: Keys, nulls: str) -> Step | None:
    assert isinstance(step, Project)
    inner = tuple(substitute(key, dict(step.columns)) for key in keys)
    return replace(step, inputs=(limited(step.inputs[0], inner, nulls),)) if all(map(_is_cheap, inner)) else None


def _below_groups(step: Step, keys: Keys, nulls: str) -> Step | None:
    """Rows of other groups change none. Those without a key are one group."""
    assert isinstance(step, Aggregate)
    by = dict(step.by)
    inner = tuple(substitute(key, by) for key in keys)
    if not by.keys() >= {name for key in keys for name in key.columns()} or not all(map(_is_cheap, inner)):
        return None
    return replace(step, inputs=(limited(step.inputs[0], inner, FIRST if nulls == FIRST else HASHED),))


def _below_union(step: Step, keys: Keys, nulls: str) -> Step:
    inputs = []
    for below in step.inputs:
        own: dict[str, Expr] = {
            f.name: Column(o.name, o.type, o.nullable) for f, o in zip(step.schema, below.schema, strict=True)
        }
        inputs.append(limited(below, tuple(substitute(key, own) for key in keys), nulls))
    return replace(step, inputs=tuple(inputs))


def _below_join(step: Step, keys: Keys, nulls: str) -> Step | None:
    """The side that the keys are of; and the other one, if the join is by the same keys."""
    assert isinstance(step, HashJoin)
    if step.is_open or step.kind not in KINDS:
        return None
    names = {name for key in keys for name in key.columns()}
    sides = (0, 1) if step.kind == "inner" else (0,)
    at = next((side for side in sides if names <= set(step.inputs[side].schema.names)), None)
    if at is None:
        return None
    inputs = list(step.inputs)
    inputs[at] = limited(inputs[at], keys, nulls)
    equal = {(key.left, key.right)[at]: (key.left, key.right)[1 - at] for key in step.keys if hashes_alike(key)}
    if all(key in equal for key in keys):
        inputs[1 - at] = limited(inputs[1 - at], tuple(equal[key] for key in keys), nulls)
    return replace(step, inputs=tuple(inputs))


def _is_cheap(expr: Expr) -> bool:
    """Whether an expression may be computed twice, and over rows that a filter leaves out."""
    return all(isinstance(e, Column) or (isinstance(e, Cast) and e.type == BIGINT and e.arg.type.is_integer)
               for e in expr.walk())  # fmt: skip


RULES: dict[type | tuple[type, ...], Callable[[Step, Keys, str], Step | None]] = {
    (Filter, Rekey, Redistribute, Reshard, Broadcast, Gather): _as_it_is,
    Project: _below_project,
    Aggregate: _below_groups,
    Union: _below_union,
    HashJoin: _below_join,
}
