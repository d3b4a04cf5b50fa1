"""Parquet statistics: the minimum, maximum and NULL count of column chunks in the engine's stored form.

`ParquetSource` requests one column of one file at a time (`chunk_bounds`) and combines them for the planner
(`fold`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tsql.backends.io import ColumnStatistics
from tsql.backends.io.parquet.footer import ColumnChunk, Footer
from tsql.backends.io.prune import Bounds
from tsql.kernels.expr.types import Type

_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTES, _FIXED = 0, 1, 2, 4, 5, 6, 7
_NUMBERS = {_BOOLEAN: "<?", _INT32: "<i", _INT64: "<q", _FLOAT: "<f", _DOUBLE: "<d"}
_QUICK = ("INT32", "INT64", "FLOAT", "DOUBLE")
_DICTIONARY_ENCODINGS = {2, 8}


def chunk_bounds(footer: Footer, index: int, kind: Type) -> list[Bounds]:
    """The bounds of column `index` in each row group; unknown if there are no trustworthy statistics."""
    arrow = footer.schema.field(index).type
    found = []
    for group in footer.chunks:
        chunk = _flat(group[index])
        low = high = None
        if not chunk.deprecated or (chunk.physical in _NUMBERS and not kind.is_unsigned):
            low, high = _bound(chunk.minimum, chunk, arrow, kind), _bound(chunk.maximum, chunk, arrow, kind)
            if low is None or high is None or _wrong_order(low, high):
                low = high = None
        found.append(Bounds(low, high, chunk.nulls, chunk.values))
    return found


def quick_bounds(footer: Footer, index: int, kind: Type) -> list[Bounds]:
    """The same for a source of many files. Of numbers, pyarrow's statistics are used, so the chunks of all columns need
    not be parsed, which takes much longer. pyarrow leaves out statistics that it does not trust."""
    arrow, leaf = footer.schema.field(index).type, footer.leaves[index]
    metadata, found = footer.metadata, []
    for number in range(metadata.num_row_groups):
        chunk = None if leaf is None else metadata.row_group(number).column(leaf)
        if chunk is None or chunk.physical_type not in _QUICK or kind.is_unsigned:
            return chunk_bounds(footer, index, kind)
        known = chunk.statistics
        nulls = known.null_count if known is not None and known.has_null_count else None
        low = high = None
        if known is not None and known.has_min_max:
            low, high = _stored(known.min_raw, arrow, kind), _stored(known.max_raw, arrow, kind)
            if low is None or high is None or _wrong_order(low, high):
                low = high = None
        found.append(Bounds(low, high, nulls, chunk.num_values))
    return found


def _flat(chunk: ColumnChunk | None) -> ColumnChunk:
    """The chunk of a column that is not nested: only these have a readable type."""
    assert chunk is not None, "a nested column"
    return chunk


def _bound(raw: bytes | None, chunk: ColumnChunk, arrow: pa.DataType, kind: Type) -> Any:
    if raw is None:
        return None
    if chunk.physical in _NUMBERS:
        code = _NUMBERS[chunk.physical]
        code = code.upper() if kind.is_unsigned and code in ("<i", "<q") else code
        return _stored(struct.unpack(code, raw)[0], arrow, kind) if len(raw) == struct.calcsize(code) else None
    return _stored(raw, arrow, kind) if chunk.physical in (_BYTES, _FIXED) else None


def _wrong_order(low: Any, high: Any) -> bool:
    try:
        return not low <= high
    except TypeError:
        return True


def _stored(raw: Any, arrow: pa.DataType, kind: Type) -> Any:
    """A raw statistic in stored form. Nanoseconds are rounded down like values, so bounds stay bounds."""
    if kind.is_string:
        return None if not isinstance(raw, bytes) else _text(raw) if kind.name == "VARCHAR" else raw
    if kind.is_decimal or (kind.name == "HUGEINT" and pa.types.is_decimal(arrow)):
        return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if isinstance(raw, bytes):
        return None
    if kind.name in ("TIMESTAMP", "TIMESTAMPTZ", "TIME"):
        scale = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(arrow.unit)
        if scale is not None:
            return raw * scale
        return raw // 1000
    if kind.is_float:
        return None if not isinstance(raw, float) or raw != raw else raw
    return raw if isinstance(raw, bool | int) else None


def _text(raw: bytes) -> str | bytes:
    """A string bound. Writers may cut long ones inside a character; these stay bytes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def fold(parts: Iterable[Bounds], kind: Type) -> ColumnStatistics:
    """The statistics of a whole column. Not exact for floats: statistics leave out NaN."""
    parts = list(parts)
    nulls = [part.nulls for part in parts if part.nulls is not None]
    filled = [part for part in parts if not part.all_null and part.rows]
    known = all(part.low is not None and part.high is not None for part in filled)
    lows = [part.low for part in filled if part.low is not None]
    highs = [part.high for part in filled if part.high is not None]
    whole = known and all(isinstance(bound, str) for bound in lows + highs) if kind.name == "VARCHAR" else known
    return ColumnStatistics(
        minimum=min(lows) if lows and whole else None,
        maximum=max(highs) if highs and whole else None,
        nulls=sum(nulls) if len(nulls) == len(parts) else None,
        exact=whole and not kind.is_float,
    )


