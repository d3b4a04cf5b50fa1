"""Splits a subquery's plan node by node into a `Dependent` (see `planner/unnest/dependent.py`).

After Neumann and Kemper, "Unnesting Arbitrary Queries", and Neumann, "Improving Unnesting of Complex Queries".
Conditions on outer columns rise through the plan as far as they can. A node that has to know the outer row (a grouping,
a limit, the left side of an outer join) settles them first. An equality `outer.x = c` makes `c` another key, because
rows with other values of `c` belong to other outer rows. Any other condition is joined with the domain. So a subquery
that is correlated by equalities never needs the domain. Rows for values that no outer row has do no harm: the join with
the outer relation drops them."""

from __future__ import annotations

from dataclasses import replace

from tsql.kernels.expr.errors import BindError, PlanError
from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal, Outer, SortKey
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical.asof import AsofJoin
from tsql.planner.logical.calls import map_call, map_keys
from tsql.planner.logical.facts import at_most_one, not_null, pairs_at_most_once
from tsql.planner.logical.generating import Recursive, Sample, Series, Working
from tsql.planner.logical.match import Match
from tsql.planner.logical.nodes import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    Limit,
    LimitBy,
    Node,
    Project,
    SetOperation,
    Sort,
    Values,
    Window,
)
from tsql.planner.logical.null_assumptions import note_existence, rely
from tsql.planner.logical.predicates import all_of, call, column, conjunction, conjuncts, never_null, resolve, same
from tsql.planner.logical.snapshot import SnapshotAggregate
from tsql.planner.logical.tree import nodes, transform_up
from tsql.planner.unnest.dependent import Binding, Dependent, Free, OuterNames, keep, where

ZERO_FOR_NO_ROWS = {"count", "count_star", "approx_count_distinct", "regr_count", "entropy"}
"""Aggregates that give 0 for no rows; all others give NULL."""


def empty_value(aggregate: AggregateCall) -> Literal:
    """The result of an aggregate over no rows."""
    zero = 0.0 if aggregate.type.is_float else 0
    return Literal(zero if aggregate.name in ZERO_FOR_NO_ROWS else None, aggregate.type)


