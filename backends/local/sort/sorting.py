"""Sorts collected rows, with the best library routine for the shape of the keys.

Every key becomes one or two integer arrays that sort the same way (including NULLs, NaN, descending order and 128-bit
values). Their bits are packed into words, which are sorted by numpy or by a radix sort of our own. Short strings become
numbers directly (`string_words.py`); others are replaced by their rank. `Workers` share the work on many rows; the
order is the same for any number of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tsql.backends.local.sort.string_words import short_string_words
from tsql.kernels.codegen import memory
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import SortKey
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.gather import WIDTHS, gather_module, scatter_module
from tsql.kernels.runtime.radix import BUCKETS, DIGIT_BITS, places_module, radix_module
from tsql.kernels.runtime.sort_groups import sort_groups_module

POOL = pa.system_memory_pool()
"""Where Arrow allocates memory for strings and NULLs. Everything else comes from the pool
(kernels/codegen/memory.py)."""

PARALLEL_ROWS = 100_000
"""Fewer rows than this are sorted by one thread."""


@dataclass(frozen=True)
class Workers:
    """The number of threads that may work on rows, and the function that runs `work(0) .. work(tasks - 1)` on them."""

    number: int
    run: Callable[[Callable[[int], Any], int], list[Any]]

    def pieces(self, rows: int) -> list[tuple[int, int]]:
        """(start, end) of the rows for each worker."""
        number = self.number if rows >= PARALLEL_ROWS else 1
        return [(rows * i // number, rows * (i + 1) // number) for i in range(number)]


SERIAL = Workers(1, lambda work, tasks: [work(task) for task in range(tasks)])


def sort_indices(keys: list[tuple[pa.Array, SortKey]]) -> np.ndarray:
    """The permutation that sorts rows by the key arrays. The sort is stable."""
    order = sorted_order(keys)
    return np.arange(len(keys[0][0])) if order is None else order


def sorted_order(keys: list[tuple[pa.Array, SortKey]], workers: Workers = SERIAL) -> np.ndarray | None:
    """As `sort_indices`; None if the rows are already in order."""
    return _order([rank for array, key in keys for rank in _ranks(array, key, workers)], workers)


def sorted_columns(
    arrays: list[pa.Array], keys: list[tuple[pa.Array, SortKey]], workers: Workers = SERIAL
) -> list[pa.Array]:
    """The rows of arrays, stably sorted by the keys."""
    ranks = [rank for array, key in keys for rank in _ranks(array, key, workers)]
    if not ranks or len(ranks[0]) < 2:
        return arrays
    ranks = _leading(ranks)
    grouped = _grouped_order(ranks, workers)
    if grouped is not None:
        del ranks
        return taken(arrays, grouped, workers)
    words = _words(ranks)
    first = next(words, None)
    del ranks
    if first is None:
        return arrays
    word, bits = first
    if bits <= PLACED_BITS and len(word) >= max(MANY_ROWS, 4 << bits) and not _is_sorted(word):
        return _placed(arrays, word, bits, workers)
    del word
    return taken(arrays, _words_order(chain((first,), words), workers), workers)


def changes(arrays: list[pa.Array]) -> np.ndarray:
    """For each row, whether its values differ from those of the previous row; true for the first."""
    changed = np.zeros(len(arrays[0]), bool)
    changed[:1] = True
    for rank in (rank for array in arrays for rank in _ranks(array, SortKey(None))):
        changed[1:] |= rank[1:] != rank[:-1]
    return changed


def value_codes(arrays: list[pa.Array], workers: Workers = SERIAL) -> tuple[np.ndarray, np.ndarray]:
    """For each row, the code of its values: equal values have equal codes, counted from 0 in the order of the values
    (NULLs last). Also, for each code, the number of a row that has it."""
    ranks = [rank for array in arrays for rank in _ranks(array, SortKey(None), workers)]
    rows = len(arrays[0])
    order = _order(ranks, workers)
    changes = np.zeros(rows, bool)
    for rank in ranks:
        ordered = rank if order is None else rank[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    codes, samples = np.cumsum(changes, dtype=np.int64), np.zeros(rows, np.int64)
    firsts = np.flatnonzero(np.concatenate(([True], changes[1:]))) if rows else changes
    samples[: len(firsts)] = firsts if order is None else order[firsts]
    if order is None:
        return codes, samples
    placed = np.empty(rows, np.int64)
    placed[order] = codes
    return placed, samples


def integer_order(ranks: list[np.ndarray], workers: Workers = SERIAL) -> np.ndarray | None:
    """The stable order of rows by integer arrays, most significant first; None if the rows are already in order."""
    return _order(ranks, workers)


FEW_ROWS = 64
"""Up to this many rows, the overhead of a library call exceeds its work."""

MANY_ROWS = 20_000
FEW_BITS = 2 * DIGIT_BITS
"""From this many rows on, and up to this many key bits, our radix sort is faster than numpy's sort."""

