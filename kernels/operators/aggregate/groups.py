"""Aggregation: sinks that collect groups, and the source that reads them back.

The operator has three shapes, chosen by what is known of the keys: `ScalarAggregate` (no keys: state in registers),
`DenseAggregate` (few possible keys: an array indexed by key), `HashAggregate` (any keys). Phases: "complete" takes rows
and gives results; "partial" takes rows and gives exported states; "final" takes exported states and gives results;
"merge" takes and gives exported states. A second pipeline starts at `GroupScan` and reads the groups of one or more
such states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from math import prod
from typing import Any

from tsql.kernels.aggregates.base import (
    AggregateArgument,
    AggregateState,
    Body,
    MemoryState,
    RegisterState,
    field_offsets,
    fields_bytes,
)
from tsql.kernels.aggregates.bodies import make_body, plain_body, state_names
from tsql.kernels.codegen.lang import Val, Var
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.context import SINK, PipelineKernel
from tsql.kernels.emit.datum import Datum, all_valid, both
from tsql.kernels.emit.dense import DENSE_GROUPS, KEYS_PER_GROUP, LARGEST_DENSE
from tsql.kernels.emit.expressions import emit, emit_predicate
from tsql.kernels.emit.keys import KeyField, KeyLayout
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.emit.rows import POSITION, CachedRow, CodeDatum
from tsql.kernels.expr.nodes import Aggregate, Call, Expr, Literal
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.operators.aggregate.waiting_rows import Taken, Waiting
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.group_table import TABLE_BYTES, find_or_insert

COMPACT_GROUPS = 1 << 14
"""From this many possible groups on, states are made as small as possible: they compete for the core's cache."""

WAITED_BYTES = 1 << 20
"""In arrays of at least this many bytes, more than a core's cache, rows wait for the memory of their groups."""

LINE_BYTES, PAGE_BYTES, MOST_ROOM = 64, 4096, 16
"""Arrays of groups are padded so that cache lines that are used together do not lie whole pages apart. They grow by at
most one part in MOST_ROOM."""

MEMO_ENTRIES = 1 << 12
NEAR_ENTRIES = 1 << 15


@dataclass
class Item:
    """One aggregate of the sink: where its arguments come from, its body, and where its state lies. `shared`: an
    aggregate of the same arguments whose state also serves this one (such as the sum of an average)."""

    name: str
    call: Aggregate
    inputs: tuple[AggregateArgument, ...]
    body: Body
    offset: int = 0
    shared: Item | None = None
    distinct: KeyLayout | None = None
    distinct_table: int = 0


