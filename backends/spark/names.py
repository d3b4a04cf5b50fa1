"""Tables and views of a Spark session by their names in SQL: `SparkNames`, which a session's catalog asks.

A table that is nothing but Parquet files is read by our own scan (`table_files.py`), everything else as a DataFrame.
The choice, and the reason, is a note of the plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tsql.backends.names import FoundTable, NeverKept
from tsql.backends.spark import lakes, storage, table_files
from tsql.backends.spark.failures import SPARK_ERRORS, asking
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.java import java_session, named, ticked, to_json
from tsql.backends.spark.table_files import OtherWay
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.text import dotted


class SparkNames:
    """The names of one Spark session."""

    def __init__(self, session: SparkSession):
        self.session = session

    def find(self, parts: tuple[str, ...]) -> FoundTable | None:
        """What Spark has under a name; None if it has nothing."""
        with asking(f"Spark cannot read {dotted(parts)}"):
            return self._found(parts)

    def _found(self, parts: tuple[str, ...]) -> FoundTable | None:
        # A session without the jar of Delta knows a Delta table by its metadata alone.
        lake = lakes.find(self.session, parts, lakes.delta) if all(parts) else None
        if lake is None and self._exists(parts):
            lake = lakes.find(self.session, parts, lakes.iceberg)
        if isinstance(lake, FoundTable):
            return lake
        frame = self._frame(parts)
        if frame is None:
            return None
        found: Any = resolved(FrameSource(frame, dotted(parts)), lambda: self._frame(parts))
        if lake is not None and isinstance(found.source, FrameSource):
            found.source.way = f"{dotted(parts)}: a DataFrame of Spark: {lake}"
        named(found.source, parts)
        return found

    def scan(self, kind: str, path: str | tuple[str, ...], options: dict[str, Any]) -> FoundTable | None:
        """A Delta or Iceberg table that Spark reads, if it has what that takes."""
        return lakes.scan(self.session, kind, path, options)

    def remember(self, paths: list[str]) -> None:
        """Take the credentials for files elsewhere from Hadoop's settings."""
        storage.remember(self.session, paths)

    def _exists(self, parts: tuple[str, ...]) -> bool:
        try:
            return all(parts) and bool(self.session.catalog.tableExists(ticked(parts)))
        except AnalysisException:
            return False  # a catalog or a namespace that is not there, or a name with too many parts

    def _frame(self, parts: tuple[str, ...]) -> Any:
        return self.session.table(ticked(parts)) if self._exists(parts) else None

    def names(self) -> list[str]:
        """The tables of the current database, and the temporary views."""
        state = java_session(self.session)
        if state is None:
            return []
        with suppress(*SPARK_ERRORS):  # only a suggestion is lost
            catalog = state.sessionState().catalog()
            found = json.loads(to_json(self.session, catalog.listTables(catalog.getCurrentDatabase())))
            return [str(one["table"]) for one in found]
        return []


def resolved(source: FrameSource, again: Callable[[], DataFrame | None]) -> FoundTable:
    """A DataFrame as a query reads it now: by our own scan if it is nothing but files. `again` finds the DataFrame at
    the next query."""
    try:
        files = table_files.listed(source.frame, source.schema)
        use = FilesUse(again, files.fingerprint())
        return FoundTable(table_files.opened(files, source), use)
    except OtherWay as reason:
        source.way = f"{source.name}: a DataFrame of Spark: {reason}"
        return FoundTable(source, NeverKept())


@dataclass(frozen=True)
class FilesUse:
    """The files that a query reads: what Spark and the file system said of them."""

    again: Callable[[], DataFrame | None]
    print: Any

    def is_current(self) -> bool:
        try:
            frame = self.again()
            return (
                self.print is not None
                and frame is not None
                and table_files.listed(frame, FrameSource(frame).schema).fingerprint() == self.print
            )
        except (OtherWay, TsqlError, *SPARK_ERRORS):
            return False  # a new analysis tells why
