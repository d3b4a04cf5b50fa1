"""Joins inside pipelines: `Build` collects one side into a table, `Probe` finds the partners of each row of the other.

In between, the host links the collected entries into a directory (`runtime/join_table.py`). One operator serves every
kind of join: it walks the chain of a row, checks keys and the residual condition, and pushes rows in one place, so that
what follows is emitted once. Without keys all entries are in one chain: a nested loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.context import SCRATCH, SINK, PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum, both
from tsql.kernels.emit.entries import EntryLayout
from tsql.kernels.emit.expressions import emit, emit_predicate
from tsql.kernels.emit.keys import KeyField
from tsql.kernels.emit.pipeline import Operator, Push, Sink
from tsql.kernels.emit.rows import POSITION, CachedRow
from tsql.kernels.expr.nodes import Column, Expr
from tsql.kernels.expr.types import BIGINT, BOOLEAN
from tsql.kernels.operators.join.key_hash import HASH_SEED, add_to_hash
from tsql.kernels.operators.join.sorted_search import NumberBound, SortedSearch, entry_at, fetch_group, shifted
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.group_table import ADDRESS_MASK, TABLE_BYTES, table_entry
from tsql.kernels.runtime.join_table import (
    ALONE,
    APART,
    BY_HASH,
    BY_KEY,
    DENSE,
    FREE,
    MARKED,
    MATCHED,
    SORTED,
    UNMARKED,
    chain_word,
    hash_key,
    near_word,
    next_place,
    run_end,
)
from tsql.kernels.runtime.overlaps import next_reaching
from tsql.kernels.runtime.sorted_table import GREATEST

NULLS_AT, LEAST_AT, GREATEST_AT = TABLE_BYTES, TABLE_BYTES + 8, TABLE_BYTES + 16
"""Words behind the group table of a Build's state: how many rows were dropped because a key is NULL, and the key
bounds."""

TOO_MANY = (
    "More than one row returned by a subquery used as an expression - scalar subqueries can only return a single row."
)


def canonical(key: Expr) -> KeyField:
    """A key without what is known of only one side: both sides must make the same words of equal values."""
    return KeyField("", key.type, True)


def key_words(k: PipelineKernel, key: Expr, d: Datum) -> tuple[Val, ...]:
    """The words by which keys are compared: -0.0 becomes 0.0."""
    field = canonical(key)
    first, *rest = field._words(k, d)
    return (field.compared(k, first), *rest)


class KeyBounds:
    """The least and the greatest key that a worker has met, kept in the state after its rows."""

    def begin(self, k: PipelineKernel, table: Val) -> None:
        empty = k.load("i64", table, 2) == 0
        self.least = k.var(k.select(empty, k.i64(2**63 - 1), k.load("i64", k.offset(table, LEAST_AT))))
        self.greatest = k.var(k.select(empty, k.i64(-(2**63)), k.load("i64", k.offset(table, GREATEST_AT))))

    def add(self, k: PipelineKernel, word: Val, present: Val | None) -> None:
        known = word if present is None else k.select(present, word, self.least.value)
        self.least.set(k.min(known, self.least.value))
        known = word if present is None else k.select(present, word, self.greatest.value)
        self.greatest.set(k.max(known, self.greatest.value))

    def end(self, k: PipelineKernel, table: Val) -> None:
        k.store(k.offset(table, LEAST_AT), self.least.value)
        k.store(k.offset(table, GREATEST_AT), self.greatest.value)


class Build(Sink):
    """Collects rows: their keys and the columns that are needed after the join.

    safe: for each key, whether NULL equals NULL. Rows with NULL in another key have no partner: they are dropped and
    counted. With `marks` every row is kept, and entries have a word that says whether they found a partner. `apart`:
    rows with NULL keys are kept in a chain of their own, for a mark that a comparison with NULL leaves open. order: a
    number by which the host sorts the entries, for range conditions on it (`sorted_join.py`); NULL is in no range."""

    needs_probe = True
    second: Expr | None = None
    """A second number of each entry that a search compares: NULL is in no range either."""

    def has_exact_groups(self, data: list[Datum]) -> bool:
        """Whether rows with such keys are led only to a group of equal keys, or to none."""
        return False

    def __init__(
        self,
        columns: tuple[tuple[str, Expr], ...],
        keys: tuple[Expr, ...],
        safe: tuple[bool, ...],
        marks: bool = False,
        equal_hashes: bool = False,
        order: Expr | None = None,
        apart: bool = False,
    ):
        known = {e: n for n, e in columns}
        extra = tuple((f"#key{i}", e) for i, e in enumerate(keys) if e not in known)
        known |= {e: n for n, e in extra}
        self.columns = (*columns, *extra)
        self.keys, self.safe, self.marks, self.equal_hashes, self.order = keys, safe, marks, equal_hashes, order
        self.marking = MARKED if marks else APART if apart else UNMARKED
        self.key_names = tuple(known[e] for e in keys)
        self.state_bytes = TABLE_BYTES + 24
        self.bounds = KeyBounds()

    def probe(self, k: PipelineKernel, row: CachedRow) -> None:
        fields = [KeyField.of(name, emit(k, e, row)) for name, e in self.columns]
        self.layout = EntryLayout(fields, 8 if self.marking == UNMARKED else 16)
        self.entry_bytes = self.layout.end

    @property
    def mode(self) -> int:
        """What the first word of an entry is: the key itself if it is a single number."""
        if self.order is not None:
            return SORTED
        single = len(self.keys) == 1 and not self.safe[0] and not self.equal_hashes and canonical(self.keys[0]).exact
        return BY_KEY if single and canonical(self.keys[0]).machines == ("i64",) else BY_HASH

    def begin(self, k: PipelineKernel) -> None:
        self.table = k.load("ptr", k.offset(k.ctx, SINK))
        if self.mode == BY_KEY:
            self.bounds.begin(k, self.table)

    def end(self, k: PipelineKernel) -> None:
        if self.mode == BY_KEY:
            self.bounds.end(k, self.table)

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        data = {name: emit(k, e, row) for name, e in self.columns}
        keys = [data[n] for n in self.key_names]
        present: Val | None = None
        for d, safe in zip(keys, self.safe, strict=True):
            present = both(present, None if safe else d.valid)
        place = None if self.order is None else emit(k, self.order, row)
        if place is not None:
            present = both(present, place.valid)
        if self.second is not None:
            present = both(present, emit(k, self.second, row).valid)
        if present is None or self.marking != UNMARKED:
            self._add(k, data, keys, present, place)
            return
        with k.when(present):
            self._add(k, data, keys, None, place)
        with k.otherwise():
            k.store(k.offset(self.table, NULLS_AT), k.load("i64", k.offset(self.table, NULLS_AT)) + 1)

    def _add(
        self, k: PipelineKernel, data: dict[str, Datum], keys: list[Datum], present: Val | None, place: Datum | None
    ) -> None:
        entry = table_entry(k, k.ctx, self.table, k.i64(self.entry_bytes))
        if self.mode == BY_KEY:
            (word,) = key_words(k, self.keys[0], keys[0])
            self.bounds.add(k, word, present)
        else:
            word = hash_of(k, self.keys, self.safe, keys, self.equal_hashes)
        k.store(entry, word)
        if self.marking != UNMARKED:
            k.store(entry, k.i64(FREE) if present is None else k.select(present, k.i64(FREE), k.i64(ALONE)), 1)
        self.layout.store(k, self.table, entry, [data[n] for n, _ in self.columns])

    def describe(self) -> str:
        return f"build ({', '.join(n for n, _ in self.columns)}) by ({', '.join(map(str, self.keys))})"


def hash_of(
    k: PipelineKernel, keys: tuple[Expr, ...], safe: tuple[bool, ...], data: list[Datum], equal_hashes: bool
) -> Val:
    """The hash of keys, including NULLs that equal each other."""
    if equal_hashes or not keys:
        return k.i64(0x0123_4567_89AB_CDEF)
    h = k.i64(HASH_SEED)
    for key, null_safe, d in zip(keys, safe, data, strict=True):
        for word in canonical(key).hash_words(k, key_words(k, key, d)):
            if null_safe and d.valid is not None:
                word = k.select(d.valid, word, k.i64(0x7F4A7C15))
            h = add_to_hash(k, h, word)
    return h


@dataclass(frozen=True)
class TableKind:
    """What a probe must know of a finished table: its layout, its keys and the kind of its directory."""

    build: Build
    dense: bool
    by_shard: bool = False
    has_bitmap: bool = False
    bounds: tuple[NumberBound, ...] = ()
    """Of a sorted table: the bounds of its order key."""
    reach: NumberBound | None = None
    """Of a table of intervals: the lower bound of their ends."""
    walks: bool = False
    """Of a sorted table: rows come in its order, and look up one value each."""
    large: bool = False
    """Whether it exceeds a core's cache: then entries are prefetched for many rows."""