@dataclass
class Grouping:
    """What an aggregation computes; shared by its sink and the scan of its groups."""

    keys: tuple[tuple[str, Expr], ...]
    calls: tuple[tuple[str, Aggregate], ...]
    phase: str
    rows: int | None = None
    equal_hashes: bool = False
    items: list[Item] = field(default_factory=list)
    fields: list[KeyField] = field(default_factory=list)

    @property
    def absorbs(self) -> bool:
        """Whether rows are exported states rather than arguments."""
        return self.phase in ("merge", "final")

    @property
    def exports(self) -> bool:
        """Whether groups are read as exported states rather than results."""
        return self.phase in ("partial", "merge")

    def arguments(self, k: PipelineKernel, item: Item, row: CachedRow) -> tuple[Datum, ...]:
        if self.absorbs:
            types = plain_body(item.call).exported()
            return tuple(row.column(k, n) for n in state_names(item.name, len(types)))
        return tuple(emit(k, a, row) for a in item.call.args)

    def probe(self, k: PipelineKernel, row: CachedRow) -> None:
        """Learn what is known of keys and arguments as they reach the sink."""
        self.fields = [KeyField.of(name, emit(k, e, row)) for name, e in self.keys]
        self.items = []
        for name, call in self.calls:
            if self.absorbs:
                inputs = tuple(
                    AggregateArgument(a.type, constant=a if isinstance(a, Literal) else None) for a in call.args
                )
                self.items.append(Item(name, call, inputs, make_body(call, inputs, None)))
                continue
            data = [emit(k, a, row) for a in call.args]
            inputs = tuple(
                AggregateArgument(a.type, d.range, d.valid is not None, a if isinstance(a, Literal) else None)
                for a, d in zip(call.args, data, strict=True)
            )
            item = Item(name, call, inputs, make_body(call, inputs, self.rows))
            if call.distinct:
                fields = [KeyField.of(f"a{i}", d) for i, d in enumerate(data)]
                item.distinct = KeyLayout([KeyField("group", BIGINT, False), *fields], 8, self.equal_hashes)
            self.items.append(item)

    def compact(self) -> None:
        """Make states that only one aggregate uses as small as possible, before they are placed."""
        if self.absorbs:
            return
        alike = self._alike()
        for item in self.items:
            if not any(
                self._same_state(item, other) for other in alike[item.call.args, item.call.filter] if other is not item
            ):
                item.body = item.body.compact()

    def place(self, start: int) -> int:
        """Give each state its offset in the entry; returns the entry's size."""
        alike = self._alike()
        for item in self.items:
            item.shared = None
            for other in alike[item.call.args, item.call.filter]:
                if other is item:
                    break
                if self._same_state(item, other):
                    item.shared = other
                    break
            if item.shared is not None:
                item.offset = item.shared.offset
                continue
            item.offset = start
            start += fields_bytes(item.body.fields)
        return start

    def _alike(self) -> dict[Any, list[Item]]:
        """Aggregates by their arguments: with thousands (PIVOT), comparing all pairs would take minutes."""
        alike: dict[Any, list[Item]] = {}
        for item in self.items:
            alike.setdefault((item.call.args, item.call.filter), []).append(item)
        return alike

    def _same_state(self, a: Item, b: Item) -> bool:
        """Whether two aggregates of rows keep the same state over the same rows."""
        if (
            b.shared is not None
            or self.phase not in ("complete", "partial")
            or a.distinct is not None
            or b.distinct is not None
        ):
            return False
        same_rows = a.call.args == b.call.args and a.call.filter == b.call.filter
        return (
            same_rows
            and a.body.family is not None
            and a.body.family == b.body.family
            and a.body.fields == b.body.fields
        )

    @property
    def updated(self) -> list[Item]:
        """The aggregates that a row updates: one per state."""
        return [item for item in self.items if item.shared is None]

    def state(self, k: PipelineKernel, item: Item, entry: Val) -> AggregateState:
        return MemoryState(k, entry, item.body.fields, item.offset)

    def init(self, k: PipelineKernel, entry: Val) -> None:
        for item in self.updated:
            item.body.init(k, self.state(k, item, entry))


def update(
    k: PipelineKernel,
    grouping: Grouping,
    item: Item,
    state: AggregateState,
    row: CachedRow,
    mask: Val | None,
    table: Val | None,
    group: Val | None,
) -> None:
    """Add one row to one aggregate. FILTER, NULLs and DISTINCT are handled here for all aggregates."""
    body, call = item.body, item.call
    if grouping.absorbs:
        body.absorb(k, state, grouping.arguments(k, item, row))
        return
    mask = _filtered(k, call, row, mask)
    if not body.branchless or item.distinct is not None:
        if mask is None:
            _update_row(k, grouping, item, state, row, table, group)
        else:
            with k.when(mask):
                _update_row(k, grouping, item, state, row, table, group)
        return
    found = _taken(k, grouping, item, row, mask)
    body.update(k, state, found.args, found.mask)


def taken(k: PipelineKernel, grouping: Grouping, item: Item, row: CachedRow) -> Taken:
    """What an aggregate with a branchless body takes from a row, to be added later."""
    return _taken(k, grouping, item, row, _filtered(k, item.call, row, None))


def _filtered(k: PipelineKernel, call: Aggregate, row: CachedRow, mask: Val | None) -> Val | None:
    return mask if call.filter is None else both(mask, emit_predicate(k, call.filter, row))


def _taken(k: PipelineKernel, grouping: Grouping, item: Item, row: CachedRow, mask: Val | None) -> Taken:
    args = grouping.arguments(k, item, row)
    return Taken(item.body, item.offset, args, both(mask, all_valid(args)) if item.body.skips_nulls else mask)


def _update_row(
    k: PipelineKernel,
    grouping: Grouping,
    item: Item,
    state: AggregateState,
    row: CachedRow,
    table: Val | None,
    group: Val | None,
) -> None:
    body = item.body
    args = grouping.arguments(k, item, row)
    if body.wants_position:
        body.position = row.column(k, POSITION).value
    if body.wants_order:
        body.order = tuple(emit(k, key.expr, row) for key in item.call.order)
    valid = all_valid(args) if body.skips_nulls else None

    def go() -> None:
        if item.distinct is None:
            body.update(k, state, args, None)
            return
        assert table is not None, "distinct values are kept in a table"
        distinct_table = k.offset(table, item.distinct_table)
        layout = item.distinct
        identity = group.bits_as("i64") if group is not None else k.i64(0)
        nulls, words = layout.words(k, [Datum(BIGINT, (identity,)), *args])
        fresh = k.var(k.false)

        def fill(entry: Val) -> None:
            layout.store(k, distinct_table, entry, nulls, words)
            fresh.set(k.true)

        find_or_insert(
            k,
            k.ctx,
            distinct_table,
            layout.hash(k, nulls, words),
            layout.end,
            lambda e: layout.equal(k, e, nulls, words),
            fill,
        )
        with k.when(fresh.value):
            body.update(k, state, args, None)

    if valid is None:
        go()
    else:
        with k.when(valid):
            go()


