"""A few bits for each row of a partition, in the narrowest integers that hold them: conditions that hold, and marks of
a search."""

from __future__ import annotations

from tsql.kernels.codegen.kir import BYTES
from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.patterns.history import Stretching


class RowBits:
    """`bits` bits per row; a row is known by its place in the partition."""

    def __init__(self, k: PipelineKernel, bits: int):
        self.words = -(-bits // 64)
        self.machine = next((m for m, most in (("i8", 8), ("i16", 16), ("i32", 32)) if bits <= most), "i64")
        self.bytes = self.words * BYTES[self.machine]
        self.memory = Stretching(k)

    def room(self, k: PipelineKernel, rows: Val) -> None:
        self.memory.room(k, rows * self.bytes)

    def clear(self, k: PipelineKernel, first: Val, end: Val) -> None:
        """Clear all bits of the rows from `first` up to `end`."""
        with k.when(end > first):
            k.call("memset", k.offset(self.memory.address, first * self.bytes), k.i32(0), (end - first) * self.bytes)

    def _place(self, row: Val, bit: Val) -> tuple[Val, Val]:
        """The word of a bit, and its place in it."""
        if self.words == 1:
            return row, bit.to(self.machine)
        return row * self.words + bit.ushr(6), bit & 63

    def test(self, k: PipelineKernel, row: Val, bit: Val) -> Val:
        word, place = self._place(row, bit)
        return (k.load(self.machine, self.memory.address, word).ushr(place) & 1) != 0

    def set(self, k: PipelineKernel, row: Val, bit: Val) -> None:
        word, place = self._place(row, bit)
        held = k.load(self.machine, self.memory.address, word)
        k.store(self.memory.address, held | (k.const(self.machine, 1) << place), word)

    def store(self, k: PipelineKernel, row: Val, bits: list[Val]) -> None:
        """Set all bits of a row."""
        for word in range(self.words):
            value = k.const(self.machine, 0)
            for place, bit in enumerate(bits[word * 64 : (word + 1) * 64]):
                value = value | (bit.uto(self.machine) << place)
            k.store(self.memory.address, value, row * self.words + word)

    def free(self, k: PipelineKernel) -> None:
        self.memory.free(k)
