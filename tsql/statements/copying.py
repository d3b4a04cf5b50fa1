"""COPY: writes a query to files, and opens files for a table. Options are DuckDB's; an unknown one is an error."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.backends.io import remote, store_writes
from tsql.backends.io.folders import FolderTarget, commit, partition_folders, write_part
from tsql.backends.io.kinds import ALIASES
from tsql.backends.io.options import check_marks
from tsql.backends.io.value_text import texts
from tsql.backends.io.whole_files import whole_folder
from tsql.backends.io.writers import WriteOptions, write
from tsql.kernels.expr.errors import SourceError
from tsql.relation import FORMATS, Relation

_TEXT = ("header", "delim", "delimiter", "sep", "nullstr", "null", "compression")
_KNOWN = {
    "csv": (*_TEXT, "quote", "escape", "force_quote"),
    "json": ("array", "compression"),
    "parquet": (
        "compression",
        "codec",
        "row_group_size",
        "partition_by",
        "overwrite",
        "overwrite_or_ignore",
        "write_partition_columns",
    ),
    "arrow": (),
}
_WRITTEN = (*_KNOWN["csv"], *_KNOWN["json"], "codec", "row_group_size")
_COMPRESSIONS = {
    "parquet": ("snappy", "zstd", "gzip", "lz4", "brotli", "uncompressed", "none"),
    "text": ("gzip", "zstd", "none", "auto", "uncompressed"),
}
_FOLDER = ("partition_by", "write_partition_columns", "overwrite", "overwrite_or_ignore", "append")
_PER_TASK = ("per_thread_output", "per_task")
"""Options of folders that tasks write."""


def target_path(path: str) -> str:
    """The path of a file or folder to write: in a store, or of this machine."""
    if not remote.is_remote(path) and remote.scheme_of(path) not in (None, "file") and "://" in path:
        raise SourceError(
            f"cannot write {remote.redacted(path)}: only files of this machine and of a store are written",
            hint="stores are s3://, gs://, abfs:// and hdfs://",
        )
    return remote.plain(path)


def copy_to(relation: Relation, path: str, options: Mapping[str, Any], places: Mapping[str, int] | None = None) -> int:
    """Write the result; returns the number of rows. `places` says where the options stand in the text, for errors."""
    places = places or {}
    kind, given = _given(path, options, places)
    chosen = _checked_options(relation, kind, given, places)
    if given.get("partition_by"):
        if remote.is_remote(path):
            return _write_stored(relation, folder_target(relation, path, options, places))
        with _at(places.get("partition_by")):
            return _write_partitions(relation, path, given, chosen)
    return write(relation.batches(), relation.schema, kind, path, chosen)


def is_folder(path: str, options: Mapping[str, Any], places: Mapping[str, int]) -> bool:
    """Whether a target is a folder, which the tasks of a cluster write together."""
    given = {name.lower(): value for name, value in options.items()}
    for name in _PER_TASK:
        if name in given:
            with _at(places.get(name)):
                given[name] = _flag(name, given[name])
    return (
        path.endswith("/")
        or (store_writes.is_folder(path) if remote.is_remote(path) else os.path.isdir(path))
        or any(given.get(name) for name in ("partition_by", "append", *_PER_TASK))
    )


def of_one_file(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a target that is no folder: without those that say that it is none."""
    return {name: value for name, value in options.items() if name.lower() not in _PER_TASK}


def folder_target(relation: Relation, path: str, options: Mapping[str, Any], places: Mapping[str, int]) -> FolderTarget:
    """The folder that COPY writes from tasks, once its options are known to be good."""
    kind, given = _given(path, options, places, (*_FOLDER, *_PER_TASK))
    chosen = _checked_options(relation, kind, given, places)
    flags = {}
    for name in ("overwrite", "overwrite_or_ignore", "append", "write_partition_columns"):
        with _at(places.get(name)):
            flags[name] = _flag(name, given.get(name, False))
    modes = [name for name in ("overwrite", "overwrite_or_ignore", "append") if flags[name]]
    if len(modes) > 1:
        raise SourceError(f"COPY takes {modes[0]} or {modes[1]}, not both", position=places.get(modes[1]))
    existing = {"overwrite_or_ignore": "replace"}.get(modes[0], modes[0]) if modes else "refuse"
    by: tuple[int, ...] = ()
    if given.get("partition_by"):
        with _at(places.get("partition_by")):
            names = partition_columns(relation, given["partition_by"])
            by = tuple(relation.columns.index(name) for name in names)
            if len(by) == len(relation.columns) and not flags["write_partition_columns"]:
                raise _no_columns()
    keeps = flags["write_partition_columns"]
    return FolderTarget(path, kind, relation.schema, chosen, by, keeps, existing)


def _given(
    path: str, options: Mapping[str, Any], places: Mapping[str, int], more: tuple[str, ...] = ()
) -> tuple[str, dict[str, Any]]:
    """The format, and the other options of COPY. `more`: options that all formats have."""
    with _at(places.get("format")):
        kind = _kind(path, options)
    given = {name.lower(): value for name, value in options.items() if name.lower() != "format"}
    known = tuple(dict.fromkeys((*_KNOWN[kind], *more)))
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"options are {', '.join(known) or 'none'}"
            raise SourceError(f'unrecognized option "{name}" for COPY TO {kind}', position=places.get(name), hint=hint)
    return kind, given


def _checked_options(
    relation: Relation, kind: str, given: Mapping[str, Any], places: Mapping[str, int]
) -> WriteOptions:
    with _at(places.get("force_quote")):
        _check_columns(relation, "force_quote", given.get("force_quote"))
    return _write_options(kind, {name: value for name, value in given.items() if name in _WRITTEN}, places)