class AggregateSink(Sink):
    """Base of the three sinks."""

    needs_probe = True
    how = ""
    entry_bytes: int

    def __init__(self, grouping: Grouping):
        self.grouping = grouping

    def probe(self, k: PipelineKernel, row: CachedRow) -> None:
        self.grouping.probe(k, row)
        self.layout()

    def layout(self) -> None:
        """Fix the entry's layout and the size of the state, after the probe."""
        raise NotImplementedError

    def _distinct_tables(self, at: int) -> int:
        for item in self.grouping.items:
            if item.distinct is not None:
                item.distinct_table = at
                at += TABLE_BYTES
        return at

    def describe(self) -> str:
        g = self.grouping
        keys = ", ".join(f"{n}={e}" for n, e in g.keys)
        calls = ", ".join(f"{n}={c}" for n, c in g.calls)
        return f"aggregate {self.how} phase={g.phase} by=({keys}) {calls}"


class ScalarAggregate(AggregateSink):
    """No keys: the state of the single group is in registers between `begin` and `end`. State: a flag, then the
    entry."""

    how = "scalar"
    transient = ("registers",)

    def layout(self) -> None:
        self.entry_bytes = self.grouping.place(8)
        self.state_bytes = self._distinct_tables(self.entry_bytes)

    @property
    def branchless(self) -> bool:
        return all(i.body.branchless and i.distinct is None for i in self.grouping.items)

    def begin(self, k: PipelineKernel) -> None:
        self.table = k.load("ptr", k.offset(k.ctx, SINK))
        with k.when(k.load("i64", self.table) == 0):
            self.grouping.init(k, self.table)
            k.store(self.table, k.i64(1))
        self.registers: list[tuple[AggregateState, list[Var]]] = []
        for item in self.grouping.updated:
            memory = self.grouping.state(k, item, self.table)
            variables = [k.var(memory.get(i)) for i in range(len(item.body.fields))]
            self.registers.append((RegisterState(variables), variables))

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        with k.guarded(row.mask, None):
            for item, (state, _) in zip(self.grouping.updated, self.registers, strict=True):
                update(k, self.grouping, item, state, row, row.mask, self.table, None)

    def end(self, k: PipelineKernel) -> None:
        for item, (_, variables) in zip(self.grouping.updated, self.registers, strict=True):
            memory = self.grouping.state(k, item, self.table)
            for index, variable in enumerate(variables):
                memory.set(index, variable.value)


