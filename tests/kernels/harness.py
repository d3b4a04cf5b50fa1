"""Evaluates expressions over an Arrow table through a pipeline, compiled and interpreted: the bench on which functions are tested."""

from __future__ import annotations

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local.host import Code, Context, Shared, take_chunks
from tsql.kernels.batch import Morsels, source_columns
from tsql.kernels.codegen.kir import parse
from tsql.kernels.codegen.spec import verify
from tsql.kernels.expr import Expr
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.kernels.pipeline import ColumnarScan, Pipeline
from tsql.kernels.types import from_arrow


def evaluate(expressions: list[Expr], table: pa.Table | None = None, interpret: bool = False, parameters: dict | None = None) -> list[pa.Array]:
    """The values of the expressions for each row of `table` (default: one row without columns)."""
    table = pa.table({"dummy": pa.array([0], pa.int32())}) if table is None else table
    batch = table.combine_chunks()
    arrays = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in batch.columns]
    columns = source_columns(tuple(table.column_names), tuple(from_arrow(a.type) for a in arrays), arrays)
    sink = Collect(tuple(OutputColumn(f"c{i}", e, True, True) for i, e in enumerate(expressions)))
    program = Pipeline(ColumnarScan(columns), [], sink).emit()
    verify(program.module)
    text = program.module.text()
    assert parse(text).text() == text
    run = Run(parameters=parameters or {})
    shared = Shared(run)
    context = Context(program, shared, sink.state_bytes)
    morsels = Morsels(len(columns))
    morsels.add_arrays(arrays, 0, table.num_rows)
    try:
        Code(program, interpret).run(context, morsels)
        chunks = take_chunks(context.state_address, sink.columns, shared)
    finally:
        context.close()
    return [pa.chunked_array([c.arrays[i] for c in chunks], e.type.to_arrow()).combine_chunks() for i, e in enumerate(expressions)]


def both(expressions: list[Expr], table: pa.Table | None = None, parameters: dict | None = None) -> list[pa.Array]:
    """As `evaluate`, and the interpreter and LLVM must agree."""
    compiled = evaluate(expressions, table, False, parameters)
    interpreted = evaluate(expressions, table, True, parameters)
    for a, b in zip(compiled, interpreted, strict=True):
        assert repr(stored(a).to_pylist()) == repr(stored(b).to_pylist())
    return compiled


def stored(array: pa.Array) -> pa.Array:
    """Dates and times as the integers that they are, because Python's end at the year 9999."""
    return array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64()) if pa.types.is_temporal(array.type) and not pa.types.is_interval(array.type) else array