PLACED_BITS = 16
"""Up to this many key bits, rows are counted and written straight to their places: one write stream per key, whose
lines stay in the cache."""

GROUPED_BITS = 10
MOST_PER_GROUP = 64
"""Keys of at least this many bits, with at most this many rows each on average, are sorted key by key: the rows of each
fit in a core's cache."""

SAMPLE = 1024


def _order(ranks: list[np.ndarray], workers: Workers = SERIAL) -> np.ndarray | None:
    """The stable order of rows by integer arrays, most significant first; None if they are already in order.

    The bits of all keys are packed into 64-bit words. Several words take one pass each, from the least significant.
    Trailing keys that the rows are already ordered by are skipped: a stable sort by the others keeps that order."""
    if not ranks or len(ranks[0]) < 2:
        return None
    if len(ranks[0]) <= FEW_ROWS:
        order = np.lexsort(ranks[::-1])
        return None if (order[1:] > order[:-1]).all() else order
    ranks = _leading(ranks)
    grouped = _grouped_order(ranks, workers)
    return _words_order(_words(ranks), workers) if grouped is None else grouped


def _grouped_order(ranks: list[np.ndarray], workers: Workers) -> np.ndarray | None:
    """The order of rows by a key of few bits and then by a number, as for rows of many keys over time: by key first,
    then within each key (kernels/runtime/sort_groups.py). None for other keys, or if several workers share the rows."""
    last, rows = ranks[-1], len(ranks[0])
    if len(ranks) < 2 or not MANY_ROWS <= rows < 2**31 or last.dtype != np.int64 or len(workers.pieces(rows)) > 1:
        return None
    if not GROUPED_BITS <= sum((int(rank.max()) - int(rank.min())).bit_length() for rank in ranks[:-1]) <= FEW_BITS:
        return None
    ((word, bits),) = _words(ranks[:-1])
    numbers = _radix_order(word, bits)
    if np.count_nonzero(word[1:] != word[:-1]) * MOST_PER_GROUP < rows:
        return None
    values, spare, spare_numbers = (
        memory.empty(rows, np.int64),
        memory.empty(rows, np.int64),
        memory.empty(rows, np.int32),
    )
    arrays = (word, numbers, np.ascontiguousarray(last), values, spare, spare_numbers)
    plan = np.array([array.ctypes.data for array in arrays], np.int64)
    compiler().routine(sort_groups_module, rows=rows)(plan.ctypes.data, None, rows)
    return numbers


def _leading(ranks: list[np.ndarray]) -> list[np.ndarray]:
    """The arrays without the trailing ones that the rows are already ordered by."""
    while len(ranks) > 1 and _is_sorted(ranks[-1]):
        ranks = ranks[:-1]
    return ranks


def _words_order(words: Iterable[tuple[np.ndarray, int]], workers: Workers) -> np.ndarray | None:
    order: np.ndarray | None = None
    for word, bits in words:
        if order is not None:
            word = word[order]
        if _is_sorted(word):
            continue
        at = _word_order(word, bits, workers)
        order = at if order is None else order[at]
    return order


def _is_sorted(word: np.ndarray) -> bool:
    """Whether words are in order. If not, the first few usually show it."""
    return bool((word[1:SAMPLE] >= word[: SAMPLE - 1][: len(word) - 1]).all() and (word[1:] >= word[:-1]).all())


