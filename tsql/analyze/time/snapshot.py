"""A grouping of a temporal relation: one row per group and maximal time span in which its results do not change. The
analyzer calls `snapshot` with the Aggregate node that the query would have over a plain relation.

Aggregates that can add and remove rows (`is_foldable`: counts, sums, min and max, averages, ..) are one node of the
plan. If one of them cannot (a median, DISTINCT, string_agg), all are computed for each span between two neighbouring
starts or ends of their group, over the rows alive then: `by_spans`. Its cost is the number of live rows, summed over
all spans. The joins on that way keep no order. If an aggregate depends on the order (first, string_agg), the rows are
numbered before, in one shard, and the aggregate is ordered by these numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tsql.analyze.scope import Life, Names
from tsql.analyze.time.cut import merged, union
from tsql.analyze.time.lifetimes import bound, columns_of, every, kept, new_life
from tsql.analyze.time.spans import Spans
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.nodes import Aggregate, Call, Column, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.foldable import is_foldable
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.snapshot import SnapshotAggregate, ends_of

Calls = Sequence[tuple[str, Aggregate]]


def snapshot(node: logical.Aggregate, life: Life, taken: Iterable[str]) -> tuple[logical.Node, Life]:
    """The grouping per snapshot: the columns of `node`, and a lifetime."""
    if node.sets is not None:
        return _by_sets(node, life, taken)
    taken = (*taken, *node.schema.names)
    names = Names((*taken, *node.input.schema.names))
    keys = [names.unique(f"{name}_key") for name, _ in node.keys]
    used = {column for _, call in node.aggregates for expr in call.expressions() for column in expr.columns()}
    rows = logical.Project(
        node.input,
        (
            *((key, expr) for key, (_, expr) in zip(keys, node.keys, strict=True)),
            *kept(node.input, [name for name in node.input.schema.names if name in used and name not in life.columns]),
            *kept(node.input, life.columns),
        ),
    )
    values = [name for name, _ in node.aggregates]
    if all(is_foldable(call) for _, call in node.aggregates):
        span = new_life((*taken, *rows.schema.names))
        plan: logical.Node = SnapshotAggregate(
            rows, tuple(keys), *life.columns, span.columns, node.aggregates, ends_of(rows, *life.columns)
        )
    else:
        plan, span = by_spans(rows, keys, life, node.aggregates, taken)
        plan = merged(plan, keys, values, span, taken)
    shown = [(name, column) for (name, _), column in zip(node.keys, columns_of(plan, keys), strict=True)]
    return logical.Project(plan, (*shown, *kept(plan, values), *kept(plan, span.columns))), span


def _by_sets(node: logical.Aggregate, life: Life, taken: Iterable[str]) -> tuple[logical.Node, Life]:
    """A grouping for each of the grouping sets, over one input; keys that are not in the set are NULL."""
    span = new_life((*taken, *node.schema.names, *node.input.schema.names))
    plans: list[logical.Node] = []
    for one in node.sets:
        part = replace(node, keys=tuple(node.keys[i] for i in one), sets=None)
        plan, own = snapshot(part, life, (*taken, *node.schema.names, *span.columns))
        number = sum(1 << i for i in range(len(node.keys)) if i not in one)
        keys = [
            (name, Column(name, expr.type) if i in one else Literal(None, expr.type))
            for i, (name, expr) in enumerate(node.keys)
        ]
        times = [(name, bound(column)) for name, column in zip(span.columns, own.columns, strict=True)]
        results = kept(plan, [name for name, _ in node.aggregates])
        plans.append(logical.Project(plan, (*keys, *results, ("grouping_id", Literal(number, BIGINT)), *times)))
    return union(plans), span


def by_spans(
    rows: logical.Node, keys: Sequence[str], life: Life, calls: Calls, taken: Iterable[str]
) -> tuple[logical.Node, Life]:
    """The aggregates over the rows alive in each span between two neighbouring starts or ends of a group."""
    names = Names((*taken, *rows.schema.names, *(name for name, _ in calls)))
    place = names.unique("place")
    followers = any(_follows_order(call) for _, call in calls)
    spans = Spans(rows, keys, life, names)
    repeated = spans.repeated(_numbered(rows, place) if followers else rows)
    if followers:
        repeated, calls = _in_order(repeated, (*keys, spans.span), calls, Column(place, BIGINT, False), names)
    groups = logical.Aggregate(repeated, tuple(kept(repeated, (*keys, spans.span))), tuple(calls))
    plan, begins, ends = spans.timed(groups)
    times = ((spans.time, begins), (spans.until, ends))
    shown = (*kept(plan, keys), *kept(plan, [name for name, _ in calls]))
    return logical.Project(plan, (*shown, *times)), Life(spans.time, spans.until)


def _follows_order(call: Aggregate) -> bool:
    """Whether the result depends on the order of the rows."""
    return AGGREGATES.find(call.name, tuple(arg.type for arg in call.args)).ordered


def _numbered(rows: logical.Node, place: str) -> logical.Node:
    """The rows with their places in the input: the joins that find their edges give them in any order."""
    return logical.Window(rows, (), (), ((place, WindowCall("row_number", (), BIGINT)),))


def _in_order(
    rows: logical.Node, keys: Sequence[str], calls: Calls, place: Column, names: Names
) -> tuple[logical.Node, Calls]:
    """Rewrites calls that depend on the order of rows to be ordered by row number; also the rows with the columns they
    need."""
    found = []
    for name, call in calls:
        if _follows_order(call):
            if call.distinct:
                rows, call = _first_ones(rows, keys, call, place, names.unique("copy"))
            call = replace(call, order=(*call.order, _last_key(call, place)))
        found.append((name, call))
    return rows, found


def _last_key(call: Aggregate, place: Column) -> SortKey:
    """The last sort key, which breaks ties of an ORDER BY: the first row of the input wins. This holds for `last` too,
    which reverses its keys."""
    return SortKey(place, descending=bool(call.order) and call.name in ("last", "last_value"))


def _first_ones(
    rows: logical.Node, keys: Sequence[str], call: Aggregate, place: Column, copy: str
) -> tuple[logical.Node, Aggregate]:
    """Rewrites a call over distinct values to one over the first row of each value. The joins decide which row that
    is."""
    same = (*columns_of(rows, keys), *call.args, *(() if call.filter is None else (call.filter,)))
    rows = logical.Window(rows, same, (SortKey(place),), ((copy, WindowCall("row_number", (), BIGINT)),))
    is_first = Call("=", (Column(copy, BIGINT, False), Literal(1, BIGINT)), BOOLEAN)
    return rows, replace(
        call, distinct=False, filter=is_first if call.filter is None else every([call.filter, is_first])
    )
