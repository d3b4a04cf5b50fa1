"""A catalog without data, and DuckDB with the same tables, for the tests of the front end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import duckdb

from tests.duck import empty_duckdb
from tsql.analyze import kinds as statements
from tsql.analyze.statements import analyze
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type, parse_type

TYPES = (
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE "
    "DECIMAL(4,1) DECIMAL(18,3) "
    "DECIMAL(38,10) VARCHAR BLOB DATE TIME TIMESTAMP TIMESTAMPTZ INTERVAL"
).split()
TABLES = {
    "every": [(f"c{i}", name) for i, name in enumerate(TYPES)],
    "t": [
        ("a", "INTEGER"),
        ("b", "INTEGER"),
        ("s", "VARCHAR"),
        ("d", "DATE"),
        ("ts", "TIMESTAMP"),
        ("x", "DOUBLE"),
        ("m", "DECIMAL(15,2)"),
        ("flag", "BOOLEAN"),
        ("Cc", "INTEGER"),
        ("A b", "INTEGER"),
    ],
}


@dataclass(frozen=True)
class FakeSource:
    """A source with a schema and nothing in it."""

    schema: Schema


@dataclass(frozen=True)
class FakeView:
    """A view, as a catalog keeps it."""

    text: str


@dataclass
class FakeCatalog:
    """Tables and views by name; remembers the files it was asked to open."""

    entries: dict[str, Any] = field(default_factory=dict)
    opened: list[tuple[Any, Any, Any]] = field(default_factory=list)

    def lookup(self, name: str) -> Any:
        return self.entries.get(name.lower())

    def names(self) -> list[str]:
        return sorted(self.entries)

    def open_file(self, path: Any, kind: str | None = None, options: dict[str, Any] | None = None) -> FakeSource:
        self.opened.append((path, kind, options))
        return FakeSource(Schema.of(("f", parse_type("INTEGER")), ("g", parse_type("VARCHAR"))))


def catalog() -> FakeCatalog:
    return FakeCatalog(
        {name: FakeSource(Schema.of(*((c, parse_type(t)) for c, t in columns))) for name, columns in TABLES.items()}
    )


def oracle() -> duckdb.DuckDBPyConnection:
    """DuckDB with the same, empty, tables."""
    connection = empty_duckdb()
    connection.execute("SET TimeZone = 'UTC'")
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(quote(c) + ' ' + t for c, t in columns)})")
    return connection


def plan(text: str, parameters: dict[str, Type] | None = None, tables: FakeCatalog | None = None) -> statements.Query:
    """The one query of a text."""
    (statement,) = analyze(text, tables or catalog(), parameters)
    assert isinstance(statement, statements.Query)
    return statement


def result_types(query: statements.Query) -> list[str]:
    return [str(f.type) for f in query.plan.schema]


def oracle_types(connection: duckdb.DuckDBPyConnection, text: str) -> tuple[list[str], list[str]] | None:
    """Names and types that DuckDB gives to the result; None where it refuses the query."""
    try:
        relation = connection.sql(text)
        return list(relation.columns), [
            {'"NULL"': "INTEGER", "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ"}.get(str(t), str(t)) for t in relation.types
        ]
    except duckdb.Error:
        return None
