"""What a catalog holds besides plain sources: tables with their definition, views, macros.

All of them are immutable: a change puts another object under the name, so that a snapshot of a catalog is a copy of its
map."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import Type, parse_type
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    from tsql.kernels.blocks.stored import StoredTable


@dataclass(frozen=True)
class ColumnDefinition:
    """A column of a table. default: the text of an expression. unit: the values of a TIMESTAMP(0) or TIMESTAMP(3) are
    multiples of this many microseconds."""

    name: str
    type: Type
    not_null: bool = False
    default: str | None = None
    unit: int | None = None


@dataclass(frozen=True)
class Key:
    """PRIMARY KEY or UNIQUE; `nulls_equal`: NULLS NOT DISTINCT, a NULL is a value like any other."""

    columns: tuple[str, ...]
    primary: bool = False
    nulls_equal: bool = False


@dataclass(frozen=True)
class TableDefinition:
    """The columns and the constraints of a table; `checks` are the texts of conditions; `period` the columns of PERIOD
    FOR, which say from when and until when a row is valid."""

    columns: tuple[ColumnDefinition, ...]
    keys: tuple[Key, ...] = ()
    checks: tuple[str, ...] = ()
    period: tuple[str, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def schema(self) -> Schema:
        return Schema(tuple(Field(column.name, column.type) for column in self.columns))

    def find(self, name: str) -> ColumnDefinition | None:
        """The column of this name, without regard to case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def with_column(self, name: str, column: ColumnDefinition | None) -> TableDefinition:
        """Another definition of the column of this name; None leaves it out."""
        kept = [column if old.name == name else old for old in self.columns]
        return replace(self, columns=tuple(c for c in kept if c is not None))

    def to_json(self) -> dict[str, Any]:
        columns = [
            {
                "name": c.name,
                "type": str(c.type),
                "not_null": c.not_null,
                "default": c.default,
                **({} if c.unit is None else {"unit": c.unit}),
            }
            for c in self.columns
        ]
        keys = [[list(k.columns), k.primary, *([True] if k.nulls_equal else [])] for k in self.keys]
        found = {"columns": columns, "keys": keys, "checks": list(self.checks)}
        return found if self.period is None else {**found, "period": list(self.period)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> TableDefinition:
        columns = tuple(
            ColumnDefinition(c["name"], parse_type(c["type"]), c["not_null"], c["default"], c.get("unit"))
            for c in data["columns"]
        )
        period = None if data.get("period") is None else tuple(data["period"])
        return TableDefinition(
            columns, tuple(Key(tuple(k), *rest) for k, *rest in data["keys"]), tuple(data["checks"]), period
        )


@dataclass(frozen=True)
class Table:
    """A table: its definition, and the version of its rows. `temporary`: never written to disk."""

    definition: TableDefinition
    data: StoredTable = field(compare=False)
    temporary: bool = False
    event_time: ClassVar[None] = None

    @property
    def period(self) -> tuple[str, str] | None:
        """The columns that hold the start and the end of a row's valid time."""
        return self.definition.period


@dataclass(frozen=True)
class View:
    """A named query, kept as text and analyzed again wherever it is used."""

    name: str
    text: str
    temporary: bool = False
    period: ClassVar[None] = None
    event_time: ClassVar[None] = None


@dataclass(frozen=True)
class Macro:
    """A scalar macro: names of parameters, texts of the defaults of the last ones, the text of the expression."""

    name: str
    parameters: tuple[str, ...]
    defaults: tuple[str, ...]
    text: str
    temporary: bool = False
