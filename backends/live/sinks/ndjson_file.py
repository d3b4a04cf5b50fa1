"""`NdjsonFile`: one growing file with a JSON object for each row, as COPY .. (FORMAT json) writes it. Exactly once.

    results.ndjson                          the lines of all committed epochs
    .results.ndjson-<job>-<epoch>.staged    the lines of an epoch that is written or prepared
    .results.ndjson.epochs                  the last epoch of each job, and which bytes the last append was to write

`commit` records the place of the append, appends the staged lines, and removes the staged file: an append whose staged
file is there is not over. `recover` finishes it behind the bytes that are there, and cuts off what a crash of the
machine has put in their place. So the file only grows: a reader that tails it sees each line once, and half a line only
between a crash and the recovery.

Several jobs may write the same file one after the other; each finishes the append that another has left. Two at a time
are refused. Nobody else may change the file while jobs write to it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tsql.backends.io import remote
from tsql.backends.io.writers import Counted, distinct_names, write_json
from tsql.backends.live.sinks.sink import Output, Token
from tsql.backends.live.sinks.staging import (
    Staging,
    append,
    check_ahead,
    common_bytes,
    make_folder,
    read_json,
    replace_json,
    rows_gone,
    sync_folder,
    writing,
)
from tsql.kernels.expr.errors import SourceError

LONGEST_LINE = 1 << 20
"""Bytes of the first line that are looked at."""


class NdjsonFile:
    is_exact = True
    takes_changes = True

    def __init__(self, path: str | os.PathLike[str]):
        if remote.is_remote(os.fspath(path)):
            raise SourceError(f"cannot write {remote.redacted(os.fspath(path))}: jobs write local files only")
        # Links are followed once, so that the files beside it are where the lines are.
        self.path = Path(os.path.realpath(path))
        self._record = self.path.with_name(f".{self.path.name}.epochs")
        self._lock: BinaryIO | None = None
        self._staging: Staging | None = None
        self._epoch, self._last = 1, 0

    def open(self, output: Output) -> None:
        self._job = output.job
        self._schema = distinct_names(output.schema)
        with writing(self.path):
            if os.path.lexists(self.path) and not self.path.is_file():
                what = "a folder" if self.path.is_dir() else "no regular file"
                raise SourceError(f"cannot write {self.path}: it is {what}")
            self._check_columns()
        self._staging = Staging(self.path.parent, output.job, f".{self.path.name}-", ".staged")

    def _check_columns(self) -> None:
        """The first line has the same columns."""
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            line = file.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            return  # a line that is too long, or half a line, which `recover` deals with
        try:
            found = json.loads(line)
        except ValueError as error:
            raise SourceError(f"cannot write {self.path}: its first line is no JSON: {error}") from error
        if not isinstance(found, dict) or list(found) != self._schema.names:
            shown = f"the columns {', '.join(found)}" if isinstance(found, dict) else "no columns"
            raise SourceError(
                f"cannot write {self.path}: it has {shown}, and the query gives {', '.join(self._schema.names)}",
                hint="write to another file, or give the query the same columns",
            )

    def recover(self, epoch: int, token: Token) -> None:
        staging = self._opened()
        with writing(self.path):
            make_folder(self.path.parent)
            self._take()
            self._finish()
            check_ahead(self.path, self._job, self._recorded(), epoch)
            staging.remove_after(epoch)
            for prepared in staging.epochs():
                self._append(prepared)
            if token is not None and self._recorded() < epoch:
                raise rows_gone(self.path, epoch)
            self._check_end()
        self._epoch, self._last = epoch + 1, epoch

    def _take(self) -> None:
        """Make the file if it is missing, and hold it: no second job writes to it at the same time."""
        self._lock = open(self.path, "ab")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SourceError(f"cannot write {self.path}: another job is writing to it") from error
        sync_folder(self.path.parent)

    def _check_end(self) -> None:
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    raise SourceError(f"cannot write {self.path}: it ends within a line that is no job's")

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        with writing(self.path):
            write_json(Counted([rows], self._schema), self._schema, self._opened().stream(self._epoch))

    def prepare(self, epoch: int) -> Token:
        staging = self._opened()
        self._epoch = epoch + 1
        if not staging.has_rows:
            return None
        with writing(self.path):
            return {"bytes": staging.seal()}

    def commit(self, epoch: int, token: Token) -> None:
        if token is not None and self._recorded() < epoch:
            with writing(self.path):
                self._append(epoch)
        self._last = max(self._last, epoch)

    def _append(self, epoch: int) -> None:
        staged = self._opened().path(epoch)
        if not staged.exists():
            raise rows_gone(self.path, epoch)
        if not self.path.exists():
            # Somebody has moved it away, as `logrotate` does: the lines go on in a new file.
            with open(self.path, "ab"):
                sync_folder(self.path.parent)
        record = read_json(self._record)
        jobs = record.get("jobs", {})
        about = {
            "job": self._job,
            "epoch": epoch,
            "start": self.path.stat().st_size,
            "bytes": staged.stat().st_size,
            "staged": staged.name,
            "before": jobs.get(self._job, 0),
        }
        replace_json(self._record, {"jobs": jobs | {self._job: epoch}, "append": about})
        self._finish()

    def _finish(self) -> None:
        """Finish the last append, whichever job's it is: one that is recorded is to be seen."""
        about = read_json(self._record).get("append")
        if about is None or not (staged := self.path.with_name(about["staged"])).exists():
            return
        start, size = about["start"], self.path.stat().st_size
        common = common_bytes(self.path, start, staged) if size >= start else 0
        if size < start or (size > start + about["bytes"] and common < about["bytes"]):
            raise SourceError(
                f"cannot write {self.path}: it was changed while the rows of epoch {about['epoch']} were written",
                hint=f"they are in {staged}",
            )
        if common < about["bytes"]:
            append(self.path, start + common, staged, common)
        else:
            append(self.path, size, staged, common)  # its bytes may not be durable
        self._remove(about["job"], about["epoch"])

    def _remove(self, job: str, epoch: int) -> None:
        Staging(self.path.parent, job, f".{self.path.name}-", ".staged").remove(epoch)

    def _recorded(self) -> int:
        """The last epoch of this job that has rows and is visible."""
        record = read_json(self._record)
        about = record.get("append") or {}
        if about.get("job") == self._job and self.path.with_name(about["staged"]).exists():
            return int(about["before"])
        return int(record.get("jobs", {}).get(self._job, 0))

    def last_committed(self) -> int | None:
        return max(self._recorded(), self._last)

    def close(self) -> None:
        if self._staging is not None:
            with writing(self.path):
                self._staging.drop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _opened(self) -> Staging:
        assert self._staging is not None, "open comes first"
        return self._staging
