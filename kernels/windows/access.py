"""lag, lead, first_value, last_value, nth_value: the value of another row, found in constant time.

IGNORE NULLS needs two arrays over the shard: how many rows before each have a value, and which these are.
"""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.expr.nodes import Expr, SortKey
from tsql.kernels.windows.base import Evaluator, Memory, Place, SortedRows, as_type, select_datum
from tsql.kernels.windows.call import WindowCall
from tsql.kernels.windows.frames import Frames


class Positions:
    """The rows in which an expression is not NULL."""

    def __init__(self, k: PipelineKernel, rows: SortedRows, expr: Expr):
        self.expr = expr
        self.before_each = Memory(k, (rows.count + 1) * 8)
        self.numbers = Memory(k, (rows.count + 1) * 8)

    def fill(self, k: PipelineKernel, rows: SortedRows) -> None:
        count = k.var(k.i64(0))
        with k.range(rows.count) as j:
            found = count.value
            k.store(self.before_each.address, found, j)
            k.store(self.numbers.address, j, found)
            valid = rows.value(k, self.expr, j).valid
            count.set(found + (k.i64(1) if valid is None else valid.uto("i64")))
        k.store(self.before_each.address, count.value, rows.count)
        k.store(self.numbers.address, rows.count, count.value)

    def before(self, k: PipelineKernel, row: Val) -> Val:
        """The number of such rows before a row."""
        return k.load("i64", self.before_each.address, row)

    def row(self, k: PipelineKernel, number: Val) -> Val:
        """The number-th such row; `number` may be one too large."""
        return k.load("i64", self.numbers.address, number)

    def free(self, k: PipelineKernel) -> None:
        self.before_each.free(k)
        self.numbers.free(k)


class Access(Evaluator):
    """Base: functions that give the first argument of some row."""

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        self.positions = Positions(k, rows, self.call.args[0]) if self.call.ignore_nulls else None

    def prepare(self, k: PipelineKernel, rows: SortedRows) -> None:
        if self.positions is not None:
            self.positions.fill(k, rows)

    def end(self, k: PipelineKernel) -> None:
        if self.positions is not None:
            self.positions.free(k)

    def read(self, k: PipelineKernel, place: Place, row: Val, found: Val) -> Datum:
        """The value of a row; NULL unless it was found."""
        d = place.rows.value(k, self.call.args[0], k.select(found, row, place.row))
        return as_type(d, self.call.type).with_valid(both(d.valid, found))


class ShiftedValue(Access):
    """lag and lead: the value some rows before or after, or a default if the partition has no such row."""

    def __init__(self, call: WindowCall, forward: bool):
        super().__init__(call)
        self.forward = forward

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        args, row = self.call.args, place.row
        distance, known = k.i64(1), None
        if len(args) > 1:
            d = place.rows.value(k, args[1], row).wide()
            distance, known = d.value, d.valid
        # The least BIGINT has no negation. No partition is that long, so any number beyond both ends will do.
        distance = k.max(distance, k.i64(-(2**62)))
        ahead = distance if self.forward else -distance
        if self.positions is None:
            inside = (ahead >= place.start - row) & (ahead < place.end - row)
            target = row + ahead
        else:
            inside, target = self._skipping(k, place, self.positions, ahead)
        result = self.read(k, place, target, inside)
        if len(args) > 2:
            result = select_datum(k, inside, result, as_type(place.rows.value(k, args[2], row), self.call.type))
        return result if known is None else result.with_valid(known if result.valid is None else known & result.valid)

    def _skipping(self, k: PipelineKernel, place: Place, positions: Positions, ahead: Val) -> tuple[Val, Val]:
        """Whether the row some rows with values ahead exists, and its number; the row itself for 0."""
        row = place.row
        here, low, high = (positions.before(k, at) for at in (row, place.start, place.end))
        behind = positions.before(k, row + 1)
        number = k.select(ahead > 0, behind + ahead - 1, here + ahead)
        inside = (number >= low) & (number < high)
        target = positions.row(k, k.select(inside, number, k.i64(0)))
        return inside | (ahead == 0), k.select(ahead == 0, row, target)


class FromFrame(Access):
    """Base of functions that choose a row of the frame by its number."""

    def __init__(self, call: WindowCall, order: tuple[SortKey, ...]):
        super().__init__(call)
        self.frames = Frames(call.frame, order, call.position)

    @property
    def needs_peers(self) -> bool:
        return self.call.frame.needs_peers

    @property
    def counts_groups(self) -> bool:
        return self.frames.grouped

    def begin(self, k: PipelineKernel, rows: SortedRows) -> None:
        super().begin(k, rows)
        self.frames.begin(k, rows)

    def partition(self, k: PipelineKernel, place: Place) -> None:
        self.frames.partition(k, place)

    def end(self, k: PipelineKernel) -> None:
        super().end(k)
        self.frames.end(k)

    def pieces(self, k: PipelineKernel, place: Place) -> list[tuple[Val, Val]]:
        """The frame as runs of numbers: of rows, or of rows with values under IGNORE NULLS."""
        pieces = self.frames.pieces(k, place)
        if self.positions is None:
            return pieces
        return [(self.positions.before(k, start), self.positions.before(k, end)) for start, end in pieces]

    def at(self, k: PipelineKernel, place: Place, number: Val, found: Val) -> Datum:
        row = number if self.positions is None else self.positions.row(k, k.select(found, number, k.i64(0)))
        return self.read(k, place, row, found)


class FirstValue(FromFrame):
    """The value of the first row of the frame."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        number, found = k.i64(0), k.false
        for start, end in reversed(self.pieces(k, place)):
            number, found = k.select(start < end, start, number), found | (start < end)
        return self.at(k, place, number, found)


class LastValue(FromFrame):
    """The value of the last row of the frame."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        number, found = k.i64(0), k.false
        for start, end in self.pieces(k, place):
            number, found = k.select(start < end, end - 1, number), found | (start < end)
        return self.at(k, place, number, found)


class NthValue(FromFrame):
    """The value of the n-th row of the frame, from 1; NULL where n is NULL or there is no such row."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        wanted = place.rows.value(k, self.call.args[1], place.row).wide()
        left, number, found = wanted.value - 1, k.i64(0), k.false
        positive = wanted.value > 0
        for start, end in self.pieces(k, place):
            here = ~found & (left < end - start) & positive
            number, found = k.select(here, start + left, number), found | here
            left = k.select(found, left, left - (end - start))
        return self.at(k, place, number, both(found, wanted.valid))
