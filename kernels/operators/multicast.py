"""Multicast: writes each row to the shards that expressions give; the sink of `multicast`."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import both
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.rows import CachedRow
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.functions.arithmetic import number
from tsql.kernels.operators.collect import OutputColumn
from tsql.kernels.operators.partition import Partition


class Multicast(Partition):
    """Rows to shards by number: each expression of `to` gives a shard, or NULL for none. A shard gets a row at most
    once."""

    def __init__(
        self,
        columns: tuple[OutputColumn, ...],
        to: tuple[Expr, ...],
        shards: int,
        keep_order: bool = True,
        expected: int | None = None,
        most: int | None = None,
    ):
        if most is None:
            super().__init__(columns, (), shards, keep_order=keep_order, expected=expected)
        else:
            super().__init__(columns, (), shards, keep_order=keep_order, expected=expected, most=most)
        self.to = to

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        targets, count = k.buffer(8 * len(self.to)), k.var(k.i64(0))
        before: list[tuple[Val, Val]] = []
        for expr in self.to:
            d = emit(k, expr, row)
            shard = number(d).value
            inside = shard.ult(self.shards)
            with k.guarded(d.valid, getattr(expr, "position", None)):
                k.fail(~inside, f"multicast to a shard that does not exist: there are {self.shards}, numbered from 0")
            wanted = both(d.valid, inside)
            is_new = wanted
            for other, was_wanted in before:
                is_new = is_new & ~(was_wanted & (other == shard))
            before.append((shard, wanted))
            with k.when(is_new):
                k.store(targets, shard, count.value)
                count.set(count.value + 1)
        with k.range(count.value) as i:
            self.writer.append(
                k,
                k.offset(self.state, k.load("i64", targets, i) * self.shard_bytes),
                row,
                self.number.value,
                self.expected.value,
            )

    def describe(self) -> str:
        return f"multicast to ({', '.join(map(str, self.to))}) of {self.shards} shards"
