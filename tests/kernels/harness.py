"""Evaluates expressions over an Arrow table through a pipeline, compiled and interpreted. Functions are tested with
it."""

from __future__ import annotations

import pyarrow as pa

from tsql.backends import Run
from tsql.backends.local.run.host import Code, Context, Shared, take_chunks
from tsql.kernels.codegen.kir import Module, parse
from tsql.kernels.codegen.llvm import TIERED
from tsql.kernels.codegen.spec import verify
from tsql.kernels.emit.batch import Morsels, source_columns
from tsql.kernels.emit.pipeline import ColumnarScan, Pipeline
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import from_arrow
from tsql.kernels.operators.collect import Collect, OutputColumn


class Bench:
    """Expressions over a table (default: one row without columns), emitted, and checked as every kernel is."""

    def __init__(self, expressions: list[Expr], table: pa.Table | None = None, parameters: dict | None = None):
        table = pa.table({"dummy": pa.array([0], pa.int32())}) if table is None else table
        self.arrays = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.combine_chunks().columns]
        columns = source_columns(tuple(table.column_names), tuple(from_arrow(a.type) for a in self.arrays), self.arrays)
        self.sink = Collect(tuple(OutputColumn(f"c{i}", e, True, True) for i, e in enumerate(expressions)))
        self.program = Pipeline(ColumnarScan(columns), [], self.sink).emit()
        self.expressions, self.rows, self.parameters = expressions, table.num_rows, parameters or {}
        verify(self.program.module)
        reads_back(self.program.module)

    def run(self, interpret: bool, rows: list[int] | None = None) -> list[pa.Array]:
        """The values of the expressions for each row, or for those with the given numbers (each is a morsel of its
        own)."""
        shared = Shared(Run(parameters=self.parameters))
        context = Context(self.program, shared, self.sink.state_bytes)
        morsels = Morsels(len(self.arrays))
        if rows is None:
            morsels.add_arrays(self.arrays, 0, self.rows)
        else:
            for row in rows:
                morsels.add_arrays([a.slice(row, 1) for a in self.arrays], row)
        try:
            Code(self.program, interpret, TIERED).run(context, morsels)
            chunks = take_chunks(context.state_address, self.sink.columns, shared)
        finally:
            context.close()
        return [
            pa.chunked_array([c.arrays[i] for c in chunks], e.type.to_arrow()).combine_chunks()
            for i, e in enumerate(self.expressions)
        ]


READ_BACK: set[str] = set()
"""Texts of functions that were read back: most kernels share routines with others."""


def reads_back(module: Module) -> None:
    """The text of each function parses to a function of the same text."""
    texts = [text for text in (f.text() for f in module.functions.values()) if text not in READ_BACK]
    if texts:
        text = "\n".join(texts)
        assert parse(text).text() == text
        READ_BACK.update(texts)


def evaluate(
    expressions: list[Expr], table: pa.Table | None = None, interpret: bool = False, parameters: dict | None = None
) -> list[pa.Array]:
    """The values of the expressions for each row of `table`."""
    return Bench(expressions, table, parameters).run(interpret)


def both(
    expressions: list[Expr],
    table: pa.Table | None = None,
    parameters: dict | None = None,
    random_from: int | None = None,
) -> list[pa.Array]:
    """As `evaluate`, and the interpreter and LLVM must agree. Rows from number `random_from` on are random values: of
    these the interpreter computes only every third, because it takes a thousand times as long per row."""
    bench = Bench(expressions, table, parameters)
    compiled = bench.run(False)
    if random_from is None or bench.rows <= random_from:
        agree(compiled, bench.run(True))
    else:
        rows = [*range(random_from), *range(random_from, bench.rows, 3)]
        agree([a.take(pa.array(rows)) for a in map(stored, compiled)], bench.run(True, rows))
    return compiled


def agree(compiled: list[pa.Array], interpreted: list[pa.Array]) -> None:
    for a, b in zip(compiled, interpreted, strict=True):
        assert repr(stored(a).to_pylist()) == repr(stored(b).to_pylist())


def stored(array: pa.Array) -> pa.Array:
    """Dates and times as the integers that they are, because Python's end at the year 9999."""
    return (
        array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
        if pa.types.is_temporal(array.type) and not pa.types.is_interval(array.type)
        else array
    )
