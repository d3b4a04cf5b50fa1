"""What is sent between the driver and the tasks: rows of `SCHEMA`, blobs of Arrow IPC, and plain data as JSON. No code.

A row has the shard it goes to, the step its rows belong to (`input`), their place in the order, and the rows as an
Arrow IPC stream (or, for a scan, the splits to read as a JSON list). A row without `input` is about the run: an error
of a task (`{"error": ..}`), or what a task has counted (`{"tally": ..}`).

DataFrames carry a row as four columns (`SCHEMA`), RDDs as one run of bytes: a header, then the blob."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa

from tsql.backends.io.normalize import unique_names
from tsql.backends.local.run.host import Chunk
from tsql.backends.local.run.spill import AnyChunk
from tsql.backends.spark.narrow import narrowed, widened
from tsql.kernels.expr import errors
from tsql.kernels.expr.errors import ExecutionError, TsqlError
from tsql.kernels.expr.nodes import Aggregate, Expr, SortKey
from tsql.kernels.patterns.spec import MatchSpec
from tsql.kernels.windows.call import WindowCall
from tsql.planner.physical.step import Step

SCHEMA = pa.schema([("shard", pa.int32()), ("input", pa.string()), ("place", pa.int64()), ("blob", pa.binary())])
BLOB_BYTES = 1 << 18
"""Rows leave in blobs of about this size. Blobs pass through the heaps of JVMs, where larger ones are slow: 256 MB took
1.5 s to shuffle in blobs of 256 kB, 2.4 s of 1 MB and 4.2 s of 4 MB."""

NARROWED = b"narrowed"
"""The metadata of a batch that says which columns are narrow (`narrow.py`)."""

Row = tuple[int, str | None, int, bytes]


def wire_table(rows: list[Row]) -> pa.Table:
    """Rows of the wire as Arrow."""
    plain = [(*row[:3], bytes(row[3])) for row in rows]
    columns = list(zip(*plain, strict=True)) if plain else [(), (), (), ()]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def wire_batch(row: Row) -> pa.RecordBatch:
    """One row of the wire as Arrow; the blob is not copied."""
    blob = row[3]
    ends = pa.array([0, len(blob)], pa.int32()).buffers()[1]
    cell = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(blob)])
    columns = [pa.array([value], field.type) for value, field in zip(row[:3], SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*columns, cell], schema=SCHEMA)


def wire_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of an Arrow batch; the blobs are not copied."""
    shards, inputs, places = (batch.column(i).to_pylist() for i in range(3))
    blobs = batch.column(3)
    for number, (shard, name, place) in enumerate(zip(shards, inputs, places, strict=True)):
        yield shard, name, place, blobs[number].as_buffer()


_HEADER = struct.Struct("<iqH")
_ALIGNMENT = 64
"""Blobs start at a multiple of this in their bytes."""

_NO_INPUT = 0xFFFF


def header(row_shard: int, name: str | None, place: int) -> bytes:
    """What stands before a blob in the bytes of a row."""
    text = b"" if name is None else name.encode()
    size = _NO_INPUT if name is None else len(text)
    head = _HEADER.pack(row_shard, place, size) + text
    return head + bytes(-len(head) % _ALIGNMENT)


def unpack(data: Any) -> Row:
    """The row in these bytes; the blob is not copied."""
    shard, place, size = _HEADER.unpack_from(data)
    start = _HEADER.size + (0 if size == _NO_INPUT else size)
    name = None if size == _NO_INPUT else bytes(data[_HEADER.size : start]).decode()
    start += -start % _ALIGNMENT
    return shard, name, place, pa.py_buffer(data)[start:]


def encode_batches(
    batches: Iterable[pa.RecordBatch], blob_bytes: int = BLOB_BYTES, narrow: bool = False
) -> Iterator[Any]:
    """Arrow batches as IPC streams of about `blob_bytes`. A change of schema starts a new stream. `narrow`: integers
    take as few bytes as their values need, which only `decode_chunks` undoes."""
    sink, writer, schema = pa.BufferOutputStream(), None, None
    for whole in _cut(batches, blob_bytes):
        batch, told = narrowed(whole) if narrow else (whole, None)
        if writer is not None and (sink.tell() + batch.nbytes > blob_bytes or batch.schema != schema):
            writer.close()
            yield sink.getvalue()
            sink, writer = pa.BufferOutputStream(), None
        if writer is None:
            schema = batch.schema
            writer = pa.ipc.new_stream(sink, schema)
        writer.write_batch(batch, None if told is None else {NARROWED: told})
    if writer is not None:
        writer.close()
        yield sink.getvalue()


