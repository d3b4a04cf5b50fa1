"""Top: the first rows of an order, in a bounded heap whose root is the worst row kept. A row that does not beat the
root costs one comparison. Nothing is sorted here.

State: rows kept (i64), then a heap of entry addresses, then the entries: sort keys, the row's position, and the
columns. The position makes the order total: ties go to the earlier row. Strings of an entry are malloc'ed and reused
when it is replaced."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.aggregates.base import field_offsets, fields_bytes
from tsql.kernels.codegen.lang import Kernel, Val, Var
from tsql.kernels.emit.batch import Layout, SourceColumn
from tsql.kernels.emit.context import SINK, PipelineKernel, take_bytes
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.expressions import emit
from tsql.kernels.emit.keys import KeyField
from tsql.kernels.emit.pipeline import Sink
from tsql.kernels.emit.rows import POSITION, CachedRow
from tsql.kernels.expr.nodes import Expr, SortKey
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.runtime.text.strings import str_cmp

LARGEST = 1 << 17
"""Above this many rows a full sort is better than a heap."""


class StoredField:
    """A value in an entry: a NULL flag, then its words; strings have a capacity after pointer and length."""

    def __init__(self, field: KeyField, start: int):
        self.field = field
        self.is_text = field.type.is_string and field.column is None
        machines = self._machines()
        self.null_at = start
        self.offsets = field_offsets(machines, start + 8)
        self.machines = machines
        self.end = start + 8 + fields_bytes(machines)

    def _machines(self) -> tuple[str, ...]:
        f = self.field
        if self.is_text:
            return ("ptr", "i64", "i64")
        if f.column is None and (f.type.is_float or f.type.name == "INTERVAL"):
            return f.type.parts
        return f.machines

    def load(self, k: Kernel, entry: Val) -> tuple[Val, ...]:
        return tuple(k.load(m, k.offset(entry, at)) for m, at in zip(self.machines, self.offsets, strict=True))

    def is_null(self, k: Kernel, entry: Val) -> Val:
        return k.load("i64", k.offset(entry, self.null_at)) != 0

    def words(self, k: PipelineKernel, d: Datum) -> tuple[Val, ...]:
        f = self.field
        if self.is_text or (f.column is None and (f.type.is_float or f.type.name == "INTERVAL")):
            return d.parts
        return f._words(k, d)

    def store(self, k: PipelineKernel, entry: Val, d: Datum) -> None:
        null = k.i64(0) if d.valid is None else (~d.valid).uto("i64")
        k.store(k.offset(entry, self.null_at), null)
        words = self.words(k, d)
        if not self.is_text:
            for at, word in zip(self.offsets, words, strict=True):
                k.store(k.offset(entry, at), word)
            return
        with k.when(null == 0):
            pointer_at, length_at, capacity_at = (k.offset(entry, at) for at in self.offsets)
            with k.when(words[1] > k.load("i64", capacity_at)):
                grown = words[1] * 2 + 16
                take_bytes(k, k.ctx, grown - k.load("i64", capacity_at))
                k.store(pointer_at, k.call("realloc", k.load("ptr", pointer_at), grown))
                k.store(capacity_at, grown)
            with k.when(words[1] > 0):
                k.call("memcpy", k.load("ptr", pointer_at), words[0], words[1])
            k.store(length_at, words[1])

    def read(self, k: PipelineKernel, entry: Val) -> Datum:
        f, words = self.field, self.load(k, entry)
        valid = ~self.is_null(k, entry) if f.nullable else None
        if self.is_text:
            return Datum(f.type, words[:2], valid)
        if f.column is None and (f.type.is_float or f.type.name == "INTERVAL"):
            return Datum(f.type, words, valid)
        return f.read(k, words, valid)


def order_words(k: Kernel, stored: StoredField, a: tuple[Val, ...], b: tuple[Val, ...]) -> tuple[Val, Val]:
    """(a before b, a equals b) of two values that are not NULL, ascending."""
    f = stored.field
    if stored.is_text:
        order = str_cmp(k, a[0], a[1], b[0], b[1])
        return order < 0, order == 0
    if f.column is None and f.type.is_float:
        x, y = a[0], b[0]
        x_nan, y_nan = x != x, y != y
        return (x < y) | (~x_nan & y_nan), (x == y) | (x_nan & y_nan)
    if f.column is None and f.type.name == "INTERVAL":
        x, y = ((w[0].to("i128") * 30 + w[1].to("i128")) * 86_400_000_000 + w[2].to("i128") for w in (a, b))
        return x < y, x == y
    return a[0] < b[0], a[0] == b[0]


class Top(Sink):
    """Keeps `limit` rows."""

    needs_probe = True

    def __init__(self, columns: tuple[tuple[str, Expr], ...], keys: tuple[SortKey, ...], limit: int):
        self.columns, self.keys, self.limit = columns, keys, limit

    def probe(self, k: PipelineKernel, row: CachedRow) -> None:
        at = 8
        self.key_fields, self.fields = [], []
        for key in self.keys:
            stored = StoredField(KeyField.of("", emit(k, key.expr, row)), at)
            self.key_fields.append(stored)
            at = stored.end
        for name, expr in self.columns:
            stored = StoredField(KeyField.of(name, emit(k, expr, row)), at)
            self.fields.append(stored)
            at = stored.end
        self.entry_bytes = at
        self.heap_at = 8
        self.entries_at = 8 + 8 * self.limit
        self.state_bytes = self.entries_at + self.limit * self.entry_bytes

    def begin(self, k: PipelineKernel) -> None:
        self.state = k.load("ptr", k.offset(k.ctx, SINK))
        self._define_sift(k)

    def consume(self, k: PipelineKernel, row: CachedRow) -> None:
        if self.limit == 0:
            return
        count = k.load("i64", self.state)
        heap = k.offset(self.state, self.heap_at)
        position = row.column(k, POSITION).value
        keys = [emit(k, key.expr, row) for key in self.keys]
        with k.when(count < self.limit):
            entry = k.offset(self.state, self.entries_at) + count * self.entry_bytes
            self._fill(k, entry, position, keys, row)
            k.store(heap, entry, count)
            k.store(self.state, count + 1)
            k.emit("call", None, heap, count, attr="top_up")
        with k.otherwise():
            root = k.load("ptr", heap)
            words = [f.words(k, d) for f, d in zip(self.key_fields, keys, strict=True)]
            nulls = [None if d.valid is None else ~d.valid for d in keys]
            better = self._before(
                k,
                lambda i: (nulls[i], words[i]),
                lambda i: (self.key_fields[i].is_null(k, root), self.key_fields[i].load(k, root)),
                position,
                k.load("i64", root),
            )
            with k.when(better):
                self._fill(k, root, position, keys, row)
                k.emit("call", None, heap, k.i64(self.limit), attr="top_down")

    def _fill(self, k: PipelineKernel, entry: Val, position: Val, keys: list[Datum], row: CachedRow) -> None:
        k.store(entry, position)
        for stored, d in zip(self.key_fields, keys, strict=True):
            stored.store(k, entry, d)
        for stored, (_, expr) in zip(self.fields, self.columns, strict=True):
            stored.store(k, entry, emit(k, expr, row))

    def _before(
        self,
        k: Kernel,
        a: Callable[[int], tuple[Val | None, tuple[Val, ...]]],
        b: Callable[[int], tuple[Val | None, tuple[Val, ...]]],
        a_position: Val,
        b_position: Val,
    ) -> Val:
        """Whether row a comes before row b. Later keys are compared only while the earlier ones tie."""
        result, tied = k.var(k.false), k.var(k.true)
        for index, key in enumerate(self.keys):
            with k.when(tied.value):
                self._compare_key(k, index, key, a(index), b(index), result, tied)
        with k.when(tied.value):
            result.set(a_position < b_position)
        return result.value

    def _compare_key(
        self,
        k: Kernel,
        index: int,
        key: SortKey,
        a: tuple[Val | None, tuple[Val, ...]],
        b: tuple[Val | None, tuple[Val, ...]],
        result: Var,
        tied: Var,
    ) -> None:
        a_null, b_null = (k.false if v is None else v for v in (a[0], b[0]))
        with k.when(a_null | b_null):
            result.set(a_null & ~b_null if key.nulls_first else b_null & ~a_null)
            tied.set(a_null & b_null)
        with k.otherwise():
            less, same = order_words(k, self.key_fields[index], a[1], b[1])
            result.set(~(less | same) if key.descending else less)
            tied.set(same)

    def _entries_before(self, k: Kernel, a: Val, b: Val) -> Val:
        return self._before(
            k,
            lambda i: (self.key_fields[i].is_null(k, a), self.key_fields[i].load(k, a)),
            lambda i: (self.key_fields[i].is_null(k, b), self.key_fields[i].load(k, b)),
            k.load("i64", a),
            k.load("i64", b),
        )

    def _define_sift(self, k: PipelineKernel) -> None:
        """Heap routines: `top_up(heap, at)` after an insertion at the end, `top_down(heap, count)` after the root
        changed."""
        up = Kernel(k.module, "top_up", ("ptr", "i64"), None)
        heap, start = up.params
        at = up.var(start)
        with up.forever() as loop:
            i = at.value
            loop.stop_if(i == 0)
            parent = (i - 1).ushr(1)
            mine, above = up.load("ptr", heap, i), up.load("ptr", heap, parent)
            loop.stop_if(self._entries_before(up, mine, above))
            up.store(heap, above, i)
            up.store(heap, mine, parent)
            at.set(parent)
        up.ret()
        up.finish()
        down = Kernel(k.module, "top_down", ("ptr", "i64"), None)
        heap, count = down.params
        at = down.var(down.i64(0))
        with down.forever() as loop:
            i = at.value
            child = down.var(i * 2 + 1)
            loop.stop_if(child.value >= count)
            with down.when(child.value + 1 < count):
                left, right = down.load("ptr", heap, child.value), down.load("ptr", heap, child.value + 1)
                with down.when(self._entries_before(down, left, right)):
                    child.set(child.value + 1)
            mine, below = down.load("ptr", heap, i), down.load("ptr", heap, child.value)
            loop.stop_if(self._entries_before(down, below, mine))
            down.store(heap, below, i)
            down.store(heap, mine, child.value)
            at.set(child.value)
        down.ret()
        down.finish()

    def text_fields(self) -> list[int]:
        """Offsets of malloc'ed pointers in an entry."""
        return [f.offsets[0] for f in (*self.key_fields, *self.fields) if f.is_text]

    def describe(self) -> str:
        return f"top {self.limit} by {', '.join(map(str, self.keys))}"


class TopRow(CachedRow):
    """A kept row while it is read."""

    def __init__(self, sink: Top, entry: Val):
        super().__init__()
        self.sink, self.entry = sink, entry

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION:
            return Datum(BIGINT, (k.load("i64", self.entry),))
        names = [n for n, _ in self.sink.columns]
        return self.sink.fields[names.index(name)].read(k, self.entry)


class TopScan:
    """Reads the kept rows, in no order: a morsel's first word is the address of the entries."""

    def __init__(self, sink: Top):
        self.sink = sink
        self.columns = (SourceColumn("#entries", BIGINT, Layout("fixed", "i64", False)),)

    @property
    def signature(self) -> object:
        """What its code depends on: the entry layout of the sink that made the entries."""
        return id(self.sink)

    def produce(self, k: PipelineKernel, record: Val, rows: Val, each: Callable[[CachedRow], None]) -> None:
        entries = k.load("ptr", record, 2)
        with k.rows(rows) as i:
            each(TopRow(self.sink, k.offset(entries, i * self.sink.entry_bytes)))

    def describe(self) -> str:
        return f"rows of {self.sink.describe()}"
