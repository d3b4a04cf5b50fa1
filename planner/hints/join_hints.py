"""The hints about joins, and the joins of a plan that each is about.

    BROADCAST(d [, scope => 'local'|'global'])   the side of the join that brings d in is built, and every shard gets
    all of it
    LEADING(a, b, c)                             these are joined first, in this order: (a, b), then c, then the rest
    JOIN(a, b, 'hash'|'merge'|'loop'|'range')    how the join is done at which a and b meet

`locate` finds the joins for BROADCAST and JOIN in a plan whose joins are in order; `rules/order_joins.py` asks
`leaves_of` for LEADING. A hint that no join can obey is an error that says why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from tsql.kernels.expr.errors import PlanError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.hints.hint import Hint, HintTarget, find_relation
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import Aggregate, Distinct, Filter, Join, Limit, Node, Project, Scan, Sort, Window
from tsql.planner.logical.tree import nodes

METHOD_NAMES = ("hash", "merge", "loop", "range")
"""What JOIN may ask for; `choose/join_methods.py` does each."""
BY_ALIAS = "name one of them by its alias"
FILTERING = ("semi", "anti", "mark", "single")
"""Joins that give each left row at most once. To the joins above, the left side is still the same relation."""


@dataclass(frozen=True)
class Broadcasting:
    """The demand that a relation is built and copied to every shard; no scope means the target's own."""

    hint: Hint
    relation: HintTarget
    scope: str | None


@dataclass(frozen=True)
class Leading:
    """The demand that relations are joined first, in this order."""

    hint: Hint
    relations: tuple[HintTarget, ...]


@dataclass(frozen=True)
class Method:
    """The demand that the join at which two relations meet is done in one way."""

    hint: Hint
    relations: tuple[HintTarget, HintTarget]
    how: str


@dataclass
class Demand:
    """What hints ask of one join: the side to build and broadcast, the method."""

    broadcasting: Broadcasting | None = None
    build: str | None = None
    method: Method | None = None


@dataclass
class JoinHints:
    """All hints about the joins of a query."""

    broadcastings: list[Broadcasting] = field(default_factory=list)
    leadings: list[Leading] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)

    def read(self, hint: Hint, scans: Sequence[Scan]) -> None:
        """Take one hint in, checked by itself."""
        match hint.name:
            case "BROADCAST":
                hint.allow("scope")
                if len(hint.args) != 1:
                    raise hint.error("BROADCAST takes one table: BROADCAST(d)")
                self.broadcastings.append(Broadcasting(hint, find_relation(hint, hint.args[0], scans), hint.scope()))
            case "LEADING":
                hint.allow()
                if len(hint.args) < 2:
                    raise hint.error(
                        "LEADING takes two tables or more, in the order in which they are joined: LEADING(a, b)"
                    )
                relations = tuple(find_relation(hint, name, scans) for name in hint.args)
                if len(set(relations)) != len(relations):
                    raise hint.error(f"{hint}: a table is given twice")
                self.leadings.append(Leading(hint, relations))
            case "JOIN":
                self.methods.append(_method(hint, scans))

    def locate(self, plan: Node) -> dict[int, Demand]:
        """The demands on each join of a plan, by its id."""
        found: dict[int, Demand] = {}
        joins = [node for node in nodes(plan) if isinstance(node, Join)]
        for wanted in self.broadcastings:
            for join, side in _bringing_in(wanted, joins):
                demand = found.setdefault(id(join), Demand())
                if demand.broadcasting is wanted:
                    raise wanted.hint.refuse(f"both sides of a join are {wanted.relation.name}", BY_ALIAS)
                if demand.broadcasting is not None:
                    raise wanted.hint.refuse(
                        f"{demand.broadcasting.hint} asks for the same join, which broadcasts one side"
                    )
                demand.broadcasting, demand.build = wanted, side
        for method in self.methods:
            for join in _meeting(method, joins):
                demand = found.setdefault(id(join), Demand())
                if demand.method is not None:
                    raise method.hint.refuse(f"{demand.method.hint} asks for the same join")
                demand.method = method
        return found


def _method(hint: Hint, scans: Sequence[Scan]) -> Method:
    hint.allow()
    names = ", ".join(repr(name) for name in METHOD_NAMES)
    if len(hint.args) != 3 or hint.args[2] not in METHOD_NAMES:
        raise hint.error(f"JOIN takes two tables and one of {names}: JOIN(a, b, 'hash')")
    first, second = (find_relation(hint, name, scans) for name in hint.args[:2])
    if first == second:
        raise hint.error(f"{hint}: a table is given twice")
    return Method(hint, (first, second), hint.args[2])


