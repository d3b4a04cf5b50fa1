"""Parquet footers: read, checked, and rewritten so that pyarrow reads each column in the cheapest form.

`read_footer` is called by `ParquetSource` once per file. It edits two things in the footer (in memory, never in the file):

- The DECIMAL annotation of INT32 and INT64 columns goes away, so that pyarrow delivers the unscaled integers as they are
  stored instead of widening each to 16 bytes. Only the list of schema elements is parsed and written again.
- The ARROW:schema entry goes away, so that a file means what its Parquet types say, whoever wrote it (as in DuckDB);
  otherwise pyarrow would bring back large strings, views and dictionaries just to have them converted.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tsql.backends.sources.files import reading
from tsql.kernels.errors import SourceError

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_INT32, _INT64 = 1, 2
_CONVERTED_DECIMAL, _LOGICAL_DECIMAL = 5, 5
_TYPE, _NAME, _CONVERTED_TYPE, _SCALE, _PRECISION, _LOGICAL_TYPE = 1, 4, 6, 7, 8, 10
_ARROW_SCHEMA = b"ARROW:schema"


@dataclass(frozen=True)
class Footer:
    """The footer of one file. `unscaled` are the columns that pyarrow delivers as plain integers: name to (width, scale)."""

    path: str
    size: int
    metadata: pq.FileMetaData
    schema: pa.Schema
    unscaled: dict[str, tuple[int, int]]


def read_footer(path: str) -> Footer:
    """The footer of a Parquet file; a SourceError where the file is missing, cut, damaged or of another kind."""
    with reading(path, "a Parquet file"):
        raw, size = _read_tail(path)
        try:
            edited, unscaled = _plain_decimals(raw)
        except (IndexError, ValueError, RecursionError):
            raise SourceError(f"{path}: the footer of this Parquet file is damaged") from None
        at = edited.rfind(_ARROW_SCHEMA)
        if at >= 0:
            edited[at : at + len(_ARROW_SCHEMA)] = b"-----:schema"
        alone = b"".join((_MAGIC, edited, struct.pack("<I", len(edited)), _MAGIC))
        metadata = pq.read_metadata(pa.BufferReader(alone))
        schema = metadata.schema.to_arrow_schema()
        if metadata.num_rows < 0 or any(metadata.row_group(i).num_rows < 0 for i in range(metadata.num_row_groups)):
            raise SourceError(f"{path}: the footer of this Parquet file is damaged")
    return Footer(path, size, metadata, schema, unscaled)


def _read_tail(path: str) -> tuple[bytes, int]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(4)
        if size < 12 or head not in (_MAGIC, _ENCRYPTED):
            raise SourceError(f"{path}: this is not a Parquet file (no {_MAGIC.decode()} at its start)")
        file.seek(size - 8)
        tail = file.read(8)
        if tail[4:] == _ENCRYPTED:
            raise SourceError(f"{path}: encrypted Parquet files are not supported")
        if tail[4:] != _MAGIC:
            raise SourceError(f"{path}: this Parquet file is cut off or damaged (no {_MAGIC.decode()} at its end)")
        (length,) = struct.unpack("<I", tail[:4])
        if length > size - 12:
            raise SourceError(f"{path}: the footer of this Parquet file is damaged (it claims {length} bytes)")
        file.seek(size - 8 - length)
        return file.read(length), size


def _plain_decimals(footer: bytes) -> tuple[bytearray, dict[str, tuple[int, int]]]:
    """The footer with the DECIMAL annotation of integer columns taken away, and their names, widths and scales.

    A footer is a struct in Thrift's compact protocol; field 2 is the list of schema elements. Field ids are relative to
    the field before, so that everything after the list can be copied as it is.
    """
    at = field = 0
    while True:
        field, kind, at = _field(footer, at, field)
        if kind == 0:
            raise ValueError("no schema")
        if field == 2:
            break
        at = _skip(footer, at, kind)
    out = bytearray(footer[:at])
    count, kind, start = _list(footer, at)
    if kind != 12 or count > len(footer):
        raise ValueError("no schema")
    out += footer[at:start]
    at = start
    unscaled: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        fields, at = _fields(footer, at)
        values = {number: value for number, _, value in fields}
        if _number(values.get(_TYPE)) in (_INT32, _INT64) and _is_decimal(values):
            width, scale = _number(values.get(_PRECISION)), _number(values.get(_SCALE)) or 0
            if width is not None and 1 <= width <= 18 and 0 <= scale <= width:
                unscaled[_text(values[_NAME])] = (width, scale)
                fields = [f for f in fields if f[0] not in (_CONVERTED_TYPE, _SCALE, _PRECISION, _LOGICAL_TYPE)]
        last = 0
        for number, kind, value in fields:
            out += _header(number, last, kind) + value
            last = number
        out.append(0)
    out += footer[at:]
    return out, unscaled


def _is_decimal(values: dict[int, bytes]) -> bool:
    logical = values.get(_LOGICAL_TYPE)
    if logical is not None:
        return _field(logical, 0, 0)[0] == _LOGICAL_DECIMAL
    return _number(values.get(_CONVERTED_TYPE)) == _CONVERTED_DECIMAL


def _fields(data: bytes, at: int) -> tuple[list[tuple[int, int, bytes]], int]:
    found, number = [], 0
    while True:
        number, kind, at = _field(data, at, number)
        if kind == 0:
            return found, at
        end = _skip(data, at, kind)
        if end > len(data):
            raise ValueError("cut off")
        found.append((number, kind, data[at:end]))
        at = end


def _field(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """(field id, type, offset of the value) of a field header; type 0 ends a struct."""
    head = data[at]
    if head == 0:
        return last, 0, at + 1
    if head >> 4:
        return last + (head >> 4), head & 15, at + 1
    number, at = _varint(data, at + 1)
    return (number >> 1) ^ -(number & 1), head & 15, at


def _header(number: int, last: int, kind: int) -> bytes:
    if 0 < number - last <= 15:
        return bytes([(number - last) << 4 | kind])
    encoded, rest = bytearray([kind]), number << 1 if number >= 0 else (-number << 1) - 1
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes(encoded) + bytes([rest])


def _list(data: bytes, at: int) -> tuple[int, int, int]:
    head = data[at]
    if head >> 4 != 15:
        return head >> 4, head & 15, at + 1
    count, end = _varint(data, at + 1)
    return count, head & 15, end


def _skip(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """The offset after a value of a compact-protocol type."""
    if depth > 32 or at > len(data):
        raise ValueError("damaged")
    if kind in (1, 2):
        return at
    if kind == 3:
        return at + 1
    if kind in (4, 5, 6):
        return _varint(data, at)[1]
    if kind == 7:
        return at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return at + length
    if kind in (9, 10):
        count, item, at = _list(data, at)
        for _ in range(count):
            at = at + 1 if item in (1, 2) else _skip(data, at, item, depth + 1)
        return at
    if kind == 12:
        number = 0
        while True:
            number, item, at = _field(data, at, number)
            if item == 0:
                return at
            at = _skip(data, at, item, depth + 1)
    raise ValueError("damaged")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("damaged")


def _number(value: bytes | None) -> int | None:
    if value is None:
        return None
    number, _ = _varint(value, 0)
    return (number >> 1) ^ -(number & 1)


def _text(value: bytes) -> str:
    length, at = _varint(value, 0)
    return value[at : at + length].decode("utf-8")
