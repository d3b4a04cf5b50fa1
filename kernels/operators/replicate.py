"""Replicate: repeats each row as often as an expression says."""

from __future__ import annotations

from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.pipeline import Operator, Push
from tsql.kernels.emit.rows import CachedRow
from tsql.kernels.expr.nodes import Expr


class Replicate(Operator):
    """Pushes the row `times` times; zero, less or NULL drops it."""

    multiplies = True

    def __init__(self, times: Expr):
        self.times = times

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        d = emit(k, self.times, row).wide()
        times = d.value if d.valid is None else k.select(d.valid, d.value, k.i64(0))
        with k.range(times):
            push(k, row)

    def describe(self) -> str:
        return f"replicate {self.times}"