class Pusher(Binding):
    """Splits the right side of one Apply."""

    def __init__(self, left: Node, bound: frozenset[str], names: OuterNames, free: Free, has_domain: bool):
        super().__init__(left, bound, names, has_domain)
        self.free = free
        self._done: dict[int, tuple[Node, Dependent]] = {}
        self._working: dict[int, Dependent] = {}

    def push(self, node: Node) -> Dependent:
        found = self._done.get(id(node))
        if found is None:
            found = self._done[id(node)] = (node, self._push(node) if self.depends(node) else Dependent(node))
        return found[1]

    def depends(self, node: Node) -> bool:
        return bool(self.wanted(node))

    def wanted(self, node: Node) -> set[str]:
        """The outer columns that a node's rows depend on: those that it names, and those that a working table
        carries."""
        found = self.free.of(node) & self.bound
        if self._working:
            carried = (
                self._working[n.number] for n in nodes(node) if isinstance(n, Working) and n.number in self._working
            )
            found = found.union(*(self.outers(*d.pending) for d in carried))
        return set(found)

    def _push(self, node: Node) -> Dependent:
        match node:
            case Filter():
                return self._filter(node)
            case Project():
                return self._project(node)
            case Aggregate() if node.sets is not None:
                return self._grouping_sets(node)
            case Aggregate() if node.keys:
                return self.grouped(node)
            case Aggregate():
                return self._complete(node, self.grouped(node))
            case Distinct():
                return self._distinct(node)
            case Sort():
                return self._sort(node)
            case Limit():
                return self._limit(node)
            case LimitBy():
                return self._limit_by(node)
            case Window():
                return self._window(node)
            case SnapshotAggregate():
                return self._snapshot(node)
            case Match():
                return self._match(node)
            case SetOperation():
                return self._set_operation(node)
            case Values():
                return self._values(node)
            case Apply():
                return self._apply(node)
            case Series():
                return self._series(node)
            case Recursive():
                return self._recursive(node)
            case Working():
                return self._working[node.number]
            case Sample():
                d = self.settle(self.push(node.input))
                return replace(d, plan=replace(node, input=d.plan))
            case AsofJoin():
                return self._asof_join(node)
            case Join() if node.kind == "inner":
                return self._inner_join(node)
            case Join() if node.kind == "full":
                return self._full_join(node)
            case Join():
                return self._left_join(node)
        position = getattr(node, "position", None)
        raise BindError(f"a subquery cannot be correlated through a {node.describe()}", position=position)

    def _is_dependent(self, expr: Expr) -> bool:
        return bool(self.outers(expr))

    def _filter(self, node: Filter) -> Dependent:
        d = self.push(node.input)
        parts = conjuncts(d.inline(node.predicate))
        own = [p for p in parts if not self._is_dependent(p)]
        risen = [p for p in parts if self._is_dependent(p)]
        return replace(d, plan=Filter(d.plan, all_of(own)) if own else d.plan, pending=(*d.pending, *risen))

    def _project(self, node: Project) -> Dependent:
        d = self.push(node.input)
        columns: list[tuple[str, Expr]] = []
        computed: dict[str, Expr] = {}
        for name, expr in ((n, d.inline(e)) for n, e in node.columns):
            if self._is_dependent(expr):
                computed[name] = expr
            else:
                columns.append((name, expr))
        passed = {e.name: n for n, e in reversed(columns) if isinstance(e, Column)}
        for name in dict.fromkeys(c for e in (*d.pending, *computed.values()) for c in e.columns()):
            if name not in passed:
                passed[name] = self.names.fresh(name)
                columns.append((passed[name], column(d.plan.schema[name])))
        above = Dependent(
            d.plan,
            computed={
                old: Column(new, d.plan.schema[old].type, d.plan.schema[old].nullable) for old, new in passed.items()
            },
        )
        pending = tuple(above.inline(p) for p in d.pending)
        return Dependent(Project(d.plan, tuple(columns)), pending, {n: above.inline(e) for n, e in computed.items()})

    def grouped(self, node: Aggregate) -> Dependent:
        """Groups by the keys and by the columns that are equal to outer ones; without rows there is no group."""
        return self._group(node, self.push(node.input))

    def _group(self, node: Aggregate, below: Dependent) -> Dependent:
        d = self.settle(
            below, self.outers(*(e for _, e in node.keys), *(e for _, c in node.aggregates for e in c.expressions()))
        )
        bound = self.bindings(d)
        keys = [(n, resolve(e, bound)) for n, e in node.keys]
        calls = tuple((n, map_call(c, lambda e: resolve(e, bound))) for n, c in node.aggregates)
        named = {e.name: n for n, e in reversed(keys) if isinstance(e, Column)} if node.sets is None else {}
        pending: list[Expr] = []
        for part in d.pending:
            equality = self.equality(part)
            if equality is None:
                pending.append(part)
                continue
            inner = equality.inner
            assert isinstance(inner, Column)
            if inner.name not in named:
                named[inner.name] = self.names.fresh(inner.name)
                keys.append((named[inner.name], inner))
            pending.append(equality.over(Column(named[inner.name], inner.type)))
        sets = node.sets
        if sets is not None:
            sets = tuple((*s, *range(len(node.keys), len(keys))) for s in sets)
        return Dependent(Aggregate(d.plan, tuple(keys), calls, sets), tuple(pending))

    def _complete(self, node: Aggregate, d: Dependent) -> Dependent:
        """An aggregate without keys has a row for every outer row. Outer rows without a group get the result of no
        rows."""
        domain, values = self.domain(self.outers(*d.pending))
        joined = Join("left", domain, d.plan, conjunction(resolve(p, values) for p in d.pending))
        columns = tuple((n, or_empty(column(joined.schema[n]), c)) for n, c in node.aggregates)
        return Dependent(
            Project(joined, (*keep(domain.schema), *columns)), tuple(same(self.outer(n), v) for n, v in values.items())
        )

    def _grouping_sets(self, node: Aggregate) -> Dependent:
        """The empty set has a row for every outer row too: those without input get theirs beside the groups."""
        empty = (node.sets or ()).count(())
        if not empty:
            return self.grouped(node)
        wanted = sorted(self.wanted(node))
        below, inputs = self.pin(self.push(node.input), wanted)
        d = self._group(node, below)
        groups = self.bindings(d)
        domain, values = self.domain(wanted)
        missing = Join(
            "anti", domain, below.plan, conjunction(same(values[n], i) for n, i in zip(wanted, inputs, strict=True))
        )
        constants: dict[str, Expr] = {n: Literal(None, e.type) for n, e in node.keys}
        constants |= {n: empty_value(c) for n, c in node.aggregates}
        constants |= {c.name: values[n] for n in wanted if isinstance(c := groups[n], Column)}
        constants["grouping_id"] = Literal((1 << len(node.keys)) - 1, BIGINT)
        plan = d.plan
        for _ in range(empty):
            plan = SetOperation(
                "union", True, plan, Project(missing, tuple((n, constants[n]) for n in d.plan.schema.names))
            )
        return replace(d, plan=plan)

    def _distinct(self, node: Distinct) -> Dependent:
        d = self.settle(self.push(node.input))
        keys = self._keys(d)
        plan = Project(
            d.plan, (*keep(node.schema), *((n, column(d.plan.schema[n])) for n in keys if n not in node.schema))
        )
        on = None if node.on is None else tuple(dict.fromkeys((*node.on, *keys)))
        return Dependent(Distinct(plan, on), d.pending)

    def _keys(self, d: Dependent) -> tuple[str, ...]:
        """The columns in the equalities of a settled relation."""
        found = (self.equality(p) for p in d.pending)
        return tuple(dict.fromkeys(e.inner.name for e in found if e is not None and isinstance(e.inner, Column)))

    def _sort(self, node: Sort) -> Dependent:
        d = self.push(node.input)
        keys = map_keys(node.keys, d.inline)
        if any(self._is_dependent(k.expr) for k in keys):
            d = self.settle(d, self.outers(*(k.expr for k in node.keys)))
            bound = self.bindings(d)
            keys = map_keys(node.keys, lambda e: resolve(e, bound))
        return replace(d, plan=Sort(d.plan, keys))

    def _limit(self, node: Limit) -> Dependent:
        if node.count is not None and node.count.type.is_float:
            position = getattr(node.count, "position", None)
            raise PlanError("a subquery that names outer columns cannot have a LIMIT in percent", position=position)
        below, order = self._unsorted(node.input)
        if not order and self._meets_domain(below):
            below, order = self._numbered(below)
        d = self.settle(self.push(below))
        keys = self._keys(d)
        if not keys:
            ordered = Sort(d.plan, order) if order else d.plan
            return replace(d, plan=Limit(ordered, node.count, node.offset))
        if node.offset is None and isinstance(node.count, Literal) and node.count.value == 1:
            return replace(d, plan=Distinct(Sort(d.plan, order) if order else d.plan, keys))
        return replace(d, plan=LimitBy(d.plan, keys, node.count, node.offset, order))

    def _unsorted(self, node: Node) -> tuple[Node, tuple[SortKey, ...]]:
        """The node without the sort that gives it its order, and that order over its columns, to which some may be
        added."""
        match node:
            case Sort():
                added = {self.names.fresh("order"): k.expr for k in node.keys if not isinstance(k.expr, Column)}
                names = iter(added)
                keys = tuple(
                    k if isinstance(k.expr, Column) else replace(k, expr=Column(next(names), k.expr.type))
                    for k in node.keys
                )
                return Project(node.input, (*keep(node.schema), *added.items())) if added else node.input, keys
            case Project():
                below, order = self._unsorted(node.input)
                if not order:
                    return node, ()
                columns = list(node.columns)
                passed = {e.name: n for n, e in reversed(columns) if isinstance(e, Column)}
                renamed: list[SortKey] = []
                for key in order:
                    by = key.expr
                    assert isinstance(by, Column)
                    if by.name not in passed:
                        passed[by.name] = self.names.fresh(by.name)
                        columns.append((passed[by.name], by))
                    renamed.append(replace(key, expr=replace(by, name=passed[by.name])))
                return Project(below, tuple(columns)), tuple(renamed)
        return node, ()

    def _meets_domain(self, node: Node) -> bool:
        """Whether the rows of a node must be joined with the domain, so that they have no order."""
        d = self.push(node)
        waiting = [p for p in d.pending if p.columns() and self.equality(p) is None]
        return not self.outers(*waiting, *d.computed.values()) <= self.bindings(d).keys()

    def _numbered(self, node: Node) -> tuple[Node, tuple[SortKey, ...]]:
        """The node with a number for each row, in the order in which they come, and that order; none where a join makes
        the rows."""
        match node:
            case Filter():
                below, order = self._numbered(node.input)
                return node.with_inputs((below,)), order
            case Project():
                below, order = self._numbered(node.input)
                return Project(
                    below, (*node.columns, *((e.name, e) for k in order if isinstance(e := k.expr, Column)))
                ), order
        if self.depends(node):
            return node, ()
        number = Column(self.names.fresh("row"), BIGINT, False)
        return Window(node, (), (), ((number.name, WindowCall("row_number", (), BIGINT)),)), (SortKey(number),)

    def _limit_by(self, node: LimitBy) -> Dependent:
        d = self.settle(self.push(node.input), self.outers(*(k.expr for k in node.order)))
        bound = self.bindings(d)
        order = map_keys(node.order, lambda e: resolve(e, bound))
        return replace(
            d, plan=LimitBy(d.plan, tuple(dict.fromkeys((*node.by, *self._keys(d)))), node.count, node.offset, order)
        )

    def _window(self, node: Window) -> Dependent:
        """Rows of other outer rows are in other partitions."""
        d = self.settle(self.push(node.input), self.outers(*node.expressions()))
        bound = self.bindings(d)
        keys = [resolve(e, bound) for e in node.keys]
        order = map_keys(node.order, lambda e: resolve(e, bound))
        calls = tuple((n, c.changed(lambda e: resolve(e, bound))) for n, c in node.calls)
        added = tuple(Column(n, d.plan.schema[n].type, d.plan.schema[n].nullable) for n in self._keys(d))
        return replace(d, plan=Window(d.plan, tuple(dict.fromkeys((*keys, *added))), order, calls))

    def _snapshot(self, node: SnapshotAggregate) -> Dependent:
        """Rows of other outer rows are in other groups."""
        d = self.settle(self.push(node.input), self.outers(*node.expressions()))
        bound = self.bindings(d)
        resolved = node.map_expressions(lambda e: resolve(e, bound))
        return replace(d, plan=replace(resolved, input=d.plan, keys=tuple(dict.fromkeys((*node.keys, *self._keys(d))))))

    def _match(self, node: Match) -> Dependent:
        """As for a window; its partitions are kept apart by columns that the result has too."""
        d = self.settle(self.push(node.input), self.outers(*node.spec.expressions()))
        bound = self.bindings(d)
        spec = node.spec.changed(lambda e: resolve(e, bound))
        added = tuple(Column(n, d.plan.schema[n].type, d.plan.schema[n].nullable) for n in self._keys(d))
        return replace(d, plan=Match(d.plan, replace(spec, by=tuple(dict.fromkeys((*spec.by, *added))))))

    def _set_operation(self, node: SetOperation) -> Dependent:
        sides = [self.push(i) for i in node.inputs]
        if not all(self.depends(i) for i in node.inputs) or not self._alike(sides):
            wanted = sorted(self.wanted(node))
            sides = [self.pin(side, wanted)[0] for side in sides]
        sides = [self.settle(side) for side in sides]
        found = [[e.inner for e in map(self.equality, side.pending) if e is not None] for side in sides]
        added = [[c for c in inner if isinstance(c, Column)] for inner in found]
        names = [self.names.fresh(c.name) for c in added[0]]
        plans = []
        for side, keys, part in zip(sides, added, node.inputs, strict=True):
            plans.append(Project(side.plan, (*keep(part.schema), *zip(names, keys, strict=True))))
        fresh = iter(names)
        pending = [
            p if e is None else e.over(Column(next(fresh), e.inner.type))
            for p, e in ((p, self.equality(p)) for p in sides[0].pending)
        ]
        return Dependent(SetOperation(node.kind, node.all, *plans), tuple(pending))

    def _alike(self, sides: list[Dependent]) -> bool:
        """Whether both sides wait for the same equalities and conditions, in the same order, and for nothing else."""
        forms = []
        for side in sides:
            equalities = [self.equality(p) for p in side.pending]
            forms.append([p if e is None else (e.outer, e.name) for p, e in zip(side.pending, equalities, strict=True)])
            settled = all(e is not None or not p.columns() for p, e in zip(side.pending, equalities, strict=True))
            single = len(set(forms[-1])) == len(forms[-1])
            if side.computed or not settled or not single:
                return False
        return forms[0] == forms[1]

    def _values(self, node: Values) -> Dependent:
        """Rows that name outer columns: the other columns stay, with a row number by which each row finds its
        expressions."""
        number = self.names.fresh("row")
        place = Column(number, BIGINT, False)
        fixed, computed = [], {}
        for index, field in enumerate(node.fields):
            exprs = [row[index] for row in node.rows]
            if not self.outers(*exprs):
                fixed.append(index)
            elif len(exprs) == 1:
                computed[field.name] = exprs[0]
            else:
                whens = tuple((call("=", place, Literal(i, BIGINT)), e) for i, e in enumerate(exprs[:-1]))
                computed[field.name] = Case(whens, exprs[-1])
        rows = tuple((*(row[i] for i in fixed), Literal(n, BIGINT)) for n, row in enumerate(node.rows))
        return Dependent(
            Values(rows, Schema((*(node.fields.fields[i] for i in fixed), Field(number, BIGINT, False)))), (), computed
        )

    def _series(self, node: Series) -> Dependent:
        """The bounds may name outer columns, which the input then has."""
        d = self.settle(self.push(node.input), self.outers(node.start, node.stop, node.step))
        bound = self.bindings(d)
        return replace(d, plan=replace(node.map_expressions(lambda e: resolve(e, bound)), input=d.plan))

    def _recursive(self, node: Recursive) -> Dependent:
        """All outer rows recurse together. Their values are columns of the working table, so that each finds its own
        rows."""
        wanted = sorted(self.wanted(node))
        initial, columns = self.pin(self.push(node.initial), wanted)
        names = [self.names.fresh(n) for n in wanted]
        first = Project(initial.plan, (*keep(node.initial.schema), *zip(names, columns, strict=True)))
        own = next((n for n in nodes(node.step) if isinstance(n, Working) and n.number == node.number), None)
        if own is not None:
            fields = tuple(Field(name, c.type) for name, c in zip(names, columns, strict=True))
            carried = tuple(same(self.outer(n), column(f)) for n, f in zip(wanted, fields, strict=True))
            self._working[node.number] = Dependent(replace(own, fields=Schema((*own.fields, *fields))), carried)
        step, columns = self.pin(self.push(node.step), wanted)
        second = Project(step.plan, (*keep(node.step.schema), *zip(names, columns, strict=True)))
        plan = replace(node, initial=first, step=second)
        return Dependent(
            plan, tuple(same(self.outer(n), column(plan.schema[name])) for n, name in zip(wanted, names, strict=True))
        )

    def _apply(self, node: Apply) -> Dependent:
        """A nested subquery that has not been removed yet: its left side carries along the outer columns that it
        names."""
        d = self.settle(self.push(node.left))
        wanted = sorted(
            (self.wanted(node.right) - set(node.left.schema.names)) | self.outers(*conjuncts(node.condition))
        )
        d = self.restrict(d, wanted) if node.kind == "single" and not at_most_one(node.right) else self.bind(d, wanted)
        bound = self.bindings(d)
        carried = {n: (self.names.fresh(n), bound[n]) for n in wanted}
        plan = Project(d.plan, (*keep(d.plan.schema), *carried.values()))
        columns = {n: column(plan.schema[name]) for n, (name, _) in carried.items()}
        carrying = {n: Outer(c.name, c.dtype, c.nullable) for n, c in columns.items()}
        right = self._own_rows(self.free.rename(node.right, carrying), carrying)
        condition = None if node.condition is None else resolve(node.condition, columns)
        return replace(d, plan=Apply(node.kind, plan, right, condition, node.mark))

    def _own_rows(self, node: Node, outer: dict[str, Outer]) -> Node:
        """A right side in which each working table of a correlated recursion has the rows of one outer row only."""

        def own(part: Node) -> Node:
            d = self._working.get(part.number) if isinstance(part, Working) else None
            return (
                part
                if d is None
                else Project(Filter(d.plan, all_of(resolve(p, outer) for p in d.pending)), keep(part.schema))
            )

        return transform_up(node, own) if self._working else node

    def _inner_join(self, node: Join) -> Dependent:
        left, right = self.push(node.left), self.push(node.right)
        both = Dependent(node, (*left.pending, *right.pending), {**left.computed, **right.computed})
        parts = [both.inline(p) for p in conjuncts(node.condition)]
        condition = conjunction(p for p in parts if not self._is_dependent(p))
        risen = tuple(p for p in parts if self._is_dependent(p))
        return replace(both, plan=Join("inner", left.plan, right.plan, condition), pending=(*both.pending, *risen))

    def _left_join(self, node: Join) -> Dependent:
        """left, single, semi, anti, mark: pending conditions of the right side are decided at the join, so the left
        side has to carry the outer columns."""
        left, right = self.push(node.left), self.push(node.right)
        if right.computed and node.kind in ("left", "single"):
            right = self.settle(right)
        parts = [
            Dependent(node, computed={**left.computed, **right.computed}).inline(p) for p in conjuncts(node.condition)
        ]
        wanted = self.outers(*parts, *right.pending)
        if node.kind == "single" and not pairs_at_most_once(node):
            left = self.restrict(left, wanted)
            parts = [Dependent(node, computed=right.computed).inline(p) for p in conjuncts(node.condition)]
        left = self.bind(left, wanted)
        bound = self.bindings(left)
        plan, waiting = right.plan, [resolve(p, bound) for p in right.pending]
        if node.kind == "mark":
            plan, waiting = two_valued(left.plan, plan, waiting, node)
        condition = conjunction((*waiting, *(resolve(p, bound) for p in parts)))
        return Dependent(Join(node.kind, left.plan, plan, condition, node.mark), left.pending, left.computed)

    def _asof_join(self, node: AsofJoin) -> Dependent:
        """The nearest row is decided per outer row: both sides carry the outer columns, if both depend on them."""
        wanted = sorted(self.wanted(node))
        left, in_left = self.pin(self.push(node.left), wanted)
        right, meet = node.right, []
        if self.depends(node.right):
            own = sorted(self.wanted(node.right))
            pinned, in_right = self.pin(self.push(node.right), own)
            right, meet = pinned.plan, [same(in_left[wanted.index(n)], c) for n, c in zip(own, in_right, strict=True)]
        bound = dict(zip(wanted, in_left, strict=True))
        changed = node.map_expressions(lambda e: resolve(e, bound))
        condition = conjunction((*meet, *conjuncts(changed.condition)))
        return replace(left, plan=replace(changed, left=left.plan, right=right, condition=condition))

    def _full_join(self, node: Join) -> Dependent:
        wanted = sorted(self.wanted(node))
        left, in_left = self.pin(self.push(node.left), wanted)
        right, in_right = self.pin(self.push(node.right), wanted)
        meet = [same(a, b) for a, b in zip(in_left, in_right, strict=True)]
        bound = dict(zip(wanted, in_left, strict=True))
        joined = Join(
            "full", left.plan, right.plan, conjunction((*meet, *(resolve(p, bound) for p in conjuncts(node.condition))))
        )
        values = [
            Call("coalesce", (column(joined.schema[a.name]), column(joined.schema[b.name])), a.type)
            for a, b in zip(in_left, in_right, strict=True)
        ]
        names = [self.names.fresh(n) for n in wanted]
        plan = Project(joined, (*keep(node.schema), *zip(names, values, strict=True)))
        return Dependent(
            plan, tuple(same(self.outer(n), column(plan.schema[name])) for n, name in zip(wanted, names, strict=True))
        )


