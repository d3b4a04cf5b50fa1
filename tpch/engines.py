"""The compared engines behind one small interface: load tables, run a query, get an Arrow table.

This project and DuckDB are here; `peers.py` has the others. Used by benchmarks, `check` and the worker processes."""

from __future__ import annotations

import importlib
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa


class Engine(Protocol):
    """One engine with its own tables."""

    name: str
    version: str

    def load(self, table: str, path: Path) -> None:
        """Copy a Parquet file into an in-memory table."""
        ...

    def view(self, table: str, path: Path) -> None:
        """Make a Parquet file readable as a table; each query reads it again."""
        ...

    def execute(self, sql: str) -> None:
        """Run a statement that has no result."""
        ...

    def run(self, sql: str) -> pa.Table:
        """The whole result."""
        ...

    def tpch(self, number: int, sql: str, scale: float) -> Callable[[], pa.Table]:
        """A function that runs TPC-H query `number`, whose text is `sql`, over tables of this scale factor."""
        ...

    def process_id(self) -> int:
        """The process that does the work, whose memory is measured."""
        ...

    def rest(self) -> None:
        """Stop background work, and return the idle memory of the engine's allocator to the system."""
        ...

    def close(self) -> None:
        """Free the tables and stop what was started."""
        ...


class InProcess(ABC):
    """Base of the engines that run in this process and accept SQL."""

    @abstractmethod
    def run(self, sql: str) -> pa.Table: ...

    def tpch(self, number: int, sql: str, scale: float) -> Callable[[], pa.Table]:
        return partial(self.run, sql)

    def process_id(self) -> int:
        return os.getpid()


def _import_all() -> None:
    """Import the modules that queries import on demand, so that no measured time includes an import."""
    for name in ("analyze", "planner", "kernels", "backends.local"):
        package = importlib.import_module(f"tsql.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


class Tsql(InProcess):
    """This project, through its public API."""

    name = "tsql"

    def __init__(self, threads: int, backend: str = "local"):
        import tsql

        _import_all()
        self.version = tsql.__version__
        self.session = tsql.connect(backend=backend, threads=threads)

    def load(self, table: str, path: Path) -> None:
        self.execute(f"CREATE TABLE {table} AS SELECT * FROM {quoted(path)}")

    def view(self, table: str, path: Path) -> None:
        self.session.register(table, self.session.read_parquet(path))

    def execute(self, sql: str) -> None:
        self.session.sql(sql)

    def run(self, sql: str) -> pa.Table:
        return self.session.sql(sql).arrow()

    def rest(self) -> None:
        from tsql.kernels.codegen import memory
        from tsql.kernels.codegen.promote import promoter

        promoter.wait()
        memory.trim()

    def close(self) -> None:
        self.session.close()


class DuckDB(InProcess):
    """DuckDB with its default settings and the same number of threads."""

    name = "duckdb"

    def __init__(self, threads: int):
        import duckdb

        self.version = duckdb.__version__
        self.threads = threads
        self.connection = duckdb.connect(config={"threads": threads})

    def load(self, table: str, path: Path) -> None:
        self.execute(f"CREATE TABLE {table} AS SELECT * FROM {quoted(path)}")

    def view(self, table: str, path: Path) -> None:
        self.execute(f"CREATE VIEW {table} AS SELECT * FROM {quoted(path)}")

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def run(self, sql: str) -> pa.Table:
        # Not connection.execute(..).to_arrow_table(): that keeps the rows in DuckDB's own form first, and then copies
        # them.
        return self.connection.sql(sql).to_arrow_table()

    def rest(self) -> None:
        # DuckDB empties its allocator when it restarts its threads, which it does when their number changes. There is
        # no command for it.
        for threads in (self.threads + 1, self.threads):
            self.execute(f"SET threads = {threads}")

    def close(self) -> None:
        self.connection.close()


ENGINES: dict[str, type[Tsql] | type[DuckDB]] = {"tsql": Tsql, "duckdb": DuckDB}


def quoted(path: Path) -> str:
    """A path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"