class BuildRow(CachedRow):
    """An entry as a row. Where `valid` does not hold there is no entry, and every column is NULL."""

    def __init__(self, layout: EntryLayout, entry: Val, valid: Val | None = None, position: Val | None = None):
        super().__init__()
        self.layout, self.entry, self.valid, self.position = layout, entry, valid, position

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION:
            assert self.position is not None, "asked for a position that the join does not give"
            return Datum(BIGINT, (self.position,))
        d = self.layout.read(k, self.entry, self.layout.index[name])
        return d if self.valid is None else d.with_valid(both(d.valid, self.valid))


class JoinedRow(CachedRow):
    """A row of the probing side with its partner."""

    def __init__(self, row: CachedRow, partner: BuildRow | None, extra: dict[str, Datum] | None = None):
        super().__init__()
        self.row, self.partner, self.extra = row, partner, extra or {}

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name in self.extra:
            return self.extra[name]
        if self.partner is not None and name != POSITION and name in self.partner.layout.index:
            return self.partner.column(k, name)
        return self.row.column(k, name)


class Chain:
    """The entries of a chain, one after the other."""

    def __init__(self, k: PipelineKernel, first: Val):
        self.k, self.cursor = k, k.var(first)

    @property
    def at_end(self) -> Val:
        return self.cursor.value == self.k.null

    @property
    def entry(self) -> Val:
        return self.cursor.value

    def advance(self) -> None:
        self.cursor.set(self.k.load("ptr", self.cursor.value))


