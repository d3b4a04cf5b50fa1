"""Names in scope: which column of which relation a name means, and how unique names inside a plan are made."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from tsql.kernels.expr.errors import BindError, UnreadableError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, Literal
from tsql.kernels.expr.types import BOOLEAN, TIMESTAMP, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import nearest
from tsql.planner.bind.query_text import QueryText, position_of
from tsql.planner.logical import nodes as logical

WINDOW_COLUMNS = ("window_start", "window_end", "window_id")
"""The columns that the window functions of FROM add to their rows."""


@dataclass(frozen=True)
class ScopeField:
    """A column of a relation: its name for users, and its unique name in the plan. `also` is a second name: `range` of
    `range(3) AS a`, whose column is `a`. A file column of an unreadable type (`is_readable`) has a name but no column
    in the plan: DESCRIBE shows it, EXCLUDE removes it, and reading its value is an error."""

    name: str
    column: str
    type: Type
    nullable: bool = True
    also: str | None = None

    def is_called(self, name: str) -> bool:
        return name.lower() in (self.name.lower(), (self.also or self.name).lower())

    def to_column(self, position: int | None = None) -> Column:
        if not self.type.is_readable:
            raise UnreadableError(
                f'column "{self.name}" is {short(self.type)}, which cannot be read',
                position=position,
                hint=f"the others can be: FROM (SELECT * EXCLUDE ({quote(self.name)}) FROM ..)",
            )
        return Column(self.column, self.type, self.nullable, position)


_unread = itertools.count()


def unread_field(name: str, dtype: Type) -> ScopeField:
    """A column that cannot be read."""
    return ScopeField(name, f"\0{next(_unread)}", dtype)


def short(dtype: Type) -> str:
    """The name of a type, cut where it is long."""
    text = str(dtype)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unread_star(
    fields: Iterable[ScopeField], position: int | None, excluded: Sequence[str] = (), star: str = "*"
) -> UnreadableError:
    """The error for a star that stands for columns that cannot be read; `excluded` is what it leaves out already."""
    unread = list({f.name.lower(): f for f in fields if not f.type.is_readable}.values())
    listed = ", ".join(f"{quote(f.name)} ({short(f.type)})" for f in unread[:10]) + (
        f" and {len(unread) - 10} more" if len(unread) > 10 else ""
    )
    clause = ", ".join([*excluded, *(quote(f.name) for f in unread)])
    return UnreadableError(
        f"{star} has {'a column' if len(unread) == 1 else 'columns'} that cannot be read: {listed}",
        position=position,
        hint=f"SELECT {star} EXCLUDE ({clause})",
    )


@dataclass(frozen=True)
class Life:
    """The plan columns with the lifetime `[start, end)` of each row of a temporal relation. Both are TIMESTAMP and
    never NULL: an open end is infinity, and rows that are always alive start at -infinity
    (`tsql/analyze/time/lifetimes.py`)."""

    start: str
    end: str

    @property
    def columns(self) -> tuple[str, str]:
        return self.start, self.end


@dataclass(frozen=True)
class AnalyzedRelation:
    """An analyzed relation: its plan and its visible columns, in order. `life` is set for a temporal relation; its
    columns are among `fields` only if the select list named them."""

    plan: logical.Node
    fields: tuple[ScopeField, ...]
    life: Life | None = None

    @property
    def readable(self) -> tuple[ScopeField, ...]:
        """The columns that the plan has."""
        return tuple(f for f in self.fields if f.type.is_readable)

    def renamed(self, names: Sequence[str]) -> AnalyzedRelation:
        """The first columns under other names."""
        fields = tuple(
            f if i >= len(names) or names[i] == f.name else replace(f, name=names[i], also=None)
            for i, f in enumerate(self.fields)
        )
        return replace(self, fields=fields)

    def apart(self, taken: Iterable[str], alias: str | None) -> AnalyzedRelation:
        """The relation without plan columns named like one of `taken`: `a` of the table `u` becomes `u_a`."""
        known = {name.lower() for name in taken}
        if not any(name.lower() in known for name in self.plan.schema.names):
            return self
        names = Names((*known, *self.plan.schema.names))
        renamed: dict[str, str] = {}
        columns: list[tuple[str, Column]] = []
        for field in self.readable:
            if field.column not in renamed:
                is_taken = field.column.lower() in known
                renamed[field.column] = (
                    names.unique(f"{alias}_{field.column}" if alias else field.column) if is_taken else field.column
                )
                columns.append((renamed[field.column], field.to_column()))
        fields = tuple(replace(f, column=renamed[f.column]) if f.type.is_readable else f for f in self.fields)
        for column in () if self.life is None else self.life.columns:
            if column not in renamed:
                renamed[column] = names.unique(column) if column.lower() in known else column
                columns.append((renamed[column], Column(column, TIMESTAMP, False)))
        life = None if self.life is None else Life(renamed[self.life.start], renamed[self.life.end])
        return AnalyzedRelation(logical.Project(self.plan, tuple(columns)), fields, life)

    def as_table(self) -> AnalyzedRelation:
        """The relation as FROM sees it: repeated names are told apart, as in DuckDB (`a`, `a_1`)."""
        names = Names()
        return self.renamed([names.unique(f.name) for f in self.fields])


LIFETIME_NAMES = ("valid_from", "valid_to")
INFINITY = Literal(2**63 - 1, TIMESTAMP)


def lived(life: Life, name: str, position: int | None = None) -> Expr:
    """What `valid_from` or `valid_to` means: an open end is NULL to the user."""
    if name == "valid_from":
        return Column(life.start, TIMESTAMP, False, position)
    end = Column(life.end, TIMESTAMP, False, position)
    return Case(((Call("<", (end, INFINITY), BOOLEAN, position), end),), Literal(None, TIMESTAMP), position)


class Names:
    """Makes names unique, without regard to case: `a`, then `a_1`, `a_2`."""

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = {name.lower() for name in taken}
        self._numbers: dict[str, int] = {}
        """The last number given to each name. Without it, thousands of columns of one name would each try all numbers
        before their own."""

    def unique(self, name: str) -> str:
        candidate = name
        if candidate.lower() in self._taken:
            number = self._numbers.get(name.lower(), 0)
            while candidate.lower() in self._taken:
                number += 1
                candidate = f"{name}_{number}"
            self._numbers[name.lower()] = number
        self._taken.add(candidate.lower())
        return candidate

    def take(self, names: Iterable[str]) -> None:
        """Do not give out these."""
        self._taken.update(name.lower() for name in names)


def plan_name(text: str) -> str:
    """A readable name inside a plan for an expression without an alias: `sum(l_tax)` gives `sum_l_tax`."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_")[:32].strip("_") or "value"
    return f"v{name}" if name[0].isdigit() else name


