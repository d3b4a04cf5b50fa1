"""Aggregates over frames that begin with the partition: rows are only added. Also the base of all aggregates over
frames."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState, RegisterState
from tsql.kernels.aggregates.basic import keep_string
from tsql.kernels.codegen.lang import Var
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.expr.types import Type
from tsql.kernels.windows.base import Evaluator, Place, SortedRows
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.folds import FrameFold
from tsql.kernels.windows.frames import Frames


def registers(k: PipelineKernel, fields: tuple[str, ...]) -> RegisterState:
    return RegisterState([k.var(k.const(t, 0)) for t in fields])


def copy_state(fields: tuple[str, ...], source: AggregateState, target: AggregateState) -> None:
    for index in range(len(fields)):
        target.set(index, source.get(index))


class KeptStates:
    """A result that serves several rows. A string is copied: its memory may be the row's own."""

    def __init__(self, k: PipelineKernel, t: Type):
        self.type = t
        self.parts = registers(k, (*t.parts, "i64") if t.is_string else t.parts)
        self.valid = k.var(k.false)

    def keep(self, k: PipelineKernel, d: Datum) -> None:
        valid = k.true if d.valid is None else d.valid
        self.valid.set(valid)
        if not self.type.is_string:
            for index, part in enumerate(d.wide().parts):
                self.parts.set(index, part)
            return
        with k.when(valid):
            keep_string(k, self.parts, 0, d)

    def get(self) -> Datum:
        return Datum(self.type, tuple(self.parts.get(i) for i in range(len(self.type.parts))), self.valid.value)

    def free(self, k: PipelineKernel) -> None:
        if self.type.is_string:
            k.call("free", self.parts.get(0))


class OverFrame(Evaluator):
    """Base of aggregates: a fold over the rows of a frame."""

    def __init__(self, call: WindowCall, order: tuple[SortKey, ...], fold: FrameFold):
        super().__init__(call)
        self.fold = fold
        self.frames = Frames(call.frame, order, call.position)

    @property
    def needs_peers(self) -> bool:
        return self.call.frame.needs_peers

    @property
    def counts_groups(self) -> bool:
        return self.frames.grouped

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.fold.begin(k, rows)
        self.frames.begin(k, rows)
        self.state = registers(k, self.fold.fields)

    def prepare(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.fold.prepare(k)

    def partition(self, k: PipelineKernel, place: Place) -> None:
        self.frames.partition(k, place)

    def end(self, k: PipelineKernel) -> None:
        self.fold.end(k)
        self.frames.end(k)


class RunningFrame(OverFrame):
    """Each row is added once. A frame equal to the previous one reuses its result."""

    how = "running"

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.kept = KeptStates(k, self.call.type)
        self.added, self.finished = k.var(k.i64(0)), k.var(k.i64(-1))
        if self.fold.owns:
            k.uses_scratch = True

    def partition(self, k: PipelineKernel, place: Place) -> None:
        super().partition(k, place)
        self.fold.release(k, self.state)
        self.fold.init(k, self.state)
        self.added.set(place.start)
        self.finished.set(-1)

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        _, end = self.frames.bounds(k, place)
        with k.forever() as loop:
            row = self.added.value
            loop.stop_if(row >= end)
            self.fold.add(k, self.state, row)
            self.added.set(row + 1)
        with k.when(self.finished.value != end):
            self.kept.keep(k, self.fold.finish(k, self.state, place))
            self.finished.set(end)
        return self.kept.get()

    def carried(self) -> list[Var]:
        return [*self.state.variables, self.added]

    def end(self, k: PipelineKernel) -> None:
        self.fold.release(k, self.state)
        self.kept.free(k)
        super().end(k)
