"""Shared by partitioned joins: the sides of a join as they are written, and pairs of partitions."""

from __future__ import annotations

from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.spill import AnyChunk, bytes_of
from tsql.backends.local.spill.partitions import ENTRY_BYTES
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass
class Side:
    """One side of a join as it is written: its columns, including the keys."""

    columns: tuple[OutputColumn, ...]
    keys: tuple[Column, ...]
    schema: Schema

    @staticmethod
    def of(flow: Flow, keys: tuple[Expr, ...], names: set[str] | None) -> Side:
        """The wanted columns (None: all) and the keys. Keys that are not columns become columns."""
        wanted = None if names is None else names | {k.name for k in keys if isinstance(k, Column)}
        columns = [
            OutputColumn(f.name, Column(f.name, f.type, f.nullable))
            for f in flow.schema
            if wanted is None or f.name in wanted
        ]
        known: list[Column] = []
        for number, key in enumerate(keys):
            name = key.name if isinstance(key, Column) else f"#joined{number}"
            if not isinstance(key, Column):
                columns.append(OutputColumn(name, key))
            known.append(Column(name, key.type))
        return Side(tuple(columns), tuple(known), Schema(tuple(Field(c.name, c.type) for c in columns)))

    def data(self, shards: list[list[AnyChunk]], batch_rows: int) -> ChunkData:
        return ChunkData(tuple(c.source() for c in self.columns), shards, batch_rows, stable=False)


@dataclass
class Pair:
    """A partition of the build side, in blocks that each fit in memory, and the matching partition of the probe
    side."""

    blocks: list[list[AnyChunk]]
    probed: list[AnyChunk]


def table_bytes(chunks: list[AnyChunk]) -> int:
    """The approximate memory that the table of these rows takes."""
    return bytes_of(chunks) + ENTRY_BYTES * sum(c.rows for c in chunks)
