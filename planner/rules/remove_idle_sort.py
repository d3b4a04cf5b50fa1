"""remove_idle_sort: an ORDER BY goes away where nobody can see in which order the rows come.

aggregate by=() n=sum(x)        aggregate by=() n=sum(x)
  sort y asc              ->      scan t (x, y)
    scan t (x, y)

An aggregate, also one per snapshot, does not see it, unless one of its calls depends on the order of rows (`first`,
`string_agg`, ..); nor does DISTINCT, nor what only asks for a partner: the right side of a semi, anti or mark join, of
INTERSECT and of EXCEPT. The sort may stand below projections, filters, joins and UNION ALL. A LIMIT, a window or a
DISTINCT ON takes rows by their places, so what is below it stays.
"""

from __future__ import annotations

from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.planner.logical.nodes import Aggregate, Distinct, Filter, Join, Node, Project, SetOperation, Sort
from tsql.planner.logical.snapshot import SnapshotAggregate
from tsql.planner.rules.framework import TOP_DOWN, Surroundings, rule


@rule(TOP_DOWN, about=(Aggregate, SnapshotAggregate, Distinct, Join, SetOperation), needs=(Sort,))
def remove_idle_sort(node: Node, around: Surroundings) -> Node:
    match node:
        case Aggregate() | SnapshotAggregate() if not any(
            f.ordered for _, call in node.aggregates for f in AGGREGATES.overloads[call.name]
        ):
            return node.with_inputs((_unsorted(node.input, around),))
        case Distinct() if node.on is None:
            return node.with_inputs((_unsorted(node.input, around),))
        case Join() if node.kind in ("semi", "anti", "mark"):
            return node.with_inputs((node.left, _unsorted(node.right, around)))
        case SetOperation() if node.kind in ("intersect", "except"):
            return node.with_inputs((node.left, _unsorted(node.right, around)))
    return node


def _unsorted(node: Node, around: Surroundings) -> Node:
    """The same rows in any order. What has other users stays: they may see the order."""
    if id(node) in around.shared:
        return node
    match node:
        case Sort():
            return _unsorted(node.input, around)
        case Project() | Filter() | Join():
            return node.with_inputs(tuple(_unsorted(i, around) for i in node.inputs))
        case SetOperation() if node.kind == "union":
            return node.with_inputs(tuple(_unsorted(i, around) for i in node.inputs))
    return node
