"""JSON files as a source: NDJSON, a top-level array of objects, or objects one after another, with type detection.

Columns and types come from a sample over all files, as in DuckDB. Values without a SQL type here (lists, objects,
columns of mixed kinds) become VARCHAR with JSON text. A file is one split, read in blocks, which `JsonColumns` turns
into columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tsql.backends.io import Split, Statistics
from tsql.backends.io import options as opt
from tsql.backends.io.files import expand, reading, total_bytes
from tsql.backends.io.json.columns import JsonColumns
from tsql.backends.io.json.values import BAD, block_values, blocks, layout_of, values
from tsql.backends.io.normalize import unique_names
from tsql.backends.io.text import detect
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DATE, DOUBLE, HUGEINT, TIME, TIMESTAMP, TIMESTAMPTZ, VARCHAR, Type

OPTIONS = ("columns", "format", "ignore_errors", "sample_size", "compression", "union_by_name", "auto_detect")
LAYOUTS = ("newline_delimited", "array", "unstructured")
SAMPLE_VALUES = 20_480
SAMPLE_FILES = 32
EXPECTED = "a JSON file"
_DASHED = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:\Z|[T ][0-9]{1,2}:[0-9]{1,2}:)|[0-9]{1,2}:")


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
        into = JsonColumns(self.schema, self.keys, columns, self.texts, self.ignore_errors, self.lost)
        with reading(path, EXPECTED):
            if self._layout(path) != "newline_delimited":
                yield from into.careful(path, self._values(path))
                return
            for first_line, block in blocks(path, self.compression):
                batches = into.fast(block)
                if batches is None:
                    yield from into.careful(path, block_values(path, first_line, block, self.ignore_errors))
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
