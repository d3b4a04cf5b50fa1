"""Iceberg tables: `FROM iceberg_scan('path')`, the folder of a table or its metadata file.

Options: `snapshot_id => 123` and `timestamp => '2024-01-01T00:00:00Z'` choose an older snapshot, `version => 3` an
older metadata file. The package `pyiceberg` reads the metadata; our Parquet reader reads the files, and finds columns
by their field ids, so renamed and moved columns are right. Tables with delete files are refused."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

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
    stored_value,
)
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.types import Type

OPTIONS = ("version", "timestamp", "snapshot_id")
_METADATA = re.compile(r"(?:v(?P<hadoop>[0-9]+)|(?P<number>[0-9]+)-[^/]*)(?:\.gz)?\.metadata\.json(?:\.gz)?")


def iceberg_source(patterns: Sequence[str], options: dict[str, Any] | None = None) -> Any:
    """The source of an Iceberg table."""
    stated = dict(options or {})
    path = one_path("iceberg", patterns)
    table = _table(path, _metadata_file(path, stated))
    return snapshot_source(_snapshot(path, stated, table))


def _metadata_file(path: str, options: dict[str, Any]) -> str:
    """The metadata file of a table: the newest, or the one of a version."""
    if path.endswith((".json", ".json.gz")):
        return path
    folder = f"{path}/metadata"
    found: dict[int, str] = {}
    for name in remote.names_in(folder):
        match = _METADATA.fullmatch(name)
        if match:
            found[int(match["hadoop"] or match["number"])] = name
    if not found:
        raise SourceError(f"{path}: this is no Iceberg table: there is no metadata file in its folder metadata")
    version = opt.count(options, "version", max(found))
    if version not in found:
        raise SourceError(
            f"{path}: there is no metadata file of version {version}",
            hint=f"versions are {min(found)} to {max(found)}",
        )
    return f"{folder}/{found[version]}"


def _table(path: str, file: str) -> Any:
    try:
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise missing("iceberg_scan", "pyiceberg", "iceberg", error) from error
    try:
        return StaticTable.from_metadata(file, remote.iceberg_options(path))
    except Exception as error:  # errors of the package, of its file system and of its JSON reader
        raise _damaged(path, error) from error


def _damaged(path: str, error: BaseException) -> SourceError:
    return SourceError(f"{path}: cannot be read as an Iceberg table: {remote.redacted(first_line(error))}")


def _snapshot_id(path: str, options: dict[str, Any], table: Any) -> int | None:
    wanted, at = options.get("snapshot_id"), opt.text(options, "timestamp")
    if wanted is not None and at is not None:
        raise SourceError("iceberg_scan takes snapshot_id or timestamp, not both")
    if wanted is not None:
        known = [snapshot.snapshot_id for snapshot in table.snapshots()]
        if opt.count(options, "snapshot_id", 0) not in known:
            raise SourceError(f"{path}: there is no snapshot {wanted}", hint=f"snapshots are {known[-5:]}")
        return int(wanted)
    if at is None:
        return None
    try:
        time = dt.datetime.fromisoformat(at)
    except ValueError:
        raise SourceError(f"option timestamp is a time such as '2024-01-01T00:00:00Z', not {at!r}") from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=dt.timezone.utc)
    found = table.snapshot_as_of_timestamp(int(time.timestamp() * 1000))
    if found is None:
        raise SourceError(f"{path}: there is no snapshot at {at} or before")
    return int(found.snapshot_id)


def _snapshot(path: str, options: dict[str, Any], table: Any) -> Snapshot:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    chosen = _snapshot_id(path, options, table)
    try:
        scan = table.scan(snapshot_id=chosen)
        columns = scan.projection()
        tasks = list(scan.plan_files())
    except (ValueError, NotImplementedError) as error:
        raise OtherReader(
            f"{path}: this Iceberg table cannot be read: {remote.redacted(first_line(error))}",
            hint="rewrite its data files, or read the table on Spark",
        ) from error
    except Exception as error:  # errors of the package and of its file system
        raise _damaged(path, error) from error
    _check(path, columns, tasks)
    schema = pa.schema([field.remove_metadata() for field in schema_to_pyarrow(columns)])
    partitions, required = _partitions(columns, table.specs(), tasks, schema)
    current = scan.snapshot()
    ids: dict[str, str | int] = {field.name: int(field.field_id) for field in columns.fields}
    return Snapshot(
        {"kind": "iceberg", "paths": [path], "options": options},
        "Iceberg without a snapshot" if current is None else f"Iceberg snapshot {current.snapshot_id}",
        schema,
        tuple(remote.plain(task.file.file_path, quoted=False) for task in tasks),
        ids,
        tuple(partitions),
        tuple(zip(*partitions.values(), strict=True)),
        required,
        tuple(int(task.file.file_size_in_bytes) for task in tasks),
        tuple(int(task.file.record_count) for task in tasks),
        lambda name, kind: [_bounds(task.file, int(ids[name])) for task in tasks],
    )


def _bounds(file: Any, field_id: int) -> Bounds:
    """The least and the greatest value of a column of whole numbers or dates, as far as the manifest has them."""
    bounds = []
    for known in (file.lower_bounds, file.upper_bounds):
        raw = (known or {}).get(field_id)
        bounds.append(None if raw is None else int.from_bytes(raw, "little", signed=True))
    nulls = (file.null_value_counts or {}).get(field_id)
    return Bounds(bounds[0], bounds[1], nulls, int(file.record_count))


def _check(path: str, columns: Any, tasks: list[Any]) -> None:
    if any(task.delete_files for task in tasks):
        raise OtherReader(
            f"{path}: {sum(bool(task.delete_files) for task in tasks)} files of this Iceberg table have delete files, "
            "which cannot be read",
            hint="rewrite its data files (CALL .. rewrite_data_files), or read the table on Spark",
        )
    other = next(
        (task.file.file_format for task in tasks if str(task.file.file_format.value).upper() != "PARQUET"), None
    )
    if other is not None:
        raise OtherReader(f"{path}: a file of this Iceberg table is of the format {other.value}, not Parquet")
    default = next((f.name for f in columns.fields if getattr(f, "initial_default", None) is not None), None)
    if default is not None:
        raise OtherReader(f"{path}: column {default} has a default for rows that were there before it")


def _partitions(
    columns: Any, specs: dict[int, Any], tasks: list[Any], schema: pa.Schema
) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
    """The columns that are constant in every file, with their values, and those that are constant in some: these are
    read from the files, none of which may then lack them."""
    constant: dict[str, list[Any]] = {}
    required = []
    for field in columns.fields:
        places = [_place(specs[task.file.spec_id], field.field_id) for task in tasks]
        if all(place is None for place in places):
            continue
        values = [None if at is None else task.file.partition[at] for task, at in zip(tasks, places, strict=True)]
        kind = _kind(schema.field(field.name).type)
        if None not in places and kind is not None and all(_is_stored(value, kind) for value in values):
            constant[field.name] = [stored_value(value, kind) for value in values]
        else:
            required.append(field.name)
    return constant, tuple(required)


def _place(spec: Any, field_id: int) -> int | None:
    """The place of a column in the partition values of a spec, if it is there as it is."""
    found = [
        i for i, part in enumerate(spec.fields) if part.source_id == field_id and str(part.transform) == "identity"
    ]
    return found[0] if found else None


def _kind(arrow: pa.DataType) -> Type | None:
    try:
        return engine_type(arrow) if is_constant(engine_type(arrow)) else None
    except ValueError:
        return None


def _is_stored(value: Any, kind: Type) -> bool:
    """Whether a value of a manifest is in stored form: times are whole numbers there."""
    wanted = str if kind.name == "VARCHAR" else bool if kind.name == "BOOLEAN" else int
    return value is None or (type(value) is wanted) or (kind.is_decimal and type(value).__name__ == "Decimal")
