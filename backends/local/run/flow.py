"""`Flow`: a dataset with the operators that its rows still pass through. Steps hand flows to each other.

Filters and projections cost no pass of their own: they wait in the flow until a step ends the pipeline with a sink.
"""

from __future__ import annotations

from dataclasses import field, replace

from tsql.backends.local.run.dataset import ChunkData, Dataset
from tsql.kernels.emit.pipeline import Operator
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.quick_dataclass import dataclass


@dataclass
class Flow:
    """A dataset and the operators that its rows still pass through. `schema` describes the rows after the operators."""

    data: Dataset
    schema: Schema
    operators: list[Operator] = field(default_factory=list)
    replicated: bool = False
    """Whether every shard has all rows. The data are then chunks, the same in each shard."""

    def then(self, operator: Operator, schema: Schema) -> Flow:
        return Flow(self.data, schema, [*self.operators, operator], self.replicated)


def row_bound(rows: int | None) -> int | None:
    """The row count that kernels are made for: an upper bound that is the same for most runs of a plan."""
    return None if rows is None else (1 << rows.bit_length()) - 1


def one_copy(flow: Flow) -> Flow:
    """The rows of a flow once: if every shard has all rows, those of one shard."""
    return replace(flow, data=first_shard(flow.data), replicated=False) if flow.replicated else flow


def first_shard(data: Dataset) -> Dataset:
    """One copy of a replicated dataset."""
    return ChunkData(data.columns, data.chunks[:1], data.batch_rows)
