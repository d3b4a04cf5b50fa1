"""push_filter_into_scan: the scan learns the filters right above it, to skip files, row groups and blocks that cannot
match.

    filter a > 5            filter a > 5
      scan t            ->    scan t where a > 5

The filter stays: statistics can only prove that nothing matches.
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Call, Expr
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.logical.nodes import Filter, Node, Scan
from tsql.planner.rules.framework import TOP_DOWN, rule


@rule(TOP_DOWN, about=(Filter,))
def push_filter_into_scan(node: Filter) -> Node:
    predicates: list[Expr] = []
    filters: list[Filter] = []
    below: Node = node
    while isinstance(below, Filter):
        filters.append(below)
        predicates.append(below.predicate)
        below = below.input
    if not isinstance(below, Scan) or below.filter is not None:
        return node
    predicates.reverse()
    result: Node = replace(
        below, filter=predicates[0] if len(predicates) == 1 else Call("and", tuple(predicates), BOOLEAN)
    )
    for f in reversed(filters):
        result = Filter(result, f.predicate)
    return result
