"""Turns one SELECT into a logical plan. Its clauses are analyzed in their order of evaluation.

FROM, WHERE, GROUP BY, HAVING, window functions, QUALIFY, the select list, DISTINCT, ORDER BY. Names follow DuckDB: a
later select item, WHERE, GROUP BY and HAVING may use an alias; ORDER BY prefers it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.group import GroupClause, mentions_aggregate
from tsql.analyze.names.columns import display_name
from tsql.analyze.scope import (
    AnalyzedRelation,
    Names,
    Scope,
    ScopeField,
    integer_of,
    lower_names,
    plan_name,
    unread_star,
)
from tsql.analyze.star import StarPattern, column_alias, star_pattern
from tsql.analyze.subquery import Level, Pending
from tsql.analyze.time.select import Lived, filter_pieces, group_lived, refuse_windows
from tsql.analyze.unnest import Unnests, is_unnest, refuse_unnest
from tsql.analyze.windows import WindowCalls, mentions_window
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.nodes import Aggregate, Column, Expr, SortKey
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import Binder, nearest
from tsql.planner.bind.forms import current_database
from tsql.planner.bind.operators import to_boolean
from tsql.planner.bind.query_text import is_all, position_of
from tsql.planner.bind.strings import collated
from tsql.planner.bind.subquery import QUERIES
from tsql.planner.bind.syntax import expression_text
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.logical import nodes as logical

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer


@dataclass
class SelectItem:
    """One column of the select list. alias: what the user wrote. name: the name shown. expr: bound over the input.
    plan_name: its name in the plan. unread: an unreadable column of a star; only the result names it."""

    node: exp.Expr | None
    alias: str | None
    name: str
    expr: Expr | None = None
    plan_name: str = ""
    binding: bool = False
    unread: ScopeField | None = None


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
        self.items, self.unread = self._apart(self._expand())
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
        if self.windows.calls:
            refuse_windows(self)
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

    @property
    def _may_have_unread(self) -> bool:
        """Whether a star may include unreadable columns, which an enclosing query can leave out. It may where rows are
        neither compared nor grouped."""
        return self.life is None and not any(
            self.node.args.get(key) for key in ("distinct", "group", "having", "qualify", "order")
        )

    def _error(self, message: str, node: exp.Expr | None, hint: str | None = None) -> BindError:
        return BindError(message, position=position_of(node), text=self.source.text, hint=hint)

    def _expand(self) -> list[SelectItem]:
        items: list[SelectItem] = []
        for node in self.node.expressions:
            alias = None
            inner = node
            if isinstance(node, exp.Alias):
                alias, inner = node.alias, node.this
            pattern = star_pattern(inner)
            if pattern is not None:
                items += self._filtered_star(pattern, inner, alias)
            elif isinstance(inner, exp.Star):
                items += self._star(inner, self.scope.all_fields(position_of(inner)), alias)
            elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
                items += self._star(inner.this, self._fields_of(inner), alias, of_table=inner.parts[-2])
            elif _columns_calls(inner):
                items += self._columns(inner, alias)
            else:
                items.append(SelectItem(inner, alias, alias if alias is not None else self._name(inner)))
        if not items:
            raise self._error("SELECT needs at least one column", self.node)
        return items

    def _name(self, node: exp.Expr) -> str:
        inner = node
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Column):
            for known in self.scope.fields:
                if known.name.lower() == inner.name.lower():
                    return known.name
        return display_name(node, self.source.text, self.windows.scope.named)

    def _star(
        self,
        star: exp.Star,
        fields: list[ScopeField],
        alias: str | None = None,
        of: list[ScopeField] | None = None,
        of_table: exp.Expr | None = None,
    ) -> list[SelectItem]:
        """The items of a star. As in DuckDB, an alias names all of them. `of` has the columns that EXCLUDE can name, if
        `fields` are fewer; `of_table` is the qualifier of the star."""
        text, position = (
            ("*", position_of(star)) if of_table is None else (f"{quote(of_table.name)}.*", position_of(of_table))
        )
        if not self.scope.tables:
            raise self._error("* needs a FROM clause", star if position_of(star) is not None else self.node)
        known = {f.name.lower() for f in of or fields}
        dropped = {
            self._excluded(part)
            for part in _parts(star, "except_")
            if isinstance(part, exp.Column) and len(part.parts) > 1
        }
        fields = [f for f in fields if f.column not in dropped]
        for part in _parts(star, "except_"):
            if isinstance(part, exp.Alias):
                raise self._error("EXCLUDE takes names of columns", part)
        plain = (part for part in _parts(star, "except_") if not isinstance(part, exp.Column) or len(part.parts) == 1)
        taken: dict[str, str] = {}
        excluded = {self._listed(part, known, taken, "EXCLUDE") for part in plain}
        replaced = {
            self._listed(part, known, taken, "REPLACE", part.alias): part.this for part in _parts(star, "replace")
        }
        renamed = {self._listed(part.this, known, taken, "RENAME"): part.alias for part in _parts(star, "rename")}
        items = []
        for f in fields:
            name = f.name.lower()
            if name in excluded:
                continue
            shown = alias or renamed.get(name, f.name)
            given = shown if alias is not None or name in renamed else None
            if name in replaced:
                items.append(SelectItem(replaced[name], alias, shown))
            elif f.type.is_readable:
                items.append(SelectItem(None, given, shown, f.to_column(position_of(star))))
            elif self._may_have_unread:
                items.append(SelectItem(None, given, shown, unread=replace(f, name=shown, also=None)))
            else:
                kept = [f for f in fields if f.name.lower() not in excluded and f.name.lower() not in replaced]
                raise unread_star(kept, self._at(position), left_out(star), text).locate(self.source.text)
        if not items and of is None:
            raise self._error(
                f"SELECT needs at least one column: {'EXCLUDE leaves none' if known else f'{text} has none'}", self.node
            )
        return items

    def _fields_of(self, star: exp.Expr) -> list[ScopeField]:
        """The columns of `*` or of `t.*`."""
        if isinstance(star, exp.Star):
            return self.scope.all_fields(position_of(star))
        if len(star.parts) > 2:
            raise self._error("only the name of a table stands before .*", star)
        return self.scope.table(star.parts[0].name, position_of(star.parts[0]))

    def _filtered_star(self, pattern: StarPattern, node: exp.Expr, alias: str | None) -> list[SelectItem]:
        """The items of `* LIKE 'pattern'`."""
        star = pattern.star if isinstance(pattern.star, exp.Star) else pattern.star.this
        for key in ("replace", "rename"):
            if star.args.get(key):
                raise self._error(f"{key.upper()} cannot be combined with a pattern behind *", node)
        fields = self._fields_of(pattern.star)
        kept = pattern.matching([field.name for field in fields], self._error)
        items = self._star(star, [field for field, keep in zip(fields, kept, strict=True) if keep], alias, fields)
        if not items:
            raise self._error("no column matches the pattern behind *", pattern.value)
        return items

    def _excluded(self, node: exp.Column) -> str:
        """The plan column of `t.a` in EXCLUDE."""
        field = self.scope.field(node)
        if field is None:
            raise self.scope.unknown(node)
        return field.column

    def _listed(
        self, node: exp.Expr, known: set[str], taken: dict[str, str], clause: str, name: str | None = None
    ) -> str:
        """The name of a column in a clause of a star. `taken` has those of the clauses before: each column is in one of
        them. As in DuckDB, the last of two RENAME counts."""
        name = (name if name is not None else node.name).lower()
        if name not in known:
            raise self._error(f'column "{name}" in {clause} does not exist', node, nearest(name, known))
        before = taken.get(name)
        if before is not None and (before, clause) != ("RENAME", "RENAME"):
            raise self._error(
                f'column "{name}" is {f"twice in {clause}" if before == clause else f"in both {before} and {clause}"}',
                node,
            )
        taken[name] = clause
        return name

    def _columns(self, node: exp.Expr, alias: str | None) -> list[SelectItem]:
        """`COLUMNS('regex')`, alone or in an expression: the item once for each column that matches. In an alias `\\1`
        is what the first group of the expression matched, `\\0` the name of the column."""
        calls = _columns_calls(node)
        if any(call != calls[0] for call in calls):
            raise self._error("all COLUMNS of one expression must be the same", node)
        fields = self._matching(calls[0])
        names = [
            None
            if alias is None
            else column_alias(alias, f.name, _regex_of(calls[0]), lambda message: self._error(message, node))
            for f in fields
        ]
        if node is calls[0]:
            return [
                SelectItem(None, name, name or f.name, f.to_column(position_of(node)))
                for f, name in zip(fields, names, strict=True)
            ]
        return [
            SelectItem(node.transform(_put_column, f), name, name or f.name)
            for f, name in zip(fields, names, strict=True)
        ]

    def _matching(self, node: CallNode) -> list[ScopeField]:
        pattern = node.expressions[0] if len(node.expressions) == 1 else None
        if isinstance(pattern, exp.Star):
            return [self._field(item) for item in self._star(pattern, self.scope.fields)]
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise self._error("COLUMNS takes * or a regular expression", node)
        try:
            matcher = re.compile(pattern.this)
        except re.error as error:
            raise self._error(f"bad regular expression in COLUMNS: {error}", node) from None
        found = [f for f in self.scope.fields if matcher.search(f.name)]
        if not found:
            raise self._error(f"no column matches the regular expression '{pattern.this}'", node)
        return found

    def _at(self, position: int | None) -> int | None:
        """The position, or that of the first relation: FROM without SELECT has no star in its text."""
        return (
            next((at for table in self.node.find_all(exp.Table) if (at := position_of(table)) is not None), None)
            if position is None
            else position
        )

    def _field(self, item: SelectItem) -> ScopeField:
        if item.unread is not None:
            return item.unread
        if not isinstance(item.expr, Column):
            raise self._error("REPLACE is not supported in COLUMNS", item.node)
        return ScopeField(item.name, item.expr.name, item.expr.dtype, item.expr.nullable)

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


def _put_column(node: exp.Expr, field: ScopeField) -> exp.Expr:
    """One column in place of COLUMNS(..)."""
    if isinstance(node, CallNode) and node.name == "columns":
        return exp.Column(this=exp.Identifier(this=field.name, quoted=True).update_positions(node))
    return node


def _columns_calls(node: exp.Expr) -> list[CallNode]:
    """The COLUMNS(..) of an expression, without those of its subqueries."""
    parts = node.walk(prune=lambda part: isinstance(part, QUERIES))
    return [part for part in parts if isinstance(part, CallNode) and part.name == "columns"]


def _regex_of(node: CallNode) -> str | None:
    """The regular expression of COLUMNS('regex'); None for COLUMNS(*)."""
    pattern = node.expressions[0]
    return pattern.this if isinstance(pattern, exp.Literal) else None


def _nullable(expr: Expr) -> bool:
    return expr.nullable if isinstance(expr, Column) else True


def left_out(star: exp.Star) -> list[str]:
    """The columns in EXCLUDE of a star."""
    return [
        ".".join(quote(name.name) for name in (part.parts if isinstance(part, exp.Column) else [part]))
        for part in _parts(star, "except_")
    ]


def _parts(star: exp.Star, key: str) -> list[exp.Expr]:
    value = star.args.get(key) or []
    return value if isinstance(value, list) else [value]