TARGET = "#target"
"""The internal name of the table in UPDATE and DELETE."""


@dataclass(frozen=True)
class ScopeTable:
    """A relation in FROM, under its alias. `database`: that of a table under its own name, which can be said before
    it. `before`: what qualifies the name of a backend's table."""

    alias: str | None
    relation: AnalyzedRelation
    database: str | None = None
    before: tuple[str, ...] = ()

    def is_called(self, parts: Sequence[str]) -> bool:
        """Whether `t`, `main.t`, `memory.t` or `memory.main.t` means this relation; the names are in small letters."""
        if self.alias is None or self.alias.lower() != parts[-1]:
            return False
        before = tuple(parts[:-1])
        return (
            not before
            or before == self.before[-len(before) :]
            or self.database is not None
            and before in (("main",), (self.database.lower(),), (self.database.lower(), "main"))
        )


def _names(parts: Iterable[exp.Expr]) -> list[str]:
    return [part.name for part in parts]


def _nullable(fields: Iterable[ScopeField]) -> tuple[ScopeField, ...]:
    return tuple(replace(f, nullable=True) for f in fields)


class Scope:
    """The tables of a FROM clause. columns: what `*` shows and what unqualified names mean: those of all tables, or
    fewer where USING merged two of them. life: the lifetime of the rows, if they have one: unqualified valid_from and
    valid_to."""

    def __init__(
        self,
        tables: Sequence[ScopeTable],
        source: QueryText,
        columns: Sequence[ScopeField] | None = None,
        life: Life | None = None,
    ):
        self.tables = tuple(tables)
        self.source = source
        self.life = life
        self.fields = (
            [field for table in self.tables for field in table.relation.fields] if columns is None else list(columns)
        )
        self._by_name: dict[str, list[ScopeField]] = {}
        for field in self.fields:
            for name in dict.fromkeys((field.name.lower(), (field.also or field.name).lower())):
                self._by_name.setdefault(name, []).append(field)

    def padded(self) -> Scope:
        """The same names where an outer join may put NULLs into every column."""
        tables = [replace(t, relation=replace(t.relation, fields=_nullable(t.relation.fields))) for t in self.tables]
        return Scope(tables, self.source, _nullable(self.fields), self.life)

    def living(self, life: Life | None) -> Scope:
        """The same names of rows that have another lifetime."""
        return Scope(self.tables, self.source, self.fields, life)

    def has(self, node: exp.Column) -> bool:
        """Whether an unqualified name is a column here."""
        return len(node.parts) == 1 and node.name.lower() in self._by_name

    def find(self, node: exp.Column) -> Expr | None:
        """The column that a reference means; None if there is none here. The end of a lifetime is an expression: NULL
        if it is open."""
        parts = node.parts
        position = position_of(parts[0])
        if node.name.lower() in LIFETIME_NAMES:
            lives = [self.life] if len(parts) == 1 else [t.relation.life for t in self._named(*_names(parts[:-1]))]
            if len(lives) == 1 and lives[0] is not None:
                return lived(lives[0], node.name.lower(), position)
        found = self.field(node)
        return None if found is None else found.to_column(position)

    def field(self, node: exp.Column) -> ScopeField | None:
        """The field that a reference means; None if there is none here."""
        parts = node.parts
        found = self._qualified(node) if len(parts) > 1 else self._by_name.get(node.name.lower(), [])
        if len(found) > 1:
            raise self._ambiguous(node, position_of(parts[0]))
        return found[0] if found else None

    def _qualified(self, node: exp.Column) -> list[ScopeField]:
        return [f for t in self._named(*_names(node.parts[:-1])) for f in t.relation.fields if f.is_called(node.name)]

    def _named(self, *parts: str) -> list[ScopeTable]:
        """The tables of a name, which may have the schema and the database before it."""
        return [t for t in self.tables if t.is_called([part.lower() for part in parts])]

    def _ambiguous(self, node: exp.Column, position: int | None) -> BindError:
        if len(node.parts) > 1:
            return self._twice(node.parts[-2].name, position)
        ways = [
            f"{t.alias}.{f.name}"
            for t in self.tables
            if t.alias
            for f in t.relation.fields
            if f.name.lower() == node.name.lower()
        ]
        return self.error(
            f'column "{node.name}" is ambiguous', position, f"use {' or '.join(ways)}" if len(ways) > 1 else None
        )

    def _twice(self, alias: str, position: int | None) -> BindError:
        return self.error(
            f'table "{alias}" is ambiguous: it is twice in FROM', position, f"name one of them: {alias} AS {alias}_2"
        )

    def all_fields(self, position: int | None) -> list[ScopeField]:
        """The columns of `*`."""
        seen: set[tuple[str, str]] = set()
        for table in self.tables:
            for field in table.relation.fields:
                key = ((table.alias or "").lower(), field.name.lower())
                if table.alias is not None and key in seen:
                    raise self._twice(table.alias, position)
                seen.add(key)
        return self.fields

    def table(self, alias: str, position: int | None) -> list[ScopeField]:
        """The columns of the tables with this alias."""
        tables = self._named(alias)
        if not tables:
            raise self._no_table(alias, position)
        return [field for table in tables for field in table.relation.fields]

    def _no_table(self, alias: str, position: int | None) -> BindError:
        known = [t.alias for t in self.tables if t.alias is not None]
        return self.error(
            f'there is no table "{alias}" in FROM',
            position,
            nearest(alias, known) or (f"there is {', '.join(known)}" if known else None),
        )

    def unknown(self, node: exp.Column, others: Iterable[str] = ()) -> BindError:
        """The error for a name that means nothing here."""
        if len(node.parts) > 1:
            table, name = ".".join(_names(node.parts[:-1])), node.parts[-1].name
            tables = self._named(*_names(node.parts[:-1]))
            if not tables:
                for field in self._by_name.get(table.lower(), ()):
                    field.to_column(position_of(node.parts[-2]))  # a field of a struct
                return self._no_table(table, position_of(node.parts[0]))
            columns = (f.name for t in tables for f in t.relation.fields)
            return self.error(
                f'table "{table}" has no column "{name}"', position_of(node.parts[-1]), nearest(name, columns)
            )
        names = [*(f.name for f in self.fields), *others]
        if node.name.lower() in WINDOW_COLUMNS:
            return self.error(
                f'column "{node.name}" does not exist',
                position_of(node),
                "a window function of FROM adds it, as in FROM TUMBLE(t, ts, INTERVAL '1 minute')",
            )
        return self.error(f'column "{node.name}" does not exist', position_of(node), nearest(node.name, names))

    def error(self, message: str, position: int | None, hint: str | None = None) -> BindError:
        return BindError(message, position=position, text=self.source.text, hint=hint)


def integer_of(node: exp.Expr) -> int | None:
    """The whole number that is all of an expression, as in ORDER BY 2."""
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    return (
        sign * int(node.this) if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit() else None
    )


def lower_names(node: exp.Expr) -> exp.Expr:
    """For `transform`: names without regard to case."""
    return exp.Identifier(this=node.name.lower()) if isinstance(node, exp.Identifier) else node
