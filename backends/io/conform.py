"""Reads files as declared columns: `schema => {'name': 'TYPE', ..}`, or the columns of CREATE STREAM and CREATE TABLE
.. WITH.

`open_source` calls `conformed`. Text is parsed as the declared type, without detection: '007' as VARCHAR stays '007'.
Columns of binary files are cast. Names are case-insensitive; a CSV file without a header is read by position. Columns
that are not declared are not read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tsql.backends.io import LazyColumns, Source, Split, Statistics
from tsql.backends.io.convert import castable, convert
from tsql.backends.io.normalize import batch_of
from tsql.backends.io.prune import columns_of
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import Type, parse_type

OPTION = "schema"
_NUMBERED = re.compile(r"column[0-9]+")


def declared(options: dict[str, Any]) -> dict[str, Type] | None:
    """The columns that the options declare. They are removed from the options."""
    stated = options.pop(OPTION, None)
    if stated is None:
        return None
    if not isinstance(stated, Mapping) or not stated:
        raise SourceError(f"option {OPTION} maps column names to types, not {stated!r}")
    try:
        return {str(name): kind if isinstance(kind, Type) else parse_type(str(kind)) for name, kind in stated.items()}
    except ValueError as error:
        raise SourceError(f"option {OPTION}: {error}") from None


def conformed(
    open_kind: Callable[[dict[str, Any]], Any], kind: str, options: dict[str, Any], wanted: dict[str, Type]
) -> Source:
    """The source that `open_kind` opens for the options, with the declared columns in their order and types."""
    source = open_kind(options)
    inner = getattr(source, "source", source)
    named = {name.lower(): name for name in inner.schema.names}
    beside = {name.lower() for name in source.schema.names} - named.keys()
    if (
        kind == "csv"
        and not (named.keys() & {name.lower() for name in wanted})
        and all(_NUMBERED.fullmatch(name) for name in named)
    ):
        columns = {name: str(kind) for name, kind in wanted.items() if name.lower() not in beside}
        source = open_kind({**options, "columns": columns})
    elif kind == "csv":
        types = {
            named[name.lower()]: str(kind)
            for name, kind in wanted.items()
            if name.lower() in named and inner.schema[named[name.lower()]].type != kind
        }
        source = open_kind({**options, "types": {**_stated_types(options, inner), **types}}) if types else source
    elif kind == "json":
        columns = {
            named.get(name.lower(), name): str(kind) for name, kind in wanted.items() if name.lower() not in beside
        }
        source = open_kind({**options, "columns": columns}) if columns else source
    if list(source.schema.fields) == [Field(name, kind) for name, kind in wanted.items()]:
        return source
    return ConformedSource(source, wanted)


def _stated_types(options: dict[str, Any], source: Any) -> dict[str, Any]:
    """The option `types` by name, so that declared ones can be added to it."""
    stated = options.get("types", options.get("dtypes", options.get("column_types"))) or {}
    return dict(stated) if isinstance(stated, dict) else dict(zip(source.schema.names, stated, strict=False))


class ConformedSource:
    """A source with some columns of another one, in another order and with other spellings and types."""

    def __init__(self, source: Any, wanted: dict[str, Type]):
        self.source = source
        self.paths, self.patterns = source.paths, source.patterns
        self.schema = Schema(tuple(Field(name, kind) for name, kind in wanted.items()))
        there = {name.lower(): name for name in source.schema.names}
        self.names: dict[str, str] = {}
        for name, kind in wanted.items():
            found = there.get(name.lower())
            if found is None:
                raise SourceError(
                    f"{self.paths[0]}: there is no column {name} in the file",
                    hint=f"its columns are {', '.join(source.schema.names)}",
                )
            if not castable(source.schema[found].type, kind):
                raise SourceError(
                    f"{self.paths[0]}: column {name} is {source.schema[found].type} in the file, which "
                    f"cannot be read as {kind}"
                )
            self.names[name] = found

    @property
    def lost(self) -> Collection[str]:
        lost = getattr(self.source, "lost", ())
        return {name for name, found in self.names.items() if found in lost}

    def statistics(self) -> Statistics:
        known = self.source.statistics()
        names = tuple(name for name in self.names if self._is_same(name) and self.names[name] in known.columns)
        return Statistics(known.rows, known.bytes, LazyColumns(names, lambda name: known.columns[self.names[name]]))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return self.source.splits(*self._inner(columns, filter))

    def _inner(self, columns: tuple[str, ...], filter: Expr | None) -> tuple[tuple[str, ...], Expr | None]:
        """What the source is asked for. It cannot skip by a column that it knows by another name or type."""
        skips = all(self._is_same(name) and self.names[name] == name for name in columns_of(filter))
        return tuple(self.names[name] for name in columns), filter if skips else None

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        for batch in self.source.read(split, tuple(self.names[name] for name in columns)):
            yield batch_of(
                [self._column(array, name, split.path) for array, name in zip(batch.columns, columns, strict=True)],
                columns,
                batch.num_rows,
            )

    def read_in_tasks(self) -> None:
        inform = getattr(self.source, "read_in_tasks", None)
        if inform is not None:
            inform()

    def opened(self, split: Split, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        """The splits of a part of a file."""
        opened = getattr(self.source, "opened", None)
        return [split] if opened is None else opened(split, *self._inner(columns, filter))

    def describe(self) -> dict[str, Any]:
        return self._described(self.source.describe())

    def describe_some(self) -> dict[str, Any] | None:
        """The description of the first file, if the source has one."""
        describe = getattr(self.source, "describe_some", None)
        return None if describe is None else self._described(describe())

    def for_tasks(self) -> dict[str, Any] | None:
        """The description for a process that shall read the same files."""
        about = getattr(self.source, "for_tasks", self.source.describe)()
        return None if about is None else self._described(about)

    def _described(self, about: dict[str, Any]) -> dict[str, Any]:
        return {
            **about,
            "options": {**about.get("options", {}), OPTION: {field.name: str(field.type) for field in self.schema}},
        }

    def _is_same(self, name: str) -> bool:
        return self.schema[name].type == self.source.schema[self.names[name]].type

    def _column(self, array: pa.Array, name: str, path: str | None) -> pa.Array:
        if self._is_same(name):
            return array
        source, target = self.source.schema[self.names[name]].type, self.schema[name].type
        if source.is_decimal and pa.types.is_integer(array.type):
            array = array.cast(pa.decimal128(38, 0)).view(source.to_arrow())  # a source may hand out unscaled values
        try:
            return convert(array, source, target)
        except ValueError as error:
            raise SourceError(
                f"{path}: column {name} is {source} in the file, and not every value of it can be read as "
                f"{target}: {error}"
            ) from error