def _cut(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most about so many bytes."""
    for batch in batches:
        pieces = -(-batch.nbytes // most_bytes)
        if pieces <= 1 or batch.num_rows <= 1:
            yield batch
            continue
        rows = max(1, -(-batch.num_rows // pieces))
        yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def encode_chunks(chunks: Iterable[AnyChunk], narrow: bool = True) -> Iterator[bytes]:
    """Collected rows as blobs."""
    return encode_batches(map(_batch, chunks), narrow=narrow)


def _batch(chunk: AnyChunk) -> pa.RecordBatch:
    if chunk.arrays:
        return pa.RecordBatch.from_arrays(chunk.arrays, [str(i) for i in range(len(chunk.arrays))])
    return pa.RecordBatch.from_arrays([pa.nulls(chunk.rows)], ["rows"])


def decode_batches(blob: Any) -> Iterator[pa.RecordBatch]:
    """The Arrow batches of a blob."""
    with pa.ipc.open_stream(pa.BufferReader(blob)) as reader:
        yield from reader


def decode_chunks(blob: Any, columns: int, place: int) -> Iterator[Chunk]:
    """The rows of a blob as chunks of `columns` columns."""
    with pa.ipc.open_stream(pa.BufferReader(blob)) as reader:
        for number, (batch, told) in enumerate(reader.iter_batches_with_custom_metadata()):
            arrays = list(batch.columns[:columns])
            if told is not None and NARROWED in told:
                arrays = widened(arrays, told[NARROWED])
            yield Chunk((place, number), batch.num_rows, arrays)


_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.time64("us"): pa.time64("ns"),
}


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of results in the types and names that a DataFrame has for them (see `frame.spark_schema`)."""
    arrays = [a.cast(_WIDENED[a.type]) if a.type in _WIDENED else a for a in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=unique_names(batch.schema.names))


def encode_error(error: TsqlError) -> bytes:
    """A query error as data. `decode_error` raises it again on the driver."""
    found = {"kind": type(error).__name__, "message": error.message, "position": error.position, "hint": error.hint}
    return json.dumps({"error": found}).encode()


def about(blob: Any) -> dict[str, Any]:
    """What a row without input says."""
    return json.loads(bytes(blob) or b"{}")


def decode_error(blob: Any) -> TsqlError | None:
    """The error in a row without input, if there is one."""
    found = about(blob).get("error")
    if found is None:
        return None
    kind = getattr(errors, found["kind"], None)
    known = isinstance(kind, type) and issubclass(kind, TsqlError)
    return (kind if known else ExecutionError)(found["message"], position=found["position"], hint=found["hint"])


def encode_value(value: Any) -> Any:
    """A stored parameter value as JSON data: bytes and intervals have no JSON form of their own."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, tuple | list):
        return {"parts": list(value)}
    return value


def decode_value(value: Any) -> Any:
    match value:
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"parts": parts}:
            return tuple(parts)
    return value


def expression_nodes(root: Step) -> Iterator[Any]:
    """Every expression node of a plan, in an order that depends only on the plan: equal plans give equal lists."""
    for step in root.walk():
        for field in fields(step):
            if field.name not in ("inputs", "name", "line", "source"):
                yield from _nodes(getattr(step, field.name))


def _nodes(value: Any) -> Iterator[Any]:
    if isinstance(value, Expr):
        yield from value.walk()
    elif isinstance(value, Aggregate | WindowCall):
        yield value
        for expression in value.expressions():
            yield from expression.walk()
    elif isinstance(value, SortKey):
        yield from value.expr.walk()
    elif isinstance(value, MatchSpec):
        yield value.skip
        for expression in value.expressions():
            yield from expression.walk()
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
