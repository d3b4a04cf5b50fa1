"""`DeltaSink`: appends the rows of a job to a Delta table, through the package `deltalake`. Exactly once.

`prepare` makes a Parquet file of the epoch durable in the table's folder. No reader sees it, since the log does not
name it. `commit` adds one entry to the log, with the file and the application transaction (job, epoch). So the file and
the number of its epoch become visible together, and an epoch whose number is in the log is not committed again. If two
processes commit the same one at once, the log refuses the second.

The table must be in a local folder, without partitions, and must ask nothing of its writers that is not done here: no
constraints, no generated columns, no renamed columns. It is made if it is missing. Delta has no unsigned integers; they
become wider signed ones."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.backends.io import remote
from tsql.backends.io.snapshot import missing
from tsql.backends.io.writers import ROW_GROUP_ROWS
from tsql.backends.live.sinks.parquet_rows import ParquetRows, check_folder, check_same_columns, parquet_schema
from tsql.backends.live.sinks.sink import Output, Token
from tsql.backends.live.sinks.staging import (
    Staging,
    check_ahead,
    make_folder,
    rows_gone,
    sync_file,
    sync_folder,
    writing,
)
from tsql.kernels.expr.errors import SourceError

WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "deletionVectors",
    "domainMetadata",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Features of tables that ask nothing of one that appends files. Those of single columns are refused by the column."""


