"""Folds of aggregates over frames: states that rows are added to and, where that is exact, removed from or merged.

`BodyFold` folds the state of an aggregate (kernels/aggregates). `PickFold` keeps the number of the best row, for
aggregates that give the value of one row: nothing is copied, whatever its type. `DistinctFold` counts how often each
value is in the frame; `StampedFold` only remembers which were seen. The strategies that use folds have their own
files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tsql.kernels.aggregates.base import AggregateState
from tsql.kernels.aggregates.bodies import make_body
from tsql.kernels.aggregates.ordered import ByExtreme, Rank
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, all_valid, both
from tsql.kernels.emit.expressions import emit, emit_predicate
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.functions.comparison import compare
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.base import MOST_ROWS, Memory, OwnMemory, SortedRows, as_type
from tsql.kernels.windows.call import WindowCall


class At(Protocol):
    """The position at which a fold is finished."""

    row: Val


class FrameFold:
    """A state and the operations of rows on it. owns: the state points to memory, which `release` frees. lasting: a row
    also changes memory outside the state, so rows must be removed one by one to start over. removable: rows can be
    removed exactly."""

    fields: tuple[str, ...] = ()
    owns = False
    lasting = False
    removable = False

    def __init__(self, call: WindowCall):
        self.call = call

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        """Allocate memory."""

    def prepare(self, k: PipelineKernel) -> None:
        """Fill the allocated memory."""

    def end(self, k: PipelineKernel) -> None:
        """Free it."""

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        raise NotImplementedError

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        raise NotImplementedError

    def remove(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        raise NotImplementedError

    def merge(self, k: PipelineKernel, state: AggregateState, other: AggregateState) -> None:
        """Add all rows of another state, which follow those of this one."""
        raise NotImplementedError

    def finish(self, k: PipelineKernel, state: AggregateState, place: At) -> Datum:
        raise NotImplementedError

    def release(self, k: PipelineKernel, state: AggregateState) -> None:
        """Free what the state points to."""


class BodyFold(FrameFold):
    """The state of an aggregate's body."""

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.rows = rows
        self.body = make_body(self.call.aggregate(), rows.inputs(self.call.args), MOST_ROWS)
        self.fields = self.body.fields
        self.owns, self.removable = bool(self.body.release()), self.body.removable
        if self.owns:
            self.memory = OwnMemory(k)

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        self.body.init(k, state)

    def _args(self, k: PipelineKernel, row: Val) -> tuple[tuple[Datum, ...], Val | None]:
        """The arguments in a row, and whether the row counts."""
        at = self.rows.at(row)
        mask = None if self.call.filter is None else emit_predicate(k, self.call.filter, at)
        args = tuple(emit(k, a, at) for a in self.call.args)
        if self.body.wants_position:
            self.body.position = row
        if self.body.wants_order:
            self.body.order = tuple(emit(k, key.expr, at) for key in self.call.order)
        return args, both(mask, all_valid(args)) if self.body.skips_nulls else mask

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        args, mask = self._args(k, row)
        with k.guarded(mask, self.call.position):
            if self.body.branchless:
                self.body.update(k, state, args, mask)
                return
        with k.guarded(None, self.call.position), k.when(k.true if mask is None else mask):
            if self.owns:
                with self.memory.counted(k):
                    self.body.update(k, state, args, None)
            else:
                self.body.update(k, state, args, None)

    def remove(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        args, mask = self._args(k, row)
        self.body.remove(k, state, args, mask)

    def merge(self, k: PipelineKernel, state: AggregateState, other: AggregateState) -> None:
        with k.guarded(None, self.call.position):
            self.body.absorb(k, state, self.body.export(k, other))

    def finish(self, k: PipelineKernel, state: AggregateState, place: At | None) -> Datum:
        with k.guarded(None, self.call.position):
            return as_type(self.body.finish(k, state), self.call.type)

    def release(self, k: PipelineKernel, state: AggregateState) -> None:
        for index in self.body.release():
            k.call("free", state.get(index))
        if self.owns:
            self.memory.released(k)


@dataclass(frozen=True)
class FoldChoice:
    """Which row a PickFold keeps: the best by `ranks` (pairs of an expression and how it ranks), then the first, or the
    `last`. Rows in which an expression of `wanted` is NULL do not count."""

    value: Expr
    ranks: tuple[tuple[Expr, Rank], ...] = ()
    last: bool = False
    wanted: tuple[Expr, ...] = ()


class PickFold(FrameFold):
    """The number of the best row so far; -1 if there is none."""

    fields = ("i64",)

    def __init__(self, call: WindowCall, choice: FoldChoice):
        super().__init__(call)
        self.choice = choice

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.rows = rows

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        state.set(0, k.i64(-1))

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        at = self.rows.at(row)
        mask = None if self.call.filter is None else emit_predicate(k, self.call.filter, at)
        mask = both(mask, all_valid([emit(k, e, at) for e in self.choice.wanted]))
        if mask is None:
            self._offer(k, state, row)
        else:
            with k.when(mask):
                self._offer(k, state, row)

    def merge(self, k: PipelineKernel, state: AggregateState, other: AggregateState) -> None:
        with k.when(other.get(0) >= 0):
            self._offer(k, state, other.get(0))

    def _offer(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        held = state.get(0)
        better = k.var(held < 0)
        with k.when(held >= 0):
            better.set(self._better(k, row, held))
        state.set(0, k.select(better.value, row, held))

    def _better(self, k: PipelineKernel, a: Val, b: Val) -> Val:
        better, tied = k.var(k.false), k.var(k.true)
        for expr, rank in self.choice.ranks:
            with k.when(tied.value):
                x, y = self.rows.value(k, expr, a), self.rows.value(k, expr, b)
                x_null, y_null = (k.false if d.valid is None else ~d.valid for d in (x, y))
                with k.when(x_null | y_null):
                    better.set(x_null & ~y_null if rank.nulls_first else y_null & ~x_null)
                    tied.set(x_null & y_null)
                with k.otherwise():
                    x, y = x.with_valid(None), y.with_valid(None)
                    better.set(compare(k, ">" if rank.descending else "<", x, y))
                    tied.set(~better.value)
                    with k.when(tied.value):
                        tied.set(compare(k, "=", x, y))
        with k.when(tied.value):
            better.set(a > b if self.choice.last else a < b)
        return better.value

    def finish(self, k: PipelineKernel, state: AggregateState, place: At) -> Datum:
        best = state.get(0)
        d = self.rows.value(k, self.choice.value, k.select(best >= 0, best, place.row))
        return as_type(d, self.call.type).with_valid(both(d.valid, best >= 0))


def choice_of(call: WindowCall) -> FoldChoice | None:
    """How a call chooses a row, if that is what it does."""
    ordered = tuple((key.expr, Rank(key.expr.type, key.descending, key.nulls_first)) for key in call.order)
    if not call.args:
        return None
    first = call.args[0]
    match call.name:
        case "min" | "max" if first.type.is_string:
            return FoldChoice(first, ((first, Rank(first.type, call.name == "max")),), wanted=(first,))
        case "any_value":
            return FoldChoice(first, ordered, wanted=(first,))
        case "first_value" | "last_value" if call.order:
            last = call.name == "last_value"
            ranks = tuple((e, Rank(r.type, r.descending != last, r.nulls_first != last)) for e, r in ordered)
            return FoldChoice(first, ranks, last, (first,) if call.ignore_nulls else ())
    body = make_body(call.aggregate(), (), None) if call.name.startswith(("arg", "min_by", "max_by")) else None
    if not isinstance(body, ByExtreme):
        return None
    second = call.args[1]
    wanted = tuple(call.args[place] for place in body.wanted)
    return FoldChoice(first, ((second, Rank(second.type, body.largest)), *ordered), wanted=wanted)


class CodedFold(BodyFold):
    """Base of folds over value codes, a column that the host computes: equal values have equal codes."""

    def __init__(self, call: WindowCall, code: Column):
        super().__init__(call)
        self.code = code


class DistinctFold(CodedFold):
    """An aggregate of distinct values that can be removed: the frame's count of each value is kept by its code."""

    lasting = True

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.counts = Memory(k, (rows.count + 1) * 8, zeroed=True)

    def end(self, k: PipelineKernel) -> None:
        self.counts.free(k)

    def _counted(
        self, k: PipelineKernel, row: Val, step: int, turning: int, body: Callable[[tuple[Datum, ...]], None]
    ) -> None:
        """Change the count of a row's value. If it was, or becomes, `turning`, the value itself is added or removed."""
        args, mask = self._args(k, row)
        with k.when(k.true if mask is None else mask):
            cell = k.element("i64", self.counts.address, self.rows.value(k, self.code, row).value)
            count = k.load("i64", cell)
            k.store(cell, count + step)
            with k.when(count == turning):
                body(args)

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        with k.guarded(None, self.call.position):
            self._counted(k, row, 1, 0, lambda args: self.body.update(k, state, args, None))

    def remove(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        self._counted(k, row, -1, 1, lambda args: self.body.remove(k, state, args, None))


class StampedFold(CodedFold):
    """An aggregate of distinct values that only grows: each value has the stamp of the last state that saw it."""

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.stamps = Memory(k, (rows.count + 1) * 8, zeroed=True)
        self.stamp = k.var(k.i64(0))

    def end(self, k: PipelineKernel) -> None:
        self.stamps.free(k)

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        super().init(k, state)
        self.stamp.set(self.stamp.value + 1)

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        _, mask = self._args(k, row)
        with k.when(k.true if mask is None else mask):
            cell = k.element("i64", self.stamps.address, self.rows.value(k, self.code, row).value)
            with k.when(k.load("i64", cell) != self.stamp.value):
                k.store(cell, self.stamp.value)
                super().add(k, state, row)
