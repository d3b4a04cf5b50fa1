"""mode over sliding frames: a tournament of all values by their count in the frame; ties go to the value whose first
row comes first.

Rows enter at the end and leave at the front (so there is no EXCLUDE): the rows of a value are a list whose head is its
first row."""

from __future__ import annotations

from tsql.kernels.aggregates.base import AggregateState
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.runtime.tournament import tournament_start, tournament_update
from tsql.kernels.windows.base import Memory, SortedRows, as_type
from tsql.kernels.windows.folds import At, CodedFold


class ModeFold(CodedFold):
    """The counts of the values, by their codes. State: the number of rows that count."""

    lasting = True

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.fields, self.owns = ("i64",), False
        # The least power of two that is not below the number of rows, and at least 2.
        most = k.max(rows.count, k.i64(2)) - 1
        self.size = k.i64(1) << (64 - k.unary("leading_zeros", most))
        self.counts, self.firsts, self.lasts = (Memory(k, self.size * 8, zeroed=True) for _ in range(3))
        self.tree = Memory(k, self.size * 8)
        self.following = Memory(k, rows.count * 8)

    def prepare(self, k: PipelineKernel) -> None:
        tournament_start(k, self.tree.address, self.size)

    def end(self, k: PipelineKernel) -> None:
        for memory in (self.counts, self.firsts, self.lasts, self.tree, self.following):
            memory.free(k)

    def init(self, k: PipelineKernel, state: AggregateState) -> None:
        state.set(0, k.i64(0))

    def _change(self, k: PipelineKernel, state: AggregateState, row: Val, step: int) -> None:
        _, mask = self._args(k, row)
        with k.when(k.true if mask is None else mask):
            code = self.rows.value(k, self.code, row).value
            count = k.load("i64", self.counts.address, code)
            if step > 0:
                with k.when(count == 0):
                    k.store(self.firsts.address, row, code)
                with k.otherwise():
                    k.store(self.following.address, row, k.load("i64", self.lasts.address, code))
                k.store(self.lasts.address, row, code)
            else:
                k.store(self.firsts.address, k.load("i64", self.following.address, row), code)
            k.store(self.counts.address, count + step, code)
            tournament_update(k, self.tree.address, self.counts.address, self.firsts.address, self.size, code)
            state.set(0, state.get(0) + step)

    def add(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        self._change(k, state, row, 1)

    def remove(self, k: PipelineKernel, state: AggregateState, row: Val) -> None:
        self._change(k, state, row, -1)

    def finish(self, k: PipelineKernel, state: AggregateState, place: At | None) -> Datum:
        assert place is not None, "a mode is finished at a row"
        found = state.get(0) > 0
        first = k.load("i64", self.firsts.address, k.load("i64", self.tree.address, 1))
        d = self.rows.value(k, self.call.args[0], k.select(found, first, place.row))
        return as_type(d, self.call.type).with_valid(found)

    def release(self, k: PipelineKernel, state: AggregateState) -> None:
        """Nothing to free: the state is a number."""
