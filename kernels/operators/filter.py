"""Filter: rows for which a predicate is true."""

from __future__ import annotations

from tsql.kernels.context import PipelineKernel
from tsql.kernels.emit import emit_predicate
from tsql.kernels.expr import Expr
from tsql.kernels.pipeline import Operator, Push
from tsql.kernels.rows import CachedRow, MaskedRow


class Filter(Operator):
    """Passes a row on where the predicate is true. With `masked` there is no branch: the row goes on with a mask, which
    a sink of one group folds into its arithmetic, so that the loop can use vector instructions."""

    def __init__(self, predicate: Expr, masked: bool = False):
        self.predicate = predicate
        self.masked = masked

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        if self.masked:
            hit = emit_predicate(k, self.predicate, row)
            push(k, MaskedRow(row, hit if row.mask is None else row.mask & hit))
            return
        with k.when(emit_predicate(k, self.predicate, row)):
            push(k, row)

    def describe(self) -> str:
        return f"filter {self.predicate}" + (" masked" if self.masked else "")
