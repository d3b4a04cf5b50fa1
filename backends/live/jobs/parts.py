"""Held rows as the parts that a checkpoint writes: a chunk that was written once is the same part in later epochs."""

from __future__ import annotations

import pyarrow as pa

from tsql.backends.live.fragments import to_table
from tsql.backends.live.operator import HeldRows
from tsql.backends.local.run.host import Chunk
from tsql.kernels.expr.schema import Schema

LEAST_ROWS = 8_192
"""Chunks with fewer rows go into one part together."""


class Parts:
    """Remembers which chunk became which part. Chunks never change."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Chunk, pa.RecordBatch]] = {}

    def of(self, tables: dict[str, HeldRows]) -> dict[str, list[pa.RecordBatch]]:
        """The parts of each table now."""
        kept: dict[int, tuple[Chunk, pa.RecordBatch]] = {}
        found = {}
        for name, held in tables.items():
            parts, small = [], []
            for chunk in held.rows:
                if chunk.rows < LEAST_ROWS or not len(held.schema):
                    small.append(chunk)
                    continue
                kept[id(chunk)] = known = self._known.get(id(chunk)) or (chunk, _batch(chunk, held.schema))
                parts.append(known[1])
            if small:
                parts += to_table(small, held.schema).combine_chunks().to_batches()
            found[name] = parts
        self._known = kept
        return found


def _batch(chunk: Chunk, schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(chunk.arrays, list(schema.names))


def joined(parts: list[pa.RecordBatch]) -> pa.Table:
    """The parts of a table as one. Their types may differ: a column may be a dictionary in one of them."""
    if not parts:
        return pa.table({})
    return pa.Table.from_batches([part.cast(parts[0].schema) for part in parts])
