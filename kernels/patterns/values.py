"""Reads of a match → values: `Seen` is a match as one of its rows sees it, `PreparedRead` an expression over such a
row."""

from __future__ import annotations

from tsql.kernels.aggregates.base import MemoryState
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.emit.expressions import emit_predicate
from tsql.kernels.emit.rows import CachedRow
from tsql.kernels.expr.nodes import Column, Expr, rewrite
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.functions.comparison import not_distinct
from tsql.kernels.patterns.history import (
    CLASSIFIER,
    FoldState,
    History,
    HistorySlot,
    PatternRows,
    is_folded_anew,
    is_mapped,
    state_fold,
)
from tsql.kernels.patterns.reads import Classifier, MatchFold, MatchNumber, Navigate, Read, replace_reads
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.base import as_type
from tsql.kernels.windows.running import KeptStates, registers


@dataclass
class Seen:
    """The rows of a match up to `current`; there are none if that is before `start`. low, high: the partition. record:
    the history's record of these rows, in the array `records` where it is linked. number: that of the match."""

    rows: PatternRows
    start: Val
    current: Val
    low: Val
    high: Val
    number: Val
    history: History | None = None
    record: Val | None = None
    records: Val | None = None

    def state(self, k: PipelineKernel, read: Read) -> tuple[HistorySlot, MemoryState]:
        """The slot of a read, and its state in the record."""
        assert self.history is not None and self.record is not None, f"{read} needs a record"
        slot = self.history.slots[History.key(read)]
        return slot, self.history.state(k, self.record, slot)


def over_rows(expr: Expr) -> Expr:
    """The argument of a read with a column in the place of CLASSIFIER()."""
    return rewrite(expr, lambda e: CLASSIFIER if isinstance(e, Classifier) else e)


def settled(read: Read) -> Read:
    """A read over arguments that rows can answer."""
    found = read.with_children(tuple(map(over_rows, read.children)))
    assert isinstance(found, Read)
    return found


class Anew:
    """Folds all rows of an aggregate on each use, for states that own memory and for distinct values. Duplicates are
    found by comparing each row with those before it."""

    def __init__(self, k: PipelineKernel, rows: PatternRows, read: MatchFold):
        self.read, self.rows = read, rows
        self.distinct = read.distinct
        self.fold = state_fold(read)
        self.fold.begin(k, rows)
        self.fold.prepare(k)
        self.kept = KeptStates(k, read.type)
        self.state = registers(k, self.fold.fields)
        k.uses_scratch = True

    def end(self, k: PipelineKernel) -> None:
        self.kept.free(k)
        self.fold.end(k)

    def value(self, k: PipelineKernel, seen: Seen) -> Datum:
        self.fold.init(k, self.state)
        with k.range(seen.current + 1, seen.start) as row:
            with k.when(self._counts(k, row)):
                self._add(k, seen, row)
        self.row = seen.low
        self.kept.keep(k, self.fold.finish(k, self.state, self))
        self.fold.release(k, self.state)
        return self.kept.get()

    def _counts(self, k: PipelineKernel, row: Val) -> Val:
        """Whether a row is one of those that are folded."""
        counts = is_mapped(k, self.rows.names, self.read.variables, self.rows.label(k, row))
        if self.read.filter is not None:
            counts = counts & emit_predicate(k, self.read.filter, self.rows.at(row))
        return counts

    def _add(self, k: PipelineKernel, seen: Seen, row: Val) -> None:
        if not self.distinct:
            self.fold.add(k, self.state, row)
            return
        is_new, other = k.var(k.true), k.var(seen.start)
        with k.forever() as loop:
            before = other.value
            loop.stop_if((before >= row) | ~is_new.value)
            with k.when(self._counts(k, before)):
                same = k.true
                for arg in self.read.args:
                    same = same & not_distinct(k, self.rows.value(k, arg, row), self.rows.value(k, arg, before))
                is_new.set(~same)
            other.set(before + 1)
        with k.when(is_new.value):
            self.fold.add(k, self.state, row)


class MatchValues:
    """Answers reads. Made before the walk, since some need memory."""

    def __init__(self, k: PipelineKernel, rows: PatternRows, reads: list[Read]):
        folds = [
            read for read in reads if isinstance(read, MatchFold) and not read.counts_rows and is_folded_anew(read)
        ]
        self.anew = {read: Anew(k, rows, read) for read in folds}

    def end(self, k: PipelineKernel) -> None:
        for one in self.anew.values():
            one.end(k)

    def of(self, k: PipelineKernel, read: Read, seen: Seen) -> Datum:
        match read:
            case Navigate():
                return self._navigate(k, read, seen)
            case MatchNumber():
                return Datum(BIGINT, (seen.number,))
            case MatchFold() if read.counts_rows:
                return Datum(BIGINT, (seen.current + 1 - seen.start,))
            case MatchFold() if read in self.anew:
                return self.anew[read].value(k, seen)
            case MatchFold():
                slot, state = seen.state(k, read)
                assert isinstance(slot, FoldState)
                return slot.fold.finish(k, state, _At(seen.low))
        raise TypeError(f"no value for {read}")

    def _navigate(self, k: PipelineKernel, read: Navigate, seen: Seen) -> Datum:
        row, found = self._row(k, read, seen)
        if read.shift:
            row = row + read.shift
            found = found & (row >= seen.low) & (row < seen.high)
        with k.guarded(found, read.position):
            d = seen.rows.value(k, read.arg, k.select(found, row, seen.low))
        return as_type(d, read.type).with_valid(both(d.valid, found))

    def _row(self, k: PipelineKernel, read: Navigate, seen: Seen) -> tuple[Val, Val]:
        """The row that a read means before it is shifted, and whether there is one."""
        if not read.variables:
            row = seen.current - read.offset if read.from_last else seen.start + read.offset
            return row, row >= seen.start if read.from_last else row <= seen.current
        slot, state = seen.state(k, read)
        row = state.get(0)
        if not (read.from_last and read.offset):
            return row, row >= 0
        history, records = seen.history, seen.records
        assert history is not None and records is not None, f"{read} needs the records before"
        at, left = k.var(row), k.var(k.i64(read.offset))
        with k.forever() as loop:
            here = at.value
            loop.stop_if((here < 0) | (left.value == 0))
            at.set(history.state(k, k.offset(records, (here - seen.start) * history.bytes), slot).get(0))
            left.set(left.value - 1)
        return at.value, at.value >= 0


@dataclass
class _At:
    """The place that a fold is finished at."""

    row: Val


class ReadRow(CachedRow):
    """A row of a match while it is being found: its columns, and the reads of an expression."""

    def __init__(self, values: MatchValues, reads: dict[str, Read], seen: Seen):
        super().__init__()
        self.values, self.reads, self.seen = values, reads, seen
        self.row = seen.rows.at(seen.current)

    def make(self, k: PipelineKernel, name: str) -> Datum:
        return self.values.of(k, self.reads[name], self.seen) if name in self.reads else self.row.column(k, name)


class PreparedRead:
    """An expression with columns in the place of its reads."""

    def __init__(self, expr: Expr):
        self.reads: dict[str, Read] = {}
        names: dict[Read, str] = {}

        def column(read: Read) -> Expr:
            read = settled(read)
            name = names.setdefault(read, f"#read{len(names)}")
            self.reads[name] = read
            return Column(name, read.type)

        self.expr = replace_reads(expr, column)

    def holds(self, k: PipelineKernel, values: MatchValues, seen: Seen) -> Val:
        return emit_predicate(k, self.expr, ReadRow(values, self.reads, seen))
