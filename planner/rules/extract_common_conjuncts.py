"""extract_common_conjuncts: what every branch of an OR demands is demanded beside it.

    filter (a = b AND c = 1) OR (a = b AND c = 2)   ->   filter a = b AND (c = 1 OR c = 2)

So TPC-H Q19 joins on its key instead of testing all pairs. Over a join, what every branch demands of one column follows
too (Q7: the first nation is one of two, and so is the second); the OR stays, since it says more:

    filter (m = 'F' AND n = 'G') OR (m = 'G' AND n = 'F')
    ->  filter ((m = 'F' AND n = 'G') OR (m = 'G' AND n = 'F')) AND (m = 'F' OR m = 'G') AND (n = 'G' OR n = 'F')
"""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Call, Expr
from tsql.kernels.expr.types import BOOLEAN
from tsql.planner.logical.failing import may_fail
from tsql.planner.logical.nodes import Filter, Join, Node
from tsql.planner.logical.predicates import all_of, conjuncts
from tsql.planner.rules.framework import BOTTOM_UP, rule

MOST_BRANCHES = 32


@rule(BOTTOM_UP, about=(Filter, Join))
def extract_common_conjuncts(node: Filter | Join) -> Node:
    match node:
        case Filter():
            known = [node.predicate]
            below = node.input
            while isinstance(below, Filter):
                known.append(below.predicate)
                below = below.input
            changed = _conjunction(node.predicate, isinstance(below, Join), known)
            return node if changed is node.predicate else replace(node, predicate=changed)
        case Join() if node.condition is not None and node.kind != "mark":
            changed = _conjunction(node.condition, True, [node.condition])
            return node if changed is node.condition else replace(node, condition=changed)
    return node


def _conjunction(expr: Expr, over_join: bool, known: list[Expr]) -> Expr:
    parts: list[Expr] = []
    for part in conjuncts(expr):
        parts += conjuncts(_factored(part))
    if over_join:
        there = {p for k in known for p in conjuncts(k)}.union(parts)
        parts += [implied for part in parts for implied in _implied(part) if implied not in there]
    return expr if parts == conjuncts(expr) else all_of(parts)


def _branches(expr: Expr) -> list[list[Expr]]:
    if isinstance(expr, Call) and expr.name == "or" and len(expr.args) <= MOST_BRANCHES:
        return [conjuncts(arg) for arg in expr.args]
    return []


def _factored(expr: Expr) -> Expr:
    branches = _branches(expr)
    if not branches:
        return expr
    common = [p for p in branches[0] if all(p in branch for branch in branches[1:])]
    if not common:
        return expr
    rests = [[p for p in branch if p not in common] for branch in branches]
    if not all(rests):
        return all_of(common)
    either = Call("or", tuple(map(all_of, rests)), BOOLEAN, getattr(expr, "position", None))
    return all_of((*common, either))


def _implied(expr: Expr) -> list[Expr]:
    """For each column that all branches restrict by itself: the restrictions joined by OR."""
    branches = _branches(expr)
    if not branches or len(expr.columns()) < 2:
        return []
    found = []
    for name in expr.columns():
        alone = [[p for p in branch if p.columns() == (name,) and not may_fail(p)] for branch in branches]
        if all(alone):
            found.append(Call("or", tuple(dict.fromkeys(map(all_of, alone))), BOOLEAN))
    return [f if len(f.args) > 1 else f.args[0] for f in found]
