"""Joins over a table that is sorted within groups of equal keys: `SortedBuild` collects it, `AsofProbe` finds the
nearest entry.

Ranges (band joins) are looked up by `Probe` (hash_join.py), which walks over the entries between two places.
`AsofProbe` looks at one place: for `left >= right` the entry before the first that is too late, for `left <= right` the
first that is not too early. Entries that are no partner (another key with the same hash, or the residual condition
fails) are skipped, away from the row's own time. Entries of equal time are in input order (reversed for `<=`), so the
last of them is met first.

State and progress: the build keeps right rows and needs nothing of the left; the probe keeps only a hint per group
where the last row was found. So a live run uses the same two operators. Right rows wait in the table until a
punctuation passes. Left rows wait for it too and are then probed: a row at `t` is decided once no right row before or
at `t` can come. Of each group, the entries before the last one that is not later than the punctuation are dropped. The
state is the table's columns, as an Arrow table."""

from __future__ import annotations

from typing import Any

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.entries import EntryLayout
from tsql.kernels.emit.expressions import emit, emit_predicate
from tsql.kernels.emit.keys import KeyField
from tsql.kernels.emit.pipeline import Push
from tsql.kernels.emit.rows import POSITION, CachedRow, CodeDatum
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import TIMESTAMP, TIMESTAMPTZ
from tsql.kernels.operators.join.hash_join import (
    Build,
    BuildRow,
    JoinedRow,
    KeyBounds,
    Probe,
    TableKind,
    canonical,
    hash_of,
    key_words,
)
from tsql.kernels.operators.join.sorted_search import SortedSearch
from tsql.kernels.operators.join.string_hashes import hash_by_code, tell_apart
from tsql.kernels.runtime.calendar import TIMESTAMP_INFINITY
from tsql.kernels.runtime.group_table import table_entry
from tsql.kernels.runtime.join_table import ALONE, FREE, UNMARKED, hash_key

SIGN = -(2**63)
MAGNITUDE = 2**63 - 1


def order_word(k: PipelineKernel, expr: Expr, d: Datum) -> Val:
    """A signed word in the order of the values; NaN is the greatest, as in ORDER BY."""
    (word,) = key_words(k, expr, d)
    if expr.type.is_float:
        return word ^ ((word >> 63) & MAGNITUDE)
    return word.to("i64") ^ SIGN if expr.type.name == "UBIGINT" else word


