"""Writes a Parquet file of three rows whose footer claims another number of them."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 3


def claim(path: Path, rows: int, values: bool) -> None:
    """A file with the column a = 1, 2, 3. `values`: the number of values of the column is changed too, not only that of
    rows."""
    pq.write_table(pa.table({"a": [1, 2, 3]}), path, write_statistics=False)
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = data[-8 - length : -8]
    # Thrift's compact form: a field's number relative to the one before and its kind (6: 64 bits), then the number as
    # zigzag varint.
    old, new = bytes([ROWS * 2]), _varint(rows * 2)
    # FileMetaData.num_rows (field 3 after the list of field 2), RowGroup.num_rows (field 3 after field 2),
    # ColumnMetaData.num_values (field 5 after field 4).
    changed = footer.replace(b"\x16" + old, b"\x16" + new)
    if not values:
        # The number of values is the first of the three that follows the codec (field 4, an i32).
        at = changed.index(b"\x15", changed.index(b"a", changed.index(b"\x19", 40)))
        at = changed.index(b"\x16" + new, at)
        changed = changed[:at] + b"\x16" + old + changed[at + 1 + len(new) :]
    path.write_bytes(data[: -8 - length] + changed + struct.pack("<I", len(changed)) + b"PAR1")
    found = pq.read_metadata(path)
    assert found.num_rows == found.row_group(0).num_rows == rows
    assert found.row_group(0).column(0).num_values == (rows if values else ROWS)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
