"""A folder of files that several processes write together: COPY from the tasks of a cluster.

Tasks write into a folder beside the target, each attempt of a task into a folder of its own (`write_part`), and tell
what they wrote. The driver moves the files of the attempts that count into place (`commit`). So an attempt that was
lost, killed, or was not the first to finish leaves nothing in the target."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Set
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.io import remote, store_writes
from tsql.backends.io.files import folder_name
from tsql.backends.io.value_text import texts
from tsql.backends.io.whole_files import TOKEN, real_path, shared_folder, whole_folder
from tsql.backends.io.writers import Counted, WriteOptions, distinct_names, write, write_stored
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process.quick_dataclass import dataclass

WAITING_BYTES = 128 << 20
"""A task that writes partitions holds this many bytes of rows. With more, the largest partitions become files."""

LONGEST_NAME, LONGEST_PATH, LONGEST_KEY = 255, 4000, 900
"""The maximum bytes of a folder's name and of a path, with room for file names: the limits of Linux and macOS, and of
the stores, whose names have 1,024 bytes."""

_PACKED = {"gzip": ".gz", "zstd": ".zst"}
_EARLIER = re.compile(rf"(data_\d+|part-\d{{5,}}-{TOKEN}(_\d{{4,}})?)\.(parquet|csv|json|arrow)(\.gz|\.zst)?")
"""The files of earlier runs: of tasks, and of COPY .. PARTITION_BY on one machine."""


@dataclass(frozen=True)
class FolderTarget:
    """A folder to write. schema: of the result. by: the places of the columns whose values name folders.

    existing: what happens to a folder that has files: "refuse", "overwrite" (it is replaced), "replace" (files of
    earlier runs in the folders that are written are replaced) or "append"."""

    path: str
    kind: str
    schema: pa.Schema
    options: WriteOptions
    by: tuple[int, ...] = ()
    keeps_columns: bool = False
    existing: str = "refuse"

    @property
    def stored(self) -> pa.Schema:
        """The schema of the files."""
        fields = list(distinct_names(self.schema))
        return pa.schema(fields if self.keeps_columns else [f for i, f in enumerate(fields) if i not in self.by])

    @property
    def ending(self) -> str:
        packed = _PACKED.get(self.options.compression or "", "") if self.kind in ("csv", "json") else ""
        return f".{self.kind}{packed}"

    def check(self) -> None:
        """Refuse a target that cannot be written."""
        if "\0" in self.path:
            raise SourceError("a file name holds a NUL character")
        if remote.is_remote(self.path):
            if self.existing == "refuse" and store_writes.files_below(self.path):
                raise self._not_empty()
            return
        place = Path(self.path)
        try:
            if os.path.lexists(self.path) and not place.is_dir():
                raise SourceError(f"cannot write {self.path}: it is a file, not a folder")
            if self.existing == "refuse" and place.is_dir() and any(place.iterdir()):
                raise self._not_empty()
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def _not_empty(self) -> SourceError:
        path = remote.redacted(self.path)
        return SourceError(f'Directory "{path}" is not empty! Enable OVERWRITE option to overwrite files')

    def staged(self) -> AbstractContextManager[Any]:
        """A folder for the files of attempts, which is gone at the end."""
        return store_writes.staged_folder(self.path) if remote.is_remote(self.path) else shared_folder(self.path)

    def describe(self, staged: str, run: str) -> dict[str, Any]:
        """Plain data for the tasks. staged: the folder that they write into."""
        return {
            "target": self.path if remote.is_remote(self.path) else os.path.abspath(self.path),
            "storage": remote.storage_of([self.path]),
            "staged": staged,
            "run": run,
            "kind": self.kind,
            "schema": self.schema.serialize().to_pybytes().hex(),
            "options": asdict(self.options),
            "by": list(self.by),
            "keeps_columns": self.keeps_columns,
        }


@dataclass(frozen=True)
class Written:
    """A file of one attempt: where it is below the folder of all attempts, and its name below the target."""

    place: str
    name: str
    rows: int
    bytes: int


def cannot_write(path: str, error: OSError) -> SourceError:
    return SourceError(f"cannot write {path}: {error.strerror or error}")


def write_part(about: dict[str, Any], shard: int, batches: Iterable[pa.RecordBatch]) -> Iterator[Written]:
    """Write the rows of one shard. Called in a task; `about` is what `FolderTarget.describe` gave."""
    for url, storage in about["storage"].items():
        remote.remember(url, storage)
    target = FolderTarget(
        about["target"],
        about["kind"],
        pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(about["schema"]))),
        WriteOptions(**about["options"]),
        tuple(about["by"]),
        about["keeps_columns"],
    )
    attempt = _Attempt(target, about["staged"], about["run"], shard)
    rows = (batch for batch in Counted(batches, distinct_names(target.schema)) if batch.num_rows)
    if target.by:
        yield from attempt.partitions(rows)
        return
    first = next(rows, None)
    if first is not None:
        yield attempt.file("", _chained(first, rows))


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


class _Attempt:
    """One attempt to write a shard, in a folder of its own."""

    def __init__(self, target: FolderTarget, staged: str, run: str, shard: int):
        self.target, self.stored, self.staged = target, target.stored, staged
        self.stem = f"part-{shard:05}-{run}"
        self.name = secrets.token_hex(8)
        self.files: dict[str, int] = {}

    def file(self, below: str, batches: Iterable[pa.RecordBatch]) -> Written:
        """A file with these rows in a folder below the target."""
        number = self.files.get(below, 0)
        self.files[below] = number + 1
        stem = self.stem if not number else f"{self.stem}_{number:04}"
        name = os.path.join(below, f"{stem}{self.target.ending}")
        path = os.path.join(self.staged, self.name, name)
        if remote.is_remote(path):
            rows, size = write_stored(batches, self.stored, self.target.kind, path, self.target.options)
            return Written(os.path.join(self.name, name), name, rows, size)
        try:
            # The folder of all attempts is gone if the job is over. Nobody makes it again.
            _make_folder(os.path.join(self.staged, self.name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            rows = write(batches, self.stored, self.target.kind, path, self.target.options)
            return Written(os.path.join(self.name, name), name, rows, os.path.getsize(path))
        except FileNotFoundError as error:
            raise SourceError(
                f"cannot write {self.target.path}: this machine does not see the folder that the driver has made",
                hint="the target of COPY must be on a file system that all machines of the cluster share",
            ) from error
        except OSError as error:
            raise cannot_write(self.target.path, error) from error
        except SourceError as error:
            error.message = error.message.replace(path, self.target.path)
            raise

    def partitions(self, rows: Iterator[pa.RecordBatch]) -> Iterator[Written]:
        """Files by the values of columns."""
        waiting: dict[str, list[pa.RecordBatch]] = {}
        sizes: dict[str, int] = {}
        for batch in rows:
            for below, part in self._split(batch):
                waiting.setdefault(below, []).append(part)
                sizes[below] = sizes.get(below, 0) + part.nbytes
            if sum(sizes.values()) > WAITING_BYTES:
                for below in sorted(sizes, key=lambda below: -sizes[below]):
                    if sum(sizes.values()) <= WAITING_BYTES // 2:
                        break
                    del sizes[below]
                    yield self.file(below, _joined(waiting.pop(below)))
        for below, parts in waiting.items():
            yield self.file(below, _joined(parts))

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        names = [batch.schema.names[i] for i in self.target.by]
        shown = [texts(batch.column(i)) for i in self.target.by]
        data = batch.select(self.stored.names)
        for below, places in partition_folders(shown, names, self.target.path):
            yield below, data.take(pa.array(places))


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        return


def _joined(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(parts).combine_chunks().to_batches()


def partition_folders(shown: list[pa.Array], names: list[str], path: str) -> list[tuple[str, np.ndarray]]:
    """The folders `key=value` of rows, with the places of the rows of each in order. `shown` are the values as text.
    Names that are too long are refused."""
    codes = np.zeros(len(shown[0]), np.int64)
    for column in shown:
        found = column.dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(found.dictionary)) + np.asarray(found.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []
    return [(_folder([c[int(rows[0])].as_py() for c in shown], names, path), rows) for rows in groups]


def _folder(values: list[str | None], names: list[str], path: str) -> str:
    parts = [folder_name(name, value) for name, value in zip(names, values, strict=True)]
    for name, value, part in zip(names, values, parts, strict=True):
        if len(part) > LONGEST_NAME:
            raise SourceError(
                f"partition_by: a value of column {name} is too long to be the name of a folder: "
                f"{(value or '')[:40]!r}.. takes {len(part)} bytes with the name of the column, and a name has "
                f"{LONGEST_NAME} at most"
            )
    below = "/".join(parts)
    is_stored = remote.is_remote(path)
    before = path if is_stored else os.path.abspath(path)
    if len(os.fsencode(before)) + len(below) > (LONGEST_KEY if is_stored else LONGEST_PATH):
        raise SourceError(
            f"partition_by: the values of a row make a path that is too long: {below[:80]}..",
            hint="partition by fewer columns",
        )
    return below


def commit(target: FolderTarget, staged: Path | str, run: str, files: list[Written]) -> None:
    """Move files of attempts into place: in one step, unless the target has files that stay, or is in a store."""
    target.check()
    if remote.is_remote(target.path):
        _commit_stored(target, str(staged), run, files)
        return
    try:
        with whole_folder(target.path, target.existing == "overwrite") as folder:
            for file in files:
                _check_arrived(target, Path(staged) / file.place, file)
                place = folder / file.name
                place.parent.mkdir(parents=True, exist_ok=True)
                os.rename(Path(staged) / file.place, place)
            names = {file.name for file in files} or {_write_schema(target, folder, run)}
        if target.existing == "replace":
            _remove_earlier(real_path(target.path), names)
    except OSError as error:
        raise cannot_write(target.path, error) from error


def _commit_stored(target: FolderTarget, staged: str, run: str, files: list[Written]) -> None:
    sizes = {file.place: file.bytes for file in files}
    moves = {file.place: file.name for file in files}
    if not files:
        place = "schema"
        moves[place] = _schema_name(target, run)
        _, sizes[place] = write_stored([], target.stored, target.kind, f"{staged}/{place}", target.options)
    there = store_writes.files_below(target.path) if target.existing == "replace" else {}
    folders = {os.path.dirname(name) for name in moves.values()}
    earlier = {n for n in there if os.path.dirname(n) in folders and _EARLIER.fullmatch(os.path.basename(n))}
    store_writes.commit(target.path, staged, moves, sizes, target.existing, earlier.__contains__)


def _check_arrived(target: FolderTarget, place: Path, file: Written) -> None:
    """A task may have written to a disk of its own machine, under the same path."""
    try:
        found = os.path.getsize(place)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        found = -1
    if found != file.bytes:
        raise SourceError(
            f"cannot write {target.path}: a file of a task is not there where the driver looks for it",
            hint="the target of COPY must be on a file system that all machines of the cluster share",
        )


def _write_schema(target: FolderTarget, folder: Path, run: str) -> str:
    """Write a file without rows, so that the folder has columns. Returns its name."""
    name = _schema_name(target, run)
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    write([], target.stored, target.kind, place, target.options)
    return name


def _schema_name(target: FolderTarget, run: str) -> str:
    """The name below the target of the file of a result without rows."""
    names = distinct_names(target.schema).names
    return os.path.join(*(folder_name(names[i], None) for i in target.by), f"part-00000-{run}{target.ending}")


def _remove_earlier(folder: Path, new: Set[str]) -> None:
    """Remove the files of earlier runs from the folders that have these new files."""
    for below in {os.path.dirname(name) for name in new}:
        for entry in list(os.scandir(folder / below)):
            if _EARLIER.fullmatch(entry.name) and os.path.join(below, entry.name) not in new and entry.is_file():
                os.unlink(entry.path)
