"""Encodes catalog entries as the JSON and blobs of a journal record, and decodes them.

Encoded extents go to column files, which are written here. Rows of the tail are Arrow IPC blobs in the record
itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tsql.catalog.definition import Macro, Table, TableDefinition, View
from tsql.catalog.external import External
from tsql.kernels.blocks.encode import BlockColumn
from tsql.kernels.blocks.file import ColumnFile, FileColumn
from tsql.kernels.blocks.stored import StoredTable
from tsql.kernels.blocks.table import BlockTable
from tsql.kernels.expr.errors import StorageError
from tsql.kernels.expr.schema import Schema
from tsql.storage.new_files import NewFiles

Entry = Table | View | External
"""What a database stores besides macros."""


def encode_entry(name: str, entry: Entry, files: NewFiles, blobs: list[bytes]) -> dict[str, Any]:
    """An entry of the catalog as JSON; rows that are not in files become blobs."""
    if isinstance(entry, View):
        return {"view": name, "text": entry.text}
    if isinstance(entry, External):
        return {"external": name, **entry.to_json()}
    extents = [_encode_extent(extent, files) for extent in entry.data.extents]
    found: dict[str, Any] = {"table": name, "definition": entry.definition.to_json(), "extents": extents}
    if entry.data.tail:
        batches = [batch for piece in entry.data.tail for batch in piece.batches(entry.definition.names)]
        found["tail"] = len(blobs)
        blobs.append(encode_rows(batches, entry.definition.schema))
    return found


def _encode_extent(extent: BlockTable, files: NewFiles) -> dict[str, Any]:
    """Columns that are on disk already stay where they are; the others go to one new file."""
    fresh = [column for column in extent.columns.values() if files.origin(column) is None]
    if fresh:
        files.write(extent.rows, fresh)
    origins = {name: files.origin(column) for name, column in extent.columns.items()}
    file, _, start = next(iter(origins.values()))
    if all(origin == (file, name, start) for name, origin in origins.items()):
        return {"rows": extent.rows, "file": file, "start": start}
    return {"rows": extent.rows, "columns": {name: list(origin) for name, origin in origins.items()}}


def encode_rows(batches: list[pa.RecordBatch], schema: Schema) -> bytes:
    """Rows as an Arrow IPC stream."""
    arrow = schema.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow) as writer:
        for batch in batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=arrow))
    return sink.getvalue().to_pybytes()


def decode_rows(blob: bytes) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return list(reader)


def decode_table(data: dict[str, Any], blobs: list[bytes], open_file: Callable[[str], ColumnFile]) -> Table:
    """A table of a record. Its files are not read yet."""
    definition = TableDefinition.from_json(data["definition"])
    extents = [_decode_extent(extent, definition, open_file) for extent in data["extents"]]
    stored = StoredTable(definition.schema, extents)
    if "tail" in data:
        stored = stored.append(decode_rows(blobs[data["tail"]]))
    return Table(definition, stored)


class FileExtent(BlockTable):
    """An extent whose columns are in files; made without opening them."""

    def __init__(self, fields: Schema, rows: int, columns: dict[str, BlockColumn]):
        self.fields, self.rows, self.columns = fields, rows, columns
        self._morsels = {}

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        return self.fields


def _decode_extent(
    data: dict[str, Any], definition: TableDefinition, open_file: Callable[[str], ColumnFile]
) -> FileExtent:
    rows = data["rows"]
    columns: dict[str, BlockColumn] = {}
    for name in definition.names:
        file, stored, start = data["columns"][name] if "columns" in data else (data["file"], name, data["start"])
        columns[name] = FileColumn(open_file(file), stored, name, start, rows)
    return FileExtent(definition.schema, rows, columns)


def files_of(entry: Any) -> set[str]:
    """The files that an entry needs."""
    if not isinstance(entry, Table):
        return set()
    return {
        column.origin[0]
        for extent in entry.data.extents
        for column in extent.columns.values()
        if column.origin is not None
    }


def encode_macro(macro: Macro) -> dict[str, Any]:
    return {
        "name": macro.name,
        "parameters": list(macro.parameters),
        "defaults": list(macro.defaults),
        "text": macro.text,
    }


def decode_macro(data: dict[str, Any]) -> Macro:
    return Macro(data["name"], tuple(data["parameters"]), tuple(data["defaults"]), data["text"])


def decode_view(data: dict[str, Any]) -> View:
    return View(data["view"], data["text"])


def name_of(data: dict[str, Any]) -> str:
    """The name of an entry in a record."""
    return next(data[kind] for kind in ("view", "table", "external") if kind in data)


def decode_entry(data: dict[str, Any], blobs: list[bytes], open_file: Callable[[str], ColumnFile]) -> Entry:
    """What `encode_entry` has encoded."""
    if "view" in data:
        return decode_view(data)
    return External.from_json(data) if "external" in data else decode_table(data, blobs, open_file)


def check_record(data: dict[str, Any]) -> None:
    """Refuse a record that this version does not know in full."""
    unknown = set(data) - {"put", "drop", "append", "macros", "drop_macros"}
    unknown |= {" ".join(put)[:60] for put in data.get("put", ()) if not {"view", "table", "external"} & put.keys()}
    if unknown:
        raise StorageError(f"the database was written by a newer version of tsql ({', '.join(sorted(unknown))})")
