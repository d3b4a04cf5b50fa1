"""mark_to_semi: a mark join right below a filter on its mark becomes a semi join, below a filter on NOT mark an anti
join.

filter m                          project x.*, m=true
  mark join m=x.a = y.b     ->      semi join on x.a = y.b
    x                                 x
    y                                 y

NOT m keeps the mark where m may be NULL: `a NOT IN (..)` is not true if the list has a NULL, or a is one and the list
has rows, and an anti join would keep such rows. Parts of the condition that only told NULL from false are simplified,
since for semi and anti joins both mean no partner."""

from __future__ import annotations

from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.planner.logical.facts import never_null_condition
from tsql.planner.logical.nodes import Apply, Filter, Join, Node, Project
from tsql.planner.logical.null_assumptions import forget, is_existence
from tsql.planner.logical.predicates import FALSE, TRUE, column, conjunction, conjuncts, rejects
from tsql.planner.rules.framework import TOP_DOWN, Surroundings, rule


@rule(TOP_DOWN, about=(Filter,), needs=(Join,))
def mark_to_semi(node: Filter, around: Surroundings) -> Node:
    filters: list[Filter] = []
    below: Node = node
    while isinstance(below, Filter) and (below is node or id(below) not in around.shared):
        filters.append(below)
        below = below.input
    if not isinstance(below, Join) or isinstance(below, Apply) or below.kind != "mark" or id(below) in around.shared:
        return node
    for chosen in filters:
        result = _convert(below, chosen.predicate)
        if result is not None:
            for f in reversed(filters):
                if f is not chosen:
                    result = Filter(result, f.predicate)
            return result
    return node


def _convert(node: Join, predicate: Expr) -> Node | None:
    """The semi or anti join of a mark join, with what the mark is then as a column beside it."""
    match predicate:
        case Column(name) if name == node.mark:
            kind, value = "semi", TRUE
        case Call("not", (Column(name),)) if name == node.mark and (is_existence(name) or never_null_condition(node)):
            kind, value = "anti", FALSE
        case _:
            return None
    forget(node.mark)
    joined = Join(kind, node.left, node.right, _simplified(node.condition))
    return Project(joined, (*((f.name, column(f)) for f in joined.schema), (node.mark, value)))


def _simplified(condition: Expr | None) -> Expr | None:
    """Without tests of a column for NULL where another part is not true for a NULL anyway, and without `IS NOT DISTINCT
    FROM true`."""
    parts = [
        p.args[0] if isinstance(p, Call) and p.name == "is_not_distinct_from" and p.args[1] == TRUE else p
        for p in conjuncts(condition)
    ]
    kept = []
    for part in parts:
        match part:
            case Call("is_not_null", (Column(name),)) if any(
                p is not part and rejects(p, (name,)) and p.columns() != (name,) for p in parts
            ):
                continue
        kept.append(part)
    return conjunction(kept)
