"""`Dependent`: a relation that depends on an outer row, split into an independent plan and pending conditions.

`planner/unnest/push_dependent.py` makes these node by node, `planner/unnest/unnest.py` joins them to the outer
relation. `Binding` has the operations common to all. It binds each outer column to a column of the plan: by an equality
of the query, or by a join with the domain (the distinct values of the outer columns). It also applies conditions that
cannot wait."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field

from tsql.kernels.expr.nodes import Call, Column, Expr, Outer, substitute
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.nodes import Apply, Distinct, Filter, Join, Node, Project
from tsql.planner.logical.null_assumptions import rely
from tsql.planner.logical.predicates import (
    EQUALITIES,
    all_of,
    call,
    column,
    conjunction,
    conjuncts,
    outers,
    resolve,
    same,
)
from tsql.planner.logical.tree import nodes


class NeedsDomain(Exception):
    """The domain of the outer columns is needed, but the outer relation itself is still correlated."""


class OuterNames:
    """Column names that no node of the plan has."""

    def __init__(self, plan: Node):
        self.used = {name for node in nodes(plan) for name in node.schema.names}

    def fresh(self, name: str) -> str:
        base = re.sub(r"_\d+$", "", name)
        number = 1
        while f"{base}_{number}" in self.used:
            number += 1
        self.used.add(f"{base}_{number}")
        return f"{base}_{number}"


class Free:
    """The outer columns that a subtree names and that no Apply inside it binds."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, frozenset[str]]] = {}

    def of(self, node: Node) -> frozenset[str]:
        found = self._known.get(id(node))
        if found is None:
            free = outers(*node.expressions())
            if isinstance(node, Apply):
                free |= self.of(node.left) | (self.of(node.right) - set(node.left.schema.names))
            else:
                free = free.union(*(self.of(i) for i in node.inputs))
            found = self._known[id(node)] = (node, frozenset(free))
        return found[1]

    def rename(self, node: Node, renamed: dict[str, Outer]) -> Node:
        """The node with some outer columns replaced; those that an Apply inside binds are left alone."""
        if not self.of(node) & renamed.keys():
            return node
        if isinstance(node, Apply):
            inner = {n: o for n, o in renamed.items() if n not in node.left.schema}
            node = node.with_inputs((self.rename(node.left, renamed), self.rename(node.right, inner)))
        else:
            node = node.with_inputs(tuple(self.rename(i, renamed) for i in node.inputs))
        return node.map_expressions(lambda e: resolve(e, renamed))


@dataclass(frozen=True)
class Dependent:
    """For an outer row, the relation is the rows of `plan` for which every part of `pending` is true, with the columns
    `computed` evaluated. `plan` has the relation's other columns, and perhaps more, and names no outer column of this
    level; `pending` and `computed` name columns of the plan and outer columns."""

    plan: Node
    pending: tuple[Expr, ...] = ()
    computed: dict[str, Expr] = field(default_factory=dict)

    def inline(self, expr: Expr) -> Expr:
        """An expression over the relation's columns, over those of the plan."""
        return substitute(expr, dict(self.computed))


@dataclass(frozen=True)
class Equality:
    """`outer = inner`: one side names outer columns only, the other columns of the plan only."""

    outer: Expr
    inner: Expr
    name: str

    def over(self, inner: Expr) -> Call:
        return call(self.name, self.outer, inner)


