"""Rows of a result as binary frames: a header as JSON, and an Arrow IPC stream.

In: a table with the SQL types of its columns, and a window of its rows. Out: bytes for the socket. The columns are
called by their places, since names may repeat. What JavaScript has no exact number for comes as text, as the command
line shows it. Cost: that of the window, not of the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from tsql.backends.io.value_text import texts
from tsql.kernels.expr.types import Type
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass

MOST_ROWS = 50_000
"""A frame has at most so many rows."""

ALIGNMENT = 8
"""The Arrow data of a frame starts at a multiple of this, so that it can be read in place."""


@dataclass(frozen=True)
class Result:
    """A result as it is known so far. `number`: which snapshot of its run. `bounds`: (lower, upper) by place. `status`:
    of each row "certain" or "possible", where that is known."""

    number: int
    table: pa.Table
    types: tuple[Type, ...]
    bounds: Mapping[int, tuple[pa.ChunkedArray, pa.ChunkedArray]] = field(default_factory=dict)
    status: pa.ChunkedArray | None = None

    def frame(self, id: int, first: int, count: int) -> bytes:
        """The rows from `first` on, in answer to the request `id`."""
        first = min(max(first, 0), self.table.num_rows)
        rows = self.table.slice(first, min(max(count, 0), MOST_ROWS))
        columns: dict[str, pa.Array] = {}
        for place, (column, type) in enumerate(zip(rows.columns, self.types, strict=True)):
            columns[str(place)] = shown(_whole(column), type)
        for place, pair in self.bounds.items():
            for name, values in zip(("low", "high"), pair, strict=True):
                columns[f"{place} {name}"] = _whole(values.slice(first, rows.num_rows))
        if self.status is not None:
            columns["possible"] = pc.equal(_whole(self.status.slice(first, rows.num_rows)), "possible")
        batch = pa.RecordBatch.from_pydict(columns) if columns else pa.record_batch({})
        header = {
            "id": id,
            "kind": "rows",
            "number": self.number,
            "first": first,
            "rows": rows.num_rows,
            "total": self.table.num_rows,
        }
        return framed(header, batch)


def shown(column: pa.Array, type: Type) -> pa.Array:
    """A column in a type that JavaScript reads exactly; anything else as text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return shown(column.dictionary_decode(), type)
    exact = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    )
    return column if exact else texts(column)


def framed(header: Mapping[str, Any], batch: pa.RecordBatch) -> bytes:
    """The length of the header, the header, the rows."""
    head = json.dumps(header).encode()
    head += b" " * (-(4 + len(head)) % ALIGNMENT)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return b"".join((len(head).to_bytes(4, "little"), head, sink.getvalue()))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
