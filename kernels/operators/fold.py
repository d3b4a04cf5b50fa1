"""Fold: notes how much the states of groups have changed since the last time, for progressive queries.

Its source is the groups of a worker's aggregation (`GroupScan`), which it reads and leaves as they are. For each group
it keeps, in arrays of the host by the number of the group: the measures as they were, their values when the units that
are counted in full had been read, sums of products of changes (each divided by the number of units that made them), and
how often there was a change. State: the addresses of these four arrays, the weight of a product or the address of an
array with that of each group, and whether all units so far are counted in full."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import SINK, PipelineKernel
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.emit.rows import POSITION, CachedRow
from tsql.kernels.expr.nodes import Expr


class Fold(Sink):
    """`states`: the measures, expressions of DOUBLE over exported states. `pairs`: of measures, by their places.
    `by_group`: each group has a weight of its own."""

    state_bytes = 48
    transient = ("totals", "bases", "products", "seen", "weight", "is_base")

    def __init__(self, states: tuple[Expr, ...], pairs: tuple[tuple[int, int], ...], by_group: bool):
        self.states, self.pairs, self.by_group = states, pairs, by_group

    def begin(self, k: PipelineKernel) -> None:
        state = k.load("ptr", k.offset(k.ctx, SINK))
        self.totals, self.bases, self.products, self.seen = (k.load("ptr", state, word) for word in range(4))
        self.weight = k.load("ptr" if self.by_group else "f64", state, 4)
        self.is_base = k.load("i64", state, 5) != 0

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        number = row.column(k, POSITION).value
        totals = k.offset(self.totals, number * (8 * len(self.states)))
        now, changes = [], []
        for place, expr in enumerate(self.states):
            d = emit(k, expr, row)
            value = d.value if d.valid is None else k.select(d.valid, d.value, k.f64(0.0))
            now.append(value)
            changes.append(value - k.load("f64", totals, place))
            k.store(totals, value, place)
        with k.when(self.is_base):
            bases = k.offset(self.bases, number * (8 * len(self.states)))
            for place, value in enumerate(now):
                k.store(bases, value, place)
        with k.otherwise():
            self._add(k, number, changes)

    def _add(self, k: PipelineKernel, number: Val, changes: list[Val]) -> None:
        changed = k.false
        for change in changes:
            changed = changed | (change != 0.0)
        with k.when(changed):
            products = k.offset(self.products, number * (8 * len(self.pairs)))
            weight = k.load("f64", self.weight, number) if self.by_group else self.weight
            for place, (a, b) in enumerate(self.pairs):
                added = changes[a] * changes[b] * weight
                k.store(products, k.load("f64", products, place) + added, place)
            k.store(self.seen, k.load("f64", self.seen, number) + 1.0, number)

    def describe(self) -> str:
        return f"fold {len(self.states)} measures"