def _word_order(word: np.ndarray, bits: int, workers: Workers = SERIAL) -> np.ndarray:
    """The stable order of 64-bit words of which the lowest `bits` matter, by the fastest method for this many rows and
    bits."""
    rows = len(word)
    row_bits = (rows - 1).bit_length()
    if rows >= MANY_ROWS and bits <= FEW_BITS:
        return _radix_order(word, bits)
    # With the row number in its lowest bits each word is unique, so the sort need not be stable.
    left = np.uint64(max(0, bits + row_bits - 64))
    packed = memory.empty(rows, np.uint64)
    pieces = workers.pieces(rows)

    def fill(task: int) -> None:
        start, end = pieces[task]
        part = packed[start:end]
        np.right_shift(word[start:end], left, out=part)
        part <<= np.uint64(row_bits)
        part |= np.arange(start, end, dtype=np.uint64)

    workers.run(fill, len(pieces))
    _sort_words(packed, workers)
    upper = packed >> np.uint64(row_bits) if left else None
    packed &= np.uint64((1 << row_bits) - 1)
    order = packed.view(np.int64)
    return order if upper is None else _with_ties(word, int(left), order, upper, workers)


def _with_ties(word: np.ndarray, left: int, order: np.ndarray, upper: np.ndarray, workers: Workers) -> np.ndarray:
    """The order of words, given `upper`, their order by all but the lowest `left` bits: runs that are equal in these
    bits are sorted by the rest."""
    same = upper[1:] == upper[:-1]
    if not same.any():
        return order
    tied = np.flatnonzero(np.concatenate((same, [False])) | np.concatenate(([False], same)))
    runs = np.cumsum(np.concatenate(([False], upper[tied[1:]] != upper[tied[:-1]])), dtype=np.uint64)
    rows = order[tied]
    rest = (runs << np.uint64(left)) | (word[rows] & np.uint64((1 << left) - 1))
    order[tied] = rows[_word_order(rest, left + int(runs[-1]).bit_length(), workers)]
    return order


def _sort_words(words: np.ndarray, workers: Workers) -> None:
    """Sort words in place. Each worker sorts the words that belong in its part of the result."""
    pieces = workers.pieces(len(words))
    if len(pieces) > 1:
        words.partition([start for start, _ in pieces[1:]])
    workers.run(lambda task: words[pieces[task][0] : pieces[task][1]].sort(), len(pieces))


_FIRST_NUMBERS = np.arange(1 << 18, dtype=np.int32)


def _number(numbers: np.ndarray) -> None:
    """Write 0, 1, 2, .. into the array. Most arrays are short, and for them nothing is allocated."""
    numbers[:] = (
        _FIRST_NUMBERS[: len(numbers)]
        if len(numbers) <= len(_FIRST_NUMBERS)
        else np.arange(len(numbers), dtype=np.int32)
    )


def _radix_order(word: np.ndarray, bits: int) -> np.ndarray:
    """The stable order of 64-bit words of which the lowest `bits` matter (see kernels/runtime/radix.py). Sorts the
    words in place."""
    rows = len(word)
    keys, numbers = np.ascontiguousarray(word), memory.empty(rows, np.int32)
    _number(numbers)
    spare_keys, spare_numbers, counts = (
        memory.empty(rows, np.uint64),
        memory.empty(rows, np.int32),
        np.empty(BUCKETS, np.int64),
    )
    plan = np.array(
        [keys.ctypes.data, spare_keys.ctypes.data, numbers.ctypes.data, spare_numbers.ctypes.data, bits], np.int64
    )
    compiler().routine(radix_module, rows=rows)(plan.ctypes.data, counts.ctypes.data, rows)
    return numbers


def _words(ranks: list[np.ndarray]) -> Iterator[tuple[np.ndarray, int]]:
    """The bits of the keys in words of at most 64, least significant first, with the number of bits in each."""
    word, used = None, 0
    for rank in reversed(ranks):
        low, high = int(rank.min()), int(rank.max())
        bits = (high - low).bit_length()
        if not bits:
            continue
        # The difference wraps around if the type is too narrow, but is correct as an unsigned number.
        shifted = memory.empty(len(rank), np.uint64)
        np.copyto(shifted, rank, casting="unsafe")
        shifted -= np.uint64(low % 2**64)
        taken = 0
        while taken < bits:
            count = min(bits - taken, 64 - used)
            piece = shifted if count == bits else (shifted >> np.uint64(taken)) & np.uint64((1 << count) - 1)
            if word is None:
                word = piece
            else:
                piece <<= np.uint64(used)
                word |= piece
            used, taken = used + count, taken + count
            if used == 64:
                yield word, used
                word, used = None, 0
    if word is not None:
        yield word, used


