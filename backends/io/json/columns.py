"""`JsonColumns`: JSON records → columns. `JsonSource` uses it for files, the format `json` of live sources for
messages.

A block of NDJSON is read by pyarrow (`fast`), or value by value where pyarrow does not read it as we do (`careful`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.json

from tsql.backends.io.json.values import BAD, reader
from tsql.backends.io.normalize import batch_of
from tsql.backends.io.text import convert_text, from_stored, has_nanoseconds
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import Type

BATCH_ROWS = 16_384
CACHED_BYTES = 1 << 21
"""pyarrow takes twice as long for parts of a block that are larger than this."""
_AS_TEXT = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ")
_AS_IT_IS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "DOUBLE",
    "DECIMAL", "VARCHAR",
)  # fmt: skip


class JsonColumns:
    """Some columns of records. `keys` are the object keys of the columns of `schema`; None if records are not objects.
    `texts` are columns with JSON text. Names of columns whose values had nanoseconds are added to `lost`."""

    def __init__(
        self,
        schema: Schema,
        keys: Mapping[str, str] | None,
        columns: tuple[str, ...],
        texts: Set[str] = frozenset(),
        ignore_errors: bool = False,
        lost: set[str] | None = None,
    ) -> None:
        self.schema, self.keys, self.columns, self.texts = schema, keys, columns, texts
        self.ignore_errors = ignore_errors
        self.lost = set() if lost is None else lost
        self._parse = None if ignore_errors else self._plain_types()

    def _plain_types(self) -> pyarrow.json.ParseOptions | None:
        """The types with which pyarrow reads these columns like we do; None if it does not: one holds JSON text, or has
        a type for which there is no JSON value."""
        if self.keys is None or not self.columns:
            return None
        fields = []
        for name in self.columns:
            kind = self.schema[name].type
            if name in self.texts or kind.name not in (*_AS_TEXT, *_AS_IT_IS):
                return None
            fields.append(pa.field(self.keys[name], pa.string() if kind.name in _AS_TEXT else kind.to_arrow()))
        return pa.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")

    def fast(self, block: bytes) -> list[pa.RecordBatch] | None:
        """The rows of a block by pyarrow's reader; None where it does not read them as one object per line, or not as
        we do.

        pyarrow's reader crashes on a top-level null (seen in 26.0), so it only gets lines that start with an object."""
        if self._parse is None:
            return None
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if not block.startswith(b"{") or block.count(b"\n{") + 1 != lines:
            return None
        try:
            table = self._table(block)
            table.validate(full=True)
        except pa.ArrowException:
            return None
        if table.num_rows != lines:
            return None
        batches = []
        for batch in table.to_batches():
            found = [
                convert_text(array, self.schema[name].type, lost=partial(self.lost.add, name))
                if self.schema[name].type.is_temporal
                else (array, None)
                for name, array in zip(self.columns, batch.columns, strict=True)
            ]
            if any(bad is not None for _, bad in found):
                return None
            batches.append(batch_of([array for array, _ in found], self.columns, batch.num_rows))
        return batches

    def _table(self, block: bytes) -> pa.Table:
        try:
            return _read(block, self._parse, CACHED_BYTES)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
            return _read(block, self._parse, len(block))  # an object is larger than a part

    def careful(self, path: str, records: Iterator[tuple[int, Any]]) -> Iterator[pa.RecordBatch]:
        """Batches of (line, value) pairs, converted one by one. A bad value is an error, or NULL if errors are
        ignored."""
        stored: list[list[Any]] = [[] for _ in self.columns]
        rows = 0
        for line, record in records:
            for column, value in zip(stored, self.values_of(f"{path}: line {line}", record), strict=True):
                column.append(value)
            rows += 1
            if rows == BATCH_ROWS:
                yield self._batch(stored, rows)
                stored, rows = [[] for _ in self.columns], 0
        if rows:
            yield self._batch(stored, rows)

    def values_of(self, where: str, record: Any) -> list[Any]:
        """The stored forms of the columns of one record. An error begins with `where`."""
        return [self._value(where, record, key, name, read) for key, name, read in self._readers]

    @cached_property
    def _readers(self) -> list[tuple[str | None, str, Callable[[Any], Any]]]:
        """The key, the name and the conversion of each column."""
        return [(None if self.keys is None else self.keys[name], name, self._reader(name)) for name in self.columns]

    def _reader(self, name: str) -> Callable[[Any], Any]:
        kind: Type = self.schema[name].type
        read = reader(kind, name in self.texts)
        if not kind.is_temporal:
            return read

        def timed(value: Any) -> Any:
            if isinstance(value, str) and has_nanoseconds(value):
                self.lost.add(name)
            return read(value)

        return timed

    def _value(self, where: str, record: Any, key: str | None, name: str, read: Any) -> Any:
        if record is None or record is BAD:
            return None
        if key is not None and not isinstance(record, dict):
            if self.ignore_errors:
                return None
            raise SourceError(f"{where}: expected an object, found {type(record).__name__}")
        value = record if key is None else record.get(key)
        if value is None:
            return None
        found = read(value)
        if found is None and not self.ignore_errors:
            raise SourceError(
                f"{where}: column {name}: could not convert {str(value)[:60]!r} to {self.schema[name].type}",
                hint=f"columns => {{'{name}': 'VARCHAR', ..}} reads the column as text",
            )
        return found

    def _batch(self, stored: list[list[Any]], rows: int) -> pa.RecordBatch:
        arrays = [
            from_stored(column, self.schema[name].type) for column, name in zip(stored, self.columns, strict=True)
        ]
        return batch_of(arrays, self.columns, rows)


def _read(block: bytes, parse: pyarrow.json.ParseOptions, part_bytes: int) -> pa.Table:
    settings = pa.json.ReadOptions(use_threads=False, block_size=min(part_bytes, len(block) + 1, 2**31 - 1))
    return pa.json.read_json(pa.BufferReader(block), settings, parse)
