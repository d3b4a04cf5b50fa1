"""Filter: rows for which a predicate is true."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.expressions import emit_predicate
from tsql.kernels.emit.pipeline import Operator, Push
from tsql.kernels.emit.rows import CachedRow, MaskedRow, SelectedRow
from tsql.kernels.emit.selection import decides, emit_condition, is_selectable
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.functions.datetime.presence import counts_rows


class Filter(Operator):
    """Passes on rows for which the predicate is true. With `masked` there is no branch: the row carries a mask, which a
    sink with one group folds into its arithmetic, so the loop can use vector instructions. With `selects`, above a
    scan, a cheap condition is computed for many rows first (see kernels/emit/selection.py)."""

    def __init__(self, predicate: Expr, masked: bool = False, selects: bool = False):
        self.predicate = predicate
        self.masked = masked
        self.selects = selects and is_selectable(predicate)
        self.tallies = counts_rows(predicate)
        self.reads = frozenset(predicate.columns())

    def condition(self, k: PipelineKernel, row: CachedRow) -> Val:
        return emit_condition(k, self.predicate, row)

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        if isinstance(row, SelectedRow) and self in row.passed and decides(k, self.predicate, row):
            push(k, row)
            return
        if self.masked:
            hit = emit_predicate(k, self.predicate, row)
            push(k, MaskedRow(row, hit if row.mask is None else row.mask & hit))
            return
        with k.when(emit_predicate(k, self.predicate, row)):
            push(k, row)

    def outline(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        if self.masked:
            self.consume(k, row, push)
        else:
            push(k, row)

    def describe(self) -> str:
        return f"filter {self.predicate}" + (" masked" if self.masked else " select" if self.selects else "")
