"""Rows of an epoch to a Parquet file, as they come; and what a folder and its columns must be like.

Used by the sinks of Parquet files: `parquet_folder` and `delta`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.backends.io.writers import Counted, distinct_names
from tsql.backends.live.sinks.staging import Staging
from tsql.kernels.expr.errors import SourceError

ROW_GROUP_BYTES = 64 << 20
COMPRESSIONS = ("snappy", "zstd", "gzip", "brotli", "lz4", "none")


class ParquetRows:
    """Writes rows to a Parquet file as they come: a row group whenever enough of them wait."""

    def __init__(self, compression: str, row_group_rows: int):
        if compression not in COMPRESSIONS:
            raise SourceError(f"option compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
        if row_group_rows < 1:
            raise SourceError(f"option row_group_rows is at least 1, not {row_group_rows}")
        self.schema = pa.schema([])
        self._compression, self._row_group_rows = compression, row_group_rows
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch, staging: Staging, epoch: int) -> None:
        for rows in Counted([batch], self.schema):
            self._waiting.append(rows)
            self._rows += rows.num_rows
            self._bytes += rows.nbytes
        if self._rows >= self._row_group_rows or self._bytes >= ROW_GROUP_BYTES:
            self._flush(staging, epoch)

    def _flush(self, staging: Staging, epoch: int) -> None:
        # Imported here: with all its file systems, the import takes 30 ms.
        import pyarrow.parquet as pq

        if not self._waiting:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                staging.stream(epoch),
                self.schema,
                compression=self._compression,
                store_decimal_as_integer=True,
                store_schema=False,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema), row_group_size=self._row_group_rows)
        self.rows += self._rows
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self, staging: Staging, epoch: int) -> int:
        """Make the file durable. Returns its rows; without rows there is no file."""
        self._flush(staging, epoch)
        rows, self.rows = self.rows, 0
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            staging.seal()
        return rows

    def drop(self, staging: Staging) -> None:
        """Forget the rows and remove the file."""
        self._waiting, self._rows, self._bytes, self.rows = [], 0, 0, 0
        staging.discard()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        staging.drop()


def check_folder(path: Path) -> None:
    """Refuse a target that can be no folder, or that cannot be written. Raises OSError too."""
    if "\0" in os.fspath(path):
        raise SourceError("a file name holds a NUL character")
    if path.is_dir():
        there = path
    elif os.path.lexists(path):
        raise SourceError(f"cannot write {path}: it is a file, not a folder")
    else:
        there = next(above for above in path.absolute().parents if os.path.lexists(above))
        if not there.is_dir():
            raise SourceError(f"cannot write {path}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise SourceError(f"cannot write {path}: Permission denied")


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as files have them: with distinct names, and no dictionaries."""
    fields = []
    for field in distinct_names(schema):
        if field.type == pa.month_day_nano_interval():
            raise SourceError(
                f"column {field.name} is INTERVAL, which is not written to Parquet", hint="CAST it to VARCHAR"
            )
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, plain))
    return pa.schema(fields)


def check_same_columns(target: object, schema: pa.Schema, found: pa.Schema, where: str) -> None:
    """Refuse a target whose rows have other columns."""
    ours = [(field.name, field.type) for field in schema]
    theirs = [(field.name, field.type) for field in found]
    if ours != theirs:

        def shown(columns: list[tuple[str, pa.DataType]]) -> str:
            return ", ".join(f"{name} {kind}" for name, kind in columns)

        raise SourceError(
            f"cannot write {target}: {where} has other columns: ({shown(theirs)}), and the query gives ({shown(ours)})",
            hint="write to another place, or give the query the same columns",
        )
