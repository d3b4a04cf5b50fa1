"""`Snapshot`: the result of a progressive query as it is known so far, from a backend to the front end."""

from __future__ import annotations

from dataclasses import field

import pyarrow as pa

from tsql.kernels.process.quick_dataclass import dataclass


@dataclass(frozen=True)
class Snapshot:
    """batches: of the plan's output schema. bounds: arrays of doubles with the lower and upper bounds of a column, by
    its place; NULL where a value has none yet. rows: of the progressing input that have been read, out of `all_rows`.
    is_final: the batches are the exact result. is_last: there are no further snapshots. notes: what else is to say of a
    column, by its place ("observed so far"). status: "certain", "possible" or NULL for each row; None if nothing can be
    said of any."""

    batches: list[pa.RecordBatch]
    rows: int
    all_rows: int | None
    is_final: bool
    is_last: bool
    bounds: dict[int, tuple[pa.ChunkedArray, pa.ChunkedArray]] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    status: pa.ChunkedArray | None = None
