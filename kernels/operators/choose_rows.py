"""Choose: writes down which rows of a batch pass, so that the columns that come later are decoded for these alone.

`Admit` stands for a join in front of it: a row without a partner is told apart by the join's directory, as far as that
can tell. The join itself is done by the pipeline behind (`backends/local/run/late_decoding.py`)."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import SINK, PipelineKernel
from tsql.kernels.emit.pipeline import Operator, Push, Sink
from tsql.kernels.emit.rows import POSITION, CachedRow, SelectedRow
from tsql.kernels.operators.join.hash_join import Probe

LAST_ROW = (1 << 31) - 1
"""Stands behind the last number that is written: greater than all rows."""


class Choose(Sink):
    """The numbers of the rows, as i32. The state is the address that the host has written them to, and how many there
    are; a row's number is its position, which is why a batch starts at position 0."""

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
    """Passes rows on that may have a partner."""

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