class SortedBuild(Build):
    """Collects rows that the host sorts by `order` within the groups of their keys. Rows with NULL as a key or as the
    number are in no group.

    Header of an entry: the number; whether it found a partner (if marked); the hash of its keys (if there are any; a
    single number is kept unhashed); its position in the input (`placed`: if it breaks ties between equal numbers); a
    second number (`second`: the end of an interval that starts at the first)."""

    transient = ("row",)

    def __init__(
        self,
        columns: tuple[tuple[str, Expr], ...],
        keys: tuple[Expr, ...],
        safe: tuple[bool, ...],
        order: Expr,
        marks: bool = False,
        equal_hashes: bool = False,
        placed: Expr | bool = False,
        second: Expr | None = None,
    ):
        super().__init__(columns, keys, safe, marks, equal_hashes, order)
        self.placed, self.second, self.bounds = placed, second, KeyBounds()
        words = 1 + (self.marking != UNMARKED)
        self.hash_at = words * 8 if keys else -1
        words += bool(keys)
        self.place_at = words * 8 if placed is not False else -1
        words += placed is not False
        self.second_at = words * 8 if second is not None else -1
        self.header_bytes = (words + (second is not None)) * 8

    @property
    def is_by_number(self) -> bool:
        """Whether the key is a single number, whose hash is unique."""
        if len(self.keys) != 1 or self.safe[0] or self.equal_hashes:
            return False
        return canonical(self.keys[0]).exact and canonical(self.keys[0]).machines == ("i64",)

    def has_exact_groups(self, data: list[Datum]) -> bool:
        """Whether rows with such keys are led only to a group of equal keys, or to none: for a number, or for a
        dictionary code if the hashes of all strings differ."""
        if self.is_by_number:
            return True
        if (
            len(self.keys) != 1
            or self.equal_hashes
            or not isinstance(data[0], CodeDatum)
            or data[0].column.dictionary is None
        ):
            return False
        column = self.layout.fields[self.layout.index[self.key_names[0]]].column
        if column is None or column.dictionary is None or self.safe[0]:
            return False
        return tell_apart(column.dictionary) and tell_apart(data[0].column.dictionary, column.dictionary)

    def probe(self, k: PipelineKernel, row: CachedRow) -> None:
        fields = [KeyField.of(name, emit(k, e, row)) for name, e in self.columns]
        self.layout = EntryLayout(fields, self.header_bytes)
        self.entry_bytes = self.layout.end
        # Marks are set and read in the entries themselves.
        self.row_words = 0 if self.marks else (self.entry_bytes - self.header_bytes) // 8

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        self.row = row
        super().consume(k, row)

    def begin(self, k: PipelineKernel) -> None:
        super().begin(k)
        if self.is_by_number:
            self.bounds.begin(k, self.table)

    def end(self, k: PipelineKernel) -> None:
        if self.is_by_number:
            self.bounds.end(k, self.table)

    def group_word(self, k: PipelineKernel, keys: tuple[Expr, ...], data: list[Datum]) -> Val:
        """The hash of keys, which identifies their group."""
        if self.is_by_number:
            return hash_key(k, key_words(k, keys[0], data[0])[0])
        if (
            len(keys) == 1
            and not self.safe[0]
            and not self.equal_hashes
            and (found := hash_by_code(k, data[0])) is not None
        ):
            return found
        return hash_of(k, keys, self.safe, data, self.equal_hashes)

    def _add(
        self, k: PipelineKernel, data: dict[str, Datum], keys: list[Datum], present: Val | None, place: Datum | None
    ) -> None:
        assert self.order is not None and place is not None, "a sorted table has an order"
        entry = table_entry(k, k.ctx, self.table, k.i64(self.entry_bytes))
        k.store(entry, order_word(k, self.order, place))
        if self.marking != UNMARKED:
            k.store(entry, k.i64(FREE) if present is None else k.select(present, k.i64(FREE), k.i64(ALONE)), 1)
        if self.is_by_number:
            (word,) = key_words(k, self.keys[0], keys[0])
            self.bounds.add(k, word, present)
            k.store(k.offset(entry, self.hash_at), word)
        elif self.keys:
            k.store(k.offset(entry, self.hash_at), self.group_word(k, self.keys, keys))
        if self.placed is not False:
            at = self.row.column(k, POSITION) if self.placed is True else emit(k, self.placed, self.row)
            k.store(k.offset(entry, self.place_at), at.value.to("i64"))
        if self.second is not None:
            d = emit(k, self.second, self.row)
            k.store(k.offset(entry, self.second_at), order_word(k, self.second, d))
        self.layout.store(k, self.table, entry, [data[n] for n, _ in self.columns])

    def describe(self) -> str:
        until = "" if self.second is None else f" up to {self.second}"
        return f"{super().describe()} sorted by {self.order}{until}"