def or_empty(value: Expr, aggregate: AggregateCall) -> Expr:
    """The result of an aggregate where a missing group means no rows."""
    zero = empty_value(aggregate)
    return value if zero.value is None else Call("coalesce", (value, zero), zero.type)


def two_valued(left: Node, right: Node, parts: list[Expr], node: Join) -> tuple[Node, list[Expr]]:
    """Turns conditions of a WHERE into part of a mark join's condition: NULL must count as false there and must not
    make the mark NULL.

    An equality stays an equality, because a join can hash it: the right side drops its NULLs, and the left side is
    tested first."""
    if node.condition is None and node.mark is not None:
        note_existence(node.mark)
    used = {c for p in parts for c in p.columns()}
    inner, known = set(right.schema.names), not_null(left, used) | not_null(right, used)
    changed: list[Expr] = []
    dropped: list[Expr] = []
    for part in parts:
        if rely(never_null(part, known), node.mark):
            changed.append(part)
        elif isinstance(part, Call) and part.name == "=" and any(set(a.columns()) <= inner for a in part.args):
            for arg in part.args:
                if not rely(never_null(arg, known), node.mark):
                    (dropped if arg.columns() and set(arg.columns()) <= inner else changed).append(
                        call("is_not_null", arg)
                    )
            changed.append(part)
        else:
            changed.append(same(part, Literal(True, part.type)))
    return where(right, dropped), changed
