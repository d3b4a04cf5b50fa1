"""What a SELECT does with lifetimes: EXISTS over temporal relations in WHERE, grouping, the select list, DISTINCT and
ORDER BY.

`tsql/analyze/select.py` calls these where its rows have a lifetime (`SelectAnalyzer.life`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsql.analyze.scope import LIFETIME_NAMES, AnalyzedRelation, Life, Names, ScopeField, lived, plan_name
from tsql.analyze.subquery import Pending, pendings
from tsql.analyze.time.cut import coalesced
from tsql.analyze.time.lifetime_joins import TemporalSide
from tsql.analyze.time.lifetimes import bound, every, kept
from tsql.analyze.time.misplaced import misplaced
from tsql.analyze.time.qualify import Instants, common
from tsql.analyze.time.snapshot import snapshot
from tsql.analyze.windows import mentions_window
from tsql.kernels.expr.nodes import Call, Column, Expr, SortKey
from tsql.planner.logical import nodes as logical

if TYPE_CHECKING:
    from tsql.analyze.select import SelectAnalyzer


def filter_pieces(select: SelectAnalyzer, where: Expr) -> Expr | None:
    """Apply the conditions of WHERE that are EXISTS, NOT EXISTS or IN over temporal relations; gives the others."""
    parts = where.args if isinstance(where, Call) and where.name == "and" else (where,)
    rest: list[Expr] = []
    waiting: list[tuple[str, Pending]] = []
    for part in parts:
        inner = part.args[0] if isinstance(part, Call) and part.name == "not" else part
        if not any(pending.subquery.life is not None for pending in pendings(part)):
            rest.append(part)
        elif not isinstance(inner, Pending) or (inner is not part and inner.subquery.condition is not None):
            raise misplaced(select.queries, next(p.position for p in pendings(part) if p.subquery.life is not None))
        else:
            waiting.append(("semi" if inner is part else "anti", inner))
    if not waiting:
        return where
    condition = every(rest)
    if condition is not None:
        select.plan = select.level.attach(select.plan, [condition])
        select.plan = logical.Filter(select.plan, select.level.settle(condition))
    side = TemporalSide(select.plan, select.life).timed((*select.taken, *select.level.used, *select.level.visible))
    for kind, pending in waiting:
        side = select.level.pieces(kind, side, pending.subquery)
        select.level.visible.update(side.life.columns)
    select.plan, select.life = side.plan, side.life
    select.scope = select.scope.living(side.life)
    return None


def refuse_windows(select: SelectAnalyzer, on: list[Expr] | None, order: list[SortKey]) -> None:
    """Refuse window functions elsewhere than in QUALIFY: their values change while a row is alive."""
    shown = [item.expr for item in select.items] + [key.expr for key in order] + (on or [])
    if not any(map(mentions_window, shown)):
        return
    position = next((call.position for _, _, call in select.windows.calls if call.position is not None), None)
    error = select._error(
        "window functions (OVER) over a temporal relation stand in QUALIFY only",
        select.node,
        "QUALIFY row_number() OVER (..) <= 3 keeps rows at each instant; for other uses keep the rows first: CREATE "
        "TABLE t AS SELECT ..",
    )
    error.position = error.position if position is None else position
    raise error


def qualified(select: SelectAnalyzer, qualify: Expr) -> None:
    """Keep the rows that QUALIFY says at each instant."""
    windows = select.windows
    select._check_no_unnest(windows.expressions())
    select.plan = select.level.attach(select.plan, windows.expressions())
    windows.change(select.level.settle)
    taken = (*select.taken, *select.level.used, *select.level.visible)
    instants = Instants(select.plan, common(windows.calls), select.life, taken)
    windows.calls = [instants.window(*call) for call in windows.calls]
    plan = windows.build(instants.plan, (*taken, *instants.plan.schema.names))
    condition = windows.over_result(qualify)
    plan = select.level.attach(plan, [condition])
    select.plan = instants.merged(logical.Filter(plan, select.level.settle(condition)))


def group_lived(select: SelectAnalyzer) -> None:
    """Put the grouping per snapshot in the place of the plain one."""
    life = select.life
    select.plan, select.life = snapshot(select.plan, life, (*select.taken, *select.level.used, *select.level.visible))
    old, new = life.columns, select.life.columns
    select.grouping.lifetime = {before: bound(after) for before, after in zip(old, new, strict=True)}
    select.level.visible.update(new)


class Lived:
    """The select list, DISTINCT and ORDER BY of a SELECT over a temporal relation.

    The values and the lifetime are computed first. DISTINCT, and a grouping that does not show all its results, then
    merge rows of equal values. valid_from and valid_to come last, because they are those of the merged rows."""

    def __init__(self, select: SelectAnalyzer):
        self.select = select
        self.names = Names(select.taken)
        self.own = {name: lived(select.life, name) for name in LIFETIME_NAMES}
        self.values: list[tuple[str, Expr]] = []

    def project(self, on: list[Expr] | None, order: list[SortKey]) -> AnalyzedRelation:
        select = self.select
        if on:
            raise select._error(
                "DISTINCT ON over a temporal relation is not supported",
                select.node.args["distinct"],
                "group by the columns instead",
            )
        select.plan = select.level.attach(
            select.plan,
            [*(item.expr for item in select.items), *(key.expr for key in order), *select.unnests.expressions()],
        )
        for item in select.items:
            item.expr = select.level.settle(item.expr)
        order = [SortKey(select.level.settle(k.expr), k.descending, k.nulls_first) for k in order]
        if select.unnests.lists:
            _, order = select._unnest(None, order)
        self._check_names()
        shown = [
            None if item.expr in self.own.values() else self._value(item.expr, item.plan_name) for item in select.items
        ]
        number = len(self.values)
        keys = [None if key.expr in self.own.values() else self._value(key.expr) for key in order]
        if on is not None and len(self.values) > number:
            raise select._error(
                "ORDER BY of SELECT DISTINCT over a temporal relation takes what the select list has",
                select.node.args["order"],
            )
        life = Life(*(self.names.unique(name) for name in select.life.columns))
        plan = self._merged(on is not None, life)
        return self._finished(plan, shown, keys, order, life)

    def _check_names(self) -> None:
        for item in self.select.items:
            name = item.name.lower()
            if name in LIFETIME_NAMES and item.expr != self.own[name]:
                message = (
                    f'"{name}" of the select list is not that of the result, which is the time when all of its '
                    "relations are alive"
                )
                raise self.select._error(
                    message, item.node, f"give it another name: AS {name}_of_one, or say {name} alone"
                )

    def _value(self, expr: Expr, name: str | None = None) -> str:
        """The plan column of a value. Each select item has its own column; a sort key may share one."""
        if name is None:
            known = next((column for column, value in self.values if value == expr), None)
            if known is not None:
                return known
            name = expr.name if isinstance(expr, Column) else f"order_{plan_name(expr.sql())}"
        column = self.names.unique(name)
        self.values.append((column, expr))
        return column

    def _merged(self, distinct: bool, life: Life) -> logical.Node:
        """The values and the lifetime, of rows that are merged if need be."""
        select = self.select
        hidden = [] if distinct else self._hidden_keys()
        columns = [*self.values, *hidden]
        start, end = (bound(name) for name in select.life.columns)
        plan = logical.Project(select.plan, (*columns, (life.start, start), (life.end, end)))
        if distinct or self._loses_results():
            plan = coalesced(plan, [name for name, _ in columns], life, select.taken)
        return plan

    def _loses_results(self) -> bool:
        """Whether neighbouring rows of a grouping may be equal because not all its results are shown unchanged."""
        grouping = self.select.grouping
        shown = {expr.name for _, expr in self.values if isinstance(expr, Column)}
        return grouping.used and any(name not in shown for name in grouping.aggregate_names)

    def _hidden_keys(self) -> list[tuple[str, Expr]]:
        """The keys of a grouping that are not shown; they keep groups apart."""
        grouping = self.select.grouping
        if not grouping.used or not self._loses_results():
            return []
        shown = {expr.name for _, expr in self.values if isinstance(expr, Column)}
        return [
            (self.names.unique(name), column)
            for name, column in kept(self.select.plan, grouping.key_names)
            if name not in shown
        ]

    def _finished(
        self, plan: logical.Node, shown: list[str | None], keys: list[str | None], order: list[SortKey], life: Life
    ) -> AnalyzedRelation:
        """The columns in the order of the select list, with valid_from and valid_to where they are named."""
        own = {lived(self.select.life, name): (name, lived(life, name)) for name in LIFETIME_NAMES}
        columns = kept(plan)
        ends: dict[str, str] = {}

        def column_of(expr: Expr, found: str | None) -> tuple[str, bool]:
            if found is not None:
                return found, True
            name, value = own[expr]
            if isinstance(value, Column):
                return value.name, False
            if name not in ends:
                ends[name] = self.names.unique(name)
                columns.append((ends[name], value))
            return ends[name], True

        fields = []
        for item, found in zip(self.select.items, shown, strict=True):
            column, nullable = column_of(item.expr, found)
            nullable = nullable and not (isinstance(item.expr, Column) and not item.expr.nullable)
            named = None if found is not None else own[item.expr][0]
            fields.append(ScopeField(item.name, column, item.expr.type, nullable, also=named))
        sorting = []
        for key, found in zip(order, keys, strict=True):
            column, _ = column_of(key.expr, found)
            sorting.append(SortKey(Column(column, key.expr.type), key.descending, key.nulls_first))
        if ends:
            plan = logical.Project(plan, tuple(columns))
        if sorting:
            plan = logical.Sort(plan, tuple(sorting))
        return AnalyzedRelation(plan, tuple(fields), life)
