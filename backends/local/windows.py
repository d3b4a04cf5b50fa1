"""Runs window functions: the rows of each shard are collected and sorted, and a kernel walks them once.

The kernel is a source (kernels/operators/window.py), so that what follows (a filter of QUALIFY, a projection) runs in the same
pass. A shard is sorted when its task begins; its memory goes when the task ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tsql.backends.local.dataset import BlockData, ChunkData, Dataset, Part, SourceData
from tsql.backends.local.host import Chunk, Context, Shared, take_chunks
from tsql.backends.local.moves import MovementRunner
from tsql.backends.local.runner import Flow
from tsql.backends.local.sorting import combine, sorted_order, taken, value_codes
from tsql.kernels.batch import Layout, Morsels, SourceColumn
from tsql.kernels.errors import ExecutionError
from tsql.kernels.expr import Column, Expr, Literal, Parameter, SortKey
from tsql.kernels.operators.collect import Collect, OutputColumn
from tsql.kernels.operators.window import WindowScan
from tsql.kernels.pipeline import Sink
from tsql.kernels.types import BIGINT
from tsql.kernels.windows.base import MOST_ROWS
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.choose import code_column, needs_codes, sample_column
from tsql.planner.operators.window import Window


class WindowData(Dataset):
    """The rows of a window step, one list of chunks per shard, that are sorted when they are read. `keeps`: they may be read
    again, by a step that turns to files half way."""

    def __init__(self, step: Window, columns: tuple[OutputColumn, ...], chunks: list[list[Chunk]], parts: tuple[Any, Any, Any], shared: Shared, keeps: bool):
        self.chunks, self.shared, self.step, self.keeps = chunks, shared, step, keeps
        self.by, self.order, self.calls = parts
        self.names = [c.name for c in columns]
        self.shards = len(chunks)
        self.rows = sum(c.rows for one in chunks for c in one)
        self.coded = tuple((name, call) for name, call in self.calls if needs_codes(call))
        self.source = WindowScan((*self._columns(columns), *self._code_columns()), self.by, self.order, self.calls)

    def _columns(self, columns: tuple[OutputColumn, ...]) -> Iterator[SourceColumn]:
        """The columns as they lie in the chunks; one without NULLs needs no code for them."""
        for number, column in enumerate(columns):
            nullable = not self.rows or any(c.arrays[number].null_count for one in self.chunks for c in one)
            layout = column.layout()
            yield SourceColumn(column.name, column.type, Layout(layout.kind, layout.machine, nullable, layout.unsigned))

    def _code_columns(self) -> Iterator[SourceColumn]:
        for name, _ in self.coded:
            for column in (code_column(name), sample_column(name)):
                yield SourceColumn(column.name, BIGINT, Layout("fixed", "i64", False))

    def empty_source(self) -> WindowScan:
        return self.source

    def feed(self, shard: int) -> Iterator[Part]:
        chunks = self.chunks[shard]
        if not self.keeps:
            self.chunks[shard] = []
        rows = sum(c.rows for c in chunks)
        if not rows:
            return
        if rows >= MOST_ROWS:
            raise ExecutionError(f"a partition of a window, or the partitions of one shard, have {rows:,} rows: at most {MOST_ROWS:,} are possible")
        bytes = sum(a.nbytes for c in chunks for a in c.arrays)
        working = 8 * rows * (len(self.by) + len(self.order) + 2 + 2 * len(self.coded))
        self.shared.reserve(2 * bytes + working)
        try:
            self.shared.run.check()
            arrays = [combine([c.arrays[i] for c in chunks]) for i in range(len(self.names))]
            del chunks
            morsels = Morsels(len(self.source.columns))
            morsels.add_arrays(self._sorted(arrays), 0, rows)
            del arrays
            yield Part(self.source, morsels, (shard,))
        finally:
            self.shared.release(2 * bytes + working)

    def _sorted(self, arrays: list[pa.Array]) -> list[pa.Array]:
        """All columns in window order, and the codes of the values of calls that need them."""
        by_name = dict(zip(self.names, arrays, strict=True))
        keys = (*(SortKey(e) for e in self.by), *self.order)
        order = sorted_order([(by_name[key.expr.name], key) for key in keys if isinstance(key.expr, Column)])
        self.shared.run.check()
        ordered = [taken(a, order) for a in arrays]
        by_name = dict(zip(self.names, ordered, strict=True))
        for _, call in self.coded:
            self.shared.run.check()
            used = [by_name[a.name] for a in call.args if isinstance(a, Column)]
            rows = len(ordered[0]) if ordered else 0
            codes, samples = value_codes(used) if used else value_codes([pa.nulls(rows, pa.int8())])
            ordered += [pa.array(codes), pa.array(samples)]
        return ordered

    def release(self) -> None:
        self.chunks = [[] for _ in self.chunks]


class WindowRunner(MovementRunner):
    """Adds window steps to movement."""

    def _window(self, step: Window, flow: Flow) -> Flow:
        expressions = step.expressions()
        flow, computed = self._host_calls(step, flow, expressions)
        known = dict(zip(expressions, computed, strict=True))
        extra: dict[Expr, Column] = {}

        def column(expr: Expr) -> Expr:
            """What the kernel reads in the place of an expression: a column, unless it is the same for all rows."""
            expr = known[expr]
            if isinstance(expr, Column | Literal | Parameter):
                return expr
            return extra.setdefault(expr, Column(f"#computed{len(extra)}", expr.type))

        parts: tuple[tuple[Expr, ...], tuple[SortKey, ...], tuple[tuple[str, WindowCall], ...]] = step.changed(column)
        columns = self._output_columns(flow.schema)
        added = tuple(OutputColumn(c.name, e) for e, c in extra.items())
        lists = self._window_rows(step, flow, columns, added)
        return Flow(WindowData(step, (*columns, *added), lists, parts, self.shared, self.spill.active), step.schema, [], flow.key)

    def _window_rows(self, step: Window, flow: Flow, columns: tuple[OutputColumn, ...], added: tuple[OutputColumn, ...]) -> list[list[Chunk]]:
        """The rows by shard; shards are not put together, since each has partitions of its own."""
        if isinstance(flow.data, ChunkData) and not flow.operators and not added:
            return [list(one) for one in flow.data.chunks]
        if isinstance(flow.data, BlockData | SourceData):
            return self._collect(step, flow, (*columns, *added), "rows")
        wanted = (*columns, *added)
        lists: list[list[Chunk]] = [[] for _ in range(flow.data.shards)]

        def take(sink: Sink, context: Context, part: Part, shard: int) -> None:
            lists[shard] += take_chunks(context.state_address, wanted, self.shared)

        for _, context in self._run(step, "rows", flow, lambda: Collect(wanted, None, False), take):
            self._close(context)
        return lists
