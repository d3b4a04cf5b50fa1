"""Delta tables: `FROM delta_scan('path')`, with `version => 3` or `timestamp => '2024-01-01T00:00:00Z'` an older one.

The package `deltalake` reads the log; our Parquet reader reads the files. Columns that were renamed are found by their
physical names. Files with deletion vectors, and features of the format that are not known here, are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tsql.backends.io import options as opt
from tsql.backends.io import remote
from tsql.backends.io.normalize import engine_type
from tsql.backends.io.prune import Bounds
from tsql.backends.io.snapshot import (
    OtherReader,
    Snapshot,
    first_line,
    is_constant,
    missing,
    one_path,
    snapshot_source,
    stored_values,
)
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import Type

OPTIONS = ("version", "timestamp")
KNOWN = {"timestampNtz", "deletionVectors", "columnMapping", "vacuumProtocolCheck", "v2Checkpoint", "typeWidening"}
_PHYSICAL = "delta.columnMapping.physicalName"


def delta_source(patterns: Sequence[str], options: dict[str, Any] | None = None) -> Any:
    """The source of a Delta table."""
    stated = dict(options or {})
    path = one_path("delta", patterns)
    table = _table(path, stated)
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - KNOWN)
    if unknown:
        raise OtherReader(
            f"{path}: this Delta table has the feature {unknown[0]}, which cannot be read",
            hint="on Spark, register it as a DataFrame: db.register(name, session.read.format('delta').load(path))",
        )
    if "deletionVectors" in (protocol.reader_features or ()):
        _check_deletions(path, table)
    return snapshot_source(_snapshot(path, stated, table))


def _table(path: str, options: dict[str, Any]) -> Any:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise missing("delta_scan", "deltalake", "delta", error) from error
    version, at = options.get("version"), opt.text(options, "timestamp")
    if version is not None:
        opt.count(options, "version", 0)
        if at is not None:
            raise SourceError("delta_scan takes version or timestamp, not both")
    try:
        table = DeltaTable(path, version=version, storage_options=remote.delta_options(path))
        if at is not None:
            table.load_as_version(at if "T" in at or " " in at else f"{at}T00:00:00Z")
        return table
    except (DeltaError, ValueError, OSError) as error:
        raise SourceError(f"{path}: cannot be read as a Delta table: {remote.redacted(first_line(error))}") from error


def _check_deletions(path: str, table: Any) -> None:
    try:
        rows = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().num_rows
    except Exception as error:  # the package has errors of several kinds for a damaged vector
        raise OtherReader(f"{path}: the deletion vectors of this Delta table cannot be read") from error
    if rows:
        raise OtherReader(
            f"{path}: {rows} files of this Delta table have deletion vectors, which cannot be read",
            hint="rewrite them (REORG TABLE .. APPLY (PURGE)), or read the table on Spark",
        )


def _snapshot(path: str, options: dict[str, Any], table: Any) -> Snapshot:
    schema = pa.schema(table.schema().to_arrow())
    fields = json.loads(table.schema().to_json())["fields"]
    stored = {field["name"]: str((field.get("metadata") or {}).get(_PHYSICAL, field["name"])) for field in fields}
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=False)).read_all()
    paths = _paths(path, actions.column("path").to_pylist(), list(table.file_uris()))
    partitions, columns = tuple(table.metadata().partition_columns), []
    struct: Any = actions.column("partition").combine_chunks() if partitions and paths else None
    for name in partitions if paths else ():
        kind = engine_type(schema.field(name).type)
        names = [field.name for field in struct.type]
        key = name if name in names else stored[name]
        if not is_constant(kind) or key not in names:
            raise OtherReader(f"{path}: the partition column {name} of this Delta table is {kind}, which is not read")
        columns.append(stored_values(pa.concat_arrays([struct.field(names.index(key))]), kind))
    return Snapshot(
        {"kind": "delta", "paths": [path], "options": options},
        f"Delta version {table.version()}",
        schema,
        paths,
        dict(stored),
        partitions if paths else (),
        tuple(zip(*columns, strict=True)),
        sizes=tuple(actions.column("size_bytes").to_pylist()),
        rows=tuple(actions.column("num_records").to_pylist()),
        bounds=lambda name, kind: _bounds(actions, (name, stored[name]), kind),
    )


def _bounds(actions: pa.Table, names: tuple[str, str], kind: Type) -> list[Bounds] | None:
    """The least and the greatest value of a column in each file, as far as the log has them."""
    found: list[list[Any]] = []
    for of in ("min", "max", "null_count"):
        struct: Any = actions.column(of).combine_chunks() if of in actions.column_names else None
        inside = [] if struct is None else [field.name for field in struct.type]
        name = next((name for name in names if name in inside), None)
        if name is None:
            return None
        values = pa.concat_arrays([struct.field(inside.index(name))])
        found.append(values.to_pylist() if of == "null_count" else stored_values(values, kind))
    rows = actions.column("num_records").to_pylist()
    return [Bounds(*known) for known in zip(*found, rows, strict=True)]


def _paths(root: str, relative: list[str], uris: list[str]) -> tuple[str, ...]:
    """The files in the order of the log's entries. A path in the log is percent-encoded; a URI is not, or is."""
    known = {remote.plain(uri) for uri in uris}
    found = []
    for one in relative:
        candidates = [one if "://" in one or one.startswith("/") else f"{root}/{one}"]
        candidates.append(unquote(candidates[0]))
        place = next((remote.plain(path) for path in candidates if remote.plain(path) in known), None)
        if place is None:
            raise OtherReader(f"{root}: the log of this Delta table names a file in an unknown way")
        found.append(place)
    return tuple(found)
