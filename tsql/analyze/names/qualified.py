"""The database and the schema before the name of a table. There is one of each; any other name is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

SCHEMA = "main"


def database_of(catalog: Any) -> str:
    """The name of the database of a session."""
    return getattr(catalog, "database", "memory")


def check_qualified(
    catalog: Any, table: exp.Table, error: Callable[[str, exp.Expr], Exception], schemas: tuple[str, ...] = (SCHEMA,)
) -> None:
    """Refuse `other.t`; `main.t`, `memory.t` and `memory.main.t` are `t`."""
    schema, database = table.args.get("db"), table.args.get("catalog")
    if schema is None:
        return
    at = schema if isinstance(schema, exp.Expr) else table
    own = database_of(catalog)
    if database is not None and table.text("catalog").lower() != own.lower():
        raise error(
            f'database "{table.text("catalog")}" does not exist: this one is "{own}"',
            database if isinstance(database, exp.Expr) else table,
        )
    if table.text("db").lower() not in (*schemas, *(() if database is not None else (own.lower(),))):
        raise error(f'schema "{table.text("db")}" does not exist: every table is in "main"', at)
