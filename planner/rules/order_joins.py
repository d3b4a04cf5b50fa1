"""order_joins: inner joins that lie on each other are taken apart and put together again in the cheapest order.

    join c.n = n.n                      join c.n = n.n
      join o.c = c.c            ->        n
        join o.o = l.o                    join o.c = c.c ..
          ..

Dynamic programming over connected sets of relations, with products only where nothing connects; above `MOST_EXACT`
relations the pair that gives the fewest rows is joined first. Estimates are of `planner/cost/stats.py`, costs of
`planner/cost/constants.py`. Relations that the hint LEADING names are joined first, and are one relation to the rest.
"""

from __future__ import annotations

from dataclasses import field
from itertools import combinations
from math import prod
from typing import TypeGuard

from tsql.kernels.expr.nodes import Call, Column, Expr
from tsql.kernels.process import stopping
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.cost import constants as cost
from tsql.planner.cost import stats
from tsql.planner.cost.columns import distinct
from tsql.planner.cost.stats import equal_part, unfiltered_rows
from tsql.planner.logical.nodes import Aggregate, Apply, Filter, Join, Node, Output, Project
from tsql.planner.logical.predicates import conjunction, conjuncts
from tsql.planner.rules.framework import WHOLE, Surroundings, rule

MOST_EXACT = 10


@rule(WHOLE, about=(Join,))
def order_joins(plan: Node, around: Surroundings) -> Node:
    """Whole: all joins that lie on each other are put together again at a time."""
    return Orderer(around).visit(plan, True)


class Orderer:
    """One run of the rule over a plan. A node with several users is ordered once, and stays one node: its joins are not
    taken apart for one of them."""

    def __init__(self, around: Surroundings):
        self.wanted, self.shared = around.wanted, around.shared
        self.done: dict[tuple[int, bool], Node] = {}

    def visit(self, node: Node, ordered: bool) -> Node:
        """`ordered`: the order of the columns matters to the user of the node."""
        key = (id(node), ordered or id(node) in self.shared)
        if key not in self.done:
            self.done[key] = self._visit(node, key[1])
        return self.done[key]

    def _visit(self, node: Node, ordered: bool) -> Node:
        if _is_inner(node):
            region = Region()
            region.flatten(node, self)
            if len(region.leaves) > 2 or region.leading:
                best = region.best()
                names = node.schema.names
                if best == node:
                    return node
                if ordered and best.schema.names != names:
                    return Project(
                        best, tuple((n, Column(n, best.schema[n].type, best.schema[n].nullable)) for n in names)
                    )
                return best
        below = ordered if not isinstance(node, Output | Project | Aggregate) else False
        return node.with_inputs(
            tuple(self.visit(i, below or len(node.inputs) > 1 and not isinstance(node, Join)) for i in node.inputs)
        )


def _is_inner(node: Node) -> TypeGuard[Join]:
    return isinstance(node, Join) and not isinstance(node, Apply) and node.kind == "inner"


@dataclass
class JoinedSet:
    """A set of relations joined: its plan, estimated rows, what it costs."""

    plan: Node
    rows: float
    cost: float


