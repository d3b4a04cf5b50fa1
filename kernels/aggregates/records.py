"""Records of SQL values in memory that an aggregate's state owns: how they are laid out, written, read and ordered.

A record is the row's position, then per value a word that says whether it is NULL and the words of the value; strings
are (offset, length) into the state's block of text (see kernels/runtime/lists.py)."""

from __future__ import annotations

from collections.abc import Callable

from tsql.kernels.aggregates.base import Body, field_offsets, fields_bytes
from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.expr.types import Type
from tsql.kernels.functions.comparison import compare
from tsql.kernels.runtime.lists import HEADER, text_append, used_of


class RecordBody(Body):
    """Base of aggregates that keep records of rows. State: the block of records, the block of their text."""

    decomposable = False
    wants_position = True
    fields = ("ptr", "ptr")

    @property
    def wants_order(self) -> bool:
        return bool(self.order_keys)


class Records:
    """The layout of records of the given types, from `start` bytes into an entry; `order` says which values are
    keys."""

    def __init__(self, types: tuple[Type, ...], order: tuple[tuple[int, bool, bool], ...] = (), start: int = 0):
        """`order`: (index of the value, descending, nulls first) per key; what ties is ordered by position."""
        self.types, self.order, self.start = types, order, start
        self.nulls: list[int] = []
        self.offsets: list[list[int]] = []
        at = start + 8
        for t in types:
            machines = self.machines(t)
            self.nulls.append(at)
            self.offsets.append(field_offsets(machines, at + 8))
            at += 8 + fields_bytes(machines)
        self.end = at

    @staticmethod
    def machines(t: Type) -> tuple[str, ...]:
        return ("i64", "i64") if t.is_string else t.parts

    @property
    def name(self) -> str:
        """A name for the order of these records, fit for a routine."""
        types = "_".join(f"{t.name}{t.width or ''}" for t in self.types)
        keys = "_".join(
            f"{i}{'d' if descending else 'a'}{'f' if nulls_first else 'l'}" for i, descending, nulls_first in self.order
        )
        return f"{types}_by_{keys or 'position'}_at_{self.start}"

    def store(self, k: PipelineKernel, record: Val, text: Val, position: Val, values: tuple[Datum, ...]) -> Val:
        """Write a record; returns where the block of text is now."""
        k.store(k.offset(record, self.start), position)
        for t, null_at, offsets, d in zip(self.types, self.nulls, self.offsets, values, strict=True):
            k.store(k.offset(record, null_at), k.i64(0) if d.valid is None else (~d.valid).uto("i64"))
            parts = d.wide().parts
            if t.is_string:
                length = d.len if d.valid is None else k.select(d.valid, d.len, k.i64(0))
                parts = (used_of(k, text), length)
                text = text_append(k, k.ctx, text, d.ptr, length)
            for at, part in zip(offsets, parts, strict=True):
                k.store(k.offset(record, at), part)
        return text

    def value(self, k: Kernel, record: Val, text: Val, index: int) -> Datum:
        """A value of a record."""
        t = self.types[index]
        parts = tuple(
            k.load(m, k.offset(record, at)) for m, at in zip(self.machines(t), self.offsets[index], strict=True)
        )
        if t.is_string:
            parts = (k.offset(text, parts[0] + HEADER), parts[1])
        return Datum(t, parts, k.load("i64", k.offset(record, self.nulls[index])) == 0)

    def position(self, k: Kernel, record: Val) -> Val:
        return k.load("i64", k.offset(record, self.start))

    def before(self, k: Kernel, a: Val, b: Val, text: Val) -> Val:
        """Whether record a comes before record b."""
        values = {i: self.value(k, b, text, i) for i, _, _ in self.order}
        return self.precedes(
            k, lambda i: self.value(k, a, text, i), self.position(k, a), values.__getitem__, self.position(k, b)
        )

    def precedes(
        self, k: Kernel, a: Callable[[int], Datum], a_position: Val, b: Callable[[int], Datum], b_position: Val
    ) -> Val:
        """As `before`, for values that `a(index)` and `b(index)` give."""
        result, tied = k.var(k.false), k.var(k.true)
        for index, descending, nulls_first in self.order:
            with k.when(tied.value):
                x, y = a(index), b(index)
                x_null, y_null = (k.false if d.valid is None else ~d.valid for d in (x, y))
                x, y = x.with_valid(None), y.with_valid(None)
                with k.when(x_null | y_null):
                    result.set(x_null & ~y_null if nulls_first else y_null & ~x_null)
                    tied.set(x_null & y_null)
                with k.otherwise():
                    result.set(compare(k, ">" if descending else "<", x, y))
                    with k.when(result.value):
                        tied.set(k.false)
                    with k.otherwise():
                        tied.set(compare(k, "=", x, y))
        with k.when(tied.value):
            result.set(a_position < b_position)
        return result.value


def ordered_records(types: tuple[Type, ...], keys: tuple[SortKey, ...], start: int = 0) -> Records:
    """Records of some values followed by the ORDER BY keys of a call."""
    order = tuple((len(types) + i, key.descending, key.nulls_first) for i, key in enumerate(keys))
    return Records((*types, *(key.expr.type for key in keys)), order, start)