def _bringing_in(wanted: Broadcasting, joins: Iterable[Join]) -> list[tuple[Join, str]]:
    """The joins that bring a relation in, and its side in each. Joins that only filter it count only if there is no
    other."""
    found = [
        (join, side) for join in joins for side in ("left", "right") if brings(getattr(join, side), wanted.relation)
    ]
    if not found:
        raise wanted.hint.refuse(_unjoined(wanted.relation))
    return [(join, side) for join, side in found if side == "right" or join.kind not in FILTERING] or found


def _meeting(wanted: Method, joins: Iterable[Join]) -> list[Join]:
    """The joins at which two relations meet: each is below one side."""
    first, second = wanted.relations
    found = []
    for join in joins:
        left, right = (list(_scans(side)) for side in join.inputs)
        if any(
            all(any(r.reads(scan) for scan in scans) for r, scans in zip(pair, (left, right), strict=True))
            for pair in ((first, second), (second, first))
        ):
            found.append(join)
    if not found:
        raise wanted.hint.refuse(f"{first.name} and {second.name} do not meet at a join of the plan")
    return found


def _unjoined(relation: HintTarget) -> str:
    return f"no join of the plan brings {relation.name} in"


def brings(node: Node, relation: HintTarget) -> bool:
    """Whether a side of a join is a relation, perhaps filtered or grouped, and not a join of it with others."""
    match node:
        case Scan():
            return relation.reads(node)
        case Join():
            return node.kind in FILTERING and brings(node.left, relation)
    return any(brings(i, relation) for i in node.inputs)


def _is_filtered(node: Node, relation: HintTarget) -> bool:
    """Whether a node is a relation with nothing but filters and projections on it."""
    while isinstance(node, Filter | Project) or (isinstance(node, Join) and node.kind in FILTERING):
        node = node.inputs[0]
    return isinstance(node, Scan) and relation.reads(node)


def leaves_of(wanted: Leading, leaves: Sequence[Node]) -> list[int] | None:
    """The places, among relations that inner joins connect, of those that lead; None if some are not there."""
    found = [
        [place for place, leaf in enumerate(leaves) if _is_filtered(leaf, relation)]
        or [place for place, leaf in enumerate(leaves) if brings(leaf, relation)]
        for relation in wanted.relations
    ]
    if not all(found):
        return None
    for relation, places in zip(wanted.relations, found, strict=True):
        if len(places) > 1:
            raise wanted.hint.refuse(f"{relation.name} is joined more than once", BY_ALIAS)
    chosen = [place for (place,) in found]
    return chosen if len(set(chosen)) == len(chosen) else None


def why_apart(wanted: Leading, plan: Node) -> PlanError:
    """The error of relations that inner joins do not connect: what lies between them."""
    for first, second in zip(wanted.relations, wanted.relations[1:], strict=False):
        node = _both_below(plan, first, second)
        if node is None or not isinstance(node, Join):
            return wanted.hint.refuse(f"{first.name} and {second.name} do not meet at a join of the plan")
        if node.kind != "inner":
            return wanted.hint.refuse(
                f"{first.name} and {second.name} meet at {_article(node)}, and only inner joins have an order"
            )
        for relation in (first, second):
            barrier = _barrier(node, relation)
            if barrier is not None:
                return wanted.hint.refuse(f"{relation.name} lies below {barrier}, which inner joins do not cross")
    return wanted.hint.refuse("inner joins do not connect all of these")


def _both_below(node: Node, first: HintTarget, second: HintTarget) -> Node | None:
    """The lowest node that reads both relations."""
    if not all(any(r.reads(scan) for scan in _scans(node)) for r in (first, second)):
        return None
    return next((found for i in node.inputs if (found := _both_below(i, first, second)) is not None), node)


def _barrier(node: Node, relation: HintTarget) -> str | None:
    """What lies between a join and a relation below it that joins cannot pass."""
    nested = None
    while not isinstance(node, Scan):
        node = next(i for i in node.inputs if any(relation.reads(scan) for scan in _scans(i)))
        match node:
            case Join() if node.kind not in ("inner", *FILTERING):
                return _article(node)
            case Aggregate():
                return "a grouping"
            case Distinct() | Limit() | Sort() | Window() | Match():
                return f"a {node.describe().split()[0]}"
            case Project() | Filter() if any(isinstance(below, Join) for below in nodes(node)):
                nested = "a join of its own"
    return nested


def _article(join: Join) -> str:
    return f"{'an' if join.kind[0] in 'aeiou' else 'a'} {join.kind} join"


def _scans(node: Node) -> Iterable[Scan]:
    return (found for found in nodes(node) if isinstance(found, Scan))
