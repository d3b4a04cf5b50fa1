"""Rows during emission: where the values of columns come from. They are loaded on first use and cached per scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.emit.batch import COLUMN_BYTES, HEADER_BYTES, SourceColumn
from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.expressions import emit
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import BIGINT
from tsql.kernels.process.quick_dataclass import dataclass


class CachedRow:
    """Base of rows. `column` calls `make` once per open scope: a value made inside a branch is not visible after it."""

    mask: Val | None = None
    """If set, the row counts only where this holds (see operators.filter)."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[object, Datum]] = {}

    def column(self, k: PipelineKernel, name: str) -> Datum:
        found = self._cache.get(name)
        if found is not None and k.is_open(found[0]):
            return found[1]
        datum = self.make(k, name)
        self._cache[name] = (k.scope, datum)
        return datum

    def make(self, k: PipelineKernel, name: str) -> Datum:
        raise NotImplementedError


POSITION = "#position"
"""The column of a row's position in the input, for aggregates that depend on order. Rows that were written to another
place may carry it as a column of this name."""


@dataclass(frozen=True, eq=False)
class CodeDatum(Datum):
    """A string given as a dictionary code. `code`: the code (0 for NULL). `column`: describes the dictionary. `record`:
    the address of its record in memory. `stored`: the code as stored in the column (arbitrary for NULL)."""

    code: Val = field(kw_only=True)
    column: SourceColumn = field(kw_only=True)
    record: Val = field(kw_only=True)
    stored: Val | None = field(default=None, kw_only=True)


@dataclass
class ColumnPointers:
    """The four words of a column in the current morsel's record."""

    data: Val
    aux: Val
    validity: Val
    bit: Val


def load_pointers(k: Kernel, record: Val, index: int) -> ColumnPointers:
    at = k.offset(record, HEADER_BYTES + COLUMN_BYTES * index)
    return ColumnPointers(k.load("ptr", at, 0), k.load("ptr", at, 1), k.load("ptr", at, 2), k.load("i64", at, 3))


@dataclass
class MorselRow(CachedRow):
    """The row `index` of the current morsel."""

    columns: dict[str, tuple[SourceColumn, ColumnPointers]]
    index: Val
    position: Val
    stable: bool = False
    _cache: dict[str, tuple[object, Datum]] = field(default_factory=dict)

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION and name not in self.columns:
            return Datum(BIGINT, (self.position,))
        column, pointers = self.columns[name]
        if column.layout.kind == "position":
            return Datum(BIGINT, (self.position,), None, column.range)
        valid = None
        if column.layout.nullable:
            valid = k.load_bit(pointers.validity, self.index + pointers.bit)
        d = load_column(k, column, pointers, self.index, valid)
        return replace(d, stable=True) if self.stable and column.layout.kind in ("offsets", "fixed") else d


@dataclass
class SelectedRow(MorselRow):
    """A row that satisfies the conditions of `passed`, the selecting operators above its scan."""

    passed: tuple[Any, ...] = ()


def load_column(
    k: PipelineKernel, column: SourceColumn, pointers: ColumnPointers, index: Val, valid: Val | None
) -> Datum:
    """The value of a column at a row of the morsel."""
    layout, t = column.layout, column.type
    match layout.kind:
        case "bits":
            return Datum(t, (k.load_bit(pointers.data, index + pointers.bit),), valid)
        case "interval":
            at = k.offset(pointers.data, index * 16)
            return Datum(t, (k.load("i32", at), k.load("i32", at, 1), k.load("i64", at, 1) // 1000), valid)
        case "offsets":
            start = k.load(layout.machine, pointers.data, index).to("i64")
            end = k.load(layout.machine, pointers.data, index + 1).to("i64")
            return Datum(t, (pointers.aux + start, end - start), valid)
        case "codes":
            stored = k.load(layout.machine, pointers.data, index)
            code = stored.uto("i64") if layout.unsigned else stored.to("i64")
            record = pointers.aux if column.dictionary is None else dictionary_pointer(k, column)
            return replace(dictionary_string(k, column, record, code, valid), stored=stored)
    stored = k.load(layout.machine, pointers.data, index)
    if layout.machine in ("f32", "f64"):
        return Datum(t, (stored,), valid)
    if layout.base is not None:
        value = stored.uto("i64") + layout.base
        wide = column.range is not None and not -(2**63) <= column.range[0] <= column.range[1] < 2**63
        return Datum(t, (value.to("i128") if wide else value,), valid, column.range)
    if column.range is not None:
        machine = "i64" if -(2**63) <= column.range[0] and column.range[1] < 2**63 else "i128"
        return Datum(t, (stored.uto(machine) if t.is_unsigned else stored.to(machine),), valid, column.range)
    own = t.parts[0]
    return Datum(t, (stored.uto(own) if t.is_unsigned else stored.to(own),), valid)


def dictionary_string(
    k: PipelineKernel, column: SourceColumn, dictionary: Val, code: Val, valid: Val | None
) -> CodeDatum:
    """The string of a code. NULL rows may hold any code, so it is replaced by 0."""
    offset_type = "i64" if column.layout.wide_dictionary else "i32"
    safe = code if valid is None else k.select(valid, code, k.i64(0))
    offsets = k.load("ptr", dictionary)
    text = k.load("ptr", dictionary, 1)
    start = k.load(offset_type, offsets, safe).to("i64")
    end = k.load(offset_type, offsets, safe + 1).to("i64")
    parts = (text + start, end - start)
    return CodeDatum(column.type, parts, valid, code=safe, column=column, record=dictionary)


def dictionary_pointer(k: PipelineKernel, column: SourceColumn) -> Val:
    """The record of a dictionary shared by all rows."""
    return k.slot(Slot("dictionary", None, column.dictionary), ("ptr",))[0]


class DerivedRow(CachedRow):
    """A projection: named expressions over another row, evaluated on first use."""

    def __init__(self, parent: CachedRow, expressions: Mapping[str, Expr]):
        super().__init__()
        self.parent, self.expressions, self.mask = parent, expressions, parent.mask

    def make(self, k: PipelineKernel, name: str) -> Datum:
        if name == POSITION:
            return self.parent.column(k, name)
        return emit(k, self.expressions[name], self.parent)


class MaskedRow(CachedRow):
    """A row that counts only where the mask holds."""

    def __init__(self, parent: CachedRow, mask: Val):
        super().__init__()
        self.parent, self.mask = parent, mask

    def make(self, k: PipelineKernel, name: str) -> Datum:
        return self.parent.column(k, name)


class ValueRow(CachedRow):
    """A row whose values already exist."""

    def __init__(self, values: dict[str, Datum]):
        super().__init__()
        self.values = values

    def make(self, k: PipelineKernel, name: str) -> Datum:
        return self.values[name]
