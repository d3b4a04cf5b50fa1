"""What the examples of temporal SQL share: running a query and printing it with its rows."""

from __future__ import annotations

import sys

import tsql


def present(db: tsql.Session, title: str, sql: str) -> None:
    """Print a query, the first rows of its result, and how many rows it could not use."""
    print(f"\n=== {title}\n{sql.strip()}\n")
    relation = db.sql(sql)
    relation.show(max_rows=12)
    for note in relation.notes:
        print(f"note: {note}")


def rows_wanted(default: int) -> int:
    """The number of rows that the command line asks for."""
    return int(sys.argv[1]) if len(sys.argv) > 1 else default
