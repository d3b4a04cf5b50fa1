"""Filter: rows for which a predicate is true."""

from __future__ import annotations

from tsql.kernels.context import PipelineKernel
from tsql.kernels.emit import emit_predicate
from tsql.kernels.expr import Expr
from tsql.kernels.pipeline import Operator, Push
from tsql.kernels.rows import CachedRow


class Filter(Operator):
    """Passes a row on where the predicate is true."""

    def __init__(self, predicate: Expr):
        self.predicate = predicate

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        with k.when(emit_predicate(k, self.predicate, row)):
            push(k, row)

    def describe(self) -> str:
        return f"filter {self.predicate}"
