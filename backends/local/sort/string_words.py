"""Short strings as 64-bit numbers in the same order: sorting them needs no dictionary.

The bytes of a string, padded with zeros, are read as one or two big-endian numbers. Strings that differ only in
trailing zero bytes would tie, so then their lengths decide."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

LONGEST = 16
"""Sorting longer strings would take more passes than finding the equal ones costs."""

_MASKS = np.array([(2**64 - 1) ^ (2 ** (64 - 8 * length) - 1) for length in range(9)], np.uint64)
"""Masks for the first bytes of a word, by their number."""


def short_string_words(array: pa.Array) -> list[np.ndarray] | None:
    """Integer arrays, most significant first, that sort the strings by their bytes; None if a string is too long."""
    rows = len(array)
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    buffers = array.buffers()
    if not rows or buffers[2] is None or not buffers[2].size:
        return [np.zeros(rows, np.uint64)]
    ends = np.frombuffer(buffers[1], np.int64 if large else np.int32)[array.offset : array.offset + rows + 1]
    lengths = np.diff(ends)
    longest = int(lengths.max())
    if longest > LONGEST:
        return None
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    # A word may extend beyond the last string.
    text = np.zeros(size + LONGEST + 8, np.uint8)
    text[:size] = np.frombuffer(buffers[2], np.uint8)[first : first + size]
    read = np.ndarray((size + LONGEST + 1,), ">u8", text.data, strides=(1,))
    result = []
    for at in range(0, max(longest, 1), 8):
        word = read[ends[:-1] - (first - at)].astype(np.uint64)
        word &= _MASKS[np.clip(lengths - at, 0, 8)]
        # Bytes that no string has are left out, since every bit costs time.
        word >>= np.uint64(8 * max(0, at + 8 - max(longest, 1)))
        result.append(word)
    return result if text[:size].all() else [*result, lengths]
