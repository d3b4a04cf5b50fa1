"""The plan of a driven join, of groups or of windows, for a part of its keys: a filter over the hash of the keys, as
near to the scans as it can be (`part_filters.py`), and a group for each batch of parts.

    some   = filter orders where=(hash(o_id) % 1024 >= #from ..)    lines, with the same filter over l_id
    rows   = hash_join some some2 on=(o_id = l_id)
    part   = aggregate rows phase=partial by=(#batch, ..)       a group for each batch of parts
    sums   = project part ..                                    with its measures and their products

`#batch` numbers the parts of the sample whose sums are compared. The last run needs no sample: it has the rest of the
keys, and no batches. Both have the columns that a snapshot needs, or the partial groups alone."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.aggregates.bodies import state_names
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, Literal, Parameter
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE
from tsql.planner.physical.movement import Gather
from tsql.planner.physical.operators.aggregate import Aggregate
from tsql.planner.physical.operators.join import HashJoin
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.step import PhysicalPlan, Step, named
from tsql.planner.progressive.dealing import WIDTH, Dealing
from tsql.planner.progressive.driven_keys import DrivenKeys, sides_of
from tsql.planner.progressive.measures import binary, number
from tsql.planner.progressive.part_filters import limited
from tsql.planner.progressive.snapshot_plan import SnapshotPlan
from tsql.planner.progressive.terms import SEEN
from tsql.planner.progressive.values import product_name

BATCH = "#batch"


def plan_of_part(plan: PhysicalPlan, found: DrivenKeys, snapshot: SnapshotPlan | None, heavy: int = 0) -> PhysicalPlan:
    """The plan of the partial groups of some parts. `snapshot`: they are a sample for this plan of snapshots. heavy:
    how many keys a run counts in full."""
    below = found.below
    sides = [(rows, replace(dealing, heavy=heavy)) for rows, dealing in sides_of(below)]
    done = [limited(rows, dealing) for rows, dealing in sides]
    if snapshot is not None:
        done[0] = _numbered(done[0], sides[0][1])
    rows = replace(below, inputs=tuple(done)) if isinstance(below, HashJoin) else done[0]
    for step in _path(found):
        rows = _over(step, rows, snapshot is not None)
    root = named(rows if snapshot is None else _with_sums(rows, found, snapshot))
    names = tuple(f.name for f in root.schema)
    return replace(plan, root=root, columns=names, names=names, query="", notes=())


def _numbered(rows: Step, dealing: Dealing) -> Step:
    """Rows with the batch of their keys."""
    columns = tuple((f.name, Column(f.name, f.type, f.nullable)) for f in rows.schema)
    return Project((rows,), columns=(*columns, (BATCH, dealing.batch(rows))))


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
    in_full = Call("<", (Column(BATCH, BIGINT), Literal(0, BIGINT)), BOOLEAN)
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
