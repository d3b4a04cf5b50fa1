"""Project: named expressions, computed only when a later step uses them."""

from __future__ import annotations

from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.pipeline import Operator, Push
from tsql.kernels.emit.rows import CachedRow, DerivedRow
from tsql.kernels.expr.nodes import Column, Expr


class Project(Operator):
    """Renames and computes columns."""

    def __init__(self, columns: tuple[tuple[str, Expr], ...]):
        self.columns = dict(columns)

    @property
    def renames(self) -> dict[str, Column] | None:
        names = {name: e for name, e in self.columns.items() if isinstance(e, Column)}
        return names if len(names) == len(self.columns) else None

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        push(k, DerivedRow(row, self.columns))

    def describe(self) -> str:
        return "project " + ", ".join(f"{n}={e}" for n, e in self.columns.items())
