"""Evaluates expressions over an Arrow table through a pipeline, compiled and interpreted: the bench on which functions are tested."""

from __future__ import annotations

import pyarrow as pa

from tests.levels import level_by_text
from tsql.backends import Run
from tsql.backends.local.host import Code, Context, Shared, take_chunks
from tsql.kernels.batch import Morsels, source_columns
from tsql.kernels.codegen.kir import parse
from tsql.kernels.codegen.spec import verify
from tsql.kernels.expr import Expr
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.kernels.pipeline import ColumnarScan, Pipeline
from tsql.kernels.types import from_arrow


class Bench:
    """Expressions over a table (default: one row without columns), emitted, and checked as every kernel is."""

    def __init__(self, expressions: list[Expr], table: pa.Table | None = None, parameters: dict | None = None):
        table = pa.table({"dummy": pa.array([0], pa.int32())}) if table is None else table
        self.arrays = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.combine_chunks().columns]
        columns = source_columns(tuple(table.column_names), tuple(from_arrow(a.type) for a in self.arrays), self.arrays)
        self.sink = Collect(tuple(OutputColumn(f"c{i}", e, True, True) for i, e in enumerate(expressions)))
        self.program = Pipeline(ColumnarScan(columns), [], self.sink).emit()
        self.expressions, self.rows, self.parameters = expressions, table.num_rows, parameters or {}
        text = self.program.module.text()
        verify(self.program.module)
        assert parse(text).text() == text

    def run(self, interpret: bool) -> list[pa.Array]:
        """The values of the expressions for each row."""
        shared = Shared(Run(parameters=self.parameters))
        context = Context(self.program, shared, self.sink.state_bytes)
        morsels = Morsels(len(self.arrays))
        morsels.add_arrays(self.arrays, 0, self.rows)
        try:
            Code(self.program, interpret, level_by_text(self.program)).run(context, morsels)
            chunks = take_chunks(context.state_address, self.sink.columns, shared)
        finally:
            context.close()
        return [pa.chunked_array([c.arrays[i] for c in chunks], e.type.to_arrow()).combine_chunks() for i, e in enumerate(self.expressions)]


def evaluate(expressions: list[Expr], table: pa.Table | None = None, interpret: bool = False, parameters: dict | None = None) -> list[pa.Array]:
    """The values of the expressions for each row of `table`."""
    return Bench(expressions, table, parameters).run(interpret)


def both(expressions: list[Expr], table: pa.Table | None = None, parameters: dict | None = None) -> list[pa.Array]:
    """As `evaluate`, and the interpreter and LLVM must agree."""
    bench = Bench(expressions, table, parameters)
    compiled, interpreted = bench.run(False), bench.run(True)
    for a, b in zip(compiled, interpreted, strict=True):
        assert repr(stored(a).to_pylist()) == repr(stored(b).to_pylist())
    return compiled


def stored(array: pa.Array) -> pa.Array:
    """Dates and times as the integers that they are, because Python's end at the year 9999."""
    return array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64()) if pa.types.is_temporal(array.type) and not pa.types.is_interval(array.type) else array
