"""Columns that are constant in a file: hive partitions in folder names, and the file's own name.

`with_file_columns` adds them to a source of CSV, JSON or Arrow files, as DuckDB does: the columns of the file, then
`filename` if requested, then the partitions by name. Files whose partition values cannot pass a filter are not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tsql.backends.io import ColumnStatistics, Split, Statistics
from tsql.backends.io import options as opt
from tsql.backends.io.files import NO_PARTITIONS, Partitions, partitions_of
from tsql.backends.io.normalize import batch_of
from tsql.backends.io.prune import Bounds, columns_of, may_match
from tsql.backends.io.text import ISO, from_stored, parser
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import VARCHAR

OPTIONS = ("hive_partitioning", "hive_types_autocast", "hive_types", "filename")


def with_file_columns(source: Any, options: Mapping[str, Any]) -> Any:
    """The source with the columns that its paths add; itself if they add none."""
    partitions = _partitions(source.paths, options)
    name = _filename(options)
    if name is not None:
        if name.lower() in {n.lower() for n in source.schema.names}:
            raise SourceError(
                f"option filename: the files have a column {name} already",
                hint="filename => 'another_name' calls it otherwise",
            )
        values = {path: {name: path} | partitions.values.get(path, {}) for path in source.paths}
        partitions = Partitions({name: VARCHAR} | partitions.types, values)
    return PartitionedSource(source, partitions) if partitions else source


def _filename(options: Mapping[str, Any]) -> str | None:
    value = options.get("filename")
    if isinstance(value, str) and value.lower() not in ("true", "false", "1", "0"):
        return value
    return "filename" if opt.flag(options, "filename") else None


def _partitions(paths: tuple[str, ...], options: Mapping[str, Any]) -> Partitions:
    stated = opt.column_types(options, "hive_types") or {}
    wanted = opt.flag(options, "hive_partitioning", None)
    if wanted is False:
        return NO_PARTITIONS
    found = partitions_of(paths, bool(opt.flag(options, "hive_types_autocast", True)))
    if not found and (wanted or stated):
        raise SourceError(
            f"{paths[0]}: the files are not all in folders named key=value with the same keys",
            hint="leave out hive_partitioning and hive_types",
        )
    return _retyped(paths, found, stated) if stated else found


def _retyped(paths: tuple[str, ...], found: Partitions, stated: dict[str, Any]) -> Partitions:
    """The partitions with the types that were stated for some of them."""
    spelled = {name.lower(): name for name in found.types}
    types, values = dict(found.types), {path: dict(row) for path, row in found.values.items()}
    texts = partitions_of(paths, False).values
    for key, kind in stated.items():
        name = spelled.get(key.lower())
        if name is None:
            raise SourceError(
                f"option hive_types: there is no partition {key}", hint=f"partitions are {', '.join(found.types)}"
            )
        types[name], read = kind, parser(kind, ISO)
        for path, row in values.items():
            text = texts[path][name]
            row[name] = None if text is None else read(str(text))
            if text is not None and row[name] is None and str(text).upper() != "NULL":
                raise SourceError(f"{path}: partition {name}: could not convert '{text}' to {kind}")
    return Partitions(types, values)


class PartitionedSource:
    """A source whose files also have the values of `partitions`. They replace a file column of the same name."""

    def __init__(self, source: Any, partitions: Partitions) -> None:
        self.source = source
        self.paths, self.patterns, self.options = source.paths, source.patterns, source.options
        fields = {field.name.lower(): field for field in source.schema}
        for name, kind in partitions.types.items():
            known = fields.get(name.lower())
            fields[name.lower()] = Field(name if known is None else known.name, kind)
        self.schema = Schema(tuple(fields.values()))
        self.types = {fields[name.lower()].name: kind for name, kind in partitions.types.items()}
        self.values = {
            path: {fields[name.lower()].name: value for name, value in row.items()}
            for path, row in partitions.values.items()
        }

    @property
    def lost(self) -> Collection[str]:
        return getattr(self.source, "lost", ())

    def statistics(self) -> Statistics:
        known = self.source.statistics()
        columns = {name: known.columns[name] for name in known.columns if name not in self.types}
        return replace(known, columns=columns | {name: self._column_statistics(name) for name in self.types})

    def _column_statistics(self, name: str) -> ColumnStatistics:
        present: set[Any] = {row[name] for row in self.values.values()} - {None}
        nulls = None if any(row[name] is None for row in self.values.values()) else 0
        return ColumnStatistics(min(present, default=None), max(present, default=None), nulls, len(present), True)

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        used = [name for name in columns_of(filter) if name in self.types]
        found = self.source.splits(self._stored(columns), filter)
        kept = [
            split
            for split in found
            if not used or may_match(filter, {name: self._bounds(split.file, name) for name in used})
        ]
        return [replace(split, order=order) for order, split in enumerate(kept)]

    def _bounds(self, path: str, name: str) -> Bounds:
        value = self.values[path][name]
        return Bounds(value, value, int(value is None), 1)

    def _stored(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in columns if name not in self.types)

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        stored = self._stored(columns)
        for batch in self.source.read(split, stored):
            arrays = dict(zip(stored, batch.columns, strict=True))
            shaped = [
                arrays[name] if name in arrays else self._constant(split.file, name, batch.num_rows) for name in columns
            ]
            yield batch_of(shaped, columns, batch.num_rows)

    def _constant(self, path: str, name: str, rows: int) -> pa.Array:
        value, kind = self.values[path][name], self.types[name]
        return pa.nulls(rows, kind.to_arrow()) if value is None else pa.repeat(from_stored([value], kind)[0], rows)

    def describe(self) -> dict[str, Any]:
        return self.source.describe()
