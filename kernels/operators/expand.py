"""Expand: each row once per grouping set, in a loop of the kernel, with the keys outside the set NULL."""

from __future__ import annotations

import struct

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.pipeline import Operator, Push
from tsql.kernels.emit.rows import CachedRow
from tsql.kernels.expr.types import BIGINT


class SetRow(CachedRow):
    """A row as one grouping set sees it."""

    def __init__(self, parent: CachedRow, keys: tuple[str, ...], grouping_id: Val, number: Val):
        super().__init__()
        self.parent, self.keys, self.grouping_id, self.number = parent, keys, grouping_id, number
        self.mask = parent.mask

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == "grouping_id":
            return Datum(BIGINT, (self.grouping_id,))
        if name == "grouping_set":
            return Datum(BIGINT, (self.number,))
        d = self.parent.column(k, name)
        if name not in self.keys:
            return d
        inside = (self.grouping_id & (1 << self.keys.index(name))) == 0
        return d.with_valid(inside if d.valid is None else inside & d.valid)


class Expand(Operator):
    """Loops over the sets; `grouping_id` has bit i set where key i is not in the set."""

    multiplies = True

    def __init__(self, keys: tuple[str, ...], sets: tuple[tuple[int, ...], ...]):
        self.keys, self.sets = keys, sets

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        masks = [sum(1 << i for i in range(len(self.keys)) if i not in s) for s in self.sets]
        table = k.static(struct.pack(f"<{len(masks)}q", *masks))
        with k.range(k.i64(len(masks))) as number:
            push(k, SetRow(row, self.keys, k.load("i64", table, number), number))

    def describe(self) -> str:
        return f"expand ({', '.join(self.keys)}) into {len(self.sets)} sets"
