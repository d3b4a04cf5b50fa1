"""Tables and views of a Spark session by their names in SQL: `SparkNames`, which a session's catalog asks.

A table that is nothing but Parquet files is read by our own scan (`table_files.py`), everything else as a DataFrame.
The choice, and the reason, is a note of the plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tsql.backends.names import FoundTable, NeverKept
from tsql.backends.spark import table_files
from tsql.backends.spark.frame import FrameSource
from tsql.backends.spark.java import java_session, to_json
from tsql.backends.spark.table_files import OtherWay
from tsql.kernels.expr.errors import CatalogError, TsqlError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.text import dotted


class SparkNames:
    """The names of one Spark session."""

    def __init__(self, session: SparkSession):
        self.session = session

    def find(self, parts: tuple[str, ...]) -> FoundTable | None:
        """What Spark has under a name; None if it has nothing."""
        frame = self._frame(parts)
        if frame is None:
            return None
        found: Any = resolved(FrameSource(frame, dotted(parts)), lambda: self._frame(parts))
        if len(parts) > 1:
            found.source.qualified_name = dotted(parts)
        else:
            found.source.catalog_name = parts[0].lower()
        return found

    def _frame(self, parts: tuple[str, ...]) -> Any:
        if not all(parts):
            return None
        name = ".".join("`" + part.replace("`", "``") + "`" for part in parts)
        try:
            if not self.session.catalog.tableExists(name):
                return None
        except AnalysisException:
            return None  # a catalog or a namespace that is not there, or a name with too many parts
        except (PySparkException, Py4JError) as error:
            raise _failure(parts, error) from error
        try:
            return self.session.table(name)
        except (PySparkException, Py4JError) as error:
            raise _failure(parts, error) from error

    def names(self) -> list[str]:
        """The tables of the current database, and the temporary views."""
        state = java_session(self.session)
        if state is None:
            return []
        try:
            catalog = state.sessionState().catalog()
            found = json.loads(to_json(self.session, catalog.listTables(catalog.getCurrentDatabase())))
            return [str(one["table"]) for one in found]
        except (PySparkException, Py4JError):
            return []  # only a suggestion is lost


def resolved(source: FrameSource, again: Callable[[], DataFrame | None]) -> FoundTable:
    """A DataFrame as a query reads it now: by our own scan if it is nothing but files. `again` finds the DataFrame at
    the next query."""
    try:
        files = table_files.listed(source.frame, source.schema)
        use = FilesUse(again, files.fingerprint())
        return FoundTable(table_files.opened(files, source), use)
    except OtherWay as reason:
        source.note = f"{source.name}: a DataFrame of Spark: {reason}"
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
                frame is not None and table_files.listed(frame, FrameSource(frame).schema).fingerprint() == self.print
            )
        except (OtherWay, TsqlError):
            return False  # a new analysis tells why


def _failure(parts: tuple[str, ...], error: BaseException) -> CatalogError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CatalogError(f"Spark cannot read {dotted(parts)}: {lines[0] if lines else type(error).__name__}")
