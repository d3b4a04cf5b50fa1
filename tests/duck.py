"""An empty DuckDB for a test, without its startup time: a database in memory that is attached to the one of this
process.

It is a separate connection with its own settings, tables, views and registered objects. It has one thread, so that rows
without ORDER BY keep the order of their table.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from types import TracebackType
from typing import Any

import duckdb

_numbers = count()


@cache
def _server() -> Any:
    return duckdb.connect(config={"threads": 1})


class Duck:
    """A connection, as `duckdb.connect()` gives one; closing it drops all that it has made."""

    def __init__(self) -> None:
        self._connection = _server().cursor()
        self._name = f"empty_{next(_numbers)}"
        self._connection.execute(f"ATTACH ':memory:' AS {self._name}; USE {self._name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        if self._name:
            self._connection.close()
            _server().execute(f"DETACH {self._name}")
            self._name = ""

    def __enter__(self) -> Duck:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def empty_duckdb() -> Any:
    """A connection to an empty database."""
    return Duck()