class AsofProbe(Probe):
    """Finds the nearest entry on one side of each row's time. kind: inner or left.

    at: the comparison, from the table's side: `<=`, `<` (entries not later than, before the row), `>=` or `>`.
    tolerance: the maximum distance, in units of the numbers. walks: rows come in time order, and each group remembers
    where the last row was found."""

    def __init__(
        self,
        table: TableKind,
        slot: Any,
        kind: str,
        keys: tuple[Expr, ...],
        residual: Expr | None,
        tolerance: int | float | None,
        position: int | None,
    ):
        super().__init__(table, slot, kind, keys, residual, position=position, early=False)
        ((self.op, self.time, _),) = table.bounds
        self.tolerance, self.multiplies, self.fetches = tolerance, False, 0

    @property
    def signature(self) -> object:
        return (id(self.build), self.table.walks, self.table.dense)

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        data = [emit(k, e, row) for e in self.keys]
        time = emit(k, self.time, row)
        value = order_word(k, self.time, time)
        found = SortedSearch(self, k, data)
        back = self.op[0] == "<"
        place = self._place(k, found, value, after=self.op in ("<=", ">"))
        at = k.var(place - 1 if back else place)
        self._pass_by(k, row, data, at, found, back)
        hit = (at.value >= found.start) & (at.value < found.end)
        hit = hit if time.valid is None else hit & time.valid
        if self.tolerance is not None:
            hit = hit & self._is_near(k, value, k.load("i64", found.orders, k.select(hit, at.value, k.i64(0))), back)
        entry = found.entry(k.select(hit, at.value, k.i64(0)))
        if self.kind == "inner":
            with k.when(hit):
                push(k, JoinedRow(row, BuildRow(self.build.layout, entry)))
            return
        entry = k.select(hit, entry, k.static(bytes(self.build.entry_bytes)))
        push(k, JoinedRow(row, BuildRow(self.build.layout, entry, hit)))

    def _place(self, k: PipelineKernel, found: SortedSearch, value: Val, after: bool) -> Val:
        if not self.table.walks:
            return found.place(value, after)
        if not self.keys:
            last = k.at_entry(lambda: k.var(k.i64(0)))
            place = found.place_behind(last.value, value, after)
            last.set(place)
            return place
        place = found.place_behind(k.load("i64", found.cursor), value, after)
        k.store(found.cursor, place)
        return place

    def _pass_by(
        self, k: PipelineKernel, row: CachedRow, data: list[Datum], at: Any, found: SortedSearch, back: bool
    ) -> None:
        """Advance to the nearest entry that is a partner."""
        exact = self._is_exact(data)
        if exact and self.residual is None:
            return
        with k.forever() as loop:
            loop.stop_if(at.value < found.start if back else at.value >= found.end)
            loop.stop_if(at.value >= found.end)
            entry = found.entry(at.value)
            hit = k.var(k.true if exact else self._same_keys(k, entry, data))
            if self.residual is not None:
                with k.when(hit.value):
                    hit.set(emit_predicate(k, self.residual, JoinedRow(row, BuildRow(self.build.layout, entry))))
            loop.stop_if(hit.value)
            at.set(at.value - 1 if back else at.value + 1)

    def _is_near(self, k: PipelineKernel, value: Val, other: Val, back: bool) -> Val:
        """i1: not further apart than the tolerance. Infinity is near only to itself."""
        assert self.tolerance is not None, "asked where there is a tolerance"
        low, high = (other, value) if back else (value, other)
        if self.time.type.is_float:
            numbers = [(word ^ ((word >> 63) & MAGNITUDE)).bits_as("f64") for word in (low, high)]
            return ((numbers[1] - numbers[0]) <= k.f64(float(self.tolerance))) | (low == high)
        # The difference of two words may wrap, but is correct as an unsigned number.
        distance = min(int(self.tolerance), 2**64 - 1)
        near = (high - low).ule(k.i64(distance - 2**64 if distance > MAGNITUDE else distance))
        if self.time.type not in (TIMESTAMP, TIMESTAMPTZ):
            return near
        return (near & (low != -TIMESTAMP_INFINITY) & (high != TIMESTAMP_INFINITY)) | (low == high)

    def describe(self) -> str:
        keys = "".join(f"{e}, " for e in self.keys)
        rest = f" where {self.residual}" if self.residual is not None else ""
        within = f" within {self.tolerance}" if self.tolerance is not None else ""
        return (
            f"probe asof {self.kind}{' walking' if self.table.walks else ''} by ({keys}{self.op} "
            f"{self.time}){within}{rest}"
        )


__all__ = ["AsofProbe", "SortedBuild", "order_word"]
