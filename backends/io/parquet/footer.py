"""Parquet footers: read, checked, and rewritten so that pyarrow reads each column in the cheapest form.

`read_footer` is called by `ParquetSource` once per file. It edits three things in the footer (in memory, never in the
file):

- The DECIMAL annotation of INT32 and INT64 columns goes away, so that pyarrow delivers the unscaled integers as they
  are stored instead of widening each to 16 bytes. Only the list of schema elements is parsed and written again.
- INT96 becomes 12 plain bytes, which `normalize` makes timestamps of: pyarrow would drop what is below microseconds
  without a word, or, in nanoseconds, overflow after 2262.
- The ARROW:schema entry goes away, so that a file means what its Parquet types say, whoever wrote it (as in DuckDB);
  otherwise pyarrow would bring back large strings, views and dictionaries just to have them converted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tsql.backends.io import remote
from tsql.backends.io.files import reading, stored_path
from tsql.backends.io.parquet import thrift
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.process.quick_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_INT32, _INT64, _INT96 = 1, 2, 3
_THRIFT_I32, _TWELVE_BYTES = 5, (b"\x0e", b"\x18")
"""The numbers of FIXED_LEN_BYTE_ARRAY and of its 12 bytes as Thrift writes them (doubled), and the type of these
fields."""
_CONVERTED_DECIMAL, _LOGICAL_DECIMAL = 5, 5
_SCHEMA, _ROW_GROUPS = 2, 4
_TYPE, _LENGTH, _NAME, _CHILDREN, _CONVERTED_TYPE, _SCALE, _PRECISION, _LOGICAL_TYPE = 1, 2, 4, 5, 6, 7, 8, 10
_ARROW_SCHEMA = b"ARROW:schema"
_PAGE_BYTES, _PAGE_ROWS = 20, 2**31 - 1
"""The bytes of the smallest page header with many rows, and the most rows that a header can count."""


@dataclass
class Footer:
    """The footer of one file. `unscaled` are the columns that pyarrow delivers as plain integers: name to (width,
    scale). `leaves` says for each column which of the stored columns it is; None for a struct, a list or a map, which
    may be several. `int96`: the columns that are INT96 in the file."""

    path: str
    size: int
    metadata: pq.FileMetaData
    schema: pa.Schema
    unscaled: dict[str, tuple[int, int]]
    leaves: list[int | None]
    int96: set[str]
    raw: bytes

    @cached_property
    def first_chunks(self) -> Sequence[ColumnChunk | None]:
        """The chunks of the first row group, one per column (None for nested ones); empty if there is no row group."""
        return next(iter(self._read_chunks(1)), [])

    @cached_property
    def chunks(self) -> Sequence[Sequence[ColumnChunk | None]]:
        """The chunks of all row groups. Parsed on demand: a large footer takes some milliseconds."""
        return self._read_chunks(None)

    @cached_property
    def middles(self) -> list[int]:
        """The place in the file of the middle of each row group: a row group belongs to the part of the file that holds
        it. Whatever a damaged footer says, the place is inside of the file."""
        found = []
        for group in self._read_groups(None):
            start = min((chunk.start for chunk in group), default=0)
            found.append(max(0, min(start + sum(chunk.stored_bytes for chunk in group) // 2, self.size - 1)))
        return found

    def _read_chunks(self, limit: int | None) -> Sequence[Sequence[ColumnChunk | None]]:
        groups = self._read_groups(limit)
        if self.leaves == list(range(self.metadata.num_columns)):
            return groups
        return [[None if leaf is None else group[leaf] for leaf in self.leaves] for group in groups]

    def _read_groups(self, limit: int | None) -> list[list[ColumnChunk]]:
        """The chunks of all stored columns, those of nested ones too."""
        try:
            groups = _chunks(self.raw, limit)
        except (IndexError, KeyError, TypeError, ValueError, struct.error):
            raise _damaged(self.path) from None
        if any(len(group) != self.metadata.num_columns for group in groups):
            raise _damaged(self.path)
        return groups


def _damaged(path: str) -> SourceError:
    return SourceError(f"{path}: the footer of this Parquet file is damaged")


def read_footer(path: str) -> Footer:
    """The footer of a Parquet file. Raises SourceError if the file is missing, truncated, damaged or of another
    kind."""
    with reading(path, "a Parquet file"):
        raw, size = _read_tail(path)
        try:
            edited, unscaled, leaves, int96 = _edited_schema(raw)
        except (IndexError, KeyError, TypeError, ValueError, struct.error):
            raise _damaged(path) from None
        at = edited.rfind(_ARROW_SCHEMA)
        if at >= 0:
            edited[at : at + len(_ARROW_SCHEMA)] = b"-----:schema"
        alone = b"".join((_MAGIC, edited, struct.pack("<I", len(edited)), _MAGIC))
        import pyarrow.parquet as pq

        metadata = pq.read_metadata(pa.BufferReader(alone))
        schema = metadata.schema.to_arrow_schema()
        if not _is_sound(metadata) or len(leaves) != len(schema):
            raise _damaged(path)
        try:
            group = _claims_too_much(metadata, bytes(edited), size)
        except (IndexError, KeyError, TypeError, ValueError, struct.error):
            raise _damaged(path) from None
        if group is not None:
            rows = metadata.row_group(group).num_rows
            raise SourceError(
                f"{path}: the footer of this Parquet file claims {rows:,} rows for row group {group}, more "
                "than its bytes can hold: "
                "the file is damaged"
            )
    return Footer(path, size, metadata, schema, unscaled, leaves, int96, bytes(edited))


def _claims_too_much(metadata: pq.FileMetaData, raw: bytes, size: int) -> int | None:
    """The first row group that claims more rows than its bytes can hold: each page has a header, which counts at most
    `_PAGE_ROWS` rows. Values are no bound, since a page of equal values takes no more bytes than one value. Chunks are
    only checked if there are more rows than bytes, and without pyarrow, which aborts the process on some damaged
    ones."""
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if not metadata.num_columns or max(rows, default=0) <= size:
        return None
    for number, chunks in enumerate(_chunks(raw, None)):
        chunk = chunks[0]
        if rows[number] > min(chunk.values, (min(chunk.stored_bytes, size) // _PAGE_BYTES + 1) * _PAGE_ROWS):
            return number
    return None


def _is_sound(metadata: pq.FileMetaData) -> bool:
    """Whether each row group has all columns and the rows add up."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if any(group.num_columns != metadata.num_columns or group.num_rows < 0 for group in groups):
        return False
    return metadata.num_rows == sum(group.num_rows for group in groups)


