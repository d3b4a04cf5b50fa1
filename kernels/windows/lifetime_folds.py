"""Aggregates over the alive rows, in a walk over lifetimes (kernels/operators/snapshot.py). `fold_of` chooses the way.

Rows are removed from a state where that is exact. min and max keep the rows in a heap by value; ended rows are dropped
when they come to the top. If the alive rows are contiguous (they end in the order of their starts), states that merge
are kept in two stacks. Otherwise there is a tree of states over the rows of the group; a row that ends is emptied in
it, which costs log(rows) merges. Aggregates without such a state (a median, DISTINCT) are not computed this way: see
tsql/analyze/time/snapshot.py."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState, MemoryState, fields_bytes
from tsql.kernels.aggregates.bodies import plain_body
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.emit.expressions import emit, emit_predicate
from tsql.kernels.expr.nodes import Aggregate
from tsql.kernels.functions.comparison import compare
from tsql.kernels.windows.base import GrowingMemory, Memory, SortedRows, as_type
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.foldable import EXTREMES
from tsql.kernels.windows.folds import BodyFold
from tsql.kernels.windows.lifetime_ends import Ends
from tsql.kernels.windows.running import copy_state, registers
from tsql.kernels.windows.stacks import FrameStacks


def fold_of(call: Aggregate, ends: str) -> AliveFold:
    """How an aggregate follows the rows that are alive."""
    body = plain_body(call)
    if body.removable:
        return Removing(call)
    if call.name in EXTREMES and (ends == "any" or body.release()):
        return ExtremeFold(call)
    return Stacks(call) if ends != "any" else Standing(call)


class AliveFold:
    """Follows the rows that are alive. `clear` begins a group of rows `[row, end)`."""

    how = ""

    def __init__(self, call: Aggregate):
        self.call = call

    def begin(self, k: PipelineKernel, rows: SortedRows, ends: Ends) -> None:
        self.rows, self.ends = rows, ends

    def clear(self, k: PipelineKernel, row: Val, end: Val) -> None:
        raise NotImplementedError

    def add(self, k: PipelineKernel, row: Val) -> None:
        raise NotImplementedError

    def remove(self, k: PipelineKernel, row: Val) -> None:
        raise NotImplementedError

    def value(self, k: PipelineKernel, now: Val, row: Val) -> Datum:
        """The result at time `now`: all rows before `row` that have not ended are alive."""
        raise NotImplementedError

    def free(self, k: PipelineKernel) -> None:
        """Free the memory."""


class Folded(AliveFold):
    """Base of those that keep a state of the aggregate."""

    def begin(self, k: PipelineKernel, rows: SortedRows, ends: Ends) -> None:
        super().begin(k, rows, ends)
        call = self.call
        self.fold = BodyFold(WindowCall(call.name, call.args, call.dtype, filter=call.filter, position=call.position))
        self.fold.begin(k, rows)
        self.state = registers(k, self.fold.fields)

    def finished(self, k: PipelineKernel) -> Datum:
        return self.fold.finish(k, self.state, None)


class Removing(Folded):
    """Rows are added and removed."""

    how = "removing"

    def clear(self, k: PipelineKernel, row: Val, end: Val) -> None:
        self.fold.init(k, self.state)

    def add(self, k: PipelineKernel, row: Val) -> None:
        self.fold.add(k, self.state, row)

    def remove(self, k: PipelineKernel, row: Val) -> None:
        self.fold.remove(k, self.state, row)

    def value(self, k: PipelineKernel, now: Val, row: Val) -> Datum:
        return self.finished(k)


class Stacks(Folded):
    """Two stacks over contiguous rows."""

    how = "two stacks"

    def begin(self, k: PipelineKernel, rows: SortedRows, ends: Ends) -> None:
        super().begin(k, rows, ends)
        self.run = FrameStacks(k, self.fold)

    def clear(self, k: PipelineKernel, row: Val, end: Val) -> None:
        self.run.restart(k, row)

    def add(self, k: PipelineKernel, row: Val) -> None:
        """Nothing to do: the stacks read the rows on demand."""

    def remove(self, k: PipelineKernel, row: Val) -> None:
        """Nothing to do: the stacks read the rows on demand."""

    def value(self, k: PipelineKernel, now: Val, row: Val) -> Datum:
        first = self.ends.first(k, row)
        assert first is not None, "the alive rows are neighbours"
        self.run.move(k, first, row)
        self.run.give(k, first, self.state, True)
        return self.finished(k)

    def free(self, k: PipelineKernel) -> None:
        self.run.suffixes.free(k)


class Standing(Folded):
    """A binary tree of states over the rows of a group; the root is the state of all alive rows."""

    how = "tree"

    def begin(self, k: PipelineKernel, rows: SortedRows, ends: Ends) -> None:
        super().begin(k, rows, ends)
        self.bytes = fields_bytes(self.fold.fields)
        self.memory = GrowingMemory(k)
        self.first, self.leaves = k.var(k.i64(0)), k.var(k.i64(1))

    def _node(self, k: PipelineKernel, number: Val) -> AggregateState:
        return MemoryState(k, k.offset(self.memory.pointer.value, number * self.bytes), self.fold.fields, 0)

    def clear(self, k: PipelineKernel, row: Val, end: Val) -> None:
        self.first.set(row)
        self.leaves.set(k.i64(1))
        with k.forever() as loop:
            loop.stop_if(self.leaves.value >= end - row)
            self.leaves.set(self.leaves.value * 2)
        self.memory.room(k, self.leaves.value * 2 * self.bytes)
        self.fold.init(k, self.state)
        with k.range(self.leaves.value * 2) as number:
            copy_state(self.fold.fields, self.state, self._node(k, number))

    def add(self, k: PipelineKernel, row: Val) -> None:
        self.fold.init(k, self.state)
        self.fold.add(k, self.state, row)
        self._rise(k, row)

    def remove(self, k: PipelineKernel, row: Val) -> None:
        self.fold.init(k, self.state)
        self._rise(k, row)

    def _rise(self, k: PipelineKernel, row: Val) -> None:
        """Store the state in the leaf of a row, and recompute the nodes above it."""
        at = k.var(self.leaves.value + row - self.first.value)
        copy_state(self.fold.fields, self.state, self._node(k, at.value))
        with k.forever() as loop:
            loop.stop_if(at.value <= 1)
            at.set(at.value.ushr(1))
            copy_state(self.fold.fields, self._node(k, at.value * 2), self.state)
            self.fold.merge(k, self.state, self._node(k, at.value * 2 + 1))
            copy_state(self.fold.fields, self.state, self._node(k, at.value))

    def value(self, k: PipelineKernel, now: Val, row: Val) -> Datum:
        copy_state(self.fold.fields, self._node(k, k.i64(1)), self.state)
        return self.finished(k)

    def free(self, k: PipelineKernel) -> None:
        self.memory.free(k)


class ExtremeFold(AliveFold):
    """min and max: a heap of rows, the best on top. Nothing is copied, whatever the type."""

    how = "heap"

    def begin(self, k: PipelineKernel, rows: SortedRows, ends: Ends) -> None:
        super().begin(k, rows, ends)
        self.memory = Memory(k, rows.count * 8)
        self.size = k.var(k.i64(0))

    def clear(self, k: PipelineKernel, row: Val, end: Val) -> None:
        self.size.set(0)

    def _row(self, k: PipelineKernel, place: Val) -> Val:
        return k.load("i64", self.memory.address, place)

    def _better(self, k: PipelineKernel, a: Val, b: Val) -> Val:
        values = (self.rows.value(k, self.call.args[0], row) for row in (a, b))
        return compare(k, EXTREMES[self.call.name], *values)

    def add(self, k: PipelineKernel, row: Val) -> None:
        at = self.rows.at(row)
        mask = None if self.call.filter is None else emit_predicate(k, self.call.filter, at)
        counts = both(mask, emit(k, self.call.args[0], at).valid)
        with k.when(k.true if counts is None else counts):
            hole = k.var(self.size.value)
            self.size.set(self.size.value + 1)
            with k.forever() as loop:
                loop.stop_if(hole.value == 0)
                parent = (hole.value - 1).ushr(1)
                above = self._row(k, parent)
                loop.stop_if(~self._better(k, row, above))
                k.store(self.memory.address, above, hole.value)
                hole.set(parent)
            k.store(self.memory.address, row, hole.value)

    def remove(self, k: PipelineKernel, row: Val) -> None:
        """A row that has ended is dropped when it is on top."""

    def _drop(self, k: PipelineKernel) -> None:
        self.size.set(self.size.value - 1)
        size = self.size.value
        with k.when(size > 0):
            row = self._row(k, size)
            hole = k.var(k.i64(0))
            with k.forever() as loop:
                left = hole.value * 2 + 1
                loop.stop_if(left >= size)
                right = k.min(left + 1, size - 1)
                child = k.select(self._better(k, self._row(k, right), self._row(k, left)), right, left)
                loop.stop_if(~self._better(k, self._row(k, child), row))
                k.store(self.memory.address, self._row(k, child), hole.value)
                hole.set(child)
            k.store(self.memory.address, row, hole.value)

    def value(self, k: PipelineKernel, now: Val, row: Val) -> Datum:
        with k.forever() as loop:
            loop.stop_if(self.size.value == 0)
            loop.stop_if(self.ends.value(k, self._row(k, k.i64(0))) > now)
            self._drop(k)
        found = self.size.value > 0
        top = k.var(row - 1)
        with k.when(found):
            top.set(self._row(k, k.i64(0)))
        value = self.rows.value(k, self.call.args[0], top.value)
        return as_type(value, self.call.type).with_valid(both(value.valid, found))

    def free(self, k: PipelineKernel) -> None:
        self.memory.free(k)
