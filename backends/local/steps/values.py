"""Runs `values`: constants become columns. A row with computed constants is a projection of one row."""

from __future__ import annotations

from tsql.backends.local.lower.graph import Lowering, Node, Pipe, Shape
from tsql.backends.local.lower.local_step import LocalStep, described, host_pipes, runs
from tsql.backends.local.run.constants import constant_array
from tsql.backends.local.run.dataset import ChunkData
from tsql.backends.local.run.flow import Flow
from tsql.backends.local.run.host import Chunk
from tsql.kernels.expr.nodes import Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators.collect import OutputColumn
from tsql.planner.physical.operators.values import Values


@runs(Values)
class ValuesStep(LocalStep[Values]):
    """Rows that are given in the plan."""

    @classmethod
    def lower(cls, step: Values, inputs: tuple[Node, ...], about: Lowering) -> Shape:
        computed = [row for row in step.rows if not all(isinstance(e, Literal) for e in row)]
        hosts = host_pipes(*(e for row in computed for e in row))
        pipes = (*hosts, Pipe("row *", "collect", None, "a row without columns")) if computed else ()
        return Shape(source=f"{described(step)} ({len(step.rows)} rows)", pipes=pipes)

    def flow(self, node: Node) -> Flow:
        step, rows = node.step, node.step.rows
        columns = tuple(OutputColumn(f.name, Column(f.name, f.type)) for f in step.fields)
        if all(isinstance(e, Literal) for row in rows for e in row):
            arrays = [constant_array(f.type, [row[i].value for row in rows]) for i, f in enumerate(step.fields)]
            chunks = [Chunk((0,), len(rows), arrays)] if rows else []
        else:
            chunks = [self._row(step, number, row, columns) for number, row in enumerate(rows)]
        data = ChunkData(tuple(c.source() for c in columns), [chunks], self.x.spill.morsel_rows())
        return Flow(data, step.schema)

    def _row(self, step: Values, number: int, row: tuple[Expr, ...], columns: tuple[OutputColumn, ...]) -> Chunk:
        """A row with computed constants."""
        one = Flow(ChunkData((), [[Chunk((0,), 1, [])]]), Schema(()))
        one, expressions = self.x.hosts.calls(step, one, row)
        computed = tuple(OutputColumn(c.name, e) for c, e in zip(columns, expressions, strict=True))
        return Chunk((number,), 1, self.x.rows.collect(step, one, computed, f"row {number}")[0][0].arrays)
