"""Turns one SELECT into a logical plan. Its clauses are analyzed in their order of evaluation.

FROM, WHERE, GROUP BY, HAVING, window functions, QUALIFY, the select list, DISTINCT, ORDER BY. Names follow DuckDB: a
later select item, WHERE, GROUP BY and HAVING may use an alias; ORDER BY prefers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.group import GroupClause, mentions_aggregate
from tsql.analyze.scope import (
    AnalyzedRelation,
    Names,
    Scope,
    ScopeField,
    integer_of,
    lower_names,
    plan_name,
)
from tsql.analyze.select_items import SelectItem, SelectItems
from tsql.analyze.subquery import Level, Pending
from tsql.analyze.time.select import Lived, filter_pieces, group_lived, qualified, refuse_windows
from tsql.analyze.unnest import Unnests, is_unnest, refuse_unnest
from tsql.analyze.windows import WindowCalls, mentions_window
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Aggregate, Column, Expr, SortKey
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.forms import current_database
from tsql.planner.bind.operators import to_boolean
from tsql.planner.bind.query_text import is_all, position_of
from tsql.planner.bind.strings import collated
from tsql.planner.bind.syntax import expression_text
from tsql.planner.logical import nodes as logical

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer


class SelectAnalyzer:
    """Analyzes one SELECT over an analyzed FROM."""

    def __init__(self, node: exp.Select, scope: Scope, plan: logical.Node, queries: QueryAnalyzer, environment: Any):
        self.node = node
        self.scope = scope
        self.plan = plan
        self.life = scope.life
        self.queries = queries
        self.source = queries.source
        self.parameters = queries.parameters
        self.taken = queries.taken
        self.level = Level(queries, environment, plan.schema.names)
        self.grouping = GroupClause(self.source)
        self.grouping.shown = {f.column: f.name for table in scope.tables for f in table.relation.fields}
        self.windows = WindowCalls(self.source, node.args.get("windows") or [])
        self.unnests = Unnests()
        self.items, self.unread = self._apart(SelectItems(node, scope, self.source, self.windows).expand())
        self.aliases: dict[str, int] = {}
        for index, item in enumerate(self.items):
            if item.alias is not None:
                self.aliases.setdefault(item.alias.lower(), index)

    def analyze(self) -> AnalyzedRelation:
        """The relation of the SELECT with DISTINCT and ORDER BY, but without LIMIT."""
        where = self._where()
        if where is not None:
            where = filter_pieces(self, where)
        if where is not None:
            self.plan = self.level.attach(self.plan, [where])
            self.plan = logical.Filter(self.plan, self.level.settle(where))
        self._group_by()
        for index in range(len(self.items)):
            self._bind_item(index)
        having = self._having()
        on = self._distinct_on()
        order = self._order_by()
        qualify = self._qualify()
        if self.grouping.used:
            qualify = self._aggregate(having, on, order, qualify)
        if self.windows.calls and self.life is not None:
            refuse_windows(self, on, order)
            qualified(self, qualify)
        elif self.windows.calls:
            self._compute_windows(on, order, qualify)
        relation = self._project(on, order) if self.life is None else Lived(self).project(on, order)
        if not self.unread:
            return relation
        fields = list(relation.fields)
        for place, field in self.unread:
            fields.insert(place, field)
        return AnalyzedRelation(relation.plan, tuple(fields), relation.life)

    def _apart(self, items: list[SelectItem]) -> tuple[list[SelectItem], list[tuple[int, ScopeField]]]:
        """The items that have values, and the others with their places."""
        unread = [(place, item.unread) for place, item in enumerate(items) if item.unread is not None]
        return ([item for item in items if item.unread is None], unread) if unread else (items, unread)

    def _error(self, message: str, node: exp.Expr | None, hint: str | None = None) -> BindError:
        return BindError(message, position=position_of(node), text=self.source.text, hint=hint)

    def _binder(self, clause: str, aliases: int, aggregates: bool, windows: bool = False) -> Binder:
        """A binder in which names mean columns, or else one of the first `aliases` select items."""

        def find(node: exp.Column) -> Expr | None:
            return self.scope.find(node) or self._alias(node, aliases, aggregates, None if windows else clause)

        return self._binder_of(find, clause, aggregates, windows)

    def _binder_of(
        self, find: Callable[[exp.Column], Expr | None], clause: str, aggregates: bool, windows: bool = False
    ) -> Binder:
        """A binder for a clause in which `find` says what a name means; other names are those of the queries around."""

        def resolve(node: exp.Column) -> Expr:
            found = find(node) or self.level.outside(node)
            if found is None:
                self._check_alias(node)
                raise self.scope.unknown(node, (i.alias for i in self.items if i.alias))
            return found

        def aggregate(call: Aggregate, node: exp.Expr) -> Expr:
            found = self.level.outer_aggregate(call, node)
            if found is None and not aggregates:
                raise self._error(f"an aggregate is not allowed in {clause}", node)
            if found is None and any(map(mentions_window, call.expressions())):
                raise self._error("an argument of an aggregate cannot contain window functions", node)
            if found is None and any(map(mentions_aggregate, call.expressions())):
                raise self._error("aggregates cannot be nested: the alias of one stands inside of this one", node)
            return found or self.grouping.placeholder(call, node)

        return Binder(
            self.source,
            resolve,
            aggregate=aggregate if aggregates or self.level.outer is not None else None,
            clause=clause,
            parameters=self.parameters,
            special={
                "current_database": current_database(getattr(self.queries.catalog, "database", "memory")),
                **(
                    {"grouping": self.grouping.grouping_call, "grouping_id": self.grouping.grouping_call}
                    if aggregates
                    else {}
                ),
                "unnest": self.unnests.bind if clause in ("the select list", "ORDER BY") else refuse_unnest,
            },
            subquery=self.level.binder(find, aggregate if aggregates else None, clause),
            windows=self.windows.scope if windows else None,
        )

    def _check_alias(self, node: exp.Column) -> None:
        if len(node.parts) == 1 and node.name.lower() in self.aliases:
            raise self._error(f'alias "{node.name}" cannot be used before it is defined', node)

    def _alias(self, node: exp.Column, before: int, aggregates: bool, clause: str | None = None) -> Expr | None:
        """The select item that a name means; None if it is none of the first `before`. `clause` names a place that does
        not allow window functions."""
        index = self.aliases.get(node.name.lower())
        if index is None or index >= before or len(node.parts) > 1:
            return None
        expr = self._bind_item(index)
        if not aggregates and mentions_aggregate(expr):
            raise self._error(f'alias "{node.name}" is an aggregate, which is not allowed here', node)
        if clause is not None and mentions_window(expr):
            raise self._error(f"{clause} cannot contain window functions", node)
        return expr

    def _bind_item(self, index: int) -> Expr:
        item = self.items[index]
        if item.expr is None:
            if item.binding:
                raise self._error(f'alias "{item.name}" is defined by itself', item.node)
            item.binding = True
            item.expr = self._binder("the select list", index, aggregates=True, windows=True).bind(item.node)
        if not item.plan_name:
            is_column = isinstance(item.expr, Column) and not item.expr.name.startswith("\0")
            known = (
                item.expr.name
                if is_column
                else item.expr.subquery.column
                if isinstance(item.expr, Pending)
                else plan_name(item.name)
            )
            item.plan_name = item.alias or known
        return item.expr

    def _where(self) -> Expr | None:
        where = self.node.args.get("where")
        if where is None:
            return None
        binder = self._binder("WHERE", len(self.items), aggregates=False)
        return to_boolean(binder, binder.bind(where.this), where.this)

    def _group_by(self) -> None:
        group = self.node.args.get("group")
        if group is None:
            return
        self.grouping.explicit = True
        if group.args.get("all"):
            if group.expressions:
                raise self._error(
                    "GROUP BY ALL takes nothing behind it", group.expressions[0], "name all keys, or none"
                )
            for index, item in enumerate(self.items):
                expr = self._bind_item(index)
                if is_unnest(expr):
                    raise self._error("Cannot group on an UNNEST or UNLIST clause", item.node)
                if not self.windows.uses_aggregate(expr):
                    if self.windows.depends_on_rows(expr):
                        raise self._error("Cannot group on a window clause", item.node, "name the keys in GROUP BY")
                    if not mentions_window(expr):
                        self.grouping.add_key(expr, item.plan_name)
                elif any(isinstance(e, Column) and not e.name.startswith("\0") for e in expr.walk()):
                    raise self._error(
                        "GROUP BY ALL cannot mix aggregates and other columns in one expression",
                        item.node,
                        "name the keys in GROUP BY",
                    )
            return
        has_sets = any(isinstance(e, (exp.Rollup, exp.Cube, exp.GroupingSets)) for e in group.expressions)
        self.grouping.add_elements(group.expressions, lambda node: self._key(node, has_sets))
        for index, item in enumerate(self.items):
            item.expr = self.grouping.item_key(index) or item.expr

    def _key(self, node: exp.Expr, has_sets: bool) -> int:
        """The index of a key. With grouping sets it matters how it is written: see `Grouping.add_key`."""
        reference = expression_text(node.transform(lower_names)) if has_sets else None
        ordinal = self._ordinal(node, "GROUP BY")
        if ordinal is None and isinstance(node, exp.Column) and len(node.parts) == 1 and not self.scope.has(node):
            ordinal = self.aliases.get(node.name.lower())
        if ordinal is not None:
            expr = self._bind_item(ordinal)
            if mentions_aggregate(expr):
                raise self._error("GROUP BY cannot contain aggregates", node)
            if mentions_window(expr):
                raise self._error("GROUP BY cannot contain window functions", node)
            key = self.grouping.add_key(expr, self.items[ordinal].plan_name, reference)
            self.grouping.item_keys[ordinal] = key
            return key
        return self.grouping.add_key(
            self._binder("GROUP BY", len(self.items), aggregates=False).bind(node), reference=reference
        )

    def _ordinal(self, node: exp.Expr, clause: str) -> int | None:
        """The index of the select item that `2` in GROUP BY, ORDER BY or DISTINCT ON means."""
        ordinal = integer_of(node)
        if ordinal is None:
            return None
        if not 1 <= ordinal <= len(self.items):
            raise self._error(
                f"{clause} position {ordinal} is out of range: it is between 1 and {len(self.items)}", node
            )
        return ordinal - 1

    def _having(self) -> Expr | None:
        having = self.node.args.get("having")
        if having is None:
            return None
        self.grouping.explicit = True

        def find(node: exp.Column) -> Expr | None:
            column = self.scope.find(node)
            if column is not None and (
                column in self.grouping.keys or len(node.parts) > 1 or node.name.lower() not in self.aliases
            ):
                return column
            return self._alias(node, len(self.items), aggregates=True, clause="HAVING")

        binder = self._binder_of(find, "HAVING", aggregates=True)
        condition = to_boolean(binder, binder.bind(having.this), having.this)
        if self.node.args.get("group") is not None and self.node.args["group"].args.get("all"):
            # As in DuckDB, ALL also means the columns that HAVING uses outside of aggregates.
            for column in condition.walk():
                if isinstance(column, Column) and not column.name.startswith("\0"):
                    self.grouping.add_key(column)
        return condition

    def _distinct_on(self) -> list[Expr] | None:
        """The expressions of DISTINCT ON; the empty list for DISTINCT; None without."""
        distinct = self.node.args.get("distinct")
        if distinct is None:
            return None
        on = distinct.args.get("on")
        if on is None:
            return []
        keys = on.expressions if isinstance(on, exp.Tuple) else [on]
        return [self._sort_expression(key, "DISTINCT ON") for key in keys]

    def _order_by(self) -> list[SortKey]:
        order = self.node.args.get("order")
        if order is None:
            return []
        keys: list[SortKey] = []
        for ordered in order.expressions:
            descending, nulls_first = bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))
            if is_all(ordered.this):
                keys += [SortKey(self._bind_item(i), descending, nulls_first) for i in range(len(self.items))]
            else:
                keys.append(SortKey(self._sort_expression(ordered.this, "ORDER BY"), descending, nulls_first))
        return keys

    def _sort_expression(self, node: exp.Expr, clause: str) -> Expr:
        ordinal = self._ordinal(node, clause)
        if ordinal is None and isinstance(node, exp.Column) and len(node.parts) == 1:
            ordinal = self.aliases.get(node.name.lower())
        if ordinal is not None:
            return self._bind_item(ordinal)
        if isinstance(node, (exp.Literal, exp.Null)):
            raise self._error(
                f"a constant in {clause} has no effect: give the position of a column, or an expression", node
            )
        expr = collated(self._binder(clause, len(self.items), aggregates=True, windows=True), node)
        return self.grouping.shown_key(expr) or expr

    def _qualify(self) -> Expr | None:
        qualify = self.node.args.get("qualify")
        if qualify is None:
            return None
        binder = self._binder("QUALIFY", len(self.items), aggregates=True, windows=True)
        condition = to_boolean(binder, binder.bind(qualify.this), qualify.this)
        if not self.windows.calls:
            raise self._error(
                "at least one window function must appear in the SELECT column or QUALIFY clause",
                qualify.this,
                "use WHERE or HAVING",
            )
        return condition

    def _aggregate(
        self, having: Expr | None, on: list[Expr] | None, order: list[SortKey], qualify: Expr | None
    ) -> Expr | None:
        """Adds the Aggregate node and rewrites every later clause over its result."""
        grouping = self.grouping
        for item in self.items:
            grouping.name_result(item.expr, item.plan_name)
        put = self._unnest_keys() if any(map(is_unnest, grouping.keys)) else lambda expr: expr
        computed = [put(expr) for expr in grouping.expressions()]
        self._check_no_unnest(computed)
        self.plan = self.level.attach(self.plan, computed)
        self.plan = grouping.build(self.plan, lambda expr: self.level.settle(put(expr)), self.taken | self.level.used)
        if self.life is not None:
            group_lived(self)
        self.level.regroup()
        self.unnests.map(grouping.over_result)
        for item in self.items:
            item.expr = grouping.over_result(item.expr)
        if having is not None:
            condition = grouping.over_result(having)
            self.plan = self.level.attach(self.plan, [condition])
            self.plan = logical.Filter(self.plan, self.level.settle(condition))
        if on is not None:
            on[:] = [grouping.over_result(expr) for expr in on]
        order[:] = [SortKey(grouping.over_result(k.expr), k.descending, k.nulls_first) for k in order]
        self.windows.change(grouping.over_result)
        return None if qualify is None else grouping.over_result(qualify)

    def _compute_windows(self, on: list[Expr] | None, order: list[SortKey], qualify: Expr | None) -> None:
        """Adds the Window nodes and QUALIFY, and rewrites every later clause over their result."""
        windows = self.windows
        for item in self.items:
            windows.name_result(item.expr, item.plan_name)
        self._check_no_unnest(windows.expressions())
        self.plan = self.level.attach(self.plan, windows.expressions())
        windows.change(self.level.settle)
        self.plan = windows.build(self.plan, self.taken | self.level.used)
        if qualify is not None:
            condition = windows.over_result(qualify)
            self.plan = self.level.attach(self.plan, [condition])
            self.plan = logical.Filter(self.plan, self.level.settle(condition))
        for item in self.items:
            item.expr = windows.over_result(item.expr)
        if on is not None:
            on[:] = [windows.over_result(expr) for expr in on]
        order[:] = [SortKey(windows.over_result(k.expr), k.descending, k.nulls_first) for k in order]
        self.unnests.map(windows.over_result)

    def _check_no_unnest(self, exprs: list[Expr]) -> None:
        """Refuse the alias of an UNNEST in what is computed before the lists are expanded."""
        for expr in filter(is_unnest, exprs):
            raise BindError("UNNEST not supported here", position=expr.position, text=self.source.text)

    def _unnest_keys(self) -> Callable[[Expr], Expr]:
        """Expands the lists that GROUP BY names below the grouping. Returns a function that rewrites expressions
        accordingly."""
        put = self._expand_lists()
        self.unnests = Unnests()
        return put

    def _expand_lists(self) -> Callable[[Expr], Expr]:
        """Adds a row for each element of the lists. Returns a function that rewrites expressions accordingly.
        Subqueries that read elements come above."""
        self.plan = self.level.attach(self.plan, self.unnests.expressions())
        self.unnests.map(self.level.settle)
        self.plan, put = self.unnests.expand(
            self.plan, self.taken | self.level.used, lambda text: self._error(text, self.node)
        )
        return put

    def _unnest(self, on: list[Expr] | None, order: list[SortKey]) -> tuple[list[Expr] | None, list[SortKey]]:
        """Expand the lists of the select list and of ORDER BY."""
        put = self._expand_lists()
        for item in self.items:
            item.expr = put(item.expr)
        return None if on is None else list(map(put, on)), [
            SortKey(put(k.expr), k.descending, k.nulls_first) for k in order
        ]

    def _project(self, on: list[Expr] | None, order: list[SortKey]) -> AnalyzedRelation:
        """Select list, DISTINCT and ORDER BY; columns needed for these but not shown are carried along."""
        names = Names(self.taken)
        if self.unnests.lists:
            on, order = self._unnest(on, order)
        self.plan = self.level.attach(
            self.plan, [*(item.expr for item in self.items), *(on or ()), *(key.expr for key in order)]
        )
        for item in self.items:
            item.expr = self.level.settle(item.expr)
        on = None if on is None else [self.level.settle(expr) for expr in on]
        order = [SortKey(self.level.settle(k.expr), k.descending, k.nulls_first) for k in order]
        columns = [(names.unique(item.plan_name), item.expr) for item in self.items]
        fields = tuple(
            ScopeField(item.name, name, expr.type, _nullable(expr))
            for item, (name, expr) in zip(self.items, columns, strict=True)
        )
        carried = list(columns)

        def carry(expr: Expr) -> Column:
            for name, known in carried:
                if known == expr:
                    return Column(name, expr.type, _nullable(expr))
            name = names.unique(f"order_{plan_name(expr.sql())}" if not isinstance(expr, Column) else expr.name)
            carried.append((name, expr))
            return Column(name, expr.type, _nullable(expr))

        keys = tuple(SortKey(carry(k.expr), k.descending, k.nulls_first) for k in order)
        on_columns = tuple(carry(expr).name for expr in on or ())
        plan = project(self.plan, carried)
        if on_columns:
            if keys:
                plan = logical.Sort(plan, keys)
            plan = logical.Distinct(plan, on_columns)
        elif on is not None:
            shown = tuple(name for name, _ in columns)
            plan = logical.Distinct(plan, None if len(carried) == len(columns) else shown)
        if keys:
            plan = logical.Sort(plan, keys)
        return AnalyzedRelation(plan, fields)


def project(plan: logical.Node, columns: list[tuple[str, Expr]]) -> logical.Node:
    """A Project, or the plan itself where it would change nothing."""
    same = [isinstance(expr, Column) and expr.name == name for name, expr in columns]
    if all(same) and tuple(name for name, _ in columns) == plan.schema.names:
        return plan
    return logical.Project(plan, tuple(columns))


def _nullable(expr: Expr) -> bool:
    return expr.nullable if isinstance(expr, Column) else True
