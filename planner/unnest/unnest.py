"""Removes every `Apply` and every `Outer` from a logical plan: all subqueries become joins.

`make_plan` runs this for each query, even with the optimizer off, because nothing can execute an Apply. A right side
that names no outer column becomes a plain join. Others are split by `planner/unnest/push_dependent.py`, and the pending
conditions become the join's condition. Where the right side always has one row (an aggregate without keys, most scalar
subqueries), the nodes above the aggregate are computed above the join.

A nested subquery may need the domain of an outer relation that is itself correlated. It waits until the outer Apply is
gone (`NeedsDomain`)."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.nodes import Case, Column, Expr, Literal, Outer, substitute
from tsql.kernels.expr.types import BOOLEAN
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.failing import is_risky
from tsql.planner.logical.generating import Series
from tsql.planner.logical.nodes import Aggregate, Apply, Distinct, Filter, Join, Limit, Node, Project, Sort, Values
from tsql.planner.logical.predicates import (
    FALSE,
    TRUE,
    all_of,
    call,
    column,
    conjunction,
    conjuncts,
    outers,
    resolve,
    same,
)
from tsql.planner.logical.tree import nodes, shared, transform_down
from tsql.planner.unnest.dependent import Free, NeedsDomain, OuterNames, keep
from tsql.planner.unnest.push_dependent import Pusher, or_empty, two_valued

EXISTENTIAL = ("semi", "anti", "mark")
"""Join kinds for which duplicates on the right side do not matter."""


def unnest(plan: Node) -> Node:
    """The plan without Apply and Outer; the same object if it has none."""
    if not any(isinstance(node, Apply) for node in nodes(plan)):
        return plan
    several = shared(plan)
    plan = transform_down(plan, lambda node: _filter_first(node, several))
    unnester = Unnester(plan)
    result = unnester.visit(plan)
    for node in nodes(result):
        if isinstance(node, Apply):
            raise AssertionError(f"{node.describe()} is left after unnesting")
    free = unnester.free.of(result)
    if free:
        raise AssertionError(f"the outer columns {sorted(free)} belong to no relation")
    return result


def _filter_first(node: Node, several: set[int]) -> Node:
    """Moves conditions on the left side of an Apply below it, so that the right side is computed only for the remaining
    rows. That is less work, and a recursion need not end for rows that are filtered out."""
    if (
        not isinstance(node, Filter)
        or not isinstance(node.input, Apply)
        or node.input.kind == "full"
        or id(node.input) in several
    ):
        return node
    apply, names = node.input, set(node.input.left.schema.names)
    parts = conjuncts(node.predicate)
    lower = [p for p in parts if p.columns() and set(p.columns()) <= names and not outers(p) and not is_risky(p)]
    if not lower:
        return node
    rest = [p for p in parts if p not in lower]
    below = replace(apply, left=Filter(apply.left, all_of(lower)))
    return Filter(below, all_of(rest)) if rest else below


@dataclass(frozen=True)
class Computed:
    """A right side of at most one row per outer row, beside it: `plan` has the outer columns and more, `values` are the
    right side's columns over it, and the row exists where all of `exists` are true."""

    plan: Node
    values: dict[str, Expr]
    exists: tuple[Expr, ...] = ()


