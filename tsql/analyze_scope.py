"""Names in scope: which column of which relation a name means, and how unique names inside a plan are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from tsql.kernels.errors import BindError
from tsql.kernels.expr import Column
from tsql.kernels.types import Type
from tsql.planner import logical
from tsql.planner.bind import nearest
from tsql.planner.bind_source import Source, position_of


@dataclass(frozen=True)
class Field:
    """A column of a relation: the name that users say, and its unique name in the plan."""

    name: str
    column: str
    type: Type
    nullable: bool = True

    def to_column(self, position: int | None = None) -> Column:
        return Column(self.column, self.type, self.nullable, position)


@dataclass(frozen=True)
class Relation:
    """An analyzed relation: its plan and the columns that it shows, in order."""

    plan: logical.Node
    fields: tuple[Field, ...]

    def renamed(self, names: Sequence[str]) -> Relation:
        """The first columns under other names."""
        fields = tuple(Field(names[i] if i < len(names) else f.name, f.column, f.type, f.nullable) for i, f in enumerate(self.fields))
        return Relation(self.plan, fields)

    def as_table(self) -> Relation:
        """The relation as FROM sees it: repeated names are told apart, as in DuckDB (`a`, `a_1`)."""
        names = Names()
        return self.renamed([names.unique(f.name) for f in self.fields])


class Names:
    """Makes names unique, without regard to case: `a`, then `a_1`, `a_2`."""

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = {name.lower() for name in taken}

    def unique(self, name: str) -> str:
        candidate, number = name, 0
        while candidate.lower() in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._taken.add(candidate.lower())
        return candidate


def plan_name(text: str) -> str:
    """A readable name inside a plan for an expression without an alias: `sum(l_tax)` gives `sum_l_tax`."""
    name = re.sub(r"\W+", "_", text.lower()).strip("_")[:32].strip("_") or "value"
    return f"v{name}" if name[0].isdigit() else name


@dataclass(frozen=True)
class Table:
    """A relation in FROM, under its alias."""

    alias: str | None
    relation: Relation


class Scope:
    """The tables of a FROM clause."""

    def __init__(self, tables: Sequence[Table], source: Source):
        self.tables = tuple(tables)
        self.source = source
        self._by_name: dict[str, list[Field]] = {}
        for table in self.tables:
            for field in table.relation.fields:
                self._by_name.setdefault(field.name.lower(), []).append(field)

    @property
    def fields(self) -> list[Field]:
        return [field for table in self.tables for field in table.relation.fields]

    def has(self, node: exp.Column) -> bool:
        """Whether an unqualified name is a column here."""
        return len(node.parts) == 1 and node.name.lower() in self._by_name

    def find(self, node: exp.Column) -> Column | None:
        """The column that a reference means; None for an unqualified name that is not a column of any table."""
        parts = node.parts
        position = position_of(parts[0])
        if len(parts) > 1:
            return self._qualified(node, parts[-2].name, parts[-1].name, position).to_column(position)
        found = self._by_name.get(node.name.lower())
        if not found:
            return None
        if len(found) > 1:
            raise self.error(f'column "{node.name}" is ambiguous', position)
        return found[0].to_column(position)

    def _qualified(self, node: exp.Column, table: str, name: str, position: int | None) -> Field:
        relation = self.table(table, position)
        for field in relation.fields:
            if field.name.lower() == name.lower():
                return field
        raise self.error(f'table "{table}" has no column "{name}"', position_of(node.parts[-1]), nearest(name, (f.name for f in relation.fields)))

    def table(self, alias: str, position: int | None) -> Relation:
        """The relation with this alias."""
        for table in self.tables:
            if table.alias is not None and table.alias.lower() == alias.lower():
                return table.relation
        known = [t.alias for t in self.tables if t.alias is not None]
        raise self.error(f'there is no table "{alias}" in FROM', position, nearest(alias, known) or (f"there is {', '.join(known)}" if known else None))

    def unknown(self, node: exp.Column, others: Iterable[str] = ()) -> BindError:
        """The error for a name that means nothing here."""
        names = [*(f.name for f in self.fields), *others]
        return self.error(f'column "{node.name}" does not exist', position_of(node), nearest(node.name, names))

    def error(self, message: str, position: int | None, hint: str | None = None) -> BindError:
        return BindError(message, position=position, text=self.source.text, hint=hint)


def integer_of(node: exp.Expr) -> int | None:
    """The whole number that is all of an expression, as in ORDER BY 2."""
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    return sign * int(node.this) if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit() else None


def lower_names(node: exp.Expr) -> exp.Expr:
    """For `transform`: names without regard to case."""
    return exp.Identifier(this=node.name.lower()) if isinstance(node, exp.Identifier) else node


def is_all(node: exp.Expr) -> bool:
    """Whether this is the ALL of ORDER BY ALL."""
    return (
        isinstance(node, exp.Column)
        and len(node.parts) == 1
        and node.name.upper() == "ALL"
        and not node.this.args.get("quoted")
        or isinstance(node, exp.Var)
        and node.name.upper() == "ALL"
    )
