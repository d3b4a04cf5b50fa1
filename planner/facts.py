"""What is certain of the rows of a logical node: columns without NULLs, keys, and how many rows there can be. Rules rely on it
for correctness, so a doubt is a no."""

from __future__ import annotations

from itertools import product

from tsql.kernels.expr import Column, Expr, Literal
from tsql.planner.logical import Aggregate, Distinct, Filter, Join, Limit, LimitBy, Node, Project, Scan, SetOperation, Sort, Values
from tsql.planner.predicates import conjuncts, never_null, rejects, sides

COUNTS = {"count", "count_star", "count_if", "countif"}
_MOST_KEYS = 8


def not_null(node: Node) -> frozenset[str]:
    """The columns that hold no NULL."""
    match node:
        case Scan():
            known = node.source.statistics().columns if hasattr(node.source, "statistics") else {}
            return frozenset(f.name for f in node.schema if not f.nullable or (f.name in known and known[f.name].nulls == 0))
        case Values():
            return frozenset(f.name for i, f in enumerate(node.fields) if all(never_null(row[i], ()) for row in node.rows))
        case Filter():
            return not_null(node.input) | _tested(node.input.schema.names, [node.predicate])
        case Project():
            below = not_null(node.input)
            return frozenset(n for n, e in node.columns if never_null(e, below))
        case Aggregate():
            below = not_null(node.input)
            counts = {n for n, c in node.aggregates if c.name in COUNTS}
            return frozenset(counts) if node.sets is not None else frozenset(counts | {n for n, e in node.keys if never_null(e, below)})
        case SetOperation():
            left, right = not_null(node.left), not_null(node.right)
            on_right = {a.name for a, b in zip(node.left.schema, node.right.schema, strict=True) if b.name in right}
            return frozenset(left & on_right if node.kind == "union" else left | on_right if node.kind == "intersect" else left)
        case Join():
            return _not_null_of_join(node)
    return not_null(node.inputs[0]) if len(node.inputs) == 1 else frozenset()


def _not_null_of_join(node: Join) -> frozenset[str]:
    left, parts = not_null(node.left), conjuncts(node.condition)
    match node.kind:
        case "inner":
            return left | not_null(node.right) | _tested(node.schema.names, parts)
        case "semi":
            return left | _tested(node.left.schema.names, parts)
        case "mark":
            known = left | not_null(node.right)
            return left | {node.mark} if node.condition is None or never_null(node.condition, known) else left
        case "left" | "anti" | "single":
            return left
    return frozenset()


def _tested(names: tuple[str, ...], parts: list[Expr]) -> frozenset[str]:
    """Columns that are not NULL where all parts are true."""
    return frozenset(n for part in parts for n in part.columns() if n in names and rejects(part, (n,)))


def keys(node: Node) -> list[frozenset[str]]:
    """Sets of columns whose values (NULL is one) no two rows share. The empty set: there is at most one row. A node remembers them."""
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
        case Filter() | Sort() | Limit() | LimitBy():
            return keys(node.input)
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
        pair = sides(part, node.left.schema.names, node.right.schema.names)
        if pair is not None and isinstance(pair[right], Column):
            equated.add(pair[right].name)
    return any(key <= equated for key in keys(node.right if right else node.left))


def at_most_one(node: Node) -> bool:
    """Whether there is no second row."""
    return frozenset() in keys(node)


def exactly_one(node: Node) -> bool:
    """Whether there is always one row, and no second."""
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
