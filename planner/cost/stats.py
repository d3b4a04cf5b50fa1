"""Estimates: how many rows a logical node yields, how many groups keys make, how many rows a condition leaves and a
join finds. Only costs depend on them, never results."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tsql.kernels.expr.nodes import Call, Column, Expr, InList, Literal
from tsql.planner.cost import constants as cost
from tsql.planner.cost.columns import column_statistics, distinct, series_rows
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.generating import Recursive, Sample, Series, Working
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Limit,
    LimitBy,
    Node,
    Project,
    Scan,
    SetOperation,
    Sort,
    Values,
)
from tsql.planner.logical.predicates import JoinKey, conjuncts, join_key
from tsql.planner.logical.snapshot import SnapshotAggregate

UNIQUE = 0.9
"""A column with at least this many distinct values per row of its table counts as a key."""


def rows(node: Node) -> float:
    """The estimated number of rows; it is remembered with the node."""
    known: float | None = node.__dict__.get("_rows")
    if known is None:
        known = _rows(node)
        object.__setattr__(node, "_rows", known)
    return known


def _rows(node: Node) -> float:
    match node:
        case Scan():
            known = node.source.statistics().rows if hasattr(node.source, "statistics") else None
            return cost.UNKNOWN_ROWS if known is None else float(known)
        case Values():
            return float(len(node.rows))
        case Filter():
            source: Node = node
            parts: list[Expr] = []
            while isinstance(source, Filter):
                parts.append(source.predicate)
                source = source.input
            return rows(source) * joint_selectivity(parts, source)
        case Aggregate():
            return groups([e for _, e in node.keys], node.input) * (len(node.sets) if node.sets else 1)
        case Distinct():
            return groups([Column(f.name, f.type) for f in node.schema], node.input)
        case Limit() if isinstance(node.count, Literal) and node.count.value is not None:
            below = rows(node.input)
            return below * node.count.value / 100 if node.count.type.is_float else min(below, float(node.count.value))
        case LimitBy() if isinstance(node.count, Literal) and node.count.value is not None:
            keys: list[Expr] = [Column(n, node.schema[n].type) for n in node.by]
            return min(rows(node.input), groups(keys, node.input) * float(node.count.value))
        case SetOperation():
            return rows(node.left) + rows(node.right)
        case AsofJoin():
            return rows(node.left)
        case Join():
            return join_rows(node)
        case SnapshotAggregate():
            return 2 * rows(node.input)
        case Series():
            return rows(node.input) * series_rows(node.start, node.stop, node.step)
        case Sample():
            below = rows(node.input)
            return below * (node.percent or 0.0) / 100 if node.rows is None else min(below, float(node.rows))
        case Match() if node.spec.is_one_row:
            return rows(node.input) * cost.MATCHED
        case Recursive():
            return rows(node.initial) * cost.ROUNDS
        case Working():
            return cost.WORKING_ROWS
    return max((rows(i) for i in node.inputs), default=1.0)


def groups(keys: list[Expr], node: Node) -> float:
    """The estimated number of groups."""
    total = rows(node)
    if not keys:
        return 1.0
    product = 1.0
    for key in keys:
        known = distinct(key, node)
        product *= max(1.0, total * cost.GROUPS_OF_UNKNOWN_KEYS) if known is None else known
    return max(1.0, min(product, total))


def joint_selectivity(parts: list[Expr], node: Node) -> float:
    """The estimated part of rows for which all predicates are true; a lower and an upper bound of one column are a
    range."""
    result = 1.0
    bounds: dict[str, list[float]] = {}
    for part in parts:
        match part:
            case Call("<" | "<=" | ">" | ">=" as name, (Column() as column, Literal() as literal)):
                kept = _range_selectivity(name, column, literal, node)
                if kept is not None:
                    span = bounds.setdefault(column.name, [0.0, 1.0])
                    span[0 if name[0] == ">" else 1] = (
                        max(span[0], 1.0 - kept) if name[0] == ">" else min(span[1], kept)
                    )
                    continue
        result *= selectivity(part, node)
    for low, high in bounds.values():
        result *= max(cost.LEAST_RANGE, high - low)
    return result


def selectivity(predicate: Expr, node: Node) -> float:
    """The estimated part of rows for which a predicate is true."""
    match predicate:
        case Call("and", args):
            return joint_selectivity(list(args), node)
        case Call("or", args):
            return min(1.0, sum(selectivity(a, node) for a in args))
        case Call("not", (arg,)):
            return 1.0 - selectivity(arg, node)
        case Call("=" | "is_not_distinct_from", (Column() as column, Column() as other)):
            both = [d for d in (distinct(column, node), distinct(other, node)) if d is not None]
            return 1.0 / max(*both, 1.0) if both else cost.EQUALITY_SELECTIVITY
        case Call("=", (Column() as column, _)):
            known = distinct(column, node)
            return cost.EQUALITY_SELECTIVITY if known is None else 1.0 / max(known, 1.0)
        case Call("<>", args):
            return 1.0 - selectivity(Call("=", args, predicate.type), node)
        case Call("has_time" | "has_start", (arg, *_)):
            return 1.0 - _null_part(arg, node)
        case Call("is_null", (arg,)):
            return _null_part(arg, node)
        case Call("is_not_null" | "isfinite", (arg,)):
            return 1.0 - _null_part(arg, node)
        case Call("<" | "<=" | ">" | ">=" as name, (Column() as column, Literal() as literal)):
            kept = _range_selectivity(name, column, literal, node)
            return cost.FILTER_SELECTIVITY if kept is None else kept
        case Call("like" | "ilike" | "contains" | "starts_with" | "ends_with" | "prefix" | "suffix" | "glob"):
            return cost.LIKE_SELECTIVITY
        case InList(arg, options):
            return min(1.0, len(options) * selectivity(Call("=", (arg, options[0]), predicate.type), node))
    return cost.FILTER_SELECTIVITY


def _null_part(expr: Expr, node: Node) -> float:
    """The estimated part of rows in which an expression is NULL."""
    known = column_statistics(node, expr.name) if isinstance(expr, Column) else None
    if not isinstance(expr, Column) or known is None or known.nulls is None:
        return cost.NULL_PART
    while isinstance(node, Join):
        # The rows of the join itself are what is being estimated.
        node = node.left if expr.name in node.left.schema else node.right
    return min(1.0, known.nulls / max(1.0, rows(node)))


def _range_selectivity(name: str, column: Column, literal: Literal, node: Node) -> float | None:
    known = column_statistics(node, column.name)
    if known is None:
        return None
    low, high, value = known.minimum, known.maximum, literal.value
    if not (isinstance(low, int | float) and isinstance(high, int | float) and isinstance(value, int | float)):
        return None
    if high <= low:
        return None
    below = min(1.0, max(0.0, (value - low) / (high - low)))
    return below if name[0] == "<" else 1.0 - below


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
    left, right = rows(node.left), rows(node.right)
    if node.kind in ("mark", "single"):
        return left
    keys, rest = equalities(node)
    if node.kind in ("semi", "anti"):
        part = matching_part(keys, node.left, node.right) * (cost.SEMI_SELECTIVITY if rest else 1.0)
        return left * (part if node.kind == "semi" else max(1.0 - part, cost.LEAST_ANTI_PART))
    kept = prod(selectivity(part, node) for part in rest)
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
    """The fraction of all pairs that are equal. Each side is (values, base): its distinct values and the rows of its
    table."""
    unique = [values for values, base in sides if values >= UNIQUE * base]
    return 1.0 / max(1.0, min(unique) if unique else max(values for values, _ in sides))


def combinations(keys: list[Expr], node: Node) -> tuple[float, float]:
    """How many different values keys have before filters, and how many rows the table has that they come from."""
    base = max(base_rows(key, node) for key in keys)
    values = []
    for key in keys:
        known = distinct(key, node)
        values.append(max(1.0, base * cost.GROUPS_OF_UNKNOWN_KEYS) if known is None else max(1.0, min(known, base)))
    return min(prod(values), base), base


def base_rows(key: Expr, node: Node) -> float:
    """The rows of the relation that a key's column comes from, before filters and joins."""
    name = key.columns()[0] if key.columns() else ""
    while True:
        match node:
            case Project():
                expr = dict(node.columns).get(name)
                if not isinstance(expr, Column):
                    return max(1.0, rows(node))
                name, node = expr.name, node.input
            case Filter() | Sort() | Limit():
                node = node.input
            case Join() | AsofJoin():
                node = node.left if name in node.left.schema else node.right
            case _:
                return max(1.0, rows(node))


def unfiltered_rows(node: Node) -> float:
    """The rows of a relation before the filters on it."""
    while isinstance(node, Filter | Project):
        node = node.input
    return max(1.0, rows(node))


def matching_part(keys: list[JoinKey], probed: Node, built: Node) -> float:
    """The fraction of probed rows expected to find a partner: the fraction of the built side's values that remain."""
    if not keys:
        return 1.0
    values, base = combinations([k.right for k in keys], built)
    left = min(values, rows(built))
    if values >= UNIQUE * base:
        return min(1.0, left / values)
    return min(1.0, left / max(1.0, combinations([k.left for k in keys], probed)[0]))


def matching(node: Join, build: str) -> float:
    """How many rows of the side that is not built are expected to find a partner."""
    keys, _ = equalities(node)
    if build == "left":
        return rows(node.right) * matching_part([k.turned() for k in keys], node.right, node.left)
    return rows(node.left) * matching_part(keys, node.left, node.right)
