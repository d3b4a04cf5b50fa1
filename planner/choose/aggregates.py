"""Steps of groupings: aggregates with their grouping sets, DISTINCT, INTERSECT and EXCEPT."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.planner.choose.choice import Choice
from tsql.planner.choose.grouping import group, rename_call
from tsql.planner.choose.windows import paned_step
from tsql.planner.cost import stats
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.panes import paned
from tsql.planner.physical.operators.expand import Expand
from tsql.planner.physical.operators.filter import Filter
from tsql.planner.physical.operators.project import Project
from tsql.planner.physical.operators.replicate import Replicate
from tsql.planner.physical.operators.union import Union
from tsql.planner.physical.step import Step


def aggregate_step(choice: Choice, node: logical.Aggregate) -> Step:
    windows = paned(node)
    if windows is not None:
        return paned_step(choice, windows)
    source = choice.step(node.input)
    groups = stats.groups([e for _, e in node.keys], node.input)
    if node.sets is None:
        return group(choice, source, node.keys, node.aggregates, groups)
    # Keys are computed before they are set to NULL; the inputs of aggregates keep the values that they had.
    fields = node.input.schema
    renamed = {f.name: f"{f.name}__input" for f in fields}
    columns = [(renamed[f.name], Column(f.name, f.type, f.nullable)) for f in fields] + list(node.keys)
    source = Project((source,), columns=tuple(columns))
    expanded = Expand((source,), keys=tuple(n for n, _ in node.keys), sets=node.sets)
    calls = tuple((n, rename_call(c, renamed)) for n, c in node.aggregates)
    keys = (
        *((n, Column(n, e.type)) for n, e in node.keys),
        ("grouping_id", Column("grouping_id", BIGINT, False)),
        ("grouping_set", Column("grouping_set", BIGINT, False)),
    )
    grouped = group(choice, expanded, keys, calls, groups * len(node.sets))
    if () in node.sets:
        grouped = _with_empty_sets(choice, node, grouped, keys, calls)
    return Project((grouped,), columns=tuple((f.name, Column(f.name, f.type)) for f in node.schema))


def _with_empty_sets(
    choice: Choice,
    node: logical.Aggregate,
    grouped: Step,
    keys: tuple[tuple[str, Expr], ...],
    calls: tuple[tuple[str, AggregateCall], ...],
) -> Step:
    """The empty grouping set gives a row even for empty input, so its groups are aggregated again without keys.

    Each empty set is computed separately over the unexpanded input, and its rows from the expansion are dropped.
    """
    source = choice.step(node.input)
    total = group(choice, source, (), node.aggregates, 1.0)
    numbers = [i for i, s in enumerate(node.sets or ()) if s == ()]
    everything = (1 << len(node.keys)) - 1
    parts: list[Step] = [
        Filter((grouped,), predicate=Call("<>", (Column("grouping_set", BIGINT), Literal(n, BIGINT)), BOOLEAN))
        for n in numbers[:1]
    ]
    for n in numbers[1:]:
        parts[0] = Filter(
            (parts[0],), predicate=Call("<>", (Column("grouping_set", BIGINT), Literal(n, BIGINT)), BOOLEAN)
        )
    for n in numbers:
        columns: list[tuple[str, Expr]] = [(name, Literal(None, e.type)) for name, e in keys[:-2]]
        columns += [("grouping_id", Literal(everything, BIGINT)), ("grouping_set", Literal(n, BIGINT))]
        columns += [(name, Column(name, c.type)) for name, c in calls]
        parts.append(Project((total,), columns=tuple(columns)))
    return Union(tuple(parts))


def distinct_step(choice: Choice, node: logical.Distinct) -> Step:
    """DISTINCT is an aggregate without calls; DISTINCT ON takes the first row of each group."""
    fields = node.schema
    on = node.on if node.on is not None else fields.names
    keys = tuple((n, Column(n, fields[n].type)) for n in on)
    rest = tuple(
        (f.name, AggregateCall("first", (Column(f.name, f.type),), f.type)) for f in fields if f.name not in on
    )
    grouped = group(choice, choice.step(node.input), keys, rest, stats.groups([e for _, e in keys], node.input))
    return Project((grouped,), columns=tuple((f.name, Column(f.name, f.type)) for f in fields)) if rest else grouped


def set_operation_step(choice: Choice, node: logical.SetOperation) -> Step:
    left, right = choice.step(node.left), choice.step(node.right)
    if node.kind == "union":
        return Union((left, right))
    # Count each distinct row on both sides; the counts decide how many of it remain.
    fields = node.schema
    sides = []
    for side, mark in ((left, 0), (right, 1)):
        columns = [(f.name, Column(g.name, g.type, g.nullable)) for f, g in zip(fields, side.schema, strict=True)]
        sides.append(Project((side,), columns=(*columns, ("side", Literal(mark, BIGINT)))))
    both = Union(tuple(sides))
    keys = tuple((f.name, Column(f.name, f.type)) for f in fields)
    calls = tuple(
        (
            f"in_{name}",
            AggregateCall(
                "count_star", (), BIGINT, filter=Call("=", (Column("side", BIGINT), Literal(mark, BIGINT)), BOOLEAN)
            ),
        )
        for name, mark in (("left", 0), ("right", 1))
    )
    counted = group(choice, both, keys, calls, stats.rows(node))
    in_left, in_right, zero = Column("in_left", BIGINT), Column("in_right", BIGINT), Literal(0, BIGINT)
    has_left = Call(">", (in_left, zero), BOOLEAN)
    result: Step
    if node.all:
        times: Expr = Call("-", (in_left, in_right), BIGINT) if node.kind == "except" else _least(in_left, in_right)
        result = Replicate((counted,), times=times)
    else:
        wanted = Call("=" if node.kind == "except" else ">", (in_right, zero), BOOLEAN)
        result = Filter((counted,), predicate=Call("and", (has_left, wanted), BOOLEAN))
    return Project((result,), columns=keys)


def _least(a: Expr, b: Expr) -> Expr:
    return Case(((Call("<", (a, b), BOOLEAN), a),), b)