def _read_tail(path: str) -> tuple[bytes, int]:
    if remote.is_remote(path):
        return _read_remote_tail(path)
    with open(stored_path(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(4)
        if size < 12 or head not in (_MAGIC, _ENCRYPTED):
            raise SourceError(f"{path}: this is not a Parquet file (no {_MAGIC.decode()} at its start)")
        file.seek(size - 8)
        length = _footer_bytes(path, file.read(8), size)
        file.seek(size - 8 - length)
        return file.read(length), size


def _footer_bytes(path: str, tail: bytes, size: int) -> int:
    if tail[4:] == _ENCRYPTED:
        raise SourceError(f"{path}: encrypted Parquet files are not supported")
    if tail[4:] != _MAGIC:
        raise SourceError(f"{path}: this Parquet file is cut off or damaged (no {_MAGIC.decode()} at its end)")
    (length,) = struct.unpack("<I", tail[:4])
    if length > size - 12:
        raise SourceError(f"{path}: the footer of this Parquet file is damaged (it claims {length} bytes)")
    return int(length)


_TAIL_BYTES = 1 << 16
"""So much of the end of a file elsewhere is fetched at once: a request takes longer than these bytes."""


def _read_remote_tail(path: str) -> tuple[bytes, int]:
    with remote.open_file(path) as file:
        size = file.size()
        if size < 12:
            raise SourceError(f"{path}: this is not a Parquet file (no {_MAGIC.decode()} at its start)")
        tail = file.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
        length = _footer_bytes(path, tail[-8:], size)
        whole = tail[-8 - length : -8] if length + 8 <= len(tail) else file.read_at(length, size - 8 - length)
        return bytes(whole), size


def _edited_schema(footer: bytes) -> tuple[bytearray, dict[str, tuple[int, int]], list[int | None], set[str]]:
    """The footer with the DECIMAL annotation of integer columns taken away and INT96 as bytes; the names, widths and
    scales of those decimals; `Footer.leaves`; and the names of columns of INT96.

    A footer is a struct; field 2 is the list of schema elements: the root, and what is below each element right behind
    it. Field ids are relative to the field before, so that everything after the list can be copied as it is."""
    at = number = 0
    while True:
        number, kind, at = thrift.field(footer, at, number)
        if kind == thrift.STOP:
            raise ValueError("no schema")
        if number == _SCHEMA:
            break
        _, at = thrift.decode(footer, at, kind)
    count, kind, start = thrift.list_header(footer, at)
    if kind != thrift.STRUCT:
        raise ValueError("no schema")
    out = bytearray(footer[:start])
    at = start
    unscaled: dict[str, tuple[int, int]] = {}
    leaves: list[int | None] = []
    int96: set[str] = set()
    leaf, open_groups = 0, list[int]()
    for element in range(count):
        fields, at = _fields(footer, at)
        values = {number: value for number, _, value, _ in fields}
        is_group, is_column = _TYPE not in values, bool(element) and not open_groups
        if is_column:
            leaves.append(None if is_group else leaf)
        leaf += not is_group
        if is_group and element and values.get(_CHILDREN):
            open_groups.append(values[_CHILDREN])
        elif element:
            while open_groups:
                open_groups[-1] -= 1
                if open_groups[-1] > 0:
                    break
                open_groups.pop()
        if is_column and values.get(_TYPE) in (_INT32, _INT64) and _is_decimal(values):
            width, scale = values.get(_PRECISION), values.get(_SCALE, 0)
            if width is not None and 1 <= width <= 18 and 0 <= scale <= width:
                unscaled[values[_NAME].decode("utf-8")] = (width, scale)
                fields = [f for f in fields if f[0] not in (_CONVERTED_TYPE, _SCALE, _PRECISION, _LOGICAL_TYPE)]
        elif is_column and values.get(_TYPE) == _INT96:
            kind, stored, length = _THRIFT_I32, *_TWELVE_BYTES
            int96.add(values[_NAME].decode("utf-8"))
            others = [f for f in fields if f[0] not in (_TYPE, _LENGTH)]
            fields = [(_TYPE, kind, None, stored), (_LENGTH, kind, None, length), *others]
        last = 0
        for number, kind, _, raw in fields:
            out += thrift.header(number, last, kind) + raw
            last = number
        out.append(thrift.STOP)
    out += footer[at:]
    return out, unscaled, leaves, int96


def _is_decimal(values: dict[int, Any]) -> bool:
    logical = values.get(_LOGICAL_TYPE)
    return _LOGICAL_DECIMAL in logical if logical is not None else values.get(_CONVERTED_TYPE) == _CONVERTED_DECIMAL


def _fields(data: bytes, at: int) -> tuple[list[tuple[int, int, Any, bytes]], int]:
    """(field id, type, value, its bytes) of each field of a struct, and the offset after it."""
    found: list[tuple[int, int, Any, bytes]] = []
    number = 0
    while True:
        number, kind, at = thrift.field(data, at, number)
        if kind == thrift.STOP:
            return found, at
        value, end = thrift.decode(data, at, kind)
        found.append((number, kind, value, data[at:end]))
        at = end


class ColumnChunk(NamedTuple):
    """The footer's data on one column in one row group. Statistics are raw bytes, or None; `deprecated` marks the old
    ones, whose order is only right for signed numbers. The pages of the chunk are in `stored_bytes` bytes from `start`,
    and take `plain_bytes` when decompressed. `elsewhere`: they are in another file."""

    physical: int
    encodings: tuple[int, ...]
    codec: int
    values: int
    start: int
    stored_bytes: int
    plain_bytes: int
    elsewhere: bool
    dictionary_bytes: int | None
    minimum: bytes | None
    maximum: bytes | None
    nulls: int | None
    deprecated: bool


def _chunks(raw: bytes, limit: int | None) -> list[list[ColumnChunk]]:
    """The chunks of the first `limit` row groups, a list per row group."""
    at = number = 0
    while True:
        number, kind, at = thrift.field(raw, at, number)
        if kind == thrift.STOP:
            return []
        if number == _ROW_GROUPS:
            break
        _, at = thrift.decode(raw, at, kind)
    count, kind, at = thrift.list_header(raw, at)
    if kind != thrift.STRUCT:
        raise ValueError("no row groups")
    groups = []
    for _ in range(count if limit is None else min(limit, count)):
        group, at = thrift.decode(raw, at, thrift.STRUCT)
        groups.append([_chunk(column[3], 1 in column) for column in group[1]])
    return groups


def _chunk(column: dict[int, Any], elsewhere: bool) -> ColumnChunk:
    statistics = column.get(12) or {}
    deprecated = 5 not in statistics and 6 not in statistics
    low, high = (statistics.get(2), statistics.get(1)) if deprecated else (statistics.get(6), statistics.get(5))
    page = column.get(11)
    return ColumnChunk(
        physical=column[1],
        encodings=tuple(column[2]),
        codec=column[4],
        values=column[5],
        start=min(page, column[9]) if page else column[9],
        stored_bytes=column[7],
        plain_bytes=column[6],
        elsewhere=elsewhere,
        dictionary_bytes=None if not page else column[9] - page,
        minimum=low,
        maximum=high,
        nulls=statistics.get(3),
        deprecated=deprecated,
    )
