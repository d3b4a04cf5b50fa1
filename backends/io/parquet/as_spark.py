"""Where the rows of a Parquet file that Spark gives are not those that our reader gives.

`TableSource` asks for the files of a table in Spark's catalog: on the driver, which then leaves the table to Spark, or
in a task, where the files are too many for the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsql.backends.io.parquet.source import ParquetFile

if TYPE_CHECKING:
    from tsql.backends.io.parquet.table import TableSource

LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Marks of files with times in the hybrid calendar of Spark 2, which are not what they seem before 1900."""
WIDER = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT"),
    "SMALLINT": ("INTEGER", "BIGINT"),
    "INTEGER": ("BIGINT",),
    "UTINYINT": ("SMALLINT", "INTEGER", "BIGINT"),
    "USMALLINT": ("INTEGER", "BIGINT"),
    "UINTEGER": ("BIGINT",),
    "FLOAT": ("DOUBLE",),
}
"""Types of a file that Spark and our reader both read as another type of the table, with the same values."""


def unfit(table: TableSource, file: ParquetFile) -> str | None:
    """Why our reader would not give the rows of Spark for a file."""
    about = file.footer.metadata.metadata or {}
    written_by = about.get(b"org.apache.spark.version", b"")
    if any(mark in about for mark in LEGACY) or written_by.startswith((b"1.", b"2.")):
        return "a file of it has times in the calendar of Spark 2"
    for name, (kind, _) in table.columns.items():
        place = file.index.get(name.lower())
        if place is None or name in table.partitions.types:
            continue
        stored = file.types[place]
        is_int96 = file.footer.schema.field(place).name in file.footer.int96
        is_instant = kind.name == "TIMESTAMPTZ" and is_int96
        is_wider = kind.name in WIDER.get(stored.name, ())
        if not is_instant and (is_int96 or (stored != kind and not is_wider)):
            return f"column {name} is {kind}, and {'an INT96' if is_int96 else stored} in a file"
        if not is_instant and str(file.footer.schema.field(place).type).startswith("timestamp[ns"):
            return f"column {name} has nanoseconds"
    return None
