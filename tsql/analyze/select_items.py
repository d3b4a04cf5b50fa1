"""Turns the select list of a SELECT into its items: one for each result column, with `*` and COLUMNS expanded.

`select.py` binds the items. The patterns behind a star are in `star.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sqlglot import exp

from tsql.analyze.names.columns import display_name
from tsql.analyze.scope import Scope, ScopeField, unread_star
from tsql.analyze.star import StarPattern, column_alias, star_pattern
from tsql.analyze.windows import WindowCalls
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import nearest
from tsql.planner.bind.query_text import QueryText, position_of
from tsql.planner.bind.subquery import QUERIES
from tsql.planner.bind.syntax_nodes import CallNode


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


class SelectItems:
    """The select list of one SELECT over the names in scope."""

    def __init__(self, node: exp.Select, scope: Scope, source: QueryText, windows: WindowCalls):
        self.node, self.scope, self.source, self.windows = node, scope, source, windows

    @property
    def _may_have_unread(self) -> bool:
        """Whether a star may include unreadable columns, which an enclosing query can leave out. It may where rows are
        neither compared nor grouped."""
        return self.scope.life is None and not any(
            self.node.args.get(key) for key in ("distinct", "group", "having", "qualify", "order")
        )

    def _error(self, message: str, node: exp.Expr | None, hint: str | None = None) -> BindError:
        return BindError(message, position=position_of(node), text=self.source.text, hint=hint)

    def expand(self) -> list[SelectItem]:
        """The items in their order, with a star and COLUMNS taken apart."""
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
        if not isinstance(star, exp.Column):
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


def left_out(star: exp.Star) -> list[str]:
    """The columns in EXCLUDE of a star."""
    return [
        ".".join(quote(name.name) for name in (part.parts if isinstance(part, exp.Column) else [part]))
        for part in _parts(star, "except_")
    ]


def _parts(star: exp.Star, key: str) -> list[exp.Expr]:
    value = star.args.get(key) or []
    return value if isinstance(value, list) else [value]
