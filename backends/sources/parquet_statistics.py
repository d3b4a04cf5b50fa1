"""Parquet statistics: the minimum, maximum and NULL count of column chunks in the engine's stored form.

`ParquetSource` asks for one column of one file at a time (`chunk_bounds`) and folds them for the planner (`fold`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tsql.backends.sources import ColumnStatistics
from tsql.backends.sources.parquet_footer import Footer
from tsql.backends.sources.prune import Bounds
from tsql.kernels.types import Type


def chunk_bounds(footer: Footer, index: int, kind: Type) -> list[Bounds]:
    """The bounds of column `index` in each row group; unknown where the writer left no statistics that can be trusted."""
    arrow = footer.schema.field(index).type
    found = []
    for number in range(footer.metadata.num_row_groups):
        chunk = footer.metadata.row_group(number).column(index)
        rows, statistics = chunk.num_values, chunk.statistics if chunk.is_stats_set else None
        if statistics is None:
            found.append(Bounds(None, None, None, rows))
            continue
        nulls = statistics.null_count if statistics.has_null_count else None
        low = high = None
        if statistics.has_min_max and chunk.physical_type != "INT96":
            low = _stored(statistics.min_raw, arrow, kind, chunk.physical_type, up=False)
            high = _stored(statistics.max_raw, arrow, kind, chunk.physical_type, up=True)
            if low is None or high is None or _wrong_order(low, high):
                low = high = None
        found.append(Bounds(low, high, nulls, rows))
    return found


def _wrong_order(low: Any, high: Any) -> bool:
    try:
        return not low <= high
    except TypeError:
        return True


def _stored(raw: Any, arrow: pa.DataType, kind: Type, physical: str, up: bool) -> Any:
    """A raw statistic in stored form; bounds that are not exact after conversion are moved outwards."""
    if kind.is_string:
        return _text(raw) if kind.name == "VARCHAR" else raw
    if kind.is_decimal or (kind.name == "HUGEINT" and pa.types.is_decimal(arrow)):
        return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if kind.is_unsigned and isinstance(raw, int) and raw < 0:
        return raw + (2**64 if physical == "INT64" else 2**32)
    if kind.name in ("TIMESTAMP", "TIMESTAMPTZ", "TIME"):
        scale = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(arrow.unit)
        if scale is not None:
            return raw * scale
        return raw // 1000 + (1 if up else 0)
    if kind.is_float:
        return None if not isinstance(raw, float) or raw != raw else raw
    return raw if isinstance(raw, bool | int) else None


def _text(raw: Any) -> str | bytes:
    """A string bound; writers may cut long ones inside a character, which is then left as bytes."""
    try:
        return raw.decode("utf-8") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError:
        return raw


def fold(parts: Iterable[Bounds], kind: Type) -> ColumnStatistics:
    """The statistics of a whole column. Not exact for floats: statistics leave NaN out."""
    parts = list(parts)
    nulls = [part.nulls for part in parts]
    filled = [part for part in parts if not part.all_null and part.rows]
    known = all(part.low is not None and part.high is not None for part in filled)
    lows = [part.low for part in filled if part.low is not None]
    highs = [part.high for part in filled if part.high is not None]
    whole = known and all(isinstance(bound, str) for bound in lows + highs) if kind.name == "VARCHAR" else known
    return ColumnStatistics(
        minimum=min(lows) if lows and whole else None,
        maximum=max(highs) if highs and whole else None,
        nulls=None if any(count is None for count in nulls) else sum(nulls),
        exact=whole and not kind.is_float,
    )


def small_dictionary(footer: Footer, index: int) -> bool:
    """Whether the strings of a column are all dictionary-encoded with few values: then they are read as dictionaries.

    Writers give up on a dictionary that outgrows a page (1 MB by default), so a small dictionary page means that every
    data page refers to it."""
    for number in range(footer.metadata.num_row_groups):
        chunk: pq.ColumnChunkMetaData = footer.metadata.row_group(number).column(index)
        if chunk.num_values == 0:
            continue
        if not chunk.has_dictionary_page or not {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(chunk.encodings):
            return False
        page = chunk.data_page_offset - (chunk.dictionary_page_offset or 0)
        if not 0 < page <= min(65_536, 4_096 + 2 * chunk.num_values):
            return False
    return footer.metadata.num_row_groups > 0
