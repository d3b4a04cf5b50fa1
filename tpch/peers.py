"""The benchmark's engines besides DuckDB: Hyper, Polars and DataFusion. Their libraries are in the extra `bench`.

A library is imported when its engine is opened. `open_engines` reports those that could not be, and the benchmark runs
without them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from pathlib import Path

import pyarrow as pa

from tsql.tpch.engines import ENGINES, Engine, InProcess, quoted


class DataFusion(InProcess):
    """Apache DataFusion with one partition per thread."""

    name = "datafusion"

    def __init__(self, threads: int):
        import datafusion

        self.version = datafusion.__version__
        self.context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))

    def load(self, table: str, path: Path) -> None:
        self.context.register_parquet("file_to_load", str(path))
        self.execute(f"CREATE TABLE {table} AS SELECT * FROM file_to_load")
        self.context.deregister_table("file_to_load")

    def view(self, table: str, path: Path) -> None:
        self.context.register_parquet(table, str(path))

    def execute(self, sql: str) -> None:
        self.context.sql(sql).collect()

    def run(self, sql: str) -> pa.Table:
        return self.context.sql(sql).to_arrow_table()

    def rest(self) -> None:
        """Does nothing: its allocator has no such call."""

    def close(self) -> None:
        del self.context


class Polars:
    """Polars with its streaming engine. TPC-H runs as lazy queries (`polars_queries.py`), other texts through its
    SQL."""

    name = "polars"

    def __init__(self, threads: int):
        # Polars creates its threads on import, once per process.
        os.environ.setdefault("POLARS_MAX_THREADS", str(threads))
        import polars

        if polars.thread_pool_size() != threads:
            raise RuntimeError(f"Polars has {polars.thread_pool_size()} threads in this process, not {threads}")
        self.version = polars.__version__
        self.polars = polars
        self.frames: dict[str, polars.LazyFrame] = {}

    def load(self, table: str, path: Path) -> None:
        self.frames[table] = self.polars.read_parquet(path).lazy()

    def view(self, table: str, path: Path) -> None:
        self.frames[table] = self.polars.scan_parquet(path)

    def execute(self, sql: str) -> None:
        raise RuntimeError(f"Polars runs queries only, not {sql}")

    def run(self, sql: str) -> pa.Table:
        with self.polars.SQLContext(frames=self.frames, eager=False) as context:
            return context.execute(sql).collect(engine="streaming").to_arrow()

    def tpch(self, number: int, sql: str, scale: float) -> Callable[[], pa.Table]:
        from tsql.tpch.polars_queries import lazy_query

        return lambda: lazy_query(number, self.frames, scale).collect(engine="streaming").to_arrow()

    def process_id(self) -> int:
        return os.getpid()

    def rest(self) -> None:
        """Does nothing: its allocator has no such call."""

    def close(self) -> None:
        self.frames.clear()


class Hyper:
    """Hyper, which runs as a separate server process. Its tables are in a database file on the memory file system.

    Answers are returned as an Arrow file on that file system: its Python API creates one Python object per value, which
    takes longer than some queries."""

    name = "hyper"

    def __init__(self, threads: int):
        import tableauhyperapi as api

        self.version = api.__version__
        shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="tsql-hyper-", dir=shared_memory))
        try:
            limits = {
                "hard_concurrent_query_thread_limit": str(threads),
                "soft_concurrent_query_thread_limit": str(threads),
            }
            before = _children()
            self.server = api.HyperProcess(
                api.Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU, parameters={"log_config": "", **limits}
            )
            (self._process_id,) = _children() - before
            self.connection = api.Connection(self.server.endpoint, self.folder / "tables.hyper", api.CreateMode.CREATE)
        except BaseException:
            self.close()
            raise

    def load(self, table: str, path: Path) -> None:
        self.execute(f"CREATE TABLE {table} AS (SELECT * FROM external({quoted(path)}))")

    def view(self, table: str, path: Path) -> None:
        self.execute(f"CREATE TEMPORARY EXTERNAL TABLE {table} FOR {quoted(path)}")

    def execute(self, sql: str) -> None:
        self.connection.execute_command(sql)

    def run(self, sql: str) -> pa.Table:
        answer = self.folder / "answer.arrow"
        self.execute(f"COPY ({sql}) TO {quoted(answer)} WITH (FORMAT => 'arrowfile')")
        with pa.OSFile(str(answer)) as file:
            return pa.ipc.open_file(file).read_all()

    def tpch(self, number: int, sql: str, scale: float) -> Callable[[], pa.Table]:
        return partial(self.run, sql)

    def process_id(self) -> int:
        return self._process_id

    def rest(self) -> None:
        """Does nothing: its allocator has no such call."""

    def close(self) -> None:
        for name in ("connection", "server"):
            if (opened := self.__dict__.pop(name, None)) is not None:
                opened.close()
        shutil.rmtree(self.folder, ignore_errors=True)


Open = Callable[[int], Engine]

ALL: dict[str, Open] = {**ENGINES, "hyper": Hyper, "polars": Polars, "datafusion": DataFusion}
"""Every engine by name, called with the number of threads."""


def open_engines(names: Iterable[str], threads: int) -> tuple[dict[str, Engine], dict[str, str]]:
    """The engines that could be opened, and the reason for each of the others."""
    opened: dict[str, Engine] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            opened[name] = ALL[name](threads)
        except ImportError as error:
            absent[name] = f"not installed ({error}): pip install 'tsql[bench]'"
        except Exception as error:
            absent[name] = f"not started: {reason(error)}"
    return opened, absent


def versions(names: Iterable[str]) -> dict[str, str]:
    """The version of each engine's library."""
    libraries = {"hyper": "tableauhyperapi"}
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(libraries.get(name, name))
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def reason(error: BaseException) -> str:
    """The first line of an error's message, short enough for a table."""
    text = str(error).strip() or type(error).__name__
    line = text.splitlines()[0].strip()
    return line if len(line) <= 200 else line[:199] + "…"


def _children() -> set[int]:
    """The child processes of this one."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses and may contain anything; the state and the parent follow it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if parent == os.getpid():
            found.add(int(stat.parent.name))
    return found
