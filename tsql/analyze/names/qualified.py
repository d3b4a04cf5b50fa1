"""The database and the schema before the name of a table. A session has one of each; any other is the backend's, or an
error."""

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
    if schema is None or is_own(catalog, table, schemas):
        return
    at = schema if isinstance(schema, exp.Expr) else table
    own = database_of(catalog)
    if database is not None and table.text("catalog").lower() != own.lower():
        raise error(
            f'database "{table.text("catalog")}" does not exist: this one is "{own}"',
            database if isinstance(database, exp.Expr) else table,
        )
    raise error(f'schema "{table.text("db")}" does not exist: every table is in "main"', at)


def is_own(catalog: Any, table: exp.Table, schemas: tuple[str, ...] = (SCHEMA,)) -> bool:
    """Whether a name is one of the session's catalog: `t`, `main.t`, `memory.t` or `memory.main.t`."""
    before = tuple(part.name.lower() for part in table.parts[:-1])
    own = database_of(catalog).lower()
    return not before or before in ((own,), *((name,) for name in schemas), *((own, name) for name in schemas))


def outer_parts(catalog: Any, table: exp.Table) -> tuple[str, ...] | None:
    """The parts of a qualified name that may be one of the backend's tables; None if it cannot."""
    parts = tuple(part.name for part in table.parts)
    if len(parts) == 1 or getattr(catalog, "outer", lambda: None)() is None:
        return None
    return None if is_own(catalog, table) and catalog.entry(parts[-1]) is not None else parts


class WithoutVariables:
    """A catalog in which a view is defined: a variable of the code that defines it is not there when it is used."""

    def __init__(self, catalog: Any):
        self.catalog = catalog

    def variable(self, name: str) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalog, name)
