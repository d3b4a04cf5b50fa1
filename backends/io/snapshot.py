"""Snapshots of tables in lakes: a list of Parquet files at one version, as a source. `delta.py` and `iceberg.py` make
them.

A plan file says what the user said (`describe`); tasks get the list of files (`for_tasks`), so that all of them read
the same snapshot and need no package for the table's log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.normalize import engine_schema
from tsql.backends.io.parquet.sampled import Told
from tsql.backends.io.parquet.table import TableSource, table_options
from tsql.backends.io.prune import Bounds
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

PLAIN = ("VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMPTZ")


class OtherReader(SourceError):
    """A table that our reader does not read, and another one may."""


@dataclass(frozen=True)
class Snapshot:
    """The files of a table at one version. columns: the stored name or the field id of each; partitions: the columns
    whose values are constant in a file, with the values of each file; required: columns that no file may lack."""

    about: dict[str, Any]
    version: str
    schema: pa.Schema
    paths: tuple[str, ...]
    columns: dict[str, str | int]
    partitions: tuple[str, ...] = ()
    values: tuple[tuple[Any, ...], ...] = ()
    required: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    rows: tuple[int | None, ...] = ()
    bounds: Callable[[str, Type], list[Bounds] | None] = lambda name, kind: None
    """What the log says of the sizes and the rows of its files, and of a column of whole numbers or dates in each."""


def snapshot_source(found: Snapshot) -> Any:
    """The source of a snapshot. One without files has no rows."""
    place = found.about["paths"][0]
    schema = engine_schema(found.schema, place)
    if list(schema.names) != list(found.schema.names):
        raise OtherReader(f"{place}: two columns of this table have the same name")
    if not found.paths:
        return EmptySnapshot(found)
    columns = [(f.name, f.type, found.columns[f.name]) for f in schema if f.type.is_readable]
    options = table_options(columns, found.partitions, found.values)
    if found.required:
        options["required"] = list(found.required)
    return SnapshotSource(found, options, schema)


class SnapshotSource(TableSource):
    """The files of a snapshot."""

    path_says_kind = False

    def __init__(self, found: Snapshot, options: dict[str, Any], schema: Schema):
        super().__init__(found.paths, options)
        self.schema = schema  # with the columns that cannot be read
        self.about = found.about
        self.sizes = dict(zip(found.paths, found.sizes, strict=False))
        rows = {path: rows for path, rows in zip(found.paths, found.rows, strict=False) if rows is not None}
        self.told = Told(rows, lambda name: self._logged(found, name))
        self.note = f"{found.about['paths'][0]}: {found.version}, {len(self.paths)} files"

    def _logged(self, found: Snapshot, name: str) -> dict[str, Bounds]:
        kind = self.schema[name].type
        plain = kind.name == "DATE" or (kind.is_integer and kind.name != "HUGEINT")
        bounds = found.bounds(name, kind) if plain else None
        return {} if bounds is None else dict(zip(found.paths, bounds, strict=True))

    def describe(self) -> dict[str, Any]:
        return self.about

    def for_tasks(self) -> dict[str, Any]:
        """The description for a process that shall read the same files."""
        return super().describe()


class EmptySnapshot(ArrowSource):
    """A snapshot without files."""

    path_says_kind = False

    def __init__(self, found: Snapshot):
        super().__init__(found.schema.empty_table(), found.about["paths"][0])
        self.about, self.paths = found.about, ()
        self.patterns = tuple(found.about["paths"])
        self.note = f"{found.about['paths'][0]}: {found.version}, no files"

    def describe(self) -> Any:
        return self.about

    def for_tasks(self) -> None:
        return None


def one_path(kind: str, patterns: Sequence[str]) -> str:
    """The only path of a table in a lake."""
    if len(patterns) != 1:
        raise SourceError(f"{kind}_scan reads one table, not {len(patterns)}")
    return patterns[0].rstrip("/") or "/"


def missing(function: str, package: str, extra: str, error: ImportError) -> SourceError:
    """The error of a package that is not installed."""
    return OtherReader(f"{function} needs the package {package}: {error}", hint=f"pip install 'tsql[{extra}]'")


def is_constant(kind: Type) -> bool:
    """Whether the values of a partition column can be taken from the table's log."""
    return kind.name in PLAIN or kind.is_decimal or (kind.is_integer and kind.name != "HUGEINT")


def stored_value(value: Any, kind: Type) -> Any:
    """A value of Arrow data (`to_pylist` of the stored integers of times) or of a log in stored form."""
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale))
    return value


def stored_values(array: pa.Array, kind: Type) -> list[Any]:
    """A column of Arrow data in stored form."""
    array = array.cast(kind.to_arrow())
    if kind.name == "DATE":
        array = array.view(pa.int32())
    elif kind.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        array = array.view(pa.int64())
    return [stored_value(value, kind) for value in array.to_pylist()]


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