class DenseAggregate(AggregateSink):
    """Keys with few possible values. The group number is the mixed-radix number of the keys. State: entries of
    (occupied, states). The host allocates and zeroes `groups * entry_bytes`; `init` runs on the first row of a group.

    If the states start as zeros and one of them counts all rows, that count tells which groups exist. Then there is no
    `occupied` word and no check per row, and more groups fit in a cache line."""

    how = "dense"
    transient = ("waiting",)

    def layout(self) -> None:
        self.cards = [cardinality(f) for f in self.grouping.fields]
        if prod(self.cards) >= COMPACT_GROUPS:
            self.grouping.compact()
        counting = self._counting()
        self.entry_bytes = self.grouping.place(8 if counting is None else 0)
        self._spread()
        self.groups = prod(self.cards)
        self.has_flag = counting is None
        self.occupied_at = 0
        if counting is not None and counting.body.counter is not None:
            self.occupied_at = field_offsets(counting.body.fields, counting.offset)[counting.body.counter]
        self.distinct_at = self.groups * self.entry_bytes
        self.state_bytes = self._distinct_tables(self.distinct_at)
        self.has_waiting = self.groups * self.entry_bytes >= WAITED_BYTES and all(
            map(self._can_wait, self.grouping.updated)
        )

    def _can_wait(self, item: Item) -> bool:
        """Whether an aggregate may see a row later: it takes few numbers from it, owns no memory, and cannot fail."""
        numbers = all(
            len(i.type.parts) == 1 and (i.type.bits < 128 or "i128" not in item.body.fields) for i in item.inputs
        )
        simple = (
            item.body.branchless
            and not item.body.release()
            and not item.body.wants_position
            and not item.body.wants_order
        )
        return numbers and simple and item.distinct is None and not self.grouping.absorbs

    def _spread(self) -> None:
        """Pad groups that differ only in the first key, if they would all fall into a few cache sets: bounds are
        rounded, often to powers of two."""
        if len(self.cards) < 2 or prod(self.cards[1:]) * self.entry_bytes % PAGE_BYTES:
            return
        at = max(range(1, len(self.cards)), key=self.cards.__getitem__)
        room = -(-LINE_BYTES // (self.entry_bytes * prod(self.cards[at + 1 :])))
        if room * MOST_ROOM <= self.cards[at]:
            self.cards[at] += room

    def _counting(self) -> Item | None:
        """The aggregate whose state counts all rows of a group, if all states start as zeros and own no memory."""
        items = self.grouping.items
        if any(i.distinct is not None or type(i.body).init is not Body.init or i.body.release() for i in items):
            return None
        return next(
            (i for i in items if i.body.counter is not None and i.call.filter is None and not self._skips(i)), None
        )

    def _skips(self, item: Item) -> bool:
        """Whether an aggregate may skip rows because its arguments are NULL. For absorbed states this is unknown: a sum
        of no rows is a state too."""
        return item.body.skips_nulls and (self.grouping.absorbs or any(i.nullable for i in item.inputs))

    def occupied(self, k: PipelineKernel, entry: Val) -> Val:
        """Whether a group has been met."""
        return k.load("i64", k.offset(entry, self.occupied_at)) != 0

    def begin(self, k: PipelineKernel) -> None:
        self.table = k.load("ptr", k.offset(k.ctx, SINK))
        if self.has_waiting:
            values = [t for i in self.grouping.updated for a in i.inputs for t in (*a.type.parts, "i1")]
            self.waiting = Waiting(
                k, self.entry_bytes, fields_bytes((*values, *("i1" for _ in self.grouping.updated))), self._meet
            )

    def end(self, k: PipelineKernel) -> None:
        if self.has_waiting:
            self.waiting.end(k)

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        g = self.grouping
        number, inside = k.i64(0), None
        for f, card, (_, expr) in zip(g.fields, self.cards, g.keys, strict=True):
            d = emit(k, expr, row)
            code = dense_code(k, f, d, card)
            # A failed row continues with an arbitrary key, and a file's statistics may be wrong: neither may lead
            # outside the table.
            if k.sites or not (d.stable or f.column is not None or f.type.name == "BOOLEAN"):
                inside = code.ult(card) if inside is None else inside & code.ult(card)
            number = number * card + code
        if inside is not None:
            k.fail(~inside, "A key is outside of the bounds that the statistics of its table give")
            number = k.select(inside, number, k.i64(0))
        entry = k.offset(self.table, number * self.entry_bytes)
        if self.has_waiting:
            self.waiting.take(k, entry, [taken(k, g, item, row) for item in g.updated])
            return
        self._meet(k, entry)
        for item in g.updated:
            update(k, g, item, g.state(k, item, entry), row, None, self.table, entry)

    def _meet(self, k: PipelineKernel, entry: Val) -> None:
        """Initialise the states of a new group."""
        if self.has_flag:
            with k.when(~self.occupied(k, entry)):
                k.store(entry, k.i64(1))
                self.grouping.init(k, entry)

    def describe(self) -> str:
        return super().describe() + (
            f" ({self.groups} groups possible{', fetched ahead' * self.has_waiting})" if hasattr(self, "groups") else ""
        )


def cardinality(f: KeyField) -> int:
    """The number of values of a dense key; NULL, if possible, is the last."""
    if f.type.name == "BOOLEAN":
        return 2 + f.nullable
    return f.bounds[1] - f.bounds[0] + 1 + f.nullable


def dense_code(k: PipelineKernel, f: KeyField, d: Datum, card: int) -> Val:
    code = f._words(k, d)[0]
    if f.type.name != "BOOLEAN" and f.bounds[0] != 0:
        code = code - f.bounds[0]
    return code if d.valid is None else k.select(d.valid, code, k.i64(card - 1))


def is_dense(fields: list[KeyField], expected: int | None = None) -> bool:
    """Whether the keys have few possible values, all known. The limit is higher if many groups are expected."""
    most = DENSE_GROUPS if expected is None else min(LARGEST_DENSE, max(DENSE_GROUPS, KEYS_PER_GROUP * expected))
    groups = 1
    for f in fields:
        if not (f.type.name == "BOOLEAN" or (f.exact and f.range is not None and f.machines == ("i64",))):
            return False
        groups *= cardinality(f)
        if groups > most:
            return False
    return bool(fields)


class HashAggregate(AggregateSink):
    """Any keys: entries of (hash, keys, states) in a `group_table`.

    If all keys are strings, batches may give them as codes of their own dictionaries (Parquet does). Then a memo maps
    combinations of codes to entries, so a string is hashed once per batch instead of once per row. The memo lies behind
    the tables: whether it is in use, its dictionaries, and the entries.

    If a key is a pane of time, most rows fall into groups that recent rows fell into too. The last group for each value
    of some hash bits is remembered (`near`), so few rows need the large table."""

    how = "hash"

    def layout(self) -> None:
        g = self.grouping
        self.key_layout = KeyLayout(g.fields, 8, g.equal_hashes)
        self.entry_bytes = g.place(self.key_layout.end)
        self.memo_at = self._distinct_tables(TABLE_BYTES)
        self.has_memo = all(f.type.is_string and f.column is None for f in g.fields)
        self.has_near = any(isinstance(e, Call) and e.name == "time_pane" for _, e in g.keys)
        self.state_bytes = self.memo_at + (
            8 + 8 * len(g.fields) + 8 * MEMO_ENTRIES if self.has_memo else 8 * NEAR_ENTRIES if self.has_near else 0
        )

    def begin(self, k: PipelineKernel) -> None:
        self.table = k.load("ptr", k.offset(k.ctx, SINK))
        self.last = k.var(k.null)
        if self.has_memo:
            # The dictionaries of earlier batches are gone, and others may have their addresses.
            for index in range(len(self.grouping.fields)):
                k.store(k.offset(self.table, self.memo_at), k.null, index + 1)
        if self.has_near:
            # The groups of earlier calls may be gone.
            k.call("memset", k.offset(self.table, self.memo_at), 0, 8 * NEAR_ENTRIES)

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        g, layout = self.grouping, self.key_layout
        data = [emit(k, e, row) for _, e in g.keys]
        codes = [d for d in data if isinstance(d, CodeDatum) and d.column.dictionary is None]
        if len(codes) == len(data):
            entry = self._by_codes(k, codes)
        else:
            nulls, words = layout.words(k, data)
            # Input is often clustered by key: the previous row's group is tried first, without hashing.
            last = self.last.value
            again = k.var(k.false)
            with k.when(last != k.null):
                again.set(layout.equal(k, last, nulls, words))
            with k.when(~again.value):
                self.last.set(
                    self._near(k, nulls, words)
                    if self.has_near
                    else self._find(k, nulls, words, layout.hash(k, nulls, words))
                )
            entry = self.last.value
        for item in g.updated:
            update(k, g, item, g.state(k, item, entry), row, None, self.table, entry)

    def _by_codes(self, k: PipelineKernel, data: Sequence[CodeDatum]) -> Val:
        """The entry of a combination of codes, from the memo if the dictionaries are small enough."""
        memo = k.offset(self.table, self.memo_at)
        entries = k.offset(memo, 8 + 8 * len(data))
        changed = k.false
        for index, d in enumerate(data):
            changed = changed | (k.load("ptr", memo, index + 1) != d.record)
        with k.when(changed):
            combinations = k.i64(1)
            for index, d in enumerate(data):
                k.store(memo, d.record, index + 1)
                # Each factor is clamped, so the product cannot overflow.
                combinations = combinations * k.min(k.load("i64", d.record, 2) + 1, k.i64(MEMO_ENTRIES + 1))
                combinations = k.min(combinations, k.i64(MEMO_ENTRIES + 1))
            k.store(memo, (combinations <= MEMO_ENTRIES).uto("i64"))
            k.call("memset", entries, 0, 8 * MEMO_ENTRIES)
        usable = k.load("i64", memo) != 0
        number = k.i64(0)
        for d in data:
            strings = k.load("i64", d.record, 2)
            number = number * (strings + 1) + (d.code if d.valid is None else k.select(d.valid, d.code, strings))
        number = k.select(usable, number, k.i64(0))
        entry = k.var(k.null)
        with k.when(usable):
            entry.set(k.load("ptr", entries, number))
        with k.when(entry.value == k.null):
            nulls, words = self.key_layout.words(k, data)
            entry.set(self._find(k, nulls, words, self.key_layout.hash(k, nulls, words)))
            with k.when(usable):
                k.store(entries, entry.value, number)
        return entry.value

    def _near(self, k: PipelineKernel, nulls: Val, words: list[tuple[Val, ...]]) -> Val:
        """The entry of a group that may have been used recently."""
        hashed = self.key_layout.hash(k, nulls, words)
        slot = k.element("ptr", k.offset(self.table, self.memo_at), hashed & (NEAR_ENTRIES - 1))
        entry, met = k.var(k.load("ptr", slot)), k.var(k.false)
        with k.when(entry.value != k.null):
            met.set(self.key_layout.equal(k, entry.value, nulls, words))
        with k.when(~met.value):
            entry.set(self._find(k, nulls, words, hashed))
            k.store(slot, entry.value)
        return entry.value

    def _find(self, k: PipelineKernel, nulls: Val, words: list[tuple[Val, ...]], hashed: Val) -> Val:
        g, layout = self.grouping, self.key_layout

        def fill(entry: Val) -> None:
            layout.store(k, self.table, entry, nulls, words)
            g.init(k, entry)

        return find_or_insert(
            k, k.ctx, self.table, hashed, self.entry_bytes, lambda e: layout.equal(k, e, nulls, words), fill
        )


class GroupRow(CachedRow):
    """A group while it is read: keys and results (or exported states) by name."""

    def __init__(self, sink: AggregateSink, entry: Val, number: Val, position: Val):
        super().__init__()
        self.sink, self.entry, self.number, self.position = sink, entry, number, position

    @cached_property
    def _items(self) -> dict[str, tuple[Item, int]]:
        """The aggregate of each column, and which of its exported states the column is."""
        g = self.sink.grouping
        found: dict[str, tuple[Item, int]] = {}
        for item in g.items:
            names = state_names(item.name, len(item.body.exported())) if g.exports else (item.name,)
            for index, name in enumerate(names):
                found.setdefault(name, (item, index))
        return found

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION:
            return Datum(BIGINT, (self.position,))
        g = self.sink.grouping
        for index, (key, _) in enumerate(g.keys):
            if key == name:
                return self._key(k, index)
        item, index = self._items[name]
        state = g.state(k, item, self.entry)
        if g.exports:
            return item.body.export(k, state)[index]
        with k.guarded(None, item.call.position):
            return item.body.finish(k, state)

    def _key(self, k: PipelineKernel, index: int) -> Datum:
        sink = self.sink
        if isinstance(sink, HashAggregate):
            return sink.key_layout.read(k, self.entry, index)
        assert isinstance(sink, DenseAggregate), "groups without keys have none to read"
        stride = 1
        for c in sink.cards[index + 1 :]:
            stride *= c
        f, card = sink.grouping.fields[index], sink.cards[index]
        code = self.number.udiv(stride).urem(card)
        valid = code != card - 1 if f.nullable else None
        low = 0 if f.type.name == "BOOLEAN" else f.bounds[0]
        value = code + low
        if f.column is not None and valid is not None:
            value = k.select(valid, value, k.i64(0))
        return f.read(k, (value,), valid)


class GroupScan:
    """The source that reads groups. A morsel has the address of its entries, and the number of the first one in its
    array."""

    def __init__(self, sink: AggregateSink):
        self.sink = sink
        self.columns = (SourceColumn("#entries", BIGINT, Layout("fixed", "i64", False)),)

    @property
    def signature(self) -> object:
        """What its code depends on: the entry layout of the sink that made the groups."""
        return id(self.sink)

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        entries = k.load("ptr", record, 2)
        position, first = k.load("i64", record, 1), k.load("i64", record, 3)
        with k.rows(rows) as i:
            entry = k.offset(entries, i * self.sink.entry_bytes)
            row = GroupRow(self.sink, entry, first + i, position + i)
            if isinstance(self.sink, DenseAggregate):
                with k.when(self.sink.occupied(k, entry)):
                    each(row)
            else:
                each(row)

    def describe(self) -> str:
        return f"groups of {self.sink.describe()}"


def make_sink(grouping: Grouping, dense: bool) -> AggregateSink:
    """The sink for a grouping; `dense` is decided by `is_dense` after a probe."""
    if not grouping.keys:
        return ScalarAggregate(grouping)
    return DenseAggregate(grouping) if dense else HashAggregate(grouping)
