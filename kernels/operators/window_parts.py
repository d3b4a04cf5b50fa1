"""Walks over a part of a window's rows: by several workers in parallel, or block by block if not all rows fit in
memory.

A morsel record has one more column, `PART`, whose words say which rows the walk covers (`part_words`).

`WindowPart`: all rows of the shard are in memory, and each worker walks over some of them. What its first row needs of
the rows before it is found there: its partition and its peers by binary search; the state of a frame that begins with
the partition by adding those rows again. They are added without results and in the same order, so sums of floats are
those of one walk.

`WindowBlock`: only some rows before and behind those of the walk are in memory. Rows keep their numbers in the whole
input; column addresses are moved back accordingly. A record in memory (`CARRY_HEADER` words, then variables) is read
when a walk begins and written when it ends. Its header says whether there was a walk before, and where the partition
and the peers of the last row in memory end. Required: `kernels/windows/halo.py` knows the rows that each call looks
at."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.window import Pointers, WindowScan
from tsql.kernels.windows.base import Evaluator, Place

PART = SourceColumn("#part", BIGINT, Layout("fixed", "i64", False))
CARRY_HEADER = 4
CARRY_BYTES = 1 << 16
"""More than all variables of the calls of one query take."""


def part_words(first: int, count: int, carry: int = 0) -> tuple[int, int, int, int]:
    """The words of `PART`: the walk begins at row `first`; the rows in memory end at row `count`."""
    return carry, first, count, 0


class WindowPart(WindowScan):
    """A walk over some of the rows of a shard that is in memory."""

    inside = True

    def span(self, pointers: Pointers, rows: Val) -> tuple[Val | None, Val]:
        words = pointers[PART.name][1]
        self.first = words.aux.bits_as("i64")
        return self.first, words.validity.bits_as("i64")

    def resume(self, k: PipelineKernel, place: Place, first: Val | None, evaluators: list[Evaluator]) -> None:
        place.end = first

    def run_start(self, k: PipelineKernel, place: Place, keys: tuple[Expr, ...], limit: Val) -> Val:
        low = k.var(place.row)
        with k.when(place.row == self.first):
            low.set(limit)
            if keys:
                self._search(k, low, k.var(place.row), lambda number: place.rows.same(k, keys, number, place.row))
        return low.value

    def run_end(self, k: PipelineKernel, place: Place, keys: tuple[Expr, ...], limit: Val) -> Val:
        """Doubling steps, then a binary search: a run may be longer than the part."""
        if not keys:
            return limit
        low, step = k.var(place.row + 1), k.var(k.i64(1))
        with k.forever() as loop:
            number = low.value + step.value - 1
            loop.stop_if(number >= limit)
            loop.stop_if(~place.rows.same(k, keys, place.row, number))
            low.set(number + 1)
            step.set(step.value * 2)
        high = k.var(k.min(low.value + step.value - 1, limit))
        self._search(k, low, high, lambda number: ~place.rows.same(k, keys, place.row, number))
        return low.value

    def _search(self, k: PipelineKernel, low: Var, high: Var, reached: Callable[[Val], Val]) -> None:
        """Move `low` to the first number below `high` for which `reached` holds, or to `high`."""
        with k.forever() as loop:
            loop.stop_if(low.value >= high.value)
            middle = low.value + (high.value - low.value).ushr(1)
            there = reached(middle)
            low.set(k.select(there, low.value, middle + 1))
            high.set(k.select(there, middle, high.value))

    def groups_before(self, k: PipelineKernel, place: Place) -> Val:
        keys = tuple(key.expr for key in self.order)
        count = k.var(k.i64(-1))
        with k.range(place.row + 1, place.start + 1) as number:
            count.set(count.value + (~place.rows.same(k, keys, number, number - 1)).uto("i64"))
        return count.value


class WindowBlock(WindowScan):
    """A walk over a block of rows that continues the walk over the previous block."""

    def span(self, pointers: Pointers, rows: Val) -> tuple[Val | None, Val]:
        words = pointers[PART.name][1]
        self.carry = words.data
        return words.aux.bits_as("i64"), words.validity.bits_as("i64")

    def _variables(self, place: Place, evaluators: list[Evaluator]) -> list[tuple[int, Var]]:
        """The carried variables, each with its first word in the record; 16 bytes hold any of them."""
        found = [*place.carried(), *(v for one in evaluators for v in one.carried())]
        assert 8 * CARRY_HEADER + 16 * len(found) < CARRY_BYTES
        return [(CARRY_HEADER * 8 + 16 * number, v) for number, v in enumerate(found)]

    def resume(self, k: PipelineKernel, place: Place, first: Val | None, evaluators: list[Evaluator]) -> None:
        place.end = first
        with k.when(k.load("i64", self.carry) != 0):
            for at, variable in self._variables(place, evaluators):
                variable.set(k.load(variable.type, k.offset(self.carry, at)))

    def suspend(self, k: PipelineKernel, place: Place, evaluators: list[Evaluator]) -> None:
        k.store(self.carry, k.i64(1))
        for at, variable in self._variables(place, evaluators):
            k.store(k.offset(self.carry, at), variable.value)

    def run_end(self, k: PipelineKernel, place: Place, keys: tuple[Expr, ...], limit: Val) -> Val:
        """The end among the rows in memory; beyond them the host knows the end."""
        count = place.rows.count
        known = k.load("i64", self.carry, 1 if keys == self.by else 2)
        if not keys:
            # All rows are in one run: of the shard, or of the partition.
            return known if keys == self.by and limit is count else limit
        found = super().run_end(k, place, keys, k.min(limit, count))
        return k.select(found == count, known, found)