@contextmanager
def _at(position: int | None) -> Iterator[None]:
    """A context for reading an option: an error without a position gets that of the option."""
    try:
        yield
    except SourceError as error:
        error.position = position if error.position is None else error.position
        raise


def _kind(path: str, options: Mapping[str, Any]) -> str:
    named = next((value for name, value in options.items() if name.lower() == "format"), None)
    if named is None:
        stem = Path(path)
        suffix = Path(stem.stem).suffix if stem.suffix.lower() in (".gz", ".zst") else stem.suffix
        return FORMATS.get(suffix.lower(), "csv")
    kind = ALIASES.get(str(named).lower(), str(named).lower())
    kind = "arrow" if kind == "ipc" else kind
    if kind not in _KNOWN:
        raise SourceError(f'Copy Function with name "{named}" does not exist', hint=f"formats are {', '.join(_KNOWN)}")
    return kind


def _write_options(kind: str, given: Mapping[str, Any], places: Mapping[str, int]) -> WriteOptions:
    found = WriteOptions()
    for name, value in given.items():
        with _at(places.get(name)):
            if value is None:
                raise SourceError(f"option {name} is NULL", hint="leave it out for the default")
            _set_option(found, kind, name, value)
    if kind == "csv":
        stated = next(
            (name for name in ("quote", "escape", "delim", "delimiter", "sep", "null", "nullstr") if name in given), ""
        )
        with _at(places.get(stated)):
            check_marks(found.delimiter, found.quote, found.escape, nulls=[found.null])
            if found.null and found.quote in found.null:
                raise SourceError(f"option nullstr holds the quote, {found.quote!r}")
    return found


def _set_option(found: WriteOptions, kind: str, name: str, value: Any) -> None:
    match name:
        case "header" | "array":
            setattr(found, name, _flag(name, value))
        case "delim" | "delimiter" | "sep":
            found.delimiter = _character(name, value)
        case "quote" | "escape":
            setattr(found, name, _character(name, value))
        case "nullstr" | "null":
            found.null = str(value)
        case "force_quote":
            found.force_quote = (
                None
                if value == ["*"] or value == "*"
                else [str(v) for v in (value if isinstance(value, list) else [value])]
            )
            found.quote_all = found.force_quote is None
        case "compression" | "codec":
            found.compression = str(value).lower()
            known = _COMPRESSIONS["parquet" if kind == "parquet" else "text"]
            if found.compression not in known:
                raise SourceError(
                    f"unknown compression {found.compression} for {kind}", hint=f"there is {', '.join(known)}"
                )
        case "row_group_size":
            if not isinstance(value, int) or value <= 0:
                raise SourceError(f"row_group_size is a number of rows, not {value!r}")
            found.row_group_rows = value


def _check_columns(relation: Relation, option: str, names: Any) -> None:
    known = {name.lower() for name in relation.columns}
    for name in names if isinstance(names, list) else [names]:
        if name not in (None, "*") and str(name).lower() not in known:
            raise SourceError(f'{option}: there is no column "{name}"')


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "1", "false", "0"):
        return str(value).lower() in ("true", "1")
    raise SourceError(f"{name} is true or false, not {value!r}")


def _character(name: str, value: Any) -> str:
    text = "\t" if value == "\\t" else value
    if not isinstance(text, str) or len(text.encode()) != 1 or text in "\r\n":
        raise SourceError(f"{name} is one plain character, not {value!r}")
    return text


def partition_columns(relation: Relation, given: Any) -> list[str]:
    """The columns of PARTITION_BY as they are spelled."""
    names = given if isinstance(given, list) else [given]
    by_name = {name.lower(): name for name in relation.columns}
    _check_columns(relation, "partition_by", names)
    columns = [by_name[str(name).lower()] for name in names]
    repeated = next((name for place, name in enumerate(columns) if name in columns[:place]), None)
    if repeated is not None:
        raise SourceError(f'partition_by: the column "{repeated}" is repeated')
    return columns


def _no_columns() -> SourceError:
    return SourceError(
        "partition_by: a file needs a column that is not part of the path", hint="write_partition_columns true"
    )


def _write_stored(relation: Relation, target: FolderTarget) -> int:
    """Writes a folder of a store from this process, as the tasks of a cluster do."""
    target.check()
    with target.staged() as staged:
        run = staged.rsplit(".", 2)[1]
        files = list(write_part(target.describe(staged, run), 0, relation.batches()))
        commit(target, staged, run, files)
    return sum(file.rows for file in files)


def _write_partitions(relation: Relation, path: str, given: dict[str, Any], options: WriteOptions) -> int:
    """Writes a folder per value, `key=value/data_0.parquet`, as Hive and DuckDB do; the whole result appears at
    once."""
    columns = partition_columns(relation, given["partition_by"])
    target = Path(path)
    if target.is_dir() and any(target.iterdir()) and not (given.get("overwrite") or given.get("overwrite_or_ignore")):
        raise SourceError(f'Directory "{path}" is not empty! Enable OVERWRITE option to overwrite files')
    table = relation.arrow()
    data = table if given.get("write_partition_columns") else table.drop_columns(columns)
    if not data.num_columns:
        raise _no_columns()
    shown = [
        pa.chunked_array([texts(chunk) for chunk in table.column(c).chunks], pa.string()).combine_chunks()
        for c in columns
    ]
    groups = partition_folders(shown, columns, path)
    try:
        with whole_folder(path, bool(given.get("overwrite"))) as folder:
            for below, rows in groups:
                (folder / below).mkdir(parents=True, exist_ok=True)
                part = data.take(pa.array(rows))
                write(part.to_batches(), part.schema, "parquet", folder / below / "data_0.parquet", options)
    except OSError as error:
        raise SourceError(f"cannot write {path}: {error.strerror or error}") from error
    return table.num_rows
