"""The basis of window kernels: the sorted rows of a shard, the position of the walk, memory, and the `Evaluator` of a
call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tsql.kernels.aggregates.base import AggregateArgument
from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import SourceColumn
from tsql.kernels.emit.context import MEMORY, STATUS_OUT_OF_MEMORY, PipelineKernel, take_bytes
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.rows import CachedRow, ColumnPointers, MorselRow
from tsql.kernels.expr.nodes import Column, Expr, Literal
from tsql.kernels.expr.types import Type
from tsql.kernels.functions.comparison import not_distinct
from tsql.kernels.windows.call import WindowCall

MOST_ROWS = 1 << 31
"""A shard has fewer rows than this, so sums of narrow integers fit in 64 bits."""


class SortedRows:
    """The rows of a shard in the order of partitions and ORDER BY. Any row can be read by its number."""

    def __init__(self, columns: dict[str, tuple[SourceColumn, ColumnPointers]], count: Val):
        self.columns, self.count = columns, count

    def at(self, number: Val) -> CachedRow:
        return MorselRow(self.columns, number, number)

    def value(self, k: PipelineKernel, expr: Expr, number: Val) -> Datum:
        return emit(k, expr, self.at(number))

    def same(self, k: PipelineKernel, exprs: tuple[Expr, ...], a: Val, b: Val) -> Val:
        """i1: whether two rows agree on some expressions; NULLs are equal."""
        equal = k.true
        for expr in exprs:
            equal = equal & not_distinct(k, self.value(k, expr, a), self.value(k, expr, b))
        return equal

    def inputs(self, args: tuple[Expr, ...]) -> tuple[AggregateArgument, ...]:
        """What is known of the arguments of a call."""
        return tuple(self._input(arg) for arg in args)

    def _input(self, arg: Expr) -> AggregateArgument:
        if isinstance(arg, Column):
            column = self.columns[arg.name][0]
            return AggregateArgument(arg.type, column.range, column.layout.nullable)
        if not isinstance(arg, Literal):
            return AggregateArgument(arg.type)
        exact = isinstance(arg.value, int) and not isinstance(arg.value, bool)
        return AggregateArgument(arg.type, (arg.value, arg.value) if exact else None, constant=arg)


class Place:
    """The position of the walk: the row, its partition `[start, end)`, its peers `[peers, peers_end)`, and the number
    of its group of peers in the partition, from 0. inside: the walk may begin inside of a partition; then `partition`
    is called for the walk's first row, which need not be the partition's first."""

    def __init__(self, k: PipelineKernel, rows: SortedRows, inside: bool = False):
        self.inside = inside
        self.rows = rows
        self.row = k.i64(0)
        self._start, self._end, self._peers, self._peers_end, self._group = (k.var(k.i64(0)) for _ in range(5))

    def carried(self) -> list[Var]:
        """The variables that a walk passes on to the walk over the following rows."""
        return [self._start, self._end, self._peers, self._peers_end, self._group]

    start = property(lambda self: self._start.value, lambda self, v: self._start.set(v))
    end = property(lambda self: self._end.value, lambda self, v: self._end.set(v))
    peers = property(lambda self: self._peers.value, lambda self, v: self._peers.set(v))
    peers_end = property(lambda self: self._peers_end.value, lambda self, v: self._peers_end.set(v))
    group = property(lambda self: self._group.value, lambda self, v: self._group.set(v))


class Evaluator:
    """Computes one call. `begin` and `end` are emitted around the walk, `partition` at the start of each (`place.row`
    is its first row), `value` for each row in order."""

    how = ""
    """The strategy, for `explain`; empty if there is only one."""

    def __init__(self, call: WindowCall):
        self.call = call

    @property
    def needs_peers(self) -> bool:
        return False

    @property
    def counts_groups(self) -> bool:
        """Whether it needs the number of the group of peers in the partition."""
        return False

    def carried(self) -> list[Var]:
        """The variables that a walk passes on to the walk over the following rows of the same partition."""
        return []

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        """Make variables and memory."""

    def prepare(self, k: PipelineKernel, rows: SortedRows) -> None:
        """Look at all rows before the walk. The memory is allocated by then."""

    def partition(self, k: PipelineKernel, place: Place) -> None:
        """Start over for a new partition."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        raise NotImplementedError

    def end(self, k: PipelineKernel) -> None:
        """Free the memory."""


class Memory:
    """An array that lives as long as the walk and counts as memory of the query. If that exceeds the query's limit, the
    kernel stops before the first row, and nothing is touched."""

    def __init__(self, k: PipelineKernel, bytes: Val, zeroed: bool = False):
        self.bytes = bytes
        take_bytes(k, k.ctx, bytes)
        k.check_memory()
        self.pointer: Var = k.var(k.null)
        with k.when(k.status.value != STATUS_OUT_OF_MEMORY):
            self.pointer.set(k.call("calloc", bytes + 8, 1) if zeroed else k.call("malloc", bytes + 8))

    @property
    def address(self) -> Val:
        return self.pointer.value

    def free(self, k: PipelineKernel) -> None:
        k.call("free", self.address)
        take_bytes(k, k.ctx, -self.bytes)


class GrowingMemory:
    """An array that grows on demand. Growing loses its content."""

    def __init__(self, k: PipelineKernel):
        self.pointer, self.bytes = k.var(k.null), k.var(k.i64(0))

    def room(self, k: PipelineKernel, bytes: Val) -> None:
        """Make room for this many bytes."""
        with k.when(bytes > self.bytes.value):
            grown = bytes * 2
            take_bytes(k, k.ctx, grown - self.bytes.value)
            k.call("free", self.pointer.value)
            self.pointer.set(k.call("malloc", grown))
            self.bytes.set(grown)

    def free(self, k: PipelineKernel) -> None:
        k.call("free", self.pointer.value)
        take_bytes(k, k.ctx, -self.bytes.value)


class OwnMemory:
    """Counts what states allocate, so that it can be returned when they are freed: kernels only add to the memory in
    use."""

    def __init__(self, k: PipelineKernel):
        self.word = k.buffer(8)
        k.store(self.word, k.i64(0))

    @contextmanager
    def counted(self, k: PipelineKernel) -> Iterator[None]:
        """Also count here what the code inside allocates."""
        place = k.offset(k.ctx, MEMORY)
        shared = k.load("ptr", place)
        before = k.load("i64", self.word)
        k.store(place, self.word)
        yield
        k.store(place, shared)
        k.atomic_add(shared, k.load("i64", self.word) - before)

    def released(self, k: PipelineKernel) -> None:
        """All counted memory is freed."""
        take_bytes(k, k.ctx, -k.load("i64", self.word))
        k.store(self.word, k.i64(0))


def select_datum(k: PipelineKernel, condition: Val, a: Datum, b: Datum) -> Datum:
    """One of two values of the same type."""
    a, b = a.wide(), b.wide()
    valid = None
    if a.valid is not None or b.valid is not None:
        valid = k.select(condition, k.true if a.valid is None else a.valid, k.true if b.valid is None else b.valid)
    return Datum(a.type, tuple(k.select(condition, x, y) for x, y in zip(a.parts, b.parts, strict=True)), valid)


def as_type(d: Datum, t: Type) -> Datum:
    """A value in the plain registers of its type."""
    wide = d.wide()
    return Datum(t, wide.parts, wide.valid)