class Unnester:
    """One run over one plan."""

    def __init__(self, plan: Node):
        self.names = OuterNames(plan)
        self.free = Free()
        self._done: dict[int, tuple[Node, Node]] = {}

    def visit(self, node: Node) -> Node:
        found = self._done.get(id(node))
        if found is not None:
            return found[1]
        result = node.with_inputs(tuple(self.visit(i) for i in node.inputs))
        if isinstance(result, Apply):
            changed = self.eliminate(result)
            if changed is not result:
                result = self.visit(changed)
        self._done[id(node)] = (node, result)
        self._done[id(result)] = (result, result)
        return result

    def eliminate(self, node: Apply) -> Node:
        """A join in place of an Apply; the Apply itself if it has to wait for an outer one."""
        bound = self.free.of(node.right) & set(node.left.schema.names)
        if not bound:
            return Join(node.kind, node.left, node.right, node.condition, node.mark)
        if node.kind == "full":
            raise ValueError("a full join cannot depend on its left side")
        right = self._simplify(node, node.right)
        bound = self.free.of(right) & set(node.left.schema.names)
        if not bound:
            # An existence test may have lost the projection that kept its names apart, and no condition names them.
            clash = right is not node.right and set(right.schema.names) & set(node.left.schema.names)
            return Join(node.kind, node.left, self._renamed(right) if clash else right, node.condition, node.mark)
        if node.kind == "inner" and _is_beside(right):
            plan = self._beside(right, node.left, bound)
            return plan if node.condition is None else Filter(plan, node.condition)
        pusher = Pusher(node.left, bound, self.names, self.free, has_domain=not self.free.of(node))
        try:
            if self._is_single_row(right):
                return self._finish(node, self._compute(right, node.left, pusher))
            return self._join(node, right, pusher)
        except NeedsDomain:
            return node

    def _beside(self, node: Node, outer: Node, bound: frozenset[str]) -> Node:
        """A series for each outer row, and what is computed of it: the outer columns stand beside all of its rows."""
        columns = {n: column(outer.schema[n]) for n in bound}
        match node:
            case Series():
                below = self._beside(node.input, outer, bound)
                return replace(node.map_expressions(lambda e: resolve(e, columns)), input=below)
            case Filter():
                return Filter(self._beside(node.input, outer, bound), resolve(node.predicate, columns))
            case Project():
                below = self._beside(node.input, outer, bound)
                return Project(below, (*keep(outer.schema), *((n, resolve(e, columns)) for n, e in node.columns)))
        return outer

    def _simplify(self, apply: Apply, node: Node) -> Node:
        """Drops what cannot matter at the top of a right side: its order, and more for existence tests."""
        existential = apply.kind in EXISTENTIAL
        exists_only = existential and apply.condition is None
        while True:
            match node:
                case Sort():
                    node = node.input
                case Distinct() if existential and node.on is None:
                    node = node.input
                case Distinct() | Project() if exists_only:
                    node = node.input
                case Limit() if exists_only and _passes_one(node):
                    node = node.input
                case Aggregate() if exists_only and node.keys and node.sets is None:
                    node = node.input
                case Filter() if existential:
                    below = self._simplify_semi(apply, node.input)
                    return node.with_inputs((below,))
                case Join() if existential:
                    return self._simplify_semi(apply, node)
                case _:
                    return node

    def _simplify_semi(self, apply: Apply, node: Node) -> Node:
        """Under a test of existence a semi join is an inner join, whose condition can rise further."""
        if isinstance(node, Join) and not isinstance(node, Apply) and node.kind == "semi":
            if not set(node.right.schema.names) & set(apply.left.schema.names):
                return Join("inner", node.left, node.right, node.condition)
        return node

    def _join(self, node: Apply, right: Node, pusher: Pusher) -> Node:
        d = pusher.push(right)
        plan, waiting = d.plan, [pusher.columns(p) for p in d.pending]
        values = {n: pusher.columns(e) for n, e in d.computed.items()}
        if node.kind == "mark":
            plan, waiting = two_valued(node.left, plan, waiting, node)
        condition = conjunction((*waiting, *(substitute(p, values) for p in conjuncts(node.condition))))
        if node.kind in EXISTENTIAL:
            return Join(node.kind, node.left, plan, condition, node.mark)
        if values and node.kind != "inner":
            found = self.names.fresh("found")
            plan = Project(plan, (*keep(plan.schema), (found, TRUE)))
            is_there = Column(found, BOOLEAN)
            values = {n: Case(((call("is_not_null", is_there), e),), Literal(None, e.type)) for n, e in values.items()}
        joined = Join(node.kind, node.left, plan, condition)
        if joined.schema.names == node.schema.names:
            return joined
        return Project(
            joined, tuple((f.name, values.get(f.name) or column(joined.schema[f.name])) for f in node.schema)
        )

    def _is_single_row(self, node: Node, filters: bool = True) -> bool:
        """Whether the right side is computed from one row: at most one with filters, exactly one without."""
        match node:
            case Project() | Sort():
                return self._is_single_row(node.input, filters)
            case Filter():
                return filters and self._is_single_row(node.input, filters)
            case Limit():
                return _passes_one(node) and self._is_single_row(node.input, filters)
            case Aggregate():
                return not node.keys and node.sets is None
            case Values():
                return len(node.rows) == 1
            case Join():
                return node.kind in ("single", "mark") and self._is_single_row(node.left, filters=False)
        return False

    def _compute(self, node: Node, outer: Node, pusher: Pusher) -> Computed:
        """The single row of a right side beside each row of `outer`."""
        match node:
            case Sort() | Limit():
                return self._compute(node.input, outer, pusher)
            case Project():
                below = self._compute(node.input, outer, pusher)
                return Computed(
                    below.plan, {n: substitute(pusher.columns(e), below.values) for n, e in node.columns}, below.exists
                )
            case Filter():
                below = self._compute(node.input, outer, pusher)
                parts = conjuncts(substitute(pusher.columns(node.predicate), below.values))
                return Computed(below.plan, below.values, (*below.exists, *parts))
            case Values():
                return Computed(
                    outer, {f.name: pusher.columns(e) for f, e in zip(node.fields, node.rows[0], strict=True)}
                )
            case Aggregate():
                return self._compute_aggregate(node, outer, pusher)
            case Join():
                return self._compute_join(node, outer, pusher)
        raise AssertionError(f"{node.describe()} has more than one row")

    def _compute_aggregate(self, node: Aggregate, outer: Node, pusher: Pusher) -> Computed:
        if not pusher.depends(node):
            named = self._renamed(node)
            return Computed(
                Join("inner", outer, named),
                {n: column(f) for n, f in zip(node.schema.names, named.schema, strict=True)},
            )
        d = pusher.grouped(node)
        renamed = {n: self.names.fresh(n) for n in node.schema.names if n in outer.schema}
        plan = d.plan
        if renamed:
            plan = Project(plan, tuple((renamed.get(f.name, f.name), column(f)) for f in plan.schema))
        joined = Join("left", outer, plan, conjunction(pusher.columns(p) for p in d.pending))
        return Computed(joined, {n: or_empty(column(joined.schema[renamed.get(n, n)]), c) for n, c in node.aggregates})

    def _compute_join(self, node: Join, outer: Node, pusher: Pusher) -> Computed:
        """A subquery of the single row: of the outer row with that row's columns beside it."""
        below = self._compute(node.left, outer, pusher)
        carried = {n: (self.names.fresh(n), e) for n, e in below.values.items()}
        left = Project(below.plan, (*keep(below.plan.schema), *carried.values()))
        own = {n: column(left.schema[name]) for n, (name, _) in carried.items()}
        columns: dict[str, Expr] = {**own}
        right = (
            self.free.rename(node.right, {n: Outer(c.name, c.dtype, c.nullable) for n, c in own.items()})
            if isinstance(node, Apply)
            else node.right
        )
        if node.kind == "single":
            right = self._renamed(right)
            columns |= {n: Column(f.name, f.type) for n, f in zip(node.right.schema.names, right.schema, strict=True)}
        inner = {**columns, **{n: column(f) for n, f in zip(node.right.schema.names, right.schema, strict=True)}}
        condition = None if node.condition is None else substitute(pusher.columns(node.condition), inner)
        mark = self.names.fresh(node.mark) if node.mark is not None else None
        if node.mark is not None and mark is not None:
            columns[node.mark] = Column(mark, BOOLEAN)
        # Outer columns of the enclosing Apply are now columns of the left side, so the right side depends on that.
        return Computed(Apply(node.kind, left, right, condition, mark), columns)

    def _renamed(self, node: Node) -> Node:
        return Project(node, tuple((self.names.fresh(f.name), column(f)) for f in node.schema))

    def _finish(self, node: Apply, right: Computed) -> Node:
        """The Apply's result, with the right side's only row beside each left row."""
        left = keep(node.left.schema)
        test = None if node.condition is None else substitute(node.condition, right.values)
        exists = conjunction((*right.exists, *conjuncts(test)))
        match node.kind:
            case "inner":
                plan = right.plan if exists is None else Filter(right.plan, exists)
                return Project(plan, (*left, *right.values.items()))
            case "left" | "single":
                values = right.values
                if exists is not None:
                    values = {n: Case(((exists, e),), Literal(None, e.type)) for n, e in values.items()}
                return Project(right.plan, (*left, *values.items()))
            case "semi":
                return Project(right.plan if exists is None else Filter(right.plan, exists), left)
            case "anti":
                absent = FALSE if exists is None else call("not", same(exists, TRUE))
                return Project(Filter(right.plan, absent), left)
        there, test = conjunction(right.exists), test or TRUE
        return Project(right.plan, (*left, (node.mark or "", test if there is None else Case(((there, test),), FALSE))))


def _is_beside(node: Node) -> bool:
    """Whether a right side is a series over one row without columns, perhaps filtered and projected."""
    while isinstance(node, Project | Filter):
        node = node.input
    return isinstance(node, Series) and isinstance(node.input, Values) and node.input.rows == ((),)


def _passes_one(node: Limit) -> bool:
    """Whether a limit lets the first row through."""
    return node.offset is None and (
        node.count is None
        or (isinstance(node.count, Literal) and node.count.value is not None and node.count.value >= 1)
    )