def small_dictionary(footer: Footer, index: int) -> bool:
    """Whether the strings of a column are dictionary-encoded with few values, and so are read as dictionaries.

    The first row group decides. Writers give up on a dictionary that exceeds a page (1 MB by default), so a small
    dictionary page means that every data page refers to it. A later group without one is read correctly, but slower."""
    if not footer.first_chunks:
        return False
    chunk = _flat(footer.first_chunks[index])
    if chunk.dictionary_bytes is None or not _DICTIONARY_ENCODINGS & set(chunk.encodings):
        return False
    return 0 < chunk.dictionary_bytes <= min(65_536, 4_096 + 2 * chunk.values)


FEW_VALUES = 0.25
"""Below this many values per row in a row group, all row groups are assumed to have the same values."""


def spread_groups(parts: list[Bounds]) -> float:
    """How many row groups hold different numbers: 1 if all have the same range, their count if none overlap (a sorted
    column), and in between according to the share of the whole range that a row group covers."""
    bounds = [(part.low, part.high) for part in parts if isinstance(part.low, int) and isinstance(part.high, int)]
    if not bounds:
        return 1.0
    whole = max(high for _, high in bounds) - min(low for low, _ in bounds) + 1
    covered = sum(high - low + 1 for low, high in bounds)
    return max(1.0, len(bounds) * min(1.0, whole / covered))


def dictionary_values(
    footer: Footer,
    index: int,
    kind: Type,
    known: ColumnStatistics,
    rows: int,
    parts: list[Bounds],
    share: float = 1.0,
) -> int | None:
    """The approximate number of distinct values of a dictionary-encoded column in `rows` rows, from the size of its
    first dictionary page and the bounds of its row groups; None if it has no dictionary. A full dictionary (1 MB) says
    nothing, since the writer may have given up on it. `parts` may be those of a sample, which is this share of all."""
    if not footer.first_chunks:
        return None
    chunk = _flat(footer.first_chunks[index])
    if (
        chunk.dictionary_bytes is None
        or not _DICTIONARY_ENCODINGS & set(chunk.encodings)
        or chunk.dictionary_bytes > 500_000
    ):
        return None
    values, first = (
        max(1, chunk.dictionary_bytes // (6 if kind.is_string else 4)),
        footer.metadata.row_group(0).num_rows,
    )
    bounded = isinstance(known.minimum, int) and isinstance(known.maximum, int)
    domain = known.maximum - known.minimum + 1 if bounded else rows
    if values < first * FEW_VALUES:
        groups = 1.0 + (spread_groups(parts) - 1.0) / share
        return max(1, min(int(values * groups), domain, rows))
    # A row group has nearly as many values as rows, so the next one has others.
    return max(1, min(domain, rows if bounded else rows * values // first))
