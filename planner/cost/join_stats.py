"""Estimates of joins: how many pairs there are, and how many rows find a partner. `planner/cost/stats.py` asks here."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tsql.kernels.expr.nodes import Column, Expr
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.nodes import Aggregate, Distinct, Filter, Join, Limit, Node, Project, Scan, Sort
from tsql.planner.logical.predicates import JoinKey, conjuncts, join_key

UNIQUE = 0.9
"""A column with so many distinct values per row of its table is taken for a key of it."""


def equalities(node: Join) -> tuple[list[JoinKey], list[Expr]]:
    """The equalities between the inputs of a join, and the other conjuncts."""
    keys, rest = [], []
    for part in conjuncts(node.condition):
        key = join_key(part, node.left.schema.names, node.right.schema.names)
        if key is None:
            rest.append(part)
        else:
            keys.append(key)
    return keys, rest


def join_rows(node: Join) -> float:
    """The estimated number of rows of a join."""
    left, right = stats.rows(node.left), stats.rows(node.right)
    if node.kind in ("mark", "single"):
        return left
    keys, rest = equalities(node)
    if node.kind in ("semi", "anti"):
        part = matching_part(keys, node.left, node.right) * (cost.SEMI_SELECTIVITY if rest else 1.0)
        return left * (part if node.kind == "semi" else max(1.0 - part, cost.LEAST_ANTI_PART))
    kept = prod(stats.selectivity(part, node) for part in rest)
    found = left * right * key_selectivity(keys, node.left, node.right) * kept
    if node.kind == "inner":
        return found
    return max(found, left, right if node.kind == "full" else 0.0)


def key_selectivity(keys: list[JoinKey], left: Node, right: Node) -> float:
    """The part of all pairs of rows whose keys are equal: every value of the side whose keys are unique is met."""
    if not keys:
        return 1.0
    return equal_part([combinations([k.left for k in keys], left), combinations([k.right for k in keys], right)])


def equal_part(sides: Sequence[tuple[float, float]]) -> float:
    """The part of all pairs that are equal, if each side has so many values, of a table with so many rows: (values,
    base)."""
    unique = [values for values, base in sides if values >= UNIQUE * base]
    return 1.0 / max(1.0, min(unique) if unique else max(values for values, _ in sides))


def combinations(keys: list[Expr], node: Node) -> tuple[float, float]:
    """How many different values keys have before filters, and how many rows the table has that they come from."""
    base = max(base_rows(key, node) for key in keys)
    values = []
    for key in keys:
        known = stats.distinct(key, node)
        values.append(max(1.0, base * cost.GROUPS_OF_UNKNOWN_KEYS) if known is None else max(1.0, min(known, base)))
    return min(prod(values), base), base


def base_rows(key: Expr, node: Node) -> float:
    """The rows of the relation that a key's column comes from, before filters and joins."""
    name = key.columns()[0] if key.columns() else None
    while True:
        match node:
            case Scan():
                return max(1.0, stats.rows(node))
            case Project():
                expr = dict(node.columns).get(name)
                if not isinstance(expr, Column):
                    return max(1.0, stats.rows(node))
                name, node = expr.name, node.input
            case Filter() | Sort() | Limit():
                node = node.input
            case Join() | AsofJoin():
                node = node.left if name in node.left.schema else node.right
            case Aggregate() | Distinct():
                return max(1.0, stats.rows(node))
            case _:
                return max(1.0, stats.rows(node))


def unfiltered_rows(node: Node) -> float:
    """The rows of a relation before the filters on it."""
    while isinstance(node, Filter | Project):
        node = node.input
    return max(1.0, stats.rows(node))


def matching_part(keys: list[JoinKey], probed: Node, built: Node) -> float:
    """The part of the probed rows that is expected to find a partner: that of the built side's values which are
    left."""
    if not keys:
        return 1.0
    values, base = combinations([k.right for k in keys], built)
    left = min(values, stats.rows(built))
    if values >= UNIQUE * base:
        return min(1.0, left / values)
    return min(1.0, left / max(1.0, combinations([k.left for k in keys], probed)[0]))


def matching(node: Join, build: str) -> float:
    """How many rows of the side that is not built are expected to find a partner."""
    keys, _ = equalities(node)
    if build == "left":
        return stats.rows(node.right) * matching_part([k.turned() for k in keys], node.right, node.left)
    return stats.rows(node.left) * matching_part(keys, node.left, node.right)