class Binding:
    """Operations on `Dependent` relations at one Apply: `left` is the outer relation, `bound` its columns that are
    used."""

    def __init__(self, left: Node, bound: frozenset[str], names: OuterNames, has_domain: bool):
        self.left, self.bound, self.names, self.has_domain = left, bound, names, has_domain
        self._domains: dict[tuple[str, ...], Node] = {}

    def outer(self, name: str) -> Outer:
        f = self.left.schema[name]
        return Outer(f.name, f.type, f.nullable)

    def outers(self, *exprs: Expr) -> set[str]:
        return outers(*exprs) & self.bound

    def columns(self, expr: Expr) -> Expr:
        """The expression beside the outer relation, where outer columns are columns."""
        return resolve(expr, {n: column(self.left.schema[n]) for n in self.bound})

    def domain(self, wanted: Iterable[str]) -> tuple[Node, dict[str, Expr]]:
        """The distinct values of outer columns, under names of their own, and those columns by outer name."""
        wanted = tuple(f.name for f in self.left.schema if f.name in set(wanted))
        if not self.has_domain:
            raise NeedsDomain
        base = self._domains.get(wanted)
        if base is None:
            columns = tuple((self.names.fresh(n), column(self.left.schema[n])) for n in wanted)
            base = self._domains[wanted] = Distinct(Project(self.left, columns))
            used: Node = base
        else:
            used = Project(base, tuple((self.names.fresh(f.name), column(f)) for f in base.schema))
        return used, {n: column(f) for n, f in zip(wanted, used.schema, strict=True)}

    def equality(self, part: Expr) -> Equality | None:
        if not (isinstance(part, Call) and part.name in EQUALITIES):
            return None
        a, b = part.args
        for outer, inner in ((a, b), (b, a)):
            if self.outers(outer) and not outer.columns() and inner.columns() and not self.outers(inner):
                return Equality(outer, inner, part.name)
        return None

    def bindings(self, d: Dependent) -> dict[str, Expr]:
        """For outer columns that pending equalities give a value: the expression over the plan that has it."""
        found: dict[str, Expr] = {}
        for part in d.pending:
            equality = self.equality(part)
            if equality is not None and isinstance(equality.outer, Outer):
                found.setdefault(equality.outer.name, equality.inner)
        return found

    def bind(self, d: Dependent, wanted: Iterable[str]) -> Dependent:
        """Each wanted outer column gets an equality, with the domain's column where the query has none."""
        missing = set(wanted) - self.bindings(d).keys()
        if not missing:
            return d
        domain, values = self.domain(missing)
        made = tuple(same(self.outer(n), value) for n, value in values.items())
        return Dependent(Join("inner", domain, d.plan), (*made, *d.pending), d.computed)

    def settle(self, d: Dependent, wanted: Iterable[str] = ()) -> Dependent:
        """Evaluates computed columns, binds the wanted outer columns, and keeps pending only the parts that pass any
        node: equalities with a column of the plan, and conditions on the outer row alone."""
        waiting = [p for p in d.pending if p.columns() and self.equality(p) is None]
        d = self.bind(d, self.outers(*waiting, *d.computed.values()).union(wanted))
        bound = self.bindings(d)
        pending: list[Expr] = []
        filters: list[Expr] = []
        added: dict[str, Expr] = {}
        for part in d.pending:
            equality = self.equality(part)
            if equality is None and part.columns():
                filters.append(resolve(part, bound))
            elif equality is None:
                pending.append(part)
            elif isinstance(equality.outer, Outer) and bound[equality.outer.name] != equality.inner:
                filters.append(resolve(part, bound))
            elif isinstance(equality.inner, Column):
                pending.append(part)
            else:
                name = self.names.fresh("key")
                added[name] = equality.inner
                pending.append(equality.over(Column(name, equality.inner.type)))
        plan = where(d.plan, filters)
        added |= {n: resolve(e, bound) for n, e in d.computed.items()}
        if added:
            plan = Project(plan, (*keep(plan.schema), *added.items()))
        return Dependent(plan, tuple(dict.fromkeys(pending)))

    def pin(self, d: Dependent, wanted: Iterable[str]) -> tuple[Dependent, list[Column]]:
        """Makes pending exactly one NULL-safe equality for each wanted outer column (these must be all), and returns
        the plan's columns in them, in the order of `wanted`."""
        wanted = list(wanted)
        d = self.settle(d, wanted)
        bound = self.bindings(d)
        filters: list[Expr] = []
        for part in d.pending:
            equality = self.equality(part)
            if equality is None or not isinstance(equality.outer, Outer):
                filters.append(resolve(part, bound))
            elif equality.name == "=" and _nullable(equality.inner):
                filters.append(call("is_not_null", equality.inner))
        columns = [c for n in wanted if isinstance(c := bound[n], Column)]
        assert len(columns) == len(wanted)
        return Dependent(
            where(d.plan, filters), tuple(same(self.outer(n), c) for n, c in zip(wanted, columns, strict=True))
        ), columns

    def restrict(self, d: Dependent, wanted: Iterable[str] = ()) -> Dependent:
        """Only rows that some outer row has: the plan joined with the domain."""
        used = self.outers(*d.pending, *d.computed.values()).union(wanted)
        if not used:
            return d
        domain, values = self.domain(used)
        plan: Node = Join("inner", domain, d.plan, conjunction(resolve(p, values) for p in d.pending))
        if d.computed:
            plan = Project(plan, (*keep(plan.schema), *((n, resolve(e, values)) for n, e in d.computed.items())))
        return Dependent(plan, tuple(same(self.outer(n), v) for n, v in values.items()))


def keep(schema: Schema) -> tuple[tuple[str, Expr], ...]:
    """The columns of a projection that passes on a whole schema."""
    return tuple((f.name, column(f)) for f in schema)


def where(node: Node, parts: list[Expr]) -> Node:
    """The rows of a node for which all parts are true; they join the condition of an inner join."""
    if not parts:
        return node
    if isinstance(node, Join) and not isinstance(node, Apply) and node.kind == "inner":
        return Join("inner", node.left, node.right, conjunction((*conjuncts(node.condition), *parts)))
    return Filter(node, all_of(parts))


def _nullable(expr: Expr) -> bool:
    return not isinstance(expr, Column) or not rely(not expr.nullable)