@dataclass
class Region:
    """Relations that inner joins connect, and the conditions that do."""

    leaves: list[Node] = field(default_factory=list)
    conditions: list[tuple[int, Expr]] = field(default_factory=list)
    classes: list[dict[int, float]] = field(default_factory=list)
    """Columns that are equal: for each class, the distinct values of its column in each relation that has one."""

    leading: list[int] = field(default_factory=list)
    """The relations that a hint wants joined first, in order."""

    def flatten(self, node: Node, orderer: Orderer) -> None:
        predicates: list[Expr] = []
        stack = [node]
        while stack:
            current = stack.pop()
            if _is_inner(current) and (current is node or id(current) not in orderer.shared):
                predicates += conjuncts(current.condition)
                stack += [current.right, current.left]
            else:
                self.leaves.append(orderer.visit(current, False))
        self.leading = orderer.wanted.lead(self.leaves)
        owner = {name: i for i, leaf in enumerate(self.leaves) for name in leaf.schema.names}
        self.conditions = [(sum(1 << i for i in {owner[c] for c in p.columns()}), p) for p in predicates]
        self.base = [unfiltered_rows(leaf) for leaf in self.leaves]
        self._find_classes(owner)

    def _find_classes(self, owner: dict[str, int]) -> None:
        parent: dict[Expr, Expr] = {}

        def find(e: Expr) -> Expr:
            while parent.setdefault(e, e) != e:
                e = parent[e]
            return e

        for _, predicate in self.conditions:
            match predicate:
                case Call("=" | "is_not_distinct_from", (a, b)) if (
                    len(_owners(a, owner)) == 1 and len(_owners(b, owner)) == 1
                ):
                    parent[find(a)] = find(b)
        groups: dict[Expr, dict[int, float]] = {}
        for e in list(parent):
            (leaf,) = _owners(e, owner)
            known = distinct(e, self.leaves[leaf])
            base = self.base[leaf]
            values = min(base, base * cost.GROUPS_OF_UNKNOWN_KEYS if known is None else known)
            group = groups.setdefault(find(e), {})
            group[leaf] = max(1.0, min(values, group.get(leaf, values)))
        self.classes = list(groups.values())

    def best(self) -> Node:
        parts = {1 << i: JoinedSet(leaf, max(1.0, stats.rows(leaf)), 0.0) for i, leaf in enumerate(self.leaves)}
        everything = (1 << len(self.leaves)) - 1
        self._lead(parts)
        if len(self.leaves) <= MOST_EXACT:
            self._exact(parts)
        if everything not in parts:
            self._greedy(parts, everything)
        rest = [p for mask, p in self.conditions if mask == 0 or mask.bit_count() == 1]
        plan = parts[everything].plan
        for predicate in rest:
            plan = Filter(plan, predicate)
        return plan

    def _lead(self, parts: dict[int, JoinedSet]) -> None:
        """Join the relations that lead, and make one of them."""
        done = 0
        for leaf in self.leading:
            mask = 1 << leaf
            if done:
                parts[done | mask] = self._join(parts, done, mask, is_fixed=True)
                del parts[done], parts[mask]
            done |= mask

    def _exact(self, parts: dict[int, JoinedSet]) -> None:
        by_size: list[list[int]] = [[], list(parts)]
        for size in range(2, len(parts) + 1):
            found: dict[int, None] = {}
            for left_size in range(1, size // 2 + 1):
                for a in by_size[left_size]:
                    stopping.check()
                    for b in by_size[size - left_size]:
                        if a & b or not self._connected(a, b) or (left_size * 2 == size and a > b):
                            continue
                        made = self._join(parts, a, b)
                        known = parts.get(a | b)
                        if known is None or made.cost < known.cost:
                            parts[a | b] = made
                            found[a | b] = None
            by_size.append(list(found))

    def _greedy(self, parts: dict[int, JoinedSet], everything: int) -> None:
        """Join the pair with the fewest rows, again and again; pairs that nothing connects come last."""
        left = self._largest(parts, everything)
        while len(left) > 1:
            pairs = [(a, b) for a, b in combinations(left, 2) if self._connected(a, b)] or list(combinations(left, 2))
            made = {pair: self._join(parts, *pair) for pair in pairs}
            a, b = min(made, key=lambda pair: made[pair].rows)
            parts[a | b] = made[a, b]
            left = [m for m in left if m not in (a, b)] + [a | b]

    def _largest(self, parts: dict[int, JoinedSet], everything: int) -> list[int]:
        """Disjoint sets that cover everything, the largest that are known first."""
        chosen: list[int] = []
        taken = 0
        for mask in sorted(parts, key=lambda m: -m.bit_count()):
            if not mask & taken:
                chosen.append(mask)
                taken |= mask
        assert taken == everything
        return chosen

    def _connected(self, a: int, b: int) -> bool:
        return any(mask & a and mask & b and not mask & ~(a | b) for mask, _ in self.conditions)

    def _join(self, parts: dict[int, JoinedSet], a: int, b: int, is_fixed: bool = False) -> JoinedSet:
        """Two parts joined; the larger one is on the left, unless the sides are fixed."""
        stopping.check()
        first, second = parts[a], parts[b]
        if first.rows < second.rows and not is_fixed:
            a, b, first, second = b, a, second, first
        used = [p for mask, p in self.conditions if mask & a and mask & b and not mask & ~(a | b)]
        rows = max(1.0, first.rows * second.rows * self._selectivity(a, b, used))
        work = second.rows * cost.BUILD_ROW + first.rows * cost.probe_row(second.rows) + rows * cost.JOINED_ROW
        if not used:
            work += first.rows * second.rows * cost.PAIR
        return JoinedSet(
            Join("inner", first.plan, second.plan, conjunction(used)), rows, first.cost + second.cost + work
        )

    def _selectivity(self, a: int, b: int, used: list[Expr]) -> float:
        """The part of all pairs that the conditions leave."""
        shared = []
        for group in self.classes:
            left, right = ([(leaf, d) for leaf, d in group.items() if mask >> leaf & 1] for mask in (a, b))
            if left and right:
                shared.append((min(left, key=lambda p: p[1]), min(right, key=lambda p: p[1])))
        others = [p for p in used if not (isinstance(p, Call) and p.name in ("=", "is_not_distinct_from"))]
        result = prod(cost.FILTER_SELECTIVITY for _ in others)
        if not shared:
            return result
        sides = []
        for side in (0, 1):
            leaves = {pair[side][0] for pair in shared}
            values = prod(pair[side][1] for pair in shared)
            base = self.base[leaves.pop()] if len(leaves) == 1 else float("inf")
            sides.append((min(values, base), base))
        return result * equal_part(sides)


def _owners(expr: Expr, owner: dict[str, int]) -> set[int]:
    return {owner[c] for c in expr.columns()}
