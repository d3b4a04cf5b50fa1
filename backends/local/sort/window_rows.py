"""Rows collected by a window step, and how its kernels read them: sorted in one piece if they fit in memory.

`WindowShape` describes what all rows of a step have in common. A job is a list of chunks with whole partitions:
`CollectedRows` here, or `SortedBlocks` (`windows.py`) if they do not fit. Each yields the parts that a pipeline runs
over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from tsql.backends.local.run.dataset import Part
from tsql.backends.local.run.host import Reserved, Shared
from tsql.backends.local.run.spill import AnyChunk, bytes_of, in_memory
from tsql.backends.local.sort.grouped_rows import grouped_rows
from tsql.backends.local.sort.sorting import SERIAL, Workers, combine, sorted_columns, value_codes
from tsql.kernels.emit.batch import Layout, Morsels, SourceColumn
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Column, Expr, SortKey
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.window import WindowScan
from tsql.kernels.operators.window_parts import PART, WindowBlock, WindowPart, part_words
from tsql.kernels.process import forks
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.base import MOST_ROWS
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.evaluators import code_column, needs_codes, sample_column
from tsql.kernels.windows.halo import Halo, halo_of

POSITION_NAME = "#place"


@dataclass(frozen=True)
class WindowShape:
    """The collected columns, and the window over them. nullable: for each column, whether it has NULLs. ties: what
    orders peers if rows are not in input order. name: the name of the step. tasks: how many shards are sorted at the
    same time. shift: partitions of a shard differ in the bits above it of their one integer key (`Partition`)."""

    name: str
    tasks: int
    columns: tuple[OutputColumn, ...]
    by: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    calls: tuple[tuple[str, WindowCall], ...]
    nullable: tuple[bool, ...]
    ties: tuple[SortKey, ...] = ()
    shift: int = 0

    @cached_property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    @cached_property
    def coded(self) -> tuple[tuple[str, WindowCall], ...]:
        """The calls whose values are numbered by the host."""
        return tuple((name, call) for name, call in self.calls if needs_codes(call))

    @cached_property
    def partition_keys(self) -> tuple[Column, ...]:
        """The columns by which partitions differ, without keys that are the same for all rows."""
        return tuple(e for e in self.by if isinstance(e, Column))

    @cached_property
    def peer_keys(self) -> tuple[SortKey, ...]:
        """The keys that are equal for peers."""
        return (
            *(SortKey(e) for e in self.partition_keys),
            *(key for key in self.order if isinstance(key.expr, Column)),
        )

    @cached_property
    def keys(self) -> tuple[SortKey, ...]:
        """The sort keys of the rows."""
        return (*self.peer_keys, *self.ties)

    def places(self, keys: tuple[SortKey, ...]) -> tuple[int, ...]:
        """The column indexes of the keys."""
        return tuple(self.names.index(key.expr.name) for key in keys)

    def with_positions(self) -> WindowShape:
        """The shape of rows that carry their input position."""
        column = Column(POSITION_NAME, BIGINT, False)
        return replace(
            self,
            columns=(*self.columns, OutputColumn(POSITION_NAME, column, False)),
            nullable=(*self.nullable, False),
            ties=(SortKey(column),),
        )

    def sources(self) -> tuple[SourceColumn, ...]:
        """The columns as stored in sorted rows. A column without NULLs needs no code for them."""
        found = []
        for column, nullable in zip(self.columns, self.nullable, strict=True):
            layout = column.layout()
            found.append(
                SourceColumn(column.name, column.type, Layout(layout.kind, layout.machine, nullable, layout.unsigned))
            )
        codes = (column for name, _ in self.coded for column in (code_column(name), sample_column(name)))
        return (*found, *(SourceColumn(c.name, BIGINT, Layout("fixed", "i64", False)) for c in codes))

    @cached_property
    def whole(self) -> WindowScan:
        return WindowScan(self.sources(), self.by, self.order, self.calls)

    @cached_property
    def part(self) -> WindowPart:
        return WindowPart((*self.sources(), PART), self.by, self.order, self.calls)

    @cached_property
    def block(self) -> WindowBlock:
        return WindowBlock((*self.sources(), PART), self.by, self.order, self.calls)

    @cached_property
    def halo(self) -> Halo | None:
        """The rows around a row that it needs, if known."""
        return halo_of(self.calls, self.order)

    def working_bytes(self, rows: int) -> int:
        """The memory that sorting takes besides the rows."""
        words = sum(3 if key.expr.type.is_string else 1 for key in self.keys)
        return 8 * rows * (words + 2 + 2 * len(self.coded))


class CollectedRows:
    """Chunks of whole partitions, in input order. `keeps`: they may be read again."""

    def __init__(self, shape: WindowShape, chunks: list[AnyChunk], keeps: bool):
        self.shape, self.chunks, self.keeps = shape, chunks, keeps
        self.rows = sum(c.rows for c in chunks)

    def parts(self, shared: Shared, order: tuple[int, ...], position: int) -> Iterator[Part]:
        if self.rows:
            arrays, reserved = self.ordered(shared)
            morsels = Morsels(len(arrays))
            morsels.add_arrays(arrays, position, self.rows)
            del arrays
            yield Part(self.shape.whole, morsels, order)
            del reserved

    def split(self, shared: Shared, morsels: Morsels, tasks: int, workers: Workers) -> Reserved:
        """Sort the rows with many workers, and add one morsel per task."""
        arrays, reserved = self.ordered(shared, workers)
        columns = [morsels.column(a) for a in arrays]
        morsels.keep.append(arrays)
        for task in range(tasks):
            first, end = self.rows * task // tasks, self.rows * (task + 1) // tasks
            morsels.add(end - first, first, [*columns, part_words(first, self.rows)])
        return reserved

    def ordered(self, shared: Shared, workers: Workers = SERIAL) -> tuple[list[pa.Array], Reserved]:
        """All columns in window order, with value codes for the calls that need them, and the memory that they take."""
        if self.rows >= MOST_ROWS:
            raise too_many_rows(self.rows)
        start = time.perf_counter()
        shape, chunks = self.shape, self.chunks
        if not self.keeps:
            self.chunks = []
        bytes = sum(_bytes(c) for c in chunks) if in_memory(chunks) else bytes_of(chunks)
        working = Reserved(bytes + shape.working_bytes(self.rows), shared)
        result = Reserved(bytes + 16 * self.rows * len(shape.coded), shared)
        shared.run.check()
        loaded = [c.arrays for c in chunks]
        del chunks
        places = shape.places(shape.keys)
        arrays = (
            grouped_rows(loaded, list(zip(places, shape.keys, strict=True)), shape.shift)
            if workers is SERIAL and not shape.coded
            else None
        )
        if arrays is None:
            arrays = [combine([a[i] for a in loaded]) for i in range(len(shape.names))]
            arrays = sorted_columns(
                arrays, [(arrays[p], key) for p, key in zip(places, shape.keys, strict=True)], workers
            )
        del loaded
        shared.run.check()
        del working
        for _, call in shape.coded:
            shared.run.check()
            used = [arrays[shape.names.index(a.name)] for a in call.args if isinstance(a, Column)]
            arrays += map(pa.array, value_codes(used or [pa.nulls(self.rows, pa.int8())], workers))
        record_sort(shape, shared, self.rows, (time.perf_counter() - start) / (shape.tasks if workers is SERIAL else 1))
        return arrays, result


def _bytes(chunk: AnyChunk) -> int:
    """The memory of a chunk. Asking each of its arrays takes longer."""
    return chunk.bytes or sum(a.nbytes for a in chunk.arrays)


_recording = forks.lock()


def record_sort(shape: WindowShape, shared: Shared, rows: int, seconds: float) -> None:
    """Record what `explain ANALYZE` shows of the sorting of a window's rows."""
    with _recording:
        known = shared.run.steps.setdefault(f"{shape.name} sort", {"rows": 0, "ms": 0.0})
        known["rows"] += rows
        known["ms"] += seconds * 1000


def too_many_rows(rows: int) -> ExecutionError:
    return ExecutionError(
        f"a partition of a window, or the partitions of one shard, have {rows:,} rows: at most "
        f"{MOST_ROWS:,} are possible"
    )
