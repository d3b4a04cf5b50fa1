"""Estimates: how many rows a logical node yields, how many groups keys make. Only costs depend on them, never results."""

from __future__ import annotations

from tsql.kernels.expr import Call, Column, Expr, InList, Literal
from tsql.planner import cost
from tsql.planner.facts import pairs_at_most_once
from tsql.planner.logical import Aggregate, Distinct, Filter, Join, Limit, LimitBy, Node, Project, Scan, SetOperation, Values
from tsql.planner.predicates import conjuncts, sides


def rows(node: Node) -> float:
    """The estimated number of rows. A node remembers it: joins ask for those of their inputs again and again."""
    found = node.__dict__.get("_estimated_rows")
    if found is None:
        found = node.__dict__["_estimated_rows"] = _rows(node)
    return found


def _rows(node: Node) -> float:
    match node:
        case Scan():
            known = node.source.statistics().rows if hasattr(node.source, "statistics") else None
            return 1e6 if known is None else float(known)
        case Values():
            return float(len(node.rows))
        case Filter():
            return rows(node.input) * selectivity(node.predicate, node.input)
        case Aggregate():
            return groups([e for _, e in node.keys], node.input) * (len(node.sets) if node.sets else 1)
        case Distinct():
            return groups([Column(f.name, f.type) for f in node.schema], node.input)
        case Limit() if isinstance(node.count, Literal) and node.count.value is not None:
            return min(rows(node.input), float(node.count.value))
        case LimitBy() if isinstance(node.count, Literal) and node.count.value is not None:
            keys: list[Expr] = [Column(n, node.schema[n].type) for n in node.by]
            return min(rows(node.input), groups(keys, node.input) * float(node.count.value))
        case SetOperation():
            return rows(node.left) + rows(node.right)
        case Join():
            return _join_rows(node)
    return rows(node.inputs[0]) if node.inputs else 1.0


def column_statistics(node: Node, name: str) -> object | None:
    """What the source says of a column that a node passes through unchanged."""
    while True:
        match node:
            case Scan():
                return node.source.statistics().columns.get(name) if hasattr(node.source, "statistics") else None
            case Project():
                expr = dict(node.columns).get(name)
                if not isinstance(expr, Column):
                    return None
                name, node = expr.name, node.input
            case Aggregate():
                expr = dict(node.keys).get(name)
                if not isinstance(expr, Column):
                    return None
                name, node = expr.name, node.input
            case Join():
                side = node.left if name in node.left.schema else node.right
                if name not in side.schema:
                    return None
                node = side
            case SetOperation() | Values():
                return None
            case _:
                if len(node.inputs) != 1:
                    return None
                node = node.inputs[0]


def distinct(expr: Expr, node: Node) -> float | None:
    """The estimated number of distinct values of an expression, if anything is known."""
    columns = expr.columns()
    if len(columns) != 1:
        return None
    known = column_statistics(node, columns[0])
    if known is None:
        return None
    if known.distinct is not None:
        return float(known.distinct)
    if isinstance(known.minimum, int) and isinstance(known.maximum, int):
        return float(known.maximum - known.minimum + 1)
    return None


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


def selectivity(predicate: Expr, node: Node) -> float:
    """The estimated part of rows for which a predicate is true."""
    match predicate:
        case Call("and", args):
            result = 1.0
            for a in args:
                result *= selectivity(a, node)
            return result
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
        case Call("is_null", (arg,)):
            return _null_part(arg, node)
        case Call("is_not_null", (arg,)):
            return 1.0 - _null_part(arg, node)
        case Call("<" | "<=" | ">" | ">=" as name, (Column() as column, Literal() as literal)):
            return _range_selectivity(name, column, literal, node)
        case InList(arg, options):
            return min(1.0, len(options) * selectivity(Call("=", (arg, options[0]), predicate.type), node))
    return cost.FILTER_SELECTIVITY


def _join_rows(node: Join) -> float:
    left, right = rows(node.left), rows(node.right)
    if node.kind in ("mark", "single"):
        return left
    if node.kind in ("semi", "anti"):
        part = _part_with_partner(node)
        return left * (part if node.kind == "semi" else max(1.0 - part, cost.LEAST_ANTI_PART))
    pairs = left * right * join_selectivity(node)
    if node.kind != "inner" and pairs_at_most_once(node):
        pairs = min(pairs, left)
    return {"inner": pairs, "left": max(pairs, left), "full": max(pairs, left, right)}[node.kind]


def join_selectivity(node: Join) -> float:
    """The estimated part of all pairs of rows that meet a join's condition.

    Equalities: one in as many as the side with more distinct keys has of them (its keys contain the other's). Where nothing is
    known of either side the smaller one is taken to have a key of its own in each row, as the target of a foreign key has.
    """
    equal, rest = _equalities(node)
    result = 1.0
    if equal:
        left, right = rows(node.left), rows(node.right)
        counts = (_distinct_keys([a for a, _ in equal], node.left), _distinct_keys([b for _, b in equal], node.right))
        known = [c for c in counts if c is not None]
        result = 1.0 / max(*known, 1.0) if known else 1.0 / max(min(left, right), 1.0)
    for part in rest:
        result *= selectivity(part, node)
    return result


def _equalities(node: Join) -> tuple[list[tuple[Expr, Expr]], list[Expr]]:
    """The pairs of expressions that a condition equates, left and right, and the other parts."""
    equal, rest = [], []
    for part in conjuncts(node.condition):
        pair = sides(part, node.left.schema.names, node.right.schema.names)
        if pair is None:
            rest.append(part)
        else:
            equal.append(pair)
    return equal, rest


def _distinct_keys(keys: list[Expr], node: Node) -> float | None:
    """Distinct values of keys together: no more than rows. None if nothing is known of one."""
    product = 1.0
    for key in keys:
        known = distinct(key, node)
        if known is None:
            return None
        product *= known
    return min(product, rows(node))


def _part_with_partner(node: Join) -> float:
    """The estimated part of left rows for which the condition is true with some right row."""
    equal, _ = _equalities(node)
    if not equal:
        return cost.SEMI_SELECTIVITY if node.condition is not None else min(1.0, rows(node.right))
    left, right = _distinct_keys([a for a, _ in equal], node.left), _distinct_keys([b for _, b in equal], node.right)
    if left is None or right is None:
        return cost.SEMI_SELECTIVITY
    return min(1.0, right / max(left, 1.0))


def _null_part(expr: Expr, node: Node) -> float:
    """The estimated part of rows in which an expression is NULL."""
    known = column_statistics(node, expr.name) if isinstance(expr, Column) else None
    total = rows(node)
    return cost.NULL_PART if known is None or known.nulls is None or not total else min(1.0, known.nulls / total)


def _range_selectivity(name: str, column: Column, literal: Literal, node: Node) -> float:
    known = column_statistics(node, column.name)
    low, high, value = getattr(known, "minimum", None), getattr(known, "maximum", None), literal.value
    if not all(isinstance(v, int | float) for v in (low, high, value)) or high <= low:
        return cost.FILTER_SELECTIVITY
    below = min(1.0, max(0.0, (value - low) / (high - low)))
    return below if name[0] == "<" else 1.0 - below
