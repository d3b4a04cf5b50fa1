"""Keys of stored tables: which rows have these values? Used by PRIMARY KEY, UNIQUE and ON CONFLICT.

A key is an int64 if it is one column of at most 64 bits, and bytes otherwise. Each piece of a table sorts its keys on
first use and keeps them. Pieces are immutable, so an insert only sorts what is new. Rows with a NULL in a key column
have no key: they equal nothing. If NULLs are not distinct (UNIQUE NULLS NOT DISTINCT), NULL is a value like any other,
and every row has a key."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tsql.kernels.blocks.encode import one_array, stored_integers
from tsql.kernels.blocks.stored import StoredTable
from tsql.kernels.blocks.table import BlockTable, decode
from tsql.kernels.expr.types import Type
from tsql.kernels.process.arrow_compute import pc

FEW_KEYS = 64
"""Up to this many keys are looked up one by one; more are compared with all keys of a piece at once."""

Keys: TypeAlias = "np.ndarray | pa.Array"


class KeyColumn:
    """The keys of some rows: `keys` of those that have one, and the row of each. nulls_equal: NULLs are values."""

    def __init__(self, types: tuple[Type, ...], columns: list[pa.ChunkedArray], nulls_equal: bool = False):
        self.nulls_equal = nulls_equal
        if nulls_equal:
            self.rows = np.arange(len(columns[0]))
            self.keys: Keys = _texts(columns)
            return
        valid = np.ones(len(columns[0]), np.bool_)
        for column in columns:
            if column.null_count:
                valid &= one_array(column.is_valid()).to_numpy(zero_copy_only=False)
        self.rows = np.flatnonzero(valid)
        if len(self.rows) < len(valid):
            columns = [column.take(pa.array(self.rows)) for column in columns]
        self.keys = _integers(types[0], columns[0]) if len(types) == 1 and is_narrow(types[0]) else _texts(columns)

    def repeated(self) -> np.ndarray:
        """The rows whose key an earlier row has."""
        if len(self.keys) < 2:
            return self.rows[:0]
        if isinstance(self.keys, np.ndarray):
            _, first = np.unique(self.keys, return_index=True)
        else:
            _, first = np.unique(np.asarray(self.keys.dictionary_encode().indices), return_index=True)
        again = np.ones(len(self.keys), np.bool_)
        again[first] = False
        return self.rows[again]


class _Index:
    """The keys of a piece in order, and the row of each."""

    def __init__(self, found: KeyColumn):
        if isinstance(found.keys, np.ndarray):
            order = np.argsort(found.keys, kind="stable")
            self.keys: Keys = found.keys[order]
        else:
            order = np.asarray(pc.sort_indices(found.keys))
            self.keys = found.keys.take(pa.array(order))
        self.rows = found.rows[order]

    def find(self, wanted: Keys) -> np.ndarray:
        """The row of each wanted key; -1 where there is none."""
        if not len(self.keys):
            return np.full(len(wanted), -1, np.int64)
        if isinstance(self.keys, np.ndarray):
            at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
            return np.where(self.keys[at] == wanted, self.rows[at], -1)
        assert not isinstance(wanted, np.ndarray), "keys of one kind"
        if len(wanted) > FEW_KEYS:
            at = np.asarray(pc.index_in(wanted, value_set=self.keys).fill_null(-1)).astype(np.int64)
            return np.where(at >= 0, self.rows[at], -1)
        return np.array([self._find_text(key) for key in wanted.to_pylist()], np.int64)

    def _find_text(self, key: bytes) -> int:
        at = bisect_left(self.keys, key, key=lambda scalar: scalar.as_py())
        return int(self.rows[at]) if at < len(self.keys) and self.keys[at].as_py() == key else -1


def is_narrow(t: Type) -> bool:
    """Whether every value of the type is an int64 in its stored form."""
    return (t.is_integer or t.is_decimal or t.is_temporal) and t.bits <= 64 and t.name != "UBIGINT"


def locate(table: StoredTable, names: tuple[str, ...], wanted: KeyColumn) -> np.ndarray:
    """For each of the wanted keys, the place of the row of the table that has it; -1 where there is none."""
    found = np.full(len(wanted.keys), -1, np.int64)
    start = 0
    for piece in table.pieces:
        if len(found):
            rows = _index(piece, names, wanted.nulls_equal).find(wanted.keys)
            found = np.where(rows >= 0, rows + start, found)
        start += piece.rows
    return found


def _index(piece: BlockTable, names: tuple[str, ...], nulls_equal: bool) -> _Index:
    known: dict[Any, _Index] = piece.__dict__.setdefault("_keys", {})
    if (names, nulls_equal) not in known:
        columns = [pa.chunked_array([decode(piece.columns[name], 0, piece.rows)]) for name in names]
        known[names, nulls_equal] = _Index(
            KeyColumn(tuple(piece.schema[name].type for name in names), columns, nulls_equal)
        )
    return known[names, nulls_equal]


def _integers(t: Type, column: pa.ChunkedArray) -> np.ndarray:
    stored = stored_integers(t, column)
    assert stored is not None
    return stored


def _texts(columns: list[pa.ChunkedArray]) -> pa.Array:
    """Length and text of each column, so that no two lists of values give the same bytes. A NULL has no length."""
    parts: list[Any] = []
    for column in columns:
        array = one_array(column)
        if pa.types.is_floating(array.type):
            array = pc.add(array, pa.scalar(0.0, array.type))  # 0.0 and -0.0 are one key
        text = array if pa.types.is_binary(array.type) else array.cast(pa.string()).cast(pa.binary())
        lengths = pc.binary_length(text).cast(pa.string()).cast(pa.binary())
        if text.null_count:
            lengths, text = lengths.fill_null(b""), text.fill_null(b"")
        parts += [lengths, pa.scalar(b":"), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))