def combine(arrays: list[pa.Array]) -> pa.Array:
    """Concatenate arrays."""
    if len(arrays) == 1:
        return arrays[0]
    width = plain_bytes(arrays)
    if width:
        rows, at = sum(map(len, arrays)), 0
        out = memory.empty(rows * width, np.uint8)
        for array in arrays:
            out[at : at + len(array) * width] = _bytes(array, width)
            at += len(array) * width
        return pa.Array.from_buffers(arrays[0].type, rows, [None, pa.py_buffer(out)], 0)
    try:
        return pa.concat_arrays(arrays, memory_pool=POOL)
    except pa.ArrowInvalid as error:
        raise ExecutionError(
            f"the strings to sort are too long together: {error}",
            hint="sort fewer rows, or by a key without the long column",
        ) from error


def _placed(arrays: list[pa.Array], word: np.ndarray, bits: int, workers: Workers) -> list[pa.Array]:
    """The rows of arrays in the stable order of words of few bits."""
    rows = len(word)
    places, counts = memory.empty(rows, np.int32), np.empty(1 << bits, np.int64)
    plan = np.array([word.ctypes.data, places.ctypes.data, 1 << bits], np.int64)
    compiler().routine(places_module, rows=rows)(plan.ctypes.data, counts.ctypes.data, rows)
    widths = [plain_bytes([array]) for array in arrays]
    if not all(widths):
        order = memory.empty(rows, np.int32)
        order[places] = np.arange(rows, dtype=np.int32)
        return taken(arrays, order, workers)
    targets = [memory.empty(rows * width, np.uint8) for width in widths]
    pieces = workers.pieces(rows)

    def scatter(task: int) -> None:
        (start, end), width, target = (
            pieces[task % len(pieces)],
            widths[task // len(pieces)],
            targets[task // len(pieces)],
        )
        source = _bytes(arrays[task // len(pieces)], width)
        plan = np.array(
            [source.ctypes.data + start * width, target.ctypes.data, places.ctypes.data + start * 4, width, 4], np.int64
        )
        compiler().routine(scatter_module, rows=rows)(plan.ctypes.data, None, end - start)

    workers.run(scatter, len(arrays) * len(pieces))
    return [
        pa.Array.from_buffers(array.type, rows, [None, pa.py_buffer(target)], 0)
        for array, target in zip(arrays, targets, strict=True)
    ]


def taken(arrays: list[pa.Array], order: np.ndarray | None, workers: Workers = SERIAL) -> list[pa.Array]:
    """The rows of arrays, permuted by `order`."""
    if order is None:
        return arrays
    order = np.ascontiguousarray(order)
    pieces = workers.pieces(len(order))
    widths = [plain_bytes([array]) for array in arrays]
    targets = [memory.empty(len(order) * width, np.uint8) for width in widths]

    def take(task: int) -> pa.Array | None:
        array, width, target, (start, end) = (
            arrays[task // len(pieces)],
            widths[task // len(pieces)],
            targets[task // len(pieces)],
            pieces[task % len(pieces)],
        )
        if not width:
            return pc.take(array, pa.array(order[start:end]), boundscheck=False, memory_pool=POOL)
        source, index = _bytes(array, width), order[start:end]
        plan = np.array(
            [source.ctypes.data, target.ctypes.data + start * width, index.ctypes.data, width, index.itemsize], np.int64
        )
        compiler().routine(gather_module, rows=len(order))(plan.ctypes.data, None, end - start)
        return None

    # Neighbouring tasks are of the same array, so workers read the same memory at the same time.
    found = workers.run(take, len(arrays) * len(pieces))
    return [
        pa.Array.from_buffers(array.type, len(order), [None, pa.py_buffer(target)], 0)
        if width
        else combine(found[i * len(pieces) : (i + 1) * len(pieces)])
        for i, (array, width, target) in enumerate(zip(arrays, widths, targets, strict=True))
    ]


def plain_bytes(arrays: list[pa.Array]) -> int:
    """The bytes per value if arrays consist of values only; 0 for others."""
    t = arrays[0].type
    if (
        pa.types.is_boolean(t)
        or not (pa.types.is_primitive(t) or pa.types.is_decimal128(t))
        or any(a.null_count for a in arrays)
    ):
        return 0
    return t.bit_width // 8 if t.bit_width // 8 in WIDTHS else 0


def _bytes(array: pa.Array, width: int) -> np.ndarray:
    """The values of an array as bytes."""
    buffer = array.buffers()[1]
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)[
        array.offset * width : (array.offset + len(array)) * width
    ]


def _ranks(array: pa.Array, key: SortKey, workers: Workers = SERIAL) -> list[np.ndarray]:
    """Integer arrays, most significant first, that sort rows like the key."""
    result: list[np.ndarray] = []
    is_null = np.asarray(array.is_null()) if array.null_count else None
    if is_null is not None:
        result.append((~is_null if key.nulls_first else is_null).astype(np.int8))
    for part in _values(array, workers):
        ordered = ~part if key.descending else part
        # Values under NULLs are arbitrary: all NULLs must tie.
        result.append(ordered if is_null is None else np.where(is_null, ordered.dtype.type(0), ordered))
    return result


def _values(array: pa.Array, workers: Workers) -> list[np.ndarray]:
    t = array.type
    if pa.types.is_dictionary(t):
        array = array.cast(t.value_type)
        t = array.type
    if pa.types.is_string(t) or pa.types.is_binary(t) or pa.types.is_large_string(t) or pa.types.is_large_binary(t):
        if len(array) <= FEW_ROWS:
            return [_few_string_ranks(array)]
        return short_string_words(array) or [_string_ranks(array, workers)]
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


def _few_string_ranks(array: pa.Array) -> np.ndarray:
    """The rank of each string among those that occur."""
    t = array.type
    strings = array.view(
        pa.binary() if pa.types.is_string(t) else pa.large_binary() if pa.types.is_large_string(t) else t
    ).to_pylist()
    numbers = {string: number for number, string in enumerate(sorted({s for s in strings if s is not None}))}
    return np.array([numbers.get(string, 0) for string in strings], np.int64)


def _string_ranks(array: pa.Array, workers: Workers) -> np.ndarray:
    """The rank of each string among those that occur. Each worker finds the strings of its part."""
    pieces = workers.pieces(len(array))
    encoded = workers.run(
        lambda task: array.slice(pieces[task][0], pieces[task][1] - pieces[task][0]).dictionary_encode(), len(pieces)
    )
    strings = combine([e.dictionary for e in encoded])
    if not len(strings):
        return np.zeros(len(array), np.int64)
    order = np.asarray(pc.sort_indices(strings))
    rank = np.empty(len(order), np.int64)
    if len(encoded) == 1:
        rank[order] = np.arange(len(order))
    else:
        ordered = strings.take(pa.array(order))
        rank[order] = np.cumsum(
            np.concatenate(([False], np.asarray(pc.not_equal(ordered[1:], ordered[:-1]).cast(pa.int8())).astype(bool)))
        )
    starts = np.cumsum([0, *(len(e.dictionary) for e in encoded)])
    codes = [
        np.asarray(e.indices.fill_null(0)) + start if len(e.dictionary) else np.zeros(len(e), np.int64)
        for e, start in zip(encoded, starts, strict=False)
    ]
    return rank[codes[0] if len(codes) == 1 else np.concatenate(codes)]


def _float_ranks(values: np.ndarray) -> np.ndarray:
    """Integers in the order of the floats: -0.0 equals 0.0, and NaN is the greatest."""
    values = np.where(values == 0.0, 0.0, values)
    bits = values.view(np.int64)
    ranks = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return np.where(np.isnan(values), np.int64(2**63 - 1), ranks)


def _interval_ranks(words: np.ndarray) -> list[np.ndarray]:
    """Sort keys of intervals: months count 30 days and days 24 hours; whole days first, then the rest."""
    parts = words[0::2].copy().view(np.int32)
    months, days = parts[0::2].astype(np.int64), parts[1::2].astype(np.int64)
    nanos = words[1::2]
    day = 86_400_000_000_000
    return [months * 30 + days + nanos // day, nanos % day]
