"""Sorting of collected rows, by the best library routine for the shape of the keys.

Every key becomes one or two integer arrays whose order is the wanted order (NULLs, NaN, descending and 128-bit values
included), and numpy sorts these: a stable argsort for one array, a lexsort for several. Strings are replaced by their rank.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsql.kernels.expr import SortKey


def sort_indices(keys: list[tuple[pa.Array, SortKey]]) -> np.ndarray:
    """The permutation that sorts rows by the key arrays; ties keep their order."""
    ranks: list[np.ndarray] = []
    for array, key in keys:
        ranks += _ranks(array, key)
    if len(ranks) == 1:
        return np.argsort(ranks[0], kind="stable")
    return np.lexsort(ranks[::-1])


def _ranks(array: pa.Array, key: SortKey) -> list[np.ndarray]:
    """Integer arrays, most significant first, that order the rows as the key does."""
    result: list[np.ndarray] = []
    is_null = np.asarray(array.is_null()) if array.null_count else None
    if is_null is not None:
        result.append((~is_null if key.nulls_first else is_null).astype(np.int8))
    for part in _values(array):
        ordered = ~part if key.descending else part
        # What lies under a NULL is arbitrary: all NULLs must tie.
        result.append(ordered if is_null is None else np.where(is_null, ordered.dtype.type(0), ordered))
    return result


def _values(array: pa.Array) -> list[np.ndarray]:
    t = array.type
    if pa.types.is_dictionary(t):
        array = array.cast(t.value_type)
        t = array.type
    if pa.types.is_string(t) or pa.types.is_binary(t) or pa.types.is_large_string(t) or pa.types.is_large_binary(t):
        return [_string_ranks(array)]
    if pa.types.is_boolean(t):
        return [np.asarray(array.cast(pa.int8()).fill_null(0))]
    if pa.types.is_floating(t):
        return [_float_ranks(np.asarray(array.cast(pa.float64()).fill_null(0.0)))]
    buffer = array.buffers()[1]
    if pa.types.is_interval(t):
        return _interval_ranks(np.frombuffer(buffer, np.int64)[array.offset * 2 : (array.offset + len(array)) * 2])
    if pa.types.is_decimal(t):
        words = np.frombuffer(buffer, np.int64)[array.offset * 2 : (array.offset + len(array)) * 2]
        low, high = words[0::2], words[1::2]
        if np.array_equal(high, low >> 63):
            return [low]
        return [high, low ^ np.int64(-(2**63))]
    width = t.bit_width
    kind = np.dtype(f"{'u' if pa.types.is_unsigned_integer(t) else 'i'}{width // 8}")
    return [np.frombuffer(buffer, kind)[array.offset : array.offset + len(array)]]


def _string_ranks(array: pa.Array) -> np.ndarray:
    encoded = array.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[np.asarray(order)] = np.arange(len(order))
    codes = np.asarray(encoded.indices.fill_null(0))
    return rank[codes] if len(rank) else np.zeros(len(array), np.int64)


def _float_ranks(values: np.ndarray) -> np.ndarray:
    """Integers in the order of the floats: -0.0 equals 0.0, and NaN is the greatest."""
    values = np.where(values == 0.0, 0.0, values)
    bits = values.view(np.int64)
    ranks = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return np.where(np.isnan(values), np.int64(2**63 - 1), ranks)


def _interval_ranks(words: np.ndarray) -> list[np.ndarray]:
    """Months of 30 days, days of 24 hours: whole days first, then the rest."""
    parts = words[0::2].copy().view(np.int32)
    months, days = parts[0::2].astype(np.int64), parts[1::2].astype(np.int64)
    nanos = words[1::2]
    day = 86_400_000_000_000
    return [months * 30 + days + nanos // day, nanos % day]