class DeltaSink:
    is_exact = True
    takes_changes = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        compression: str = "snappy",
        row_group_rows: int = ROW_GROUP_ROWS,
    ):
        if remote.is_remote(os.fspath(path)):
            raise SourceError(
                f"cannot write {remote.redacted(os.fspath(path))}: jobs write Delta tables in local folders only"
            )
        self.path = Path(path)
        self._rows = ParquetRows(compression, row_group_rows)
        self._required: tuple[str, ...] = ()
        self._epoch, self._last = 1, 0
        self._staging: Staging | None = None
        self._table: Any = None

    def open(self, output: Output) -> None:
        self._job = output.job
        self._rows.schema = delta_schema(output.schema)
        with writing(self.path):
            check_folder(self.path)
            self._table = self._find()
            if self._table is not None:
                self._check_table()
            elif self.path.is_dir() and {*os.listdir(self.path)} - {"_delta_log"}:
                raise SourceError(f"cannot write {self.path}: the folder has files and is no Delta table")
        self._staging = Staging(self.path, output.job, "part-", ".parquet")

    def _find(self) -> Any:
        """The table; None if there is none yet."""
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError, TableNotFoundError
        except ImportError as error:
            raise missing("a Delta table", "deltalake", "delta", error) from error
        if not (self.path / "_delta_log").is_dir():
            return None
        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            return None
        except (DeltaError, ValueError, OSError) as error:
            raise self._failed(error) from error

    def _check_table(self) -> None:
        table = self._table
        metadata = table.metadata()
        if metadata.partition_columns:
            raise self._refused(f"it is partitioned by {', '.join(metadata.partition_columns)}")
        unknown = sorted(set(table.protocol().writer_features or ()) - FEATURES)
        asked = sorted(
            name
            for name, value in metadata.configuration.items()
            if name.startswith("delta.constraints.") or (name == "delta.columnMapping.mode" and value != "none")
        )
        if unknown or asked:
            raise self._refused(f"it has the feature {[*unknown, *asked][0]}")
        schema = table.schema()
        for field in schema.fields:
            if known := sorted(name for name in field.metadata if name.startswith("delta.")):
                raise self._refused(f"its column {field.name} has {known[0]}")
        found = pa.schema(schema.to_arrow())
        check_same_columns(self.path, self._rows.schema, parquet_schema(found), "the table")
        self._required = tuple(field.name for field in found if not field.nullable)

    def _refused(self, why: str) -> SourceError:
        return SourceError(f"cannot write {self.path}: {why}, which live jobs do not write")

    def _failed(self, error: Exception) -> SourceError:
        # The package draws the causes of an error as a tree in colors; the last one is the reason.
        lines = [re.sub(r"\x1b\[\d*m|↳", "", line).strip() for line in str(error).splitlines()]
        said = [line for line in lines if line] or [type(error).__name__]
        return SourceError(f"cannot write {self.path}: {said[-1]}")

    def recover(self, epoch: int, token: Token) -> None:
        staging = self._opened()
        with writing(self.path):
            make_folder(self.path)
            if self._table is None:
                self._create()
            last = self._durable()
            check_ahead(self.path, self._job, last, epoch)
            staging.remove_after(epoch)
            for prepared in staging.epochs():
                if prepared > last:
                    self._append(prepared)
        if token is not None and self._durable() < epoch:
            raise rows_gone(self.path, epoch)
        self._epoch, self._last = epoch + 1, epoch

    def _create(self) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        try:
            self._table = DeltaTable.create(self.path, Schema.from_arrow(self._rows.schema))
        except (DeltaError, ValueError) as error:
            raise self._failed(error) from error
        self._sync(-1)

    def write(self, rows: pa.RecordBatch) -> None:
        for name in self._required:
            if rows.column(self._rows.schema.names.index(name)).null_count:
                raise SourceError(f"cannot write {self.path}: column {name} is NOT NULL, and the query gives a NULL")
        with writing(self.path):
            self._rows.write(rows, self._opened(), self._epoch)

    def prepare(self, epoch: int) -> Token:
        with writing(self.path):
            rows = self._rows.finish(self._opened(), epoch)
        self._epoch = epoch + 1
        return {"rows": rows} if rows else None

    def commit(self, epoch: int, token: Token) -> None:
        if token is not None and self._durable() < epoch:
            with writing(self.path):
                self._append(epoch)
        self._last = max(self._last, epoch)

    def _append(self, epoch: int) -> None:
        import pyarrow.parquet as pq
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        file = self._opened().path(epoch)
        if not file.exists():
            raise rows_gone(self.path, epoch)
        rows = pq.read_metadata(file).num_rows
        stats = f'{{"numRecords": {rows}}}'
        add = AddAction(file.name, file.stat().st_size, {}, int(time.time() * 1000), True, stats)
        before = self._table.version()
        try:
            self._table.create_write_transaction(
                [add],
                "append",
                self._table.schema(),
                commit_properties=CommitProperties(app_transactions=[Transaction(self._job, epoch)]),
            )
        except (DeltaError, ValueError, OSError) as error:
            raise self._failed(error) from error
        self._update()
        self._sync(before)

    def _sync(self, before: int) -> None:
        """Make the entries of the log behind a version durable: the package does not."""
        log = self.path / "_delta_log"
        for version in range(before + 1, self._table.version() + 1):
            entry = log / f"{version:020}.json"
            if entry.exists():
                sync_file(entry)
        sync_folder(log)
        sync_folder(self.path)

    def _update(self) -> None:
        from deltalake.exceptions import DeltaError

        try:
            self._table.update_incremental()
        except (DeltaError, ValueError, OSError) as error:
            raise self._failed(error) from error

    def _durable(self) -> int:
        """The last epoch that has rows and is in the log."""
        if self._table is None:
            return 0
        self._update()
        return int(self._table.transaction_version(self._job) or 0)

    def last_committed(self) -> int | None:
        return max(self._durable(), self._last)

    def close(self) -> None:
        if self._staging is not None:
            with writing(self.path):
                self._rows.drop(self._staging)

    def _opened(self) -> Staging:
        assert self._staging is not None, "open comes first"
        return self._staging


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as the table has them."""
    fields = []
    for field in parquet_schema(schema):
        if pa.types.is_time(field.type):
            raise SourceError(f"column {field.name} is TIME, which Delta tables have not", hint="CAST it to VARCHAR")
        fields.append(pa.field(field.name, WIDER.get(field.type, field.type)))
    return pa.schema(fields)
