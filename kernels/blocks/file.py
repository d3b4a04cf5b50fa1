"""Columns of tables on disk: `write_columns` writes encoded columns to a file, `ColumnFile` reads them again.

A file is written once and never changed: a magic, the buffers of each column (aligned to 64 bytes), a footer in JSON,
and at the end the footer's length and checksum. Opening reads the footer alone. A column is read when it is first used,
and its checksums are verified then. docs/storage.md describes every field."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from tsql.kernels.blocks.content import Content
from tsql.kernels.blocks.encode import BLOCK_ROWS, BlockColumn
from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.emit.batch import Dictionary, Layout, SourceColumn
from tsql.kernels.expr.errors import StorageError
from tsql.kernels.expr.statistics import ColumnStatistics
from tsql.kernels.expr.types import Type, parse_type

MAGIC = b"TSQLCOL1"
VERSION = 1
ALIGNMENT = 64
_TRAILER = struct.Struct("<QII8s")

Place = tuple[int, int, int]
"""Where a buffer is: offset, bytes, checksum."""


def write_columns(stream: BinaryIO, rows: int, columns: Iterable[BlockColumn]) -> None:
    """Write columns of equally many rows as the content of a file."""
    stream.write(MAGIC)
    described = [_write_column(stream, column) for column in columns]
    footer = json.dumps({"rows": rows, "columns": described}).encode()
    stream.write(footer)
    stream.write(_TRAILER.pack(len(footer), zlib.crc32(footer), VERSION, MAGIC))


def _write_column(stream: Any, column: BlockColumn) -> dict[str, Any]:
    source, layout = column.source, column.source.layout

    def put(buffer: Any) -> Place | None:
        if buffer is None:
            return None
        stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
        view = memoryview(buffer).cast("B")
        at = stream.tell()
        stream.write(view)
        return at, len(view), zlib.crc32(view)

    if isinstance(column.data, np.ndarray):
        stored: dict[str, Any] = {"numpy": column.data.dtype.str, "buffers": [put(np.ascontiguousarray(column.data))]}
    else:
        array = column.data
        stored = {
            "large": pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type),
            "buffers": [put(b) for b in array.buffers()[1:]],
        }
    known, dictionary = column.statistics, source.dictionary
    return {
        "name": source.name,
        "type": str(source.type),
        "layout": [layout.kind, layout.machine, layout.nullable, layout.unsigned, layout.base, layout.wide_dictionary],
        "range": source.range,
        "statistics": [_plain(known.minimum), _plain(known.maximum), known.nulls, known.distinct, known.exact],
        "validity": put(column.validity),
        "lows": None if column.lows is None else [column.lows.dtype.str, put(np.ascontiguousarray(column.lows))],
        "highs": None if column.highs is None else [column.highs.dtype.str, put(np.ascontiguousarray(column.highs))],
        "dictionary": None
        if dictionary is None
        else [len(dictionary), *(put(b) for b in _compact(dictionary.values).buffers()[1:])],
        **stored,
    }


def _compact(values: pa.Array) -> pa.Array:
    return values if values.offset == 0 else pa.concat_arrays([values, values.slice(0, 0)])


def _plain(value: Any) -> Any:
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def _value(data: Any) -> Any:
    return bytes.fromhex(data["bytes"]) if isinstance(data, dict) else data


class ColumnFile:
    """A file of columns. Each buffer is read into memory on first use, or mapped if too much is held already. `share`
    gives one dictionary to all columns with equal ones."""

    def __init__(self, path: Path, share: Callable[[Any, Callable[[], Dictionary]], Dictionary] | None = None):
        self.path = path
        self._share = share or (lambda _, make: make())
        self._buffers: dict[Place, pa.Buffer] = {}
        self._content: Content | None = None

    def hold(self) -> None:
        """Keep the content although the file is about to be removed."""
        if self._content is None:
            self._content = self._open()

    def check(self) -> None:
        """Raise if a mapped file has changed since."""
        if self._content is not None and self._content.is_mapped:
            self._content.check()

    def _open(self) -> Content:
        try:
            return Content(self.path)
        except OSError as error:
            raise StorageError(
                f"cannot open {self.path.name}: {error.strerror or error}",
                hint="the database is damaged: a file of it is missing or empty",
            ) from error

    def _read(self, offset: int, length: int) -> pa.Buffer:
        """Bytes of the file; a negative offset counts from the end."""
        content = self._content or self._open()
        try:
            found = content.read(offset, length)
        except EOFError as error:
            raise self.damaged("it is too short") from error
        except OSError as error:
            raise StorageError(f"cannot read {self.path.name}: {error.strerror or error}") from error
        if content.is_mapped:
            self._content = content
        return found

    @cached_property
    def footer(self) -> dict[str, Any]:
        trailer = self._read(-_TRAILER.size, _TRAILER.size)
        length, checksum, version, magic = _TRAILER.unpack(trailer)
        if magic != MAGIC:
            raise self.damaged("its end is missing")
        if version > VERSION:
            raise StorageError(
                f"{self.path.name} was written by a newer version of tsql (format {version}; this one "
                f"reads up to {VERSION})"
            )
        text = self._read(-_TRAILER.size - length, length)
        if zlib.crc32(text) != checksum:
            raise self.damaged("the checksum of its footer differs")
        return json.loads(text.to_pybytes())

    @cached_property
    def entries(self) -> dict[str, dict[str, Any]]:
        return {entry["name"]: entry for entry in self.footer["columns"]}

    def damaged(self, reason: str) -> StorageError:
        return StorageError(f"{self.path.name} is damaged: {reason}", hint="restore the database from a copy")

    def buffer(self, place: Place) -> pa.Buffer:
        """A buffer, its checksum verified."""
        found = self._buffers.get(place)
        if found is None:
            offset, length, checksum = place
            found = self._read(offset, length)
            if zlib.crc32(found) != checksum:
                raise self.damaged("the checksum of a column differs")
            found = self._buffers.setdefault(place, found)
        return found

    def dictionary(self, entry: dict[str, Any]) -> Dictionary | None:
        described = entry["dictionary"]
        if described is None:
            return None
        count, *places = described
        arrow = pa.binary() if entry["type"] == "BLOB" else pa.string()

        def make() -> Dictionary:
            return Dictionary(
                pa.Array.from_buffers(
                    arrow, count, [None, *(self.buffer(tuple(p)) if p is not None else None for p in places)]
                )
            )

        return self._share((entry["type"], count, *(tuple(p[1:]) for p in places if p is not None)), make)


class FileColumn(BlockColumn):
    """Rows of a column in a file, from the start of a block on, under a name of its own."""

    def __init__(self, file: ColumnFile, stored: str, name: str, start: int, rows: int):
        self.file, self.stored, self.name, self.start, self.rows = file, stored, name, start, rows
        self.origin = (file.path.name, stored, start)

    def view(self, start: int, rows: int) -> FileColumn:
        """Some of the rows; nothing is read."""
        return FileColumn(self.file, self.stored, self.name, self.start + start, rows)

    def renamed(self, name: str) -> FileColumn:
        return FileColumn(self.file, self.stored, name, self.start, self.rows)

    @cached_property
    def entry(self) -> dict[str, Any]:
        found = self.file.entries.get(self.stored)
        if found is None or self.start + self.rows > self.file.footer["rows"]:
            raise self.file.damaged(f'it lacks rows of column "{self.stored}"')
        return found

    @cached_property
    def source(self) -> SourceColumn:  # type: ignore[override]
        entry = self.entry
        bounds = None if entry["range"] is None else tuple(entry["range"])
        return SourceColumn(
            self.name, parse_type(entry["type"]), Layout(*entry["layout"]), bounds, self.file.dictionary(entry)
        )

    @cached_property
    def statistics(self) -> ColumnStatistics:  # type: ignore[override]
        low, high, nulls, distinct, exact = self.entry["statistics"]
        return ColumnStatistics(_value(low), _value(high), nulls, distinct, exact)

    @cached_property
    def lows(self) -> np.ndarray | None:  # type: ignore[override]
        return self._zones("lows")

    @cached_property
    def highs(self) -> np.ndarray | None:  # type: ignore[override]
        return self._zones("highs")

    def _zones(self, key: str) -> np.ndarray | None:
        described = self.entry[key]
        if described is None:
            return None
        first, blocks = self.start // BLOCK_ROWS, -(-self.rows // BLOCK_ROWS)
        return np.frombuffer(self.file.buffer(tuple(described[1])), described[0])[first : first + blocks]

    @property
    def bytes(self) -> int:
        whole = sum(place[1] for place in (*self.entry["buffers"], self.entry["validity"]) if place is not None)
        return whole * self.rows // max(1, self.file.footer["rows"])

    @cached_property
    def validity(self) -> pa.Buffer | None:  # type: ignore[override]
        place = self.entry["validity"]
        return None if place is None else self.file.buffer(tuple(place)).slice(self.start // 8)

    @cached_property
    def data(self) -> np.ndarray | pa.Array:  # type: ignore[override]
        entry = self.entry
        if "numpy" in entry:
            stored = np.frombuffer(self.file.buffer(tuple(entry["buffers"][0])), entry["numpy"])
            return stored[self.start : self.start + self.rows]
        buffers = [None if place is None else self.file.buffer(tuple(place)) for place in entry["buffers"]]
        kind, machine = entry["layout"][0], entry["layout"][1]
        at = self.start // 8 if kind == "bits" else self.start * (16 if kind == "interval" else BYTES[machine])
        arrow = _arrow_type(parse_type(entry["type"]), entry["large"])
        return pa.Array.from_buffers(
            arrow, self.rows, [self.validity, None if buffers[0] is None else buffers[0].slice(at), *buffers[1:]]
        )


def _arrow_type(t: Type, large: bool) -> pa.DataType:
    if large:
        return pa.large_binary() if t.name == "BLOB" else pa.large_string()
    return t.to_arrow()
