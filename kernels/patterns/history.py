"""The history of a match: a record of states for each row mapped so far, from which reads are answered.

A record has a slot for each thing that reads ask for: the last row of some variables, their n-th row, the state of an
aggregate. Mapping a row derives the next record from the previous one, which is not changed: a search goes back by
using an earlier record. LAST with an offset follows records backwards: the record before the last row of a variable
knows the row before that. If no read does that and nothing goes back, one record is enough. Aggregates whose state owns
memory, and those of distinct values, have no slot: `values.py` folds them from scratch."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from tsql.kernels.aggregates.base import AggregateArgument, AggregateState, MemoryState, fields_bytes
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel, take_bytes
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.rows import MorselRow
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.types import VARCHAR
from tsql.kernels.patterns.reads import MatchFold, Navigate, Read
from tsql.kernels.windows.base import SortedRows
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.evaluators import ONCE_IS_ENOUGH, simplified
from tsql.kernels.windows.folds import BodyFold, PickFold, choice_of
from tsql.kernels.windows.folds import FrameFold as StateFold

CLASSIFIER = Column("#classifier", VARCHAR)
"""In the argument of a read: the variable of the row that it is about."""
LABEL = "i16"
"""How the variable of a row is stored."""


class Stretching:
    """An array that grows on demand and keeps its content."""

    def __init__(self, k: PipelineKernel):
        self.pointer, self.bytes = k.var(k.null), k.var(k.i64(0))

    @property
    def address(self) -> Val:
        return self.pointer.value

    def room(self, k: PipelineKernel, bytes: Val) -> None:
        """Make room for this many bytes."""
        with k.when(bytes > self.bytes.value):
            grown = bytes * 2 + 256
            take_bytes(k, k.ctx, grown - self.bytes.value)
            self.pointer.set(k.call("realloc", self.pointer.value, grown))
            self.bytes.set(grown)
            k.check_memory()

    def free(self, k: PipelineKernel) -> None:
        k.call("free", self.pointer.value)
        take_bytes(k, k.ctx, -self.bytes.value)


class LabelledRow(MorselRow):
    """A row of the partition, which may be mapped to a variable."""

    def __init__(self, rows: PatternRows, number: Val):
        super().__init__(rows.columns, number, number)
        self.rows = rows

    def make(self, k: PipelineKernel, name: str) -> Datum:
        return self.rows.classifier(k, self.index) if name == CLASSIFIER.name else super().make(k, name)


class PatternRows(SortedRows):
    """The sorted rows of a shard, with the labels of the current match: those of the rows from `start` up to `stop`."""

    def __init__(self, k: PipelineKernel, columns: dict, count: Val, names: Sequence[str]):
        super().__init__(columns, count)
        self.names = names
        self.labels = Stretching(k)
        self.start, self.stop = k.var(k.i64(0)), k.var(k.i64(0))

    def at(self, number: Val) -> LabelledRow:
        return LabelledRow(self, number)

    def label(self, k: PipelineKernel, number: Val) -> Val:
        """The label of a row of the match."""
        return k.load(LABEL, self.labels.address, number - self.start.value).to("i64")

    def classifier(self, k: PipelineKernel, number: Val) -> Datum:
        """The name of the variable of a row; NULL if it is in no match."""
        encoded = [name.encode() for name in self.names]
        ends = [sum(map(len, encoded[:i])) for i in range(len(encoded) + 1)]
        text, places = k.static(b"".join(encoded) or b"\0"), k.static(struct.pack(f"<{len(ends)}i", *ends))
        mapped = (number >= self.start.value) & (number < self.stop.value)
        label = k.var(k.i64(0))
        with k.when(mapped):
            label.set(self.label(k, number))
        begin, end = (k.load("i32", places, label.value + i).to("i64") for i in (0, 1))
        return Datum(VARCHAR, (text + begin, end - begin), mapped)

    def _input(self, arg: Expr) -> AggregateArgument:
        return AggregateArgument(VARCHAR) if arg == CLASSIFIER else super()._input(arg)


def is_mapped(k: PipelineKernel, names: Sequence[str], variables: tuple[str, ...], label: Val) -> Val:
    """i1: whether a label is one of some variables; with no variables, every row is."""
    if not variables:
        return k.true
    numbers = {names.index(v) for v in variables if v in names}
    if len(names) <= 63:
        return (k.i64(sum(1 << n for n in numbers)).ushr(label) & 1) != 0
    return k.load("i8", k.static(bytes(i in numbers for i in range(len(names)))), label) != 0


class HistorySlot:
    """A state in each record, of the rows of some variables. Fields are 64-bit words or those of the fold."""

    fields: tuple[str, ...] = ("i64",)
    offset = 0

    def __init__(self, variables: tuple[str, ...]):
        self.variables = variables

    def begin(self, k: PipelineKernel, rows: PatternRows) -> None:
        """Learn what the fields are."""

    def end(self, k: PipelineKernel) -> None:
        """Free memory."""

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        state.set(0, k.i64(-1))

    def update(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        raise NotImplementedError


class LastRow(HistorySlot):
    """The number of the last row; -1 if there is none."""

    def update(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        state.set(0, row)


class NthRow(HistorySlot):
    """The number of the row that is `number` rows after the first; -1 if there is none. The second field counts
    rows."""

    fields = ("i64", "i64")

    def __init__(self, variables: tuple[str, ...], number: int):
        super().__init__(variables)
        self.number = number

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        super().init(k, state)
        state.set(1, k.i64(0))

    def update(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        count = state.get(1)
        state.set(0, k.select(count == self.number, row, state.get(0)))
        state.set(1, count + 1)


def state_fold(read: MatchFold) -> StateFold:
    """What folds the rows of an aggregate."""
    call = simplified(
        WindowCall(read.name, read.args, read.dtype, filter=read.filter, order=read.order, position=read.position)
    )
    choice = choice_of(call)
    return BodyFold(call) if choice is None else PickFold(call, choice)


class FoldState(HistorySlot):
    """The state of an aggregate."""

    def __init__(self, read: MatchFold):
        super().__init__(read.variables)
        self.fold = state_fold(read)

    def begin(self, k: PipelineKernel, rows: PatternRows) -> None:
        self.fold.begin(k, rows)
        self.fold.prepare(k)
        self.fields = self.fold.fields

    def end(self, k: PipelineKernel) -> None:
        self.fold.end(k)

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        self.fold.init(k, state)

    def update(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        self.fold.add(k, state, row)


def is_folded_anew(read: MatchFold) -> bool:
    """Whether the state of an aggregate cannot be copied from record to record."""
    if read.distinct and read.name not in ONCE_IS_ENOUGH:
        return True
    from tsql.kernels.aggregates.bodies import plain_body

    fold = state_fold(read)
    return isinstance(fold, BodyFold) and bool(plain_body(fold.call.aggregate()).release())


class History:
    """The records that some reads need."""

    def __init__(self, reads: Iterable[Read], names: Sequence[str]):
        self.names = names
        self.slots: dict[object, HistorySlot] = {}
        self.is_linked = False
        for read in reads:
            self._require(read)

    def _require(self, read: Read) -> None:
        match read:
            case Navigate() if read.variables:
                key = self.key(read)
                self.is_linked |= read.from_last and read.offset > 0
                self.slots.setdefault(
                    key, LastRow(read.variables) if read.from_last else NthRow(read.variables, read.offset)
                )
            case MatchFold() if not read.counts_rows and not is_folded_anew(read):
                self.slots.setdefault(self.key(read), FoldState(read))

    @staticmethod
    def key(read: Read) -> object:
        """What a read asks a slot for."""
        if isinstance(read, Navigate):
            return (read.variables, None if read.from_last else read.offset)
        return read

    def begin(self, k: PipelineKernel, rows: PatternRows) -> None:
        at = 0
        for slot in self.slots.values():
            slot.begin(k, rows)
            slot.offset = at
            at += fields_bytes(slot.fields)
        self.bytes = at

    def end(self, k: PipelineKernel) -> None:
        for slot in self.slots.values():
            slot.end(k)

    def state(self, k: PipelineKernel, record: Val, slot: HistorySlot) -> MemoryState:
        return MemoryState(k, record, slot.fields, slot.offset)

    def init(self, k: PipelineKernel, record: Val) -> None:
        """Make the record of no rows."""
        for slot in self.slots.values():
            slot.init(k, self.state(k, record, slot))

    def push(self, k: PipelineKernel, before: Val, after: Val, label: Val, row: Val) -> None:
        """Derive the record after a row from the one before it, which may be the same memory."""
        for slot in self.slots.values():
            state = self.state(k, after, slot)
            if after is not before:
                held = self.state(k, before, slot)
                for index in range(len(slot.fields)):
                    state.set(index, held.get(index))
            with k.when(is_mapped(k, self.names, slot.variables, label)):
                slot.update(k, state, row)
