"""A priority queue of pairs of numbers in the kernel language, for walks over rows in time order: the first to end is
on top."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.windows.base import Memory

ENTRY_BYTES = 16


class Heap:
    """A binary heap of (key, tag), i64 each; the least is on top, by key and then by tag. It has room for as many
    entries as the walk has rows."""

    def __init__(self, k: PipelineKernel, most: Val):
        self.memory = Memory(k, most * ENTRY_BYTES)
        self.size = k.var(k.i64(0))

    def clear(self, k: PipelineKernel) -> None:
        self.size.set(0)

    def key(self, k: PipelineKernel, place: Val) -> Val:
        return k.load("i64", self.memory.address, place * 2)

    def tag(self, k: PipelineKernel, place: Val) -> Val:
        return k.load("i64", self.memory.address, place * 2 + 1)

    def top_key(self, k: PipelineKernel) -> Val:
        """The least key; there must be one."""
        return self.key(k, k.i64(0))

    def top_tag(self, k: PipelineKernel) -> Val:
        return self.tag(k, k.i64(0))

    def push(self, k: PipelineKernel, key: Val, tag: Val) -> None:
        """Add an entry."""
        hole = k.var(self.size.value)
        self.size.set(self.size.value + 1)
        with k.forever() as loop:
            loop.stop_if(hole.value == 0)
            parent = (hole.value - 1).ushr(1)
            above, above_tag = self.key(k, parent), self.tag(k, parent)
            loop.stop_if(~_before(key, tag, above, above_tag))
            self._put(k, hole.value, above, above_tag)
            hole.set(parent)
        self._put(k, hole.value, key, tag)

    def pop(self, k: PipelineKernel) -> None:
        """Remove the top; there must be one."""
        self.size.set(self.size.value - 1)
        last = self.size.value
        with k.when(last > 0):
            self.replace_top(k, self.key(k, last), self.tag(k, last))

    def replace_top(self, k: PipelineKernel, key: Val, tag: Val) -> None:
        """Replace the top by another entry."""
        size = self.size.value
        hole = k.var(k.i64(0))
        with k.forever() as loop:
            left = hole.value * 2 + 1
            loop.stop_if(left >= size)
            right = k.min(left + 1, size - 1)
            left_key, left_tag, right_key, right_tag = (
                self.key(k, left),
                self.tag(k, left),
                self.key(k, right),
                self.tag(k, right),
            )
            take_right = _before(right_key, right_tag, left_key, left_tag)
            child_key, child_tag = k.select(take_right, right_key, left_key), k.select(take_right, right_tag, left_tag)
            loop.stop_if(~_before(child_key, child_tag, key, tag))
            self._put(k, hole.value, child_key, child_tag)
            hole.set(k.select(take_right, right, left))
        self._put(k, hole.value, key, tag)

    def _put(self, k: PipelineKernel, place: Val, key: Val, tag: Val) -> None:
        k.store(self.memory.address, key, place * 2)
        k.store(self.memory.address, tag, place * 2 + 1)

    def free(self, k: PipelineKernel) -> None:
        self.memory.free(k)


def _before(key: Val, tag: Val, other: Val, other_tag: Val) -> Val:
    return (key < other) | ((key == other) & (tag < other_tag))
