"""One SELECT: its clauses in the order in which they mean something, to a logical plan.

FROM, WHERE, GROUP BY, HAVING, window functions, QUALIFY, the select list, DISTINCT, ORDER BY. Names follow DuckDB: a later select item, WHERE,
GROUP BY and HAVING may use an alias; ORDER BY prefers it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from tsql.analyze_group import Grouping, mentions_aggregate
from tsql.analyze_names import display_name
from tsql.analyze_scope import Field, Names, Relation, Scope, plan_name
from tsql.analyze_windows import Windows, mentions_window
from tsql.kernels.errors import BindError
from tsql.kernels.expr import Column, Expr, SortKey
from tsql.kernels.types import Type
from tsql.planner import logical
from tsql.planner.bind import Binder, nearest
from tsql.planner.bind_operators import to_boolean
from tsql.planner.bind_syntax import Call as CallNode
from tsql.planner.bind_syntax import Source, is_all, position_of


@dataclass
class Item:
    """One column of the select list. `alias` is what the user wrote; `name` is shown; `expr` is bound over the input;
    `plan_name` is its name in the plan."""

    node: exp.Expr | None
    alias: str | None
    name: str
    expr: Expr | None = None
    plan_name: str = ""
    binding: bool = False


class SelectAnalyzer:
    """Analyzes one SELECT over an analyzed FROM."""

    def __init__(self, node: exp.Select, scope: Scope, plan: logical.Node, source: Source, parameters: dict[str, Type] | None):
        self.node = node
        self.scope = scope
        self.plan = plan
        self.source = source
        self.parameters = parameters
        self.grouping = Grouping(source)
        self.windows = Windows(source, node.args.get("windows") or [])
        self.items = self._expand()
        self.aliases: dict[str, int] = {}
        for index, item in enumerate(self.items):
            if item.alias is not None:
                self.aliases.setdefault(item.alias.lower(), index)

    def analyze(self) -> Relation:
        """The relation of the SELECT with DISTINCT and ORDER BY, but without LIMIT."""
        self._refuse()
        where = self._where()
        if where is not None:
            self.plan = logical.Filter(self.plan, where)
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
            self._compute_windows(on, order, qualify)
        return self._project(on, order)

    def _refuse(self) -> None:
        for key, what in (("laterals", "LATERAL is"), ("pivots", "PIVOT is"), ("sample", "sampling is"), ("connect", "CONNECT BY is"), ("match", "MATCH_RECOGNIZE is"), ("into", "SELECT INTO is"), ("cluster", "CLUSTER BY is"), ("sort", "SORT BY is"), ("distribute", "DISTRIBUTE BY is"), ("locks", "FOR UPDATE is"), ("kind", "SELECT AS is")):  # fmt: skip
            part = self.node.args.get(key)
            if part:
                first = part[0] if isinstance(part, list) else part
                raise self._error(f"{what} not supported yet", first if isinstance(first, exp.Expr) else self.node)

    def _error(self, message: str, node: exp.Expr | None, hint: str | None = None) -> BindError:
        return BindError(message, position=position_of(node), text=self.source.text, hint=hint)

    def _expand(self) -> list[Item]:
        items: list[Item] = []
        for node in self.node.expressions:
            alias = None
            inner = node
            if isinstance(node, exp.Alias):
                alias, inner = node.alias, node.this
            if isinstance(inner, exp.Star):
                items += self._star(inner, self.scope.fields)
            elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
                table = self.scope.table(inner.parts[-2].name, position_of(inner.parts[0]))
                items += self._star(inner.this, list(table.fields))
            elif any(call.name == "columns" for call in inner.find_all(CallNode)):
                items += self._columns(inner)
            else:
                items.append(Item(inner, alias, alias if alias is not None else self._name(inner)))
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

    def _star(self, star: exp.Star, fields: list[Field]) -> list[Item]:
        if not self.scope.tables:
            raise self._error("* needs a FROM clause", star if position_of(star) is not None else self.node)
        known = {f.name.lower() for f in fields}
        excluded = {self._listed(part, known, "EXCLUDE") for part in _parts(star, "except_")}
        replaced = {self._listed(part, known, "REPLACE", part.alias): part.this for part in _parts(star, "replace")}
        renamed = {self._listed(part.this, known, "RENAME"): part.alias for part in _parts(star, "rename")}
        items = []
        for f in fields:
            name = f.name.lower()
            if name in excluded:
                continue
            shown = renamed.get(name, f.name)
            if name in replaced:
                items.append(Item(replaced[name], None, shown))
            else:
                items.append(Item(None, shown if name in renamed else None, shown, f.to_column(position_of(star))))
        if not items:
            raise self._error("SELECT needs at least one column: EXCLUDE leaves none", self.node)
        return items

    def _listed(self, node: exp.Expr, known: set[str], clause: str, name: str | None = None) -> str:
        name = (name if name is not None else node.name).lower()
        if name not in known:
            raise self._error(f'column "{name}" in {clause} does not exist', node, nearest(name, known))
        return name

    def _columns(self, node: exp.Expr) -> list[Item]:
        """`COLUMNS('regex')`, alone or in an expression: the item once for each column that matches."""
        calls = [call for call in node.find_all(CallNode) if call.name == "columns"]
        if any(call != calls[0] for call in calls):
            raise self._error("all COLUMNS of one expression must be the same", node)
        fields = self._matching(calls[0])
        if node is calls[0]:
            return [Item(None, None, f.name, f.to_column(position_of(node))) for f in fields]
        return [Item(node.transform(_put_column, f), None, f.name) for f in fields]

    def _matching(self, node: CallNode) -> list[Field]:
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

    def _field(self, item: Item) -> Field:
        if not isinstance(item.expr, Column):
            raise self._error("REPLACE is not supported in COLUMNS", item.node)
        return Field(item.name, item.expr.name, item.expr.dtype, item.expr.nullable)

    def _binder(self, clause: str, aliases: int, aggregates: bool, windows: bool = False) -> Binder:
        """A binder in which names mean columns, or else one of the first `aliases` select items."""

        def resolve(node: exp.Column) -> Expr:
            found = self.scope.find(node)
            if found is not None:
                return found
            return self._alias(node, aliases, aggregates, None if windows else clause)

        return Binder(
            self.source,
            resolve,
            aggregate=self.grouping.placeholder if aggregates else None,
            clause=clause,
            parameters=self.parameters,
            special={"grouping": self.grouping.grouping_call, "grouping_id": self.grouping.grouping_call} if aggregates else None,
            windows=self.windows.scope if windows else None,
        )

    def _alias(self, node: exp.Column, before: int, aggregates: bool, clause: str | None = None) -> Expr:
        """The select item of an alias; `clause` names a place where it must not be a window function."""
        index = self.aliases.get(node.name.lower())
        if index is None:
            raise self.scope.unknown(node, (i.alias for i in self.items if i.alias))
        if index >= before:
            raise self._error(f'alias "{node.name}" cannot be used before it is defined', node)
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
            item.plan_name = item.alias or (item.expr.name if is_column else plan_name(item.name))
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
        for part in ("totals", "rollup", "cube", "grouping_sets"):
            if group.args.get(part):
                raise self._error(f"GROUP BY {part.upper()} is not supported in this form", group)
        self.grouping.explicit = True
        if group.args.get("all"):
            for index, item in enumerate(self.items):
                expr = self._bind_item(index)
                if not self.windows.uses_aggregate(expr):
                    if self.windows.depends_on_rows(expr):
                        raise self._error("Cannot group on a window clause", item.node, "name the keys in GROUP BY")
                    if not mentions_window(expr):
                        self.grouping.add_key(expr, item.plan_name)
                elif any(isinstance(e, Column) and not e.name.startswith("\0") for e in expr.walk()):
                    raise self._error("GROUP BY ALL cannot mix aggregates and other columns in one expression", item.node, "name the keys in GROUP BY")
            return
        self.grouping.add_elements(group.expressions, self._key)

    def _key(self, node: exp.Expr) -> int:
        ordinal = self._ordinal(node, "GROUP BY")
        if ordinal is None and isinstance(node, exp.Column) and len(node.parts) == 1 and not self.scope.has(node):
            ordinal = self.aliases.get(node.name.lower())
        if ordinal is not None:
            expr = self._bind_item(ordinal)
            if mentions_aggregate(expr):
                raise self._error("GROUP BY cannot contain aggregates", node)
            if mentions_window(expr):
                raise self._error("GROUP BY cannot contain window functions", node)
            return self.grouping.add_key(expr, self.items[ordinal].plan_name)
        return self.grouping.add_key(self._binder("GROUP BY", len(self.items), aggregates=False).bind(node))

    def _ordinal(self, node: exp.Expr, clause: str) -> int | None:
        """The index of the select item that `2` in GROUP BY, ORDER BY or DISTINCT ON means."""
        ordinal = integer_of(node)
        if ordinal is None:
            return None
        if not 1 <= ordinal <= len(self.items):
            raise self._error(f"{clause} position {ordinal} is out of range: it is between 1 and {len(self.items)}", node)
        return ordinal - 1

    def _having(self) -> Expr | None:
        having = self.node.args.get("having")
        if having is None:
            return None
        self.grouping.explicit = True

        def resolve(node: exp.Column) -> Expr:
            column = self.scope.find(node)
            if column is not None and (column in self.grouping.keys or len(node.parts) > 1 or node.name.lower() not in self.aliases):
                return column
            return self._alias(node, len(self.items), aggregates=True, clause="HAVING")

        binder = self._binder("HAVING", len(self.items), aggregates=True)
        binder.resolve = resolve
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
            raise self._error(f"a constant in {clause} has no effect: give the position of a column, or an expression", node)
        return self._binder(clause, len(self.items), aggregates=True, windows=True).bind(node)

    def _qualify(self) -> Expr | None:
        qualify = self.node.args.get("qualify")
        if qualify is None:
            return None
        binder = self._binder("QUALIFY", len(self.items), aggregates=True, windows=True)
        condition = to_boolean(binder, binder.bind(qualify.this), qualify.this)
        if not self.windows.calls:
            raise self._error("at least one window function must appear in the SELECT column or QUALIFY clause", qualify.this, "use WHERE or HAVING")
        return condition

    def _aggregate(self, having: Expr | None, on: list[Expr] | None, order: list[SortKey], qualify: Expr | None) -> Expr | None:
        """Put the Aggregate node below, and every later clause over its result."""
        grouping = self.grouping
        for item in self.items:
            grouping.name_result(item.expr, item.plan_name)
        self.plan = grouping.build(self.plan)
        for item in self.items:
            item.expr = grouping.over_result(item.expr)
        if having is not None:
            self.plan = logical.Filter(self.plan, grouping.over_result(having))
        if on is not None:
            on[:] = [grouping.over_result(expr) for expr in on]
        order[:] = [SortKey(grouping.over_result(k.expr), k.descending, k.nulls_first) for k in order]
        self.windows.change(grouping.over_result)
        return None if qualify is None else grouping.over_result(qualify)

    def _compute_windows(self, on: list[Expr] | None, order: list[SortKey], qualify: Expr | None) -> None:
        """Put the Window nodes and QUALIFY below, and every later clause over their result."""
        windows = self.windows
        for item in self.items:
            windows.name_result(item.expr, item.plan_name)
        self.plan = windows.build(self.plan)
        if qualify is not None:
            self.plan = logical.Filter(self.plan, windows.over_result(qualify))
        for item in self.items:
            item.expr = windows.over_result(item.expr)
        if on is not None:
            on[:] = [windows.over_result(expr) for expr in on]
        order[:] = [SortKey(windows.over_result(k.expr), k.descending, k.nulls_first) for k in order]

    def _project(self, on: list[Expr] | None, order: list[SortKey]) -> Relation:
        """Select list, DISTINCT and ORDER BY; columns needed for these but not shown are carried along."""
        names = Names()
        columns = [(names.unique(item.plan_name), item.expr) for item in self.items]
        fields = tuple(Field(item.name, name, expr.type, _nullable(expr)) for item, (name, expr) in zip(self.items, columns, strict=True))
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
        return Relation(plan, fields)


def project(plan: logical.Node, columns: list[tuple[str, Expr]]) -> logical.Node:
    """A Project, or the plan itself where it would change nothing."""
    same = [isinstance(expr, Column) and expr.name == name for name, expr in columns]
    if all(same) and tuple(name for name, _ in columns) == plan.schema.names:
        return plan
    return logical.Project(plan, tuple(columns))


def integer_of(node: exp.Expr) -> int | None:
    """The whole number that is all of an expression, as in ORDER BY 2."""
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    return sign * int(node.this) if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit() else None


def _put_column(node: exp.Expr, field: Field) -> exp.Expr:
    """One column in place of COLUMNS(..)."""
    if isinstance(node, CallNode) and node.name == "columns":
        return exp.Column(this=exp.Identifier(this=field.name, quoted=True).update_positions(node))
    return node


def _nullable(expr: Expr) -> bool:
    return expr.nullable if isinstance(expr, Column) else True


def _parts(star: exp.Star, key: str) -> list[exp.Expr]:
    value = star.args.get(key) or []
    return value if isinstance(value, list) else [value]
