"""JSON files as a source: NDJSON, a top-level array of objects, or objects one after another, with type detection.

Columns and types come from a sample over all files, as in DuckDB. Values without a SQL type here (lists, objects,
columns of mixed kinds) become VARCHAR with JSON text. A file is one split, read in blocks. A block of NDJSON is read by
pyarrow, or value by value if pyarrow cannot read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.json

from tsql.backends.io import Split, Statistics
from tsql.backends.io import options as opt
from tsql.backends.io.files import expand, reading, total_bytes
from tsql.backends.io.json.values import BAD, block_values, blocks, layout_of, reader, values
from tsql.backends.io.normalize import batch_of, unique_names
from tsql.backends.io.text import convert_text, detect, from_stored, has_nanoseconds
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DATE, DOUBLE, HUGEINT, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type

OPTIONS = ("columns", "format", "ignore_errors", "sample_size", "compression", "union_by_name", "auto_detect")
LAYOUTS = ("newline_delimited", "array", "unstructured")
SAMPLE_VALUES = 20_480
SAMPLE_FILES = 32
BATCH_ROWS = 16_384
EXPECTED = "a JSON file"
_DASHED = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:\Z|[T ][0-9]{1,2}:[0-9]{1,2}:)|[0-9]{1,2}:")
_FAST = {BIGINT: pa.int64(), DOUBLE: pa.float64(), BOOLEAN: pa.bool_(), VARCHAR: pa.string()} | {
    kind: pa.string() for kind in (DATE, TIME, TIMESTAMP, TIMESTAMPTZ)
}


class JsonSource:
    """Reads JSON files. `keys` are the object keys of the columns; None if records are not objects."""

    def __init__(self, patterns: Sequence[str], options: dict[str, Any] | None = None):
        self.patterns = tuple(patterns)
        self.options = dict(options or {})
        self.paths = expand(self.patterns, "json")
        self.ignore_errors = bool(opt.flag(self.options, "ignore_errors"))
        self.compression = opt.text(self.options, "compression")
        self.layout = opt.text(self.options, "format") or "auto"
        if self.layout not in (*LAYOUTS, "auto"):
            raise SourceError(f"option format is one of {', '.join(LAYOUTS)}, not {self.layout}")
        self._layouts: dict[str, str] = {}
        self.lost: set[str] = set()
        stated = opt.column_types(self.options, "columns")
        if stated is not None:
            self.keys: dict[str, str] | None = {name: name for name in stated}
            self.schema, self.texts = Schema.of(*stated.items()), frozenset[str]()
            self._layout(self.paths[0])
        else:
            self.schema, self.keys, self.texts = self._detect()

    def statistics(self) -> Statistics:
        return Statistics(None, total_bytes(self.paths))

    def splits(self, columns: tuple[str, ...], filter: Expr | None) -> list[Split]:
        return [Split(order, path, None, None) for order, path in enumerate(self.paths)]

    def read(self, split: Split, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        path = split.file
        with reading(path, EXPECTED):
            if self._layout(path) != "newline_delimited":
                yield from self._careful(path, self._values(path), columns)
                return
            for first_line, block in blocks(path, self.compression):
                batches = self._fast(block, self.keys, columns) if self._is_plain(columns) and self.keys else None
                if batches is None:
                    lines = block_values(path, first_line, block, self.ignore_errors)
                    yield from self._careful(path, lines, columns)
                else:
                    yield from batches

    def describe(self) -> dict[str, Any]:
        return {"kind": "json", "paths": list(self.patterns), "options": opt.plain(self.options)}

    def _layout(self, path: str) -> str:
        if path not in self._layouts:
            with reading(path, EXPECTED):
                self._layouts[path] = layout_of(path, self.compression) if self.layout == "auto" else self.layout
        return self._layouts[path]

    def _values(self, path: str) -> Iterator[tuple[int, Any]]:
        return values(path, self._layout(path), self.compression, self.ignore_errors)

    def _detect(self) -> tuple[Schema, dict[str, str] | None, frozenset[str]]:
        sample: list[Any] = []
        limit = opt.count(self.options, "sample_size", SAMPLE_VALUES) or SAMPLE_VALUES
        for path in self.paths[:SAMPLE_FILES]:
            with reading(path, EXPECTED):
                for _, value in self._values(path):
                    sample.append(value)
                    if len(sample) >= limit:
                        break
            if len(sample) >= limit:
                break
        records = [value for value in sample if value is not None and value is not BAD]
        if not records or not all(isinstance(value, dict) for value in records) or not any(records):
            kind, as_json = _type_of(records)
            return Schema.of(("json", kind)), None, frozenset(["json"] if as_json else [])
        seen: dict[str, list[Any]] = {}
        for record in records:
            for key, value in record.items():
                seen.setdefault(key, []).append(value)
        names = unique_names([key or "json" for key in seen])
        found = [
            (name, *_type_of([v for v in column if v is not None]))
            for name, column in zip(names, seen.values(), strict=True)
        ]
        return (
            Schema.of(*((name, kind) for name, kind, _ in found)),
            dict(zip(names, seen, strict=True)),
            frozenset(name for name, _, as_json in found if as_json),
        )

    def _is_plain(self, columns: tuple[str, ...]) -> bool:
        """Whether pyarrow reads these columns like we do: object keys with the plain types of `_FAST`."""
        if self.keys is None or not columns or self.ignore_errors:
            return False
        return all(name not in self.texts and self.schema[name].type in _FAST for name in columns)

    def _fast(self, block: bytes, keys: dict[str, str], columns: tuple[str, ...]) -> list[pa.RecordBatch] | None:
        """The rows of a block by pyarrow's reader; None where it does not read them as one object per line.

        pyarrow's reader crashes on a top-level null (seen in 26.0), so it only gets lines that start with an object."""
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if not block.startswith(b"{") or block.count(b"\n{") + 1 != lines:
            return None
        schema = pa.schema([pa.field(keys[name], _FAST[self.schema[name].type]) for name in columns])
        settings = pa.json.ReadOptions(use_threads=False, block_size=min(len(block) + 1, 2**31 - 1))
        try:
            table = pa.json.read_json(
                pa.BufferReader(block),
                settings,
                pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
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
                for name, array in zip(columns, batch.columns, strict=True)
            ]
            if any(bad is not None for _, bad in found):
                return None
            batches.append(batch_of([array for array, _ in found], columns, batch.num_rows))
        return batches

    def _careful(
        self, path: str, records: Iterator[tuple[int, Any]], columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        readers = [self._reader(name) for name in columns]
        keys = [None if self.keys is None else self.keys[name] for name in columns]
        stored: list[list[Any]] = [[] for _ in columns]
        rows = 0
        for line, record in records:
            for column, read, key, name in zip(stored, readers, keys, columns, strict=True):
                column.append(self._value(path, line, record, key, name, read))
            rows += 1
            if rows == BATCH_ROWS:
                yield self._batch(stored, columns, rows)
                stored, rows = [[] for _ in columns], 0
        if rows:
            yield self._batch(stored, columns, rows)

    def _reader(self, name: str) -> Callable[[Any], Any]:
        kind = self.schema[name].type
        read = reader(kind, name in self.texts)
        if not kind.is_temporal:
            return read

        def timed(value: Any) -> Any:
            if isinstance(value, str) and has_nanoseconds(value):
                self.lost.add(name)
            return read(value)

        return timed

    def _value(self, path: str, line: int, record: Any, key: str | None, name: str, read: Any) -> Any:
        if record is None or record is BAD:
            return None
        if key is not None and not isinstance(record, dict):
            if self.ignore_errors:
                return None
            raise SourceError(f"{path}: line {line}: expected an object, found {type(record).__name__}")
        value = record if key is None else record.get(key)
        if value is None:
            return None
        found = read(value)
        if found is None and not self.ignore_errors:
            raise SourceError(
                (
                    f"{path}: line {line}: column {name}: could not convert {str(value)[:60]!r} to "
                    f"{self.schema[name].type}"
                ),
                hint=f"columns => {{'{name}': 'VARCHAR', ..}} reads the column as text",
            )
        return found

    def _batch(self, stored: list[list[Any]], columns: tuple[str, ...], rows: int) -> pa.RecordBatch:
        arrays = [from_stored(column, self.schema[name].type) for column, name in zip(stored, columns, strict=True)]
        return batch_of(arrays, columns, rows)


def _type_of(found: list[Any]) -> tuple[Type, bool]:
    """The type of a column with these values (NULLs left out), and whether it holds JSON text."""
    kinds = {type(value) for value in found}
    if not kinds or kinds & {list, dict}:
        return VARCHAR, True
    if kinds == {bool}:
        return BOOLEAN, False
    if kinds == {int}:
        low, high = min(found), max(found)
        if low >= -(2**63) and high < 2**63:
            return BIGINT, False
        return (HUGEINT, False) if low >= -(2**63) and high < 2**64 else (DOUBLE, False)
    if kinds <= {int, float}:
        return DOUBLE, False
    if kinds == {str}:
        if all(_DASHED.match(text) for text in found):
            kind, _ = detect(found, orders=("ymd",))
            return (kind if kind in (DATE, TIME, TIMESTAMP, TIMESTAMPTZ) else VARCHAR), False
        return VARCHAR, False
    return VARCHAR, True
