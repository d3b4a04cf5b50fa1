"""Sorts the rows of a shard by one integer key and then by time, directly from their chunks
(kernels/runtime/group_rows.py).

`sorted_columns` does the same for any keys, over columns that were concatenated first. This is for the most common
window input: many keys, a time, and fixed-width columns without NULLs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.local.sort.sorting import MANY_ROWS, plain_bytes
from tsql.kernels.codegen import memory
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.runtime.group_rows import CHUNK_BITS, bounds_module, group_rows_module

MOST_CODES_PER_ROW = 2
"""With more possible keys per row, most counts would be empty."""

MOST_CHUNKS = 1 << (31 - CHUNK_BITS)


def grouped_rows(chunks: list[list[pa.Array]], keys: list[tuple[int, SortKey]], shift: int) -> list[pa.Array] | None:
    """The columns of chunks, sorted by two of them: a key and a time. None if the columns do not qualify. Keys of these
    rows differ only in the bits above `shift`."""
    if len(keys) != 2 or any(key.descending for _, key in keys):
        return None
    rows = sum(len(arrays[0]) for arrays in chunks)
    if rows < MANY_ROWS or len(chunks) > MOST_CHUNKS or any(len(arrays[0]) > 1 << CHUNK_BITS for arrays in chunks):
        return None
    (by, _), (order, _) = keys
    types = [array.type for array in chunks[0]]
    if types[by] not in (pa.int32(), pa.int64()) or types[order] not in (
        pa.int64(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
    ):
        return None
    widths = [plain_bytes([arrays[i] for arrays in chunks]) for i in range(len(types))]
    if not all(widths):
        return None
    gathered = [i for i in range(len(types)) if i != order]
    records = np.array(
        [
            [
                len(a[0]),
                _address(a[by], widths[by]),
                _address(a[order], 8),
                *(_address(a[i], widths[i]) for i in gathered),
            ]
            for a in chunks
        ],
        np.int64,
    )
    limits = np.iinfo(np.int64)
    bounds = np.array([widths[by], shift, records.shape[1], limits.max, limits.min], np.int64)
    _call(bounds_module, bounds, records, rows)
    least, codes = int(bounds[3]), int(bounds[4]) - int(bounds[3]) + 1
    if codes > MOST_CODES_PER_ROW * rows:
        return None
    counts, numbers, spare = np.empty(codes, np.int64), memory.empty(rows, np.int64), memory.empty(rows, np.int64)
    names, spare_names = memory.empty(rows, np.int32), memory.empty(rows, np.int32)
    targets = {i: memory.empty(rows * widths[i], np.uint8) for i in gathered}
    words = [
        *bounds[:3],
        least,
        codes,
        *(a.ctypes.data for a in (counts, numbers, names, spare, spare_names)),
        len(gathered),
    ]
    words += [word for i in gathered for word in (targets[i].ctypes.data, widths[i])]
    _call(group_rows_module, np.array(words, np.int64), records, rows)
    targets[order] = numbers
    return [pa.Array.from_buffers(types[i], rows, [None, pa.py_buffer(targets[i])], 0) for i in range(len(types))]


def _call(module: Any, plan: np.ndarray, records: np.ndarray, rows: int) -> None:
    compiler().routine(module, rows=rows)(plan.ctypes.data, records.ctypes.data, len(records))


def _address(array: pa.Array, width: int) -> int:
    return array.buffers()[1].address + array.offset * width
