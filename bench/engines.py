"""The engines that are compared, behind one small interface: load a table, run a query, get an Arrow table."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa


class Engine(Protocol):
    """One engine with its own in-memory tables."""

    name: str
    version: str

    def load(self, table: str, path: Path) -> None:
        """Copy a Parquet file into an in-memory table."""
        ...

    def execute(self, sql: str) -> None:
        """Run a statement that has no result."""
        ...

    def run(self, sql: str) -> pa.Table:
        """The whole result."""
        ...


class Tsql:
    """This project, through its public API."""

    name = "tsql"

    def __init__(self, threads: int):
        from importlib.metadata import version

        import tsql

        self.version = version("tsql")
        self.session = tsql.connect(threads=threads)

    def load(self, table: str, path: Path) -> None:
        self.execute(f"CREATE TABLE {table} AS SELECT * FROM {quoted(path)}")

    def execute(self, sql: str) -> None:
        self.session.sql(sql)

    def run(self, sql: str) -> pa.Table:
        return self.session.sql(sql).arrow()


class DuckDB:
    """DuckDB with its default settings and the same number of threads."""

    name = "duckdb"

    def __init__(self, threads: int):
        import duckdb

        self.version = duckdb.__version__
        self.connection = duckdb.connect(config={"threads": threads})

    def load(self, table: str, path: Path) -> None:
        self.execute(f"CREATE TABLE {table} AS SELECT * FROM {quoted(path)}")

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def run(self, sql: str) -> pa.Table:
        # Not connection.execute(..).to_arrow_table(): that holds the rows in DuckDB's own form first and copies them.
        return self.connection.sql(sql).to_arrow_table()


ENGINES: dict[str, type[Tsql] | type[DuckDB]] = {"tsql": Tsql, "duckdb": DuckDB}


def quoted(path: Path) -> str:
    """A path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"
