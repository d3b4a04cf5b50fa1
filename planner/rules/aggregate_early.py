"""aggregate_early: where an aggregate is over one side of a join, that side is aggregated by its join keys before it is
joined.

    aggregate by=(c.k) n=count(o.x)          aggregate by=(c.k) n=sum(coalesce(n, 0))
      left join c.k = o.k           ->         left join c.k = o.k
        c                                        c
        o                                        aggregate by=(o.k) n=count(o.x)
                                                   o

A row of the left side meets all right rows of its key or none of them, so their aggregate can be made once. It is done
where the right side has many rows per key, and the join would not have left most of them out.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Literal, substitute
from tsql.kernels.expr.types import BIGINT, HUGEINT
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.stats import equalities
from tsql.planner.logical.calls import map_call
from tsql.planner.logical.nodes import Aggregate, Apply, Join, Node, Project
from tsql.planner.logical.predicates import JoinKey, conjunction
from tsql.planner.rules.framework import BOTTOM_UP, Surroundings, rule

COUNTS = ("count", "count_star")
MERGEABLE = (*COUNTS, "sum", "min", "max")


@rule(BOTTOM_UP, about=(Aggregate,), needs=(Join,))
def aggregate_early(node: Aggregate, around: Surroundings) -> Node:
    if node.sets is not None or not node.keys or not node.aggregates:
        return node
    over, renamed = _over(node)
    if (
        not isinstance(over, Join)
        or isinstance(over, Apply)
        or over.kind not in ("inner", "left")
        or id(over.right) in around.shared
        or id(over) in around.shared
    ):
        return node
    keys, rest = equalities(over)
    right = set(over.right.schema.names)
    if (
        not keys
        or rest
        or any(k.null_safe for k in keys)
        or any(c in right for _, e in renamed.keys for c in e.columns())
    ):
        return node
    if not all(_is_mergeable(call, right) for _, call in renamed.aggregates) or not _is_worth_it(over, keys):
        return node
    return _aggregated(renamed, over, keys)


def _over(node: Aggregate) -> tuple[Node, Aggregate]:
    """What is aggregated, below projections that only pass columns on, and the aggregate over its columns."""
    below = node.input
    if not isinstance(below, Project) or not all(isinstance(e, Column) for _, e in below.columns):
        return below, node
    columns = dict(below.columns)
    keys = tuple((n, substitute(e, columns)) for n, e in node.keys)
    calls = tuple((n, map_call(c, lambda e: substitute(e, columns))) for n, c in node.aggregates)
    return below.input, Aggregate(below.input, keys, calls)


def _is_mergeable(call: AggregateCall, right: set[str]) -> bool:
    """Whether a call is over the right side alone, and its results for parts of the rows give that for all."""
    if call.name not in MERGEABLE or call.distinct or call.filter is not None or call.order:
        return False
    used = {c for a in call.args for c in a.columns()}
    # Sums of floats depend on the order of their parts.
    return used <= right and bool(used or _counts_rows(call)) and not (call.name == "sum" and call.type.is_float)


def _counts_rows(call: AggregateCall) -> bool:
    return call.name in COUNTS and not call.args


def _is_worth_it(join: Join, keys: list[JoinKey]) -> bool:
    rows = stats.rows(join.right)
    return (
        rows >= cost.EARLY_GROUPS * stats.groups([k.right for k in keys], join.right) and stats.rows(join) * 2 >= rows
    )


def _aggregated(node: Aggregate, join: Join, keys: list[JoinKey]) -> Node:
    taken = {*join.left.schema.names, *join.right.schema.names}
    names = [k.right.name if isinstance(k.right, Column) else _fresh(f"key_{i}", taken) for i, k in enumerate(keys)]
    parts = [_fresh(f"{name}_each", taken) for name, _ in node.aggregates]
    each = Aggregate(
        join.right,
        tuple(dict(zip(names, (k.right for k in keys), strict=True)).items()),
        tuple((p, c) for p, (_, c) in zip(parts, node.aggregates, strict=True)),
    )
    condition = conjunction([replace(k, right=Column(n, k.right.type)).expr for k, n in zip(keys, names, strict=True)])
    joined = replace(join, right=each, condition=condition)
    calls = tuple(
        (name, _merged(call, Column(part, call.type), join.kind))
        for part, (name, call) in zip(parts, node.aggregates, strict=True)
    )
    total = Aggregate(joined, node.keys, calls)
    columns: list[tuple[str, Expr]] = [(n, Column(n, e.type)) for n, e in node.keys]
    columns += [
        (n, Cast(Column(n, HUGEINT), BIGINT) if c.name in COUNTS else Column(n, c.type)) for n, c in node.aggregates
    ]
    return Project(total, tuple(columns))


def _merged(call: AggregateCall, part: Column, kind: str) -> AggregateCall:
    """The aggregate of the parts. A left row without a partner is a row of NULLs: it counts for count(*) and for
    nothing else."""
    if call.name not in COUNTS:
        return replace(call, args=(part,))
    alone = Literal(1 if _counts_rows(call) else 0, BIGINT)
    value = part if kind == "inner" else Call("coalesce", (part, alone), BIGINT)
    return AggregateCall("sum", (value,), HUGEINT, position=call.position)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
