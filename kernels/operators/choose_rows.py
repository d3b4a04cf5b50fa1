"""Choose: records which rows of a batch pass, so that later columns are decoded for these rows only.

`Admit` stands in for a join: the join's directory rejects rows without a partner, as far as it can. The join itself is
done by the next pipeline (`backends/local/run/late_decoding.py`)."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import SINK, PipelineKernel
from tsql.kernels.emit.pipeline import Operator, Push, Sink
from tsql.kernels.emit.rows import POSITION, CachedRow, SelectedRow
from tsql.kernels.operators.join.hash_join import Probe

LAST_ROW = (1 << 31) - 1
"""Written after the last row number: greater than all rows."""


class Choose(Sink):
    """The numbers of the rows, as i32. The state holds the address for them, given by the host, and their count. A
    row's number is its position, so a batch starts at position 0."""

    state_bytes = 16

    def begin(self, k: PipelineKernel) -> None:
        self.state = k.load("ptr", k.offset(k.ctx, SINK))
        self.rows, self.count = k.load("ptr", self.state), k.var(k.i64(0))

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        (position,) = row.column(k, POSITION).parts
        k.store(self.rows, position.to("i32"), self.count.value)
        self.count.set(self.count.value + 1)

    def end(self, k: PipelineKernel) -> None:
        k.store(self.rows, k.i32(LAST_ROW), self.count.value)
        k.store(self.state, self.count.value, 1)

    def describe(self) -> str:
        return "choose rows"


class Admit(Operator):
    """Passes on rows that may have a partner."""

    selects = True
    vectorises = False

    def __init__(self, probe: Probe):
        self.probe, self.reads = probe, probe.reads

    @property
    def signature(self) -> object:
        return self.probe.signature

    def condition(self, k: PipelineKernel, row: CachedRow) -> Val:
        return self.probe.condition(k, row)

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        if isinstance(row, SelectedRow) and self in row.passed:
            push(k, row)
            return
        with k.when(self.condition(k, row)):
            push(k, row)

    def describe(self) -> str:
        return f"admit ({', '.join(map(str, self.probe.keys))})"
