"""What matches the rows of a temporal relation: for each value of the columns that the match depends on, the lifetimes
of what matches. `lifetime_joins.py` cuts rows by it, for EXISTS, NOT EXISTS and outer joins.

If rows match by equalities only, that are all partners of a key, once per key, whenever they live. Under any other
condition a value may have very many partners, so it is matched with those that live at the same time: the lifetime of
a row is one of its values then. Of partners that are equal in what the condition names, only the times count when one
of them is alive, so they are merged first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsql.analyze.outer_columns import outers, own_outers
from tsql.analyze.scope import Life
from tsql.analyze.time.cut import coalesced, domain_of
from tsql.analyze.time.lifetimes import every, kept, overlap
from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, Outer, rewrite
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.predicates import EQUALITIES, conjunction, conjuncts


@dataclass(frozen=True)
class Matches:
    """The matches of the rows of a plan. keys: the plan's columns that the match depends on. domain: each of their
    values once. plan: these values with the lifetimes of their matches, the columns `life`."""

    keys: tuple[str, ...]
    domain: logical.Node
    plan: logical.Node
    life: Life


def matched(
    left: logical.Node,
    life: Life,
    right: logical.Node,
    right_life: Life,
    condition: Expr | None,
    taken: Iterable[str],
) -> Matches:
    """The lifetimes of the right rows that match, for each value of the left columns that the condition or the right
    side names."""
    right, right_life, condition = _lifted(right, right_life, condition, left.schema.names)
    named = {outer.name for outer in outers(right)} | set(condition.columns() if condition is not None else ())
    by_key = _is_by_equalities(left, right, condition)
    if not by_key:
        right = _merged(right, right_life, named, taken)
        named |= set(life.columns)
        condition = every([*conjuncts(condition), *overlap(life, right_life)])
    keys = tuple(name for name in left.schema.names if name in named)
    domain = domain_of(left, keys)
    if keys:
        found: logical.Node = logical.Apply("inner", domain, right, condition)
    else:
        found = right if condition is None else logical.Filter(right, condition)
    return Matches(
        keys, domain, logical.Project(found, (*kept(found, keys), *kept(found, right_life.columns))), right_life
    )


def _lifted(
    plan: logical.Node, life: Life, condition: Expr | None, left: Sequence[str]
) -> tuple[logical.Node, Life, Expr | None]:
    """A right side whose last filter names columns of the left, without that part of it, which joins the condition. A
    projection above it is gone: only the lifetimes of the right side are asked for."""
    below, named = plan, life
    while isinstance(below, logical.Project) and condition is None:
        columns = dict(below.columns)
        start, end = (columns[name] for name in named.columns)
        if any(own_outers(below)) or not (isinstance(start, Column) and isinstance(end, Column)):
            return plan, life, condition
        named, below = Life(start.name, end.name), below.input
    if not isinstance(below, logical.Filter):
        return plan, life, condition
    parts = conjuncts(below.predicate)
    risen = [part for part in parts if _outer_names(part) and _outer_names(part) <= set(left)]
    if not risen or outers(below.input):
        return plan, life, condition
    own = conjunction([part for part in parts if part not in risen])
    lower = below.input if own is None else logical.Filter(below.input, own)
    if outers(lower) or set(lower.schema.names) & set(left):
        return plan, life, condition
    both = [rewrite(part, _as_column) for part in risen]
    return lower, named, every([*conjuncts(condition), *both])


def _as_column(expr: Expr) -> Expr:
    return Column(expr.name, expr.dtype, expr.nullable, expr.position) if isinstance(expr, Outer) else expr


def _outer_names(expr: Expr) -> set[str]:
    return {node.name for node in expr.walk() if isinstance(node, Outer)}


def _is_by_equalities(left: logical.Node, right: logical.Node, condition: Expr | None) -> bool:
    """Whether rows match by nothing but equalities of a column of the left side and an expression of the right."""
    if outers(right):
        return False
    ours, theirs = set(left.schema.names), set(right.schema.names)
    for part in conjuncts(condition):
        if not set(part.columns()) & ours:
            continue
        if not (isinstance(part, Call) and part.name in EQUALITIES):
            return False
        sides = [(_plain(side), set(side.columns())) for side in part.args]
        if not any(name in ours and b and b <= theirs for (name, _), (_, b) in (sides, sides[::-1])):
            return False
    return True


def _plain(expr: Expr) -> str | None:
    """The name of a column, of any type; None for an expression, which may have one value for many of its columns."""
    while isinstance(expr, Cast):
        expr = expr.arg
    return expr.name if isinstance(expr, Column) else None


def _merged(plan: logical.Node, life: Life, named: set[str], taken: Iterable[str]) -> logical.Node:
    """The rows of a right side, merged where they are equal in all that a condition names of them."""
    keys = [name for name in plan.schema.names if name in named]
    if outers(plan) or set(keys) & set(life.columns):
        return plan
    return coalesced(plan, keys, life, taken)
