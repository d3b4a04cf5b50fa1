"""`ParquetFolder`: a folder of Parquet files, one for each epoch that has rows. Exactly once.

    part-<job>-<epoch>.parquet            an epoch that is committed
    .part-<job>-<epoch>.staged            one that is written or prepared: globs skip it
    _manifest/<job>.json                  the last epoch of a job whose commit has begun, and the one before

`commit` first writes the manifest, then renames the staged file. The rename shows the epoch, all of it at once, so a
plain glob `*.parquet` sees whole committed epochs at any time. A commit is over when its staged file is gone: `recover`
finishes one that was begun, even if a reader has taken the file away in the meantime. Epochs are numbered without gaps,
so the last one names all."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from tsql.backends.io import remote
from tsql.backends.io.writers import ROW_GROUP_ROWS
from tsql.backends.live.sinks.parquet_rows import ParquetRows, check_folder, check_same_columns, parquet_schema
from tsql.backends.live.sinks.sink import Output, Token
from tsql.backends.live.sinks.staging import (
    Staging,
    check_ahead,
    make_folder,
    read_json,
    rename,
    replace_json,
    rows_gone,
    writing,
)
from tsql.kernels.expr.errors import SourceError


class ParquetFolder:
    is_exact = True
    takes_changes = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        compression: str = "snappy",
        row_group_rows: int = ROW_GROUP_ROWS,
    ):
        self.path = Path(path)
        if remote.is_remote(os.fspath(path)):
            raise SourceError(f"cannot write {remote.redacted(os.fspath(path))}: jobs write local folders only")
        self._rows = ParquetRows(compression, row_group_rows)
        self._epoch, self._last = 1, 0
        self._staging: Staging | None = None

    def open(self, output: Output) -> None:
        schema = parquet_schema(output.schema)
        self._job = output.job
        with writing(self.path):
            check_folder(self.path)
            self._check_columns(schema)
        self._rows.schema = schema
        self._staging = Staging(self.path, output.job, ".part-", ".staged")
        self._manifest = self.path / "_manifest" / f"{output.job}.json"

    def _check_columns(self, schema: pa.Schema) -> None:
        """The files that are there have the same columns: a glob reads them together."""
        import pyarrow.parquet as pq

        names = os.listdir(self.path) if self.path.is_dir() else []
        there = sorted(name for name in names if name.endswith(".parquet") and not name.startswith("."))
        if not there:
            return
        try:
            found = pq.read_schema(self.path / there[-1])
        except pa.ArrowInvalid as error:
            raise SourceError(f"{self.path / there[-1]} is no Parquet file: {error}") from error
        check_same_columns(self.path, schema, found, f"its file {there[-1]}")

    def recover(self, epoch: int, token: Token) -> None:
        staging = self._opened()
        with writing(self.path):
            make_folder(self._manifest.parent)
            check_ahead(self.path, self._job, self._durable(), epoch)
            staging.remove_after(epoch)
            for prepared in staging.epochs():
                self._show(prepared)
        if token is not None and read_json(self._manifest).get("epoch", 0) < epoch:
            raise rows_gone(self.path, epoch)
        self._epoch, self._last = epoch + 1, epoch

    def write(self, rows: pa.RecordBatch) -> None:
        with writing(self.path):
            self._rows.write(rows, self._opened(), self._epoch)

    def prepare(self, epoch: int) -> Token:
        with writing(self.path):
            rows = self._rows.finish(self._opened(), epoch)
        self._epoch = epoch + 1
        return {"rows": rows} if rows else None

    def commit(self, epoch: int, token: Token) -> None:
        if token is not None:
            with writing(self.path):
                self._show(epoch)
        self._last = max(self._last, epoch)

    def _show(self, epoch: int) -> None:
        staging = self._opened()
        begun = read_json(self._manifest).get("epoch", 0)
        staged, name = staging.path(epoch), f"part-{self._job}-{epoch:012}.parquet"
        if begun < epoch:
            if not staged.exists():
                raise rows_gone(self.path, epoch)
            replace_json(self._manifest, {"job": self._job, "epoch": epoch, "file": name, "before": begun})
        if staged.exists():
            rename(staged, self.path / name)

    def _durable(self) -> int:
        """The last epoch that has rows and is visible."""
        manifest = read_json(self._manifest)
        begun = int(manifest.get("epoch", 0))
        return int(manifest.get("before", 0)) if self._opened().path(begun).exists() else begun

    def last_committed(self) -> int | None:
        return max(self._durable(), self._last)

    def close(self) -> None:
        if self._staging is not None:
            with writing(self.path):
                self._rows.drop(self._staging)

    def _opened(self) -> Staging:
        assert self._staging is not None, "open comes first"
        return self._staging
