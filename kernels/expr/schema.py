"""`Schema`: the ordered, named, typed columns of a relation, from the analyzer down to the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import pyarrow as pa

from tsql.kernels.expr.types import Type, from_arrow
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Field:
    """One column: its name, its type, and whether it may hold NULL."""

    name: str
    type: Type
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True)
class Schema:
    """The columns of a relation. Names are unique inside the engine; results get their display names at the end."""

    fields: tuple[Field, ...]

    @staticmethod
    def of(*fields: tuple[str, Type] | Field) -> Schema:
        return Schema(tuple(f if isinstance(f, Field) else Field(*f) for f in fields))

    @staticmethod
    def from_arrow(schema: pa.Schema) -> Schema:
        return Schema(tuple(Field(f.name, from_arrow(f.type), f.nullable) for f in schema))

    def to_arrow(self) -> pa.Schema:
        return pa.schema([pa.field(f.name, f.type.to_arrow()) for f in self.fields])

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple([f.name for f in self.fields])

    @cached_property
    def readable(self) -> tuple[str, ...]:
        """The names of the columns that can be read (`Type.is_readable`)."""
        return tuple([f.name for f in self.fields if f.type.is_readable])

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by name; of several with the same name the first counts."""
        return {f.name: f for f in reversed(self.fields)}

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: str) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Field:
        return self.by_name[name]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"
