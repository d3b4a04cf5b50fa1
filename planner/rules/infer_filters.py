"""infer_filters: a condition on a column holds for every column that is equal to it.

inner join on a = b          inner join on a = b
  filter a = 5          ->     filter a = 5
    x                            x
  y                            filter b = 5
                                 y

Inner and semi joins hand conditions to both sides; left, single and anti joins from the left side to the right one,
whose other rows have no partner. Conditions are comparisons of one column with constants, which cannot fail."""

from __future__ import annotations

from collections.abc import Collection

from tsql.kernels.expr.nodes import Call, Column, Expr, InList, Literal, Parameter, substitute
from tsql.kernels.process import stopping
from tsql.planner.logical.nodes import Apply, Distinct, Filter, Join, Node, Project, Sort
from tsql.planner.logical.predicates import conjuncts, join_key
from tsql.planner.logical.tree import hand_down
from tsql.planner.rules.framework import WHOLE, Surroundings, rule

Conditions = tuple[Expr, ...]
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_MOST = 64
_MOST_KNOWN = 256
"""Of conditions that a node's rows meet: where it is made of others that are used twice, again and again, they are more
than anybody needs."""


@rule(WHOLE, about=(Join,))
def infer_filters(plan: Node, around: Surroundings) -> Node:
    """Whole: conditions are handed down from the users of a node, and known of all that is below it."""
    conditions = Known()

    def change(node: Node, above: Conditions) -> tuple[Node, list[Conditions]]:
        """`above` holds for every row of the node that reaches the result."""
        match node:
            case Filter():
                return node, [(*above, *(p for p in conjuncts(node.predicate) if _is_simple(p)))]
            case Sort():
                return node, [above]
            case Distinct() if node.on is None:
                return node, [above]
            case Project():
                return node, [_renamed(above, {n: e for n, e in node.columns if isinstance(e, Column)})]
            case Join() if not isinstance(node, Apply):
                return _join(node, above, conditions)
        return node, [()] * len(node.inputs)

    nothing: Conditions = ()
    return hand_down(plan, nothing, change, around.shared)


def _is_simple(part: Expr) -> bool:
    match part:
        case Call(name, (Column(), Literal() | Parameter())) | Call(name, (Literal() | Parameter(), Column())):
            return name in _COMPARISONS
        case InList(Column(), _):
            return True
    return False


def _renamed(parts: Collection[Expr], names: dict[str, Column]) -> tuple[Expr, ...]:
    """The parts over other columns, those that have one there."""
    return tuple(substitute(p, dict(names)) for p in parts if p.columns()[0] in names)


class Known:
    """What holds for the rows of nodes; each node is looked at once, however many users it has."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Node, tuple[Expr, ...]]] = {}

    def holds(self, node: Node) -> tuple[Expr, ...]:
        """Simple conditions that all rows of a node meet."""
        found = self._of.get(id(node))
        if found is None:
            stopping.check()
            # With the node, whose id would be another's if it went.
            found = self._of[id(node)] = (node, self._holds(node)[:_MOST_KNOWN])
        return found[1]

    def _holds(self, node: Node) -> tuple[Expr, ...]:
        match node:
            case Filter():
                return (*self.holds(node.input), *(p for p in conjuncts(node.predicate) if _is_simple(p)))
            case Sort() | Distinct():
                return self.holds(node.input)
            case Project():
                columns: dict[str, Column] = {}
                for name, expr in node.columns:
                    if isinstance(expr, Column):
                        columns.setdefault(expr.name, Column(name, expr.dtype, expr.nullable))
                return _renamed(self.holds(node.input), columns)
            case Join() if node.kind in ("inner", "semi") and not isinstance(node, Apply):
                parts = tuple(p for p in conjuncts(node.condition) if _is_simple(p) and p.columns()[0] in node.schema)
                return (*self.holds(node.left), *(self.holds(node.right) if node.kind == "inner" else ()), *parts)
            case Join() if node.kind in ("left", "anti", "mark", "single"):
                return self.holds(node.left)
        return ()


def _join(node: Join, above: Conditions, conditions: Known) -> tuple[Node, list[Conditions]]:
    """The join over sides with the filters that are new to them, and what is known of each side."""
    left_names, right_names = set(node.left.schema.names), set(node.right.schema.names)
    left, right = conditions.holds(node.left), conditions.holds(node.right)
    from_above_left = tuple(p for p in above if p.columns()[0] in left_names) if node.kind != "full" else ()
    from_above_right = tuple(p for p in above if p.columns()[0] in right_names) if node.kind == "inner" else ()
    own = [p for p in conjuncts(node.condition) if _is_simple(p)]
    own_left = tuple(p for p in own if p.columns()[0] in left_names) if node.kind in ("inner", "semi") else ()
    own_right = tuple(p for p in own if p.columns()[0] in right_names) if node.kind not in ("full", "mark") else ()
    # By their text: whether a column is known to hold no NULL makes no other condition.
    known_left = {str(p): p for p in (*left, *from_above_left, *own_left)}
    known_right = {str(p): p for p in (*right, *from_above_right, *own_right)}
    new_left: list[Expr] = []
    new_right: list[Expr] = []
    pairs = _pairs(node, left_names, right_names)
    changed = bool(pairs) and node.kind not in ("full", "mark")
    while changed and len(new_left) + len(new_right) < _MOST:
        changed = False
        for a, b in pairs:
            ways = [(a, b, known_left, known_right, new_right)]
            if node.kind in ("inner", "semi"):
                ways.append((b, a, known_right, known_left, new_left))
            for source, target, known, there, new in ways:
                for part in _renamed(
                    [p for p in known.values() if p.columns()[0] == source.name], {source.name: target}
                ):
                    if str(part) not in there:
                        there[str(part)] = part
                        new.append(part)
                        changed = True
    below = (_filtered(node.left, new_left), _filtered(node.right, new_right))
    return node.with_inputs(below), [tuple(known_left.values()), tuple(known_right.values())]


def _pairs(node: Join, left: set[str], right: set[str]) -> list[tuple[Column, Column]]:
    """Columns that the condition equates."""
    found = []
    for part in conjuncts(node.condition):
        key = join_key(part, left, right)
        if key is not None and not key.null_safe and isinstance(key.left, Column) and isinstance(key.right, Column):
            found.append((key.left, key.right))
    return found


def _filtered(node: Node, parts: Collection[Expr]) -> Node:
    for part in parts:
        node = Filter(node, part)
    return node
