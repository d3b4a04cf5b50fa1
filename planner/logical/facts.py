"""Facts about the rows of a logical node: columns without NULLs, keys, and the maximum number of rows. Rules rely on
them for correctness, so anything uncertain counts as false."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from tsql.kernels.expr.nodes import Column, Expr, Literal
from tsql.planner.logical.asof import AsofJoin
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
    Window,
)
from tsql.planner.logical.null_assumptions import rely
from tsql.planner.logical.predicates import conjuncts, join_key, never_null, rejects
from tsql.planner.logical.sources import is_filled

COUNTS = {"count", "count_star"}
_MOST_KEYS = 8


def not_null(node: Node, wanted: Iterable[str]) -> frozenset[str]:
    """The wanted columns that hold no NULL. Only these are looked at, because statistics of a column may be
    expensive."""
    wanted = frozenset(wanted) & frozenset(node.schema.names)
    if not wanted:
        return wanted
    match node:
        case Scan():
            return frozenset(
                n
                for n in wanted
                if not node.schema[n].nullable or (n in node.source.schema and is_filled(node.source, n))
            )
        case Values():
            return frozenset(
                f.name
                for i, f in enumerate(node.fields)
                if f.name in wanted and all(never_null(row[i], ()) for row in node.rows)
            )
        case Filter():
            tested = _tested(wanted, [node.predicate])
            return tested | not_null(node.input, wanted - tested)
        case Project():
            return _computed(node.columns, node.input, wanted)
        case Aggregate():
            counts = {n for n, c in node.aggregates if c.name in COUNTS and n in wanted}
            return frozenset(counts) if node.sets is not None else _computed(node.keys, node.input, wanted) | counts
        case SetOperation():
            return _not_null_of_both(node, wanted)
        case AsofJoin():
            return _not_null_of_asof(node, wanted)
        case Join():
            return _not_null_of_join(node, wanted)
    return not_null(node.inputs[0], wanted) if len(node.inputs) == 1 else frozenset()


def _computed(columns: tuple[tuple[str, Expr], ...], below: Node, wanted: frozenset[str]) -> frozenset[str]:
    used = [(n, e) for n, e in columns if n in wanted]
    known = not_null(below, {c for _, e in used for c in e.columns()})
    return frozenset(n for n, e in used if never_null(e, known))


def _not_null_of_both(node: SetOperation, wanted: frozenset[str]) -> frozenset[str]:
    there = {b.name: a.name for a, b in zip(node.left.schema, node.right.schema, strict=True) if a.name in wanted}
    left = not_null(node.left, wanted)
    if node.kind == "except":
        return left
    right = {there[n] for n in not_null(node.right, there)}
    return left & right if node.kind == "union" else left | right


def _not_null_of_join(node: Join, wanted: frozenset[str]) -> frozenset[str]:
    match node.kind:
        case "inner":
            tested = _tested(wanted, conjuncts(node.condition))
            return tested | not_null(node.left, wanted - tested) | not_null(node.right, wanted - tested)
        case "semi":
            tested = _tested(wanted, conjuncts(node.condition))
            return tested | not_null(node.left, wanted - tested)
        case "mark":
            left = not_null(node.left, wanted)
            return left | {node.mark} if node.mark in wanted and never_null_condition(node) else left
        case "left" | "anti" | "single":
            return not_null(node.left, wanted)
    return frozenset()


def _not_null_of_asof(node: AsofJoin, wanted: frozenset[str]) -> frozenset[str]:
    left = not_null(node.left, wanted)
    if node.kind == "left":
        return left
    tested = _tested(wanted, [node.at, *conjuncts(node.condition)])
    return tested | left | not_null(node.right, wanted - tested)


def never_null_condition(node: Join) -> bool:
    """Whether the condition of a join has a value for every pair of rows."""
    if node.condition is None:
        return True
    used = node.condition.columns()
    return rely(never_null(node.condition, not_null(node.left, used) | not_null(node.right, used)))


def _tested(names: Iterable[str], parts: list[Expr]) -> frozenset[str]:
    """Columns that are not NULL where all parts are true."""
    return frozenset(n for part in parts for n in part.columns() if n in names and rejects(part, (n,)))


def keys(node: Node) -> list[frozenset[str]]:
    """Sets of columns whose values are unique per row (NULL counts as a value). The empty set means at most one row.
    The node caches the result."""
    found = node.__dict__.get("_keys")
    if found is None:
        found = node.__dict__["_keys"] = _keys(node)
    return found


def _keys(node: Node) -> list[frozenset[str]]:
    match node:
        case Values():
            return [frozenset()] if len(node.rows) <= 1 else []
        case Aggregate() if node.sets is None:
            return [frozenset(n for n, _ in node.keys)]
        case Distinct():
            return _smallest([frozenset(node.on if node.on is not None else node.schema.names), *keys(node.input)])
        case Limit() if isinstance(node.count, Literal) and node.count.value in (0, 1):
            return [frozenset()]
        case LimitBy() if isinstance(node.count, Literal) and node.count.value in (0, 1):
            return _smallest([frozenset(node.by), *keys(node.input)])
        case Filter() | Sort() | Limit() | LimitBy() | Window():
            return keys(node.input)
        case AsofJoin():
            return keys(node.left)
        case Project():
            renamed: dict[str, str] = {}
            for name, expr in node.columns:
                if isinstance(expr, Column):
                    renamed.setdefault(expr.name, name)
            return [frozenset(renamed[c] for c in key) for key in keys(node.input) if key <= renamed.keys()]
        case SetOperation() if node.kind != "union":
            return keys(node.left) if node.all else _smallest([frozenset(node.schema.names), *keys(node.left)])
        case Join():
            return _keys_of_join(node)
    return []


def _keys_of_join(node: Join) -> list[frozenset[str]]:
    left = keys(node.left)
    if node.kind in ("semi", "anti", "mark", "single"):
        return left
    found = []
    if node.kind in ("inner", "left") and pairs_at_most_once(node):
        found += left
    right = keys(node.right)
    if node.kind == "inner" and _covered(right=False, node=node):
        found += right
    if node.kind in ("inner", "left"):
        found += [a | b for a, b in product(left, right)]
    return _smallest(found)


def _smallest(found: list[frozenset[str]]) -> list[frozenset[str]]:
    """Without sets that contain another, and not too many."""
    kept: list[frozenset[str]] = []
    for key in sorted(dict.fromkeys(found), key=lambda k: (len(k), sorted(k))):
        if not any(other <= key for other in kept):
            kept.append(key)
    return kept[:_MOST_KEYS]


def pairs_at_most_once(node: Join) -> bool:
    """Whether each left row has at most one partner: the condition equates a key of the right side."""
    return _covered(right=True, node=node)


def _covered(*, right: bool, node: Join) -> bool:
    equated = set()
    for part in conjuncts(node.condition):
        key = join_key(part, node.left.schema.names, node.right.schema.names)
        side = key and (key.right if right else key.left)
        if isinstance(side, Column):
            equated.add(side.name)
    return any(key <= equated for key in keys(node.right if right else node.left))


def at_most_one(node: Node) -> bool:
    """Whether there is at most one row."""
    return frozenset() in keys(node)


def exactly_one(node: Node) -> bool:
    """Whether there is always exactly one row."""
    match node:
        case Values():
            return len(node.rows) == 1
        case Aggregate():
            return not node.keys and node.sets is None
        case Project() | Sort() | Distinct():
            return exactly_one(node.input)
        case Join() if node.kind in ("mark", "single"):
            return exactly_one(node.left)
        case Join() if node.kind in ("inner", "left", "full") and node.condition is None:
            return exactly_one(node.left) and exactly_one(node.right)
    return False