class EntryRange:
    """The entries of a sorted table from one place to another. A readable row follows the last one."""

    def __init__(self, k: PipelineKernel, probe: Probe, start: Val, end: Val):
        self.k, self.probe, self.end, self.cursor = k, probe, end, k.var(start)

    @property
    def at_end(self) -> Val:
        return self.cursor.value >= self.end

    @property
    def entry(self) -> Val:
        return entry_at(self.k, self.probe, self.cursor.value)

    def advance(self) -> None:
        self.cursor.set(self.cursor.value + 1)


class OverlapRange(EntryRange):
    """The entries of such a part of a table whose second number is not less than a value, or greater."""

    def __init__(self, k: PipelineKernel, probe: Probe, start: Val, end: Val, value: Val, after: Val):
        super().__init__(k, probe, start, end)
        self.record, self.value, self.after = probe._record(k, GREATEST, "ptr"), value, after
        self._seek(start)

    def advance(self) -> None:
        self._seek(self.cursor.value + 1)

    def _seek(self, place: Val) -> None:
        self.cursor.set(next_reaching(self.k, self.record, place, self.end, self.value, self.after))


class Probe(Operator):
    """Looks up the partners of each row. kind: inner, left, single, semi, anti or mark, as in a logical join whose
    right side is the table; or "touch", which pushes nothing.

    slot: names the table to the host. residual: what a pair must satisfy besides equal keys. touches: partners that are
    found are marked in the table. early: many rows are expected to have no partner, and are rejected first."""

    vectorises = False

    def __init__(
        self,
        table: TableKind,
        slot: Any,
        kind: str,
        keys: tuple[Expr, ...],
        residual: Expr | None = None,
        mark: str | None = None,
        touches: bool = False,
        position: int | None = None,
        early: bool = True,
    ):
        self.table, self.slot, self.kind, self.keys, self.residual = table, slot, kind, keys, residual
        self.mark, self.touches, self.position = mark, touches or kind == "touch", position
        self.build = table.build
        self.multiplies, self.by_shard = kind in ("inner", "left"), table.by_shard
        # Rows without a partner end here: the directory alone rejects most of them, for many rows at once.
        plain = bool(keys) and all(isinstance(e, Column) and canonical(e).exact for e in keys)
        self.selects = early and kind in ("inner", "semi", "touch") and plain
        self.fetches = (3 if table.bounds else 2) if table.large and plain and not table.walks else 0
        self.fetch_rows = 16 if table.dense else 8
        self.reads = frozenset(name for key in keys for name in key.columns())

    @property
    def signature(self) -> object:
        table = self.table
        return (table.dense, table.has_bitmap, table.bounds, table.reach, table.large, id(self.build))

    def condition(self, k: PipelineKernel, row: CachedRow) -> Val:
        data = [emit(k, e, row) for e in self.keys]
        if not self.table.has_bitmap:
            found, is_open = self._near(k, data)
            return (found != 0) if is_open is None else (found != 0) | is_open
        at = key_words(k, self.keys[0], data[0])[0] - self._record(k, 2)
        inside = both(self._present(data), at.ult(self._record(k, 6)))
        byte = k.load("i8", self._record(k, 5, "ptr"), k.select(inside, at.ushr(3), k.i64(0)))
        return inside & ((byte.ushr((at & 7).to("i8")) & 1) != 0)

    def fetch(self, k: PipelineKernel, row: CachedRow, stage: int) -> None:
        data = [emit(k, e, row) for e in self.keys]
        if self.table.bounds:
            fetch_group(k, self, data, stage)
            return
        if stage == 0:
            place = (
                key_words(k, self.keys[0], data[0])[0] - self._record(k, 2)
                if self.table.dense
                else self._hash(k, data) & self._record(k, 1)
            )
            k.prefetch(k.element("i64", self._record(k, 0, "ptr"), place))
            return
        found, _ = self._near(k, data)
        k.prefetch((found & ADDRESS_MASK).bits_as("ptr"))

    def consume(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        data = [emit(k, e, row) for e in self.keys]
        if not self.keys or (self.build.marking == APART and self._present(data) is not None):
            # One row may meet millions of entries: check for cancellation after each.
            k.uses_scratch = True
        walk = self._range(k, row, data) if self.table.bounds else Chain(k, self._first(k, data))
        match self.kind:
            case "semi" | "anti":
                self._search(k, row, data, walk)
                with k.when(~walk.at_end if self.kind == "semi" else walk.at_end):
                    push(k, row)
            case "mark":
                assert self.mark is not None, "a mark join names its mark"
                push(k, JoinedRow(row, None, {self.mark: self._marked(k, row, data, walk)}))
            case "touch":
                with k.forever() as loop:
                    self._search(k, row, data, walk)
                    loop.stop_if(walk.at_end)
                    self._touch(k, walk.entry)
                    walk.advance()
            case _:
                self._pairs(k, row, data, walk, push)

    def outline(self, k: PipelineKernel, row: CachedRow, push: Push) -> None:
        match self.kind:
            case "semi" | "anti":
                push(k, row)
            case "inner" | "left" | "single":
                push(k, JoinedRow(row, BuildRow(self.build.layout, k.null, None if self.kind == "inner" else k.false)))
            case _:
                self.consume(k, row, push)

    def _range(self, k: PipelineKernel, row: CachedRow, data: list[Datum]) -> EntryRange:
        """The entries whose order key lies within the bounds of a row; none if a bound is NULL."""
        if self.table.walks:
            return self._walk(k, row)
        found = SortedSearch(self, k, data)
        start, end, present = found.start, found.end, None
        # Ranges are narrow: the end is searched from the start of the range. An end before the start means an empty
        # range.
        for op, expr, shift in sorted(self.table.bounds, key=lambda bound: bound[0][0] != ">"):
            d = emit(k, expr, row)
            present = both(present, d.valid)
            value, after = shifted(k, key_words(k, expr, d)[0], shift), op in (">", "<=")
            if op[0] == ">":
                start = k.max(start, found.place(value, after))
            else:
                end = k.min(
                    end,
                    found.place(value, after)
                    if start is found.start
                    else found.place_behind(start, value, after, is_least=True),
                )
        if self.table.reach is None:
            return EntryRange(k, self, start, end if present is None else k.select(present, end, k.i64(0)))
        op, expr, _ = self.table.reach
        d = emit(k, expr, row)
        present = both(present, d.valid)
        end = end if present is None else k.select(present, end, k.i64(0))
        return OverlapRange(k, self, start, end, key_words(k, expr, d)[0], k.i64(int(op == ">")))

    def _walk(self, k: PipelineKernel, row: CachedRow) -> EntryRange:
        """The entries with the value of a row, searched from where the previous row found its own."""
        keys, count = self._record(k, 0, "ptr"), self._record(k, 1)
        expr = self.table.bounds[0][1]
        d = emit(k, expr, row)
        value = key_words(k, expr, d)[0]
        last = k.at_entry(lambda: k.var(k.i64(0)))
        start = next_place(k, keys, count, last.value, value)
        last.set(start)
        end = run_end(k, keys, count, start, value)
        return EntryRange(k, self, start, end if d.valid is None else k.select(d.valid, end, k.i64(0)))

    def _pairs(
        self, k: PipelineKernel, row: CachedRow, data: list[Datum], walk: Chain | EntryRange, push: Push
    ) -> None:
        """Push each pair; for a left join also a row without a partner, once and from the same place."""
        outer = self.kind in ("left", "single")
        seen = k.var(k.false)
        used = k.load("i64", k.offset(k.ctx, SCRATCH + 8))
        with k.forever() as loop:
            self._search(k, row, data, walk)
            found = ~walk.at_end
            loop.stop_if(~found & seen.value if outer else ~found)
            if self.kind == "single":
                with k.guarded(None, self.position):
                    k.fail(seen.value, TOO_MANY)
            entry = walk.entry
            if outer:
                entry = k.select(found, entry, k.static(bytes(self.build.entry_bytes)))
            if self.touches:
                with k.when(found):
                    self._touch(k, entry)
            push(k, JoinedRow(row, BuildRow(self.build.layout, entry, found if outer else None)))
            if k.uses_scratch:
                # Memory taken for this pair is free again.
                k.store(k.offset(k.ctx, SCRATCH + 8), used)
            if k.uses_scratch or k.enough is not None:
                loop.stop_if(k.is_done())
            if outer:
                loop.stop_if(~found)
            seen.set(k.true)
            walk.advance()

    def _touch(self, k: PipelineKernel, entry: Val) -> None:
        k.store(entry, k.i64(MATCHED), 1)

    def _record(self, k: PipelineKernel, word: int, machine: str = "i64") -> Val:
        return k.slot_word(Slot("join", None, self.slot), word, machine)

    def _present(self, data: list[Datum]) -> Val | None:
        valid: Val | None = None
        for d, safe in zip(data, self.build.safe, strict=True):
            valid = both(valid, None if safe else d.valid)
        return valid

    def _first(self, k: PipelineKernel, data: list[Datum]) -> Val:
        """The first entry of the chain that holds a row's partners, or null."""
        if self.table.dense:
            return self._dense_word(k, data).bits_as("ptr")
        word = chain_word(k, self._record(k, 0, "ptr"), self._record(k, 1), self._hash(k, data)) & ADDRESS_MASK
        present = self._present(data)
        return (word if present is None else k.select(present, word, k.i64(0))).bits_as("ptr")

    def _near(self, k: PipelineKernel, data: list[Datum]) -> tuple[Val, Val | None]:
        """What is known of a row's chain without a branch: its directory word or 0; if 0, whether there may be a chain
        anyway."""
        if self.table.dense:
            return self._dense_word(k, data), None
        found, is_open = near_word(k, self._record(k, 0, "ptr"), self._record(k, 1), self._hash(k, data))
        present = self._present(data)
        return (found, is_open) if present is None else (k.select(present, found, k.i64(0)), is_open & present)

    def _dense_word(self, k: PipelineKernel, data: list[Datum]) -> Val:
        at = key_words(k, self.keys[0], data[0])[0] - self._record(k, 2)
        inside = both(self._present(data), at.ult(self._record(k, 1)))
        word = k.load("i64", self._record(k, 0, "ptr"), k.select(inside, at, k.i64(0)))
        return k.select(inside, word, k.i64(0))

    def _hash(self, k: PipelineKernel, data: list[Datum]) -> Val:
        if self.build.mode == BY_KEY:
            return hash_key(k, key_words(k, self.keys[0], data[0])[0])
        return hash_of(k, self.keys, self.build.safe, data, self.build.equal_hashes)

    def _search(self, k: PipelineKernel, row: CachedRow, data: list[Datum], walk: Chain | EntryRange) -> None:
        """Advance to the next partner, or to the end."""
        if self._is_exact(data) and self.residual is None:
            return
        with k.forever() as loop:
            loop.stop_if(walk.at_end)
            entry = walk.entry
            hit = k.var(k.false)
            with k.when(self._same_keys(k, entry, data)):
                hit.set(
                    k.true
                    if self.residual is None
                    else emit_predicate(k, self.residual, JoinedRow(row, BuildRow(self.build.layout, entry)))
                )
            loop.stop_if(hit.value)
            walk.advance()

    def _is_exact(self, data: list[Datum]) -> bool:
        """Whether the entries that a row is led to certainly have its keys."""
        return self.table.dense or (bool(self.table.bounds) and (not self.keys or self.build.has_exact_groups(data)))

    def _same_keys(self, k: PipelineKernel, entry: Val, data: list[Datum]) -> Val:
        same = k.true
        if self._is_exact(data):
            return same
        for key, name, d, safe in zip(self.keys, self.build.key_names, data, self.build.safe, strict=True):
            stored = self.build.layout.read(k, entry, self.build.layout.index[name])
            equal = canonical(key).equal(k, key_words(k, key, stored), key_words(k, key, d))
            if stored.valid is not None or d.valid is not None:
                a, b = (k.true if v is None else v for v in (stored.valid, d.valid))
                equal = (a & b & equal) | (~a & ~b) if safe else a & b & equal
            same = same & equal
        return same

    def _marked(self, k: PipelineKernel, row: CachedRow, data: list[Datum], walk: Chain | EntryRange) -> Datum:
        """true if there is a partner; NULL if there is none but a comparison with NULL leaves it open; else false."""
        unknown = k.var(k.false)
        with k.forever() as loop:
            loop.stop_if(walk.at_end)
            entry = walk.entry
            hit = k.var(k.false)
            with k.when(self._same_keys(k, entry, data)):
                if self.residual is None:
                    hit.set(k.true)
                else:
                    d = emit(k, self.residual, JoinedRow(row, BuildRow(self.build.layout, entry)))
                    valid = k.true if d.valid is None else d.valid
                    hit.set(d.value & valid)
                    unknown.set(unknown.value | ~valid)
            loop.stop_if(hit.value)
            walk.advance()
        found = ~walk.at_end
        if self.build.marking == APART:
            self._leave_open(k, row, data, found, unknown)
            return Datum(BOOLEAN, (found,), found | ~unknown.value)
        open_ends = unknown.value
        present = self._present(data)
        if self.keys and not all(self.build.safe):
            left_out = self._record(k, 4)
            open_ends = open_ends | (left_out != 0)
            if present is not None:
                open_ends = k.select(present, open_ends, (self._record(k, 3) + left_out) != 0)
        return Datum(BOOLEAN, (found,), found | ~open_ends)

    def _leave_open(self, k: PipelineKernel, row: CachedRow, data: list[Datum], found: Val, unknown: Var) -> None:
        """Set `unknown` if NULL keys leave open whether a row has a partner. A row without NULLs is compared with the
        entries kept apart; a row with NULLs is compared with all entries. These are few rows if NULLs are rare."""
        directory, last = self._record(k, 0, "ptr"), self._record(k, 7)
        present = self._present(data)
        first = last if present is None else k.select(present, last, k.i64(0))
        place = k.var(k.select(found | unknown.value, last + 1, first))
        with k.forever() as places:
            places.stop_if((place.value > last) | unknown.value)
            walk = Chain(k, (k.load("i64", directory, place.value) & ADDRESS_MASK).bits_as("ptr"))
            with k.forever() as loop:
                loop.stop_if(walk.at_end | unknown.value)
                entry = walk.entry
                with k.when(self._may_be_same(k, entry, data)):
                    if self.residual is None:
                        unknown.set(k.true)
                    else:
                        d = emit(k, self.residual, JoinedRow(row, BuildRow(self.build.layout, entry)))
                        unknown.set(d.value if d.valid is None else d.value | ~d.valid)
                walk.advance()
            place.set(place.value + 1)

    def _may_be_same(self, k: PipelineKernel, entry: Val, data: list[Datum]) -> Val:
        """Whether no key of an entry differs from that of a row. NULL differs from nothing, unless NULL equals NULL."""
        same = k.true
        for key, name, d, safe in zip(self.keys, self.build.key_names, data, self.build.safe, strict=True):
            stored = self.build.layout.read(k, entry, self.build.layout.index[name])
            equal = canonical(key).equal(k, key_words(k, key, stored), key_words(k, key, d))
            a, b = (k.true if v is None else v for v in (stored.valid, d.valid))
            same = same & ((a & b & equal) | (~a & ~b) if safe else ~a | ~b | equal)
        return same

    def describe(self) -> str:
        bounds = (*self.table.bounds, *(() if self.table.reach is None else (self.table.reach,)))
        times = (f"{op} {e}{f' less {shift} us' if shift else ''}" for op, e, shift in bounds)
        keys = ", ".join((*map(str, self.keys), *times))
        rest = f" where {self.residual}" if self.residual is not None else ""
        return (
            f"probe {self.kind}{' dense' if self.table.dense else ''}{' early' if self.selects else ''} by "
            f"({keys}){rest}"
        )


class Drain(Sink):
    """Discards rows: the end of a pipeline that only marks the entries of a table."""

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        """Nothing is left to do."""

    def describe(self) -> str:
        return "drain"


class EntryScan:
    """The source that reads the entries of a table: all, only matched (MATCHED) or only unmatched (FREE)."""

    def __init__(self, build: Build, wanted: int | None = None):
        self.build, self.wanted = build, wanted
        self.columns = (SourceColumn("#entries", BIGINT, Layout("fixed", "i64", False)),)

    @property
    def signature(self) -> object:
        """What its code depends on: the entry layout of the sink that made the table."""
        return (id(self.build), self.wanted)

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        entries, position = k.load("ptr", record, 2), k.load("i64", record, 1)
        with k.rows(rows) as i:
            entry = k.offset(entries, i * self.build.entry_bytes)
            row = BuildRow(self.build.layout, entry, None, position + i)
            if self.wanted is None:
                each(row)
            else:
                matched = k.load("i64", entry, 1) == MATCHED
                with k.when(matched if self.wanted == MATCHED else ~matched):
                    each(row)

    def describe(self) -> str:
        which = {None: "entries", MATCHED: "matched entries", FREE: "unmatched entries"}[self.wanted]
        return f"{which} of {self.build.describe()}"


__all__ = ["BY_HASH", "BY_KEY", "DENSE", "SORTED", "Build", "Drain", "EntryScan", "Probe", "TableKind"]
