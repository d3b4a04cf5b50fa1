"""Which reader a Parquet column chunk gets: our own decoder of pages (`parquet_pages`), or pyarrow's.

The choice is made per column chunk, from the footer, and never depends on a query. Ours reads:

| of a column chunk | ours reads | left to pyarrow |
|---|---|---|
| codec | none, Snappy, gzip, Zstandard | Brotli, LZ4 |
| encoding | PLAIN, dictionary, RLE (booleans) | DELTA_.., BYTE_STREAM_SPLIT |
| type | BOOLEAN, INT32, INT64, FLOAT, DOUBLE, BYTE_ARRAY as text or bytes | INT96, other FIXED_LEN_BYTE_ARRAY |
| decimals | of at most 18 digits in FIXED_LEN_BYTE_ARRAY | more digits, or in BYTE_ARRAY |
| levels | none, or NULLs of the column itself, in RLE | BIT_PACKED (in files of before 2013) |

Pages with headers that the decoder does not know, and chunks in other files, are left to pyarrow too.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeGuard

import pyarrow as pa

from tsql.backends.io.parquet.footer import ColumnChunk, Footer
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.runtime.parquet.reader import (
    HOST_PAGES,
    PLAIN,
    PLAIN_DICTIONARY,
    PLAIN_PAGES,
    RLE,
    RLE_DICTIONARY,
    SNAPPY_PAGES,
)
from tsql.kernels.runtime.parquet.values import BIG, BITS, LONG_WORDS, TEXT, WORDS

UNCOMPRESSED, SNAPPY, GZIP, ZSTD = 0, 1, 2, 6
CODECS = {UNCOMPRESSED: PLAIN_PAGES, SNAPPY: SNAPPY_PAGES, GZIP: HOST_PAGES, ZSTD: HOST_PAGES}
_BIT_PACKED = 4
ENCODINGS = frozenset((PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY, _BIT_PACKED))
"""Writers list the encoding of levels among those of the values, even for levels that are not stored."""

_PHYSICAL = {
    "BOOLEAN": 0,
    "INT32": 1,
    "INT64": 2,
    "INT96": 3,
    "FLOAT": 4,
    "DOUBLE": 5,
    "BYTE_ARRAY": 6,
    "FIXED_LEN_BYTE_ARRAY": 7,
}
_OLD_WRITERS = tuple(f"parquet-mr version 1.{minor}." for minor in range(3))
"""These omit the header of the dictionary page from a chunk's size."""


@dataclass(frozen=True)
class ColumnForm:
    """How our decoder reads a column: the form's number in `FORMS`, the decoded Arrow type, the Arrow type it is then
    cast to, the bytes of a stored value, and whether it may hold NULLs."""

    physical: int
    form: int
    decoded: pa.DataType
    arrow: pa.DataType
    width: int
    nullable: bool

    @cached_property
    def is_cast(self) -> bool:
        return self.decoded != self.arrow


def column_form(footer: Footer, index: int) -> ColumnForm | None:
    """The form of a column, or None if pyarrow reads it."""
    if footer.leaves[index] is None:
        return None
    column, field = footer.metadata.schema.column(footer.leaves[index]), footer.schema.field(index)
    if (
        column.max_repetition_level
        or column.max_definition_level > 1
        or (footer.metadata.created_by or "").startswith(_OLD_WRITERS)
    ):
        return None
    physical = _PHYSICAL.get(column.physical_type)
    found = None if physical is None else _form(physical, field.type, column.length)
    if physical is None or found is None:
        return None
    form, decoded, width = found
    arrow = pa.int64() if form == BIG or field.name in footer.unscaled else field.type
    return ColumnForm(physical, form, decoded, arrow, width, column.max_definition_level == 1)


def _form(physical: int, arrow: pa.DataType, length: int) -> tuple[int, pa.DataType, int] | None:
    """(form, decoded type, bytes of a stored value) of a physical type that represents an Arrow type."""
    if physical == 0 and pa.types.is_boolean(arrow):
        return BITS, arrow, 0
    if physical == 1 and pa.types.is_integer(arrow) and arrow.bit_width <= 32:
        return WORDS, arrow if arrow.bit_width == 32 else pa.int32(), 4
    if (physical == 1 and (pa.types.is_date32(arrow) or pa.types.is_time32(arrow))) or (
        physical == 4 and arrow == pa.float32()
    ):
        return WORDS, arrow, 4
    if physical == 2 and (
        arrow in (pa.int64(), pa.uint64()) or pa.types.is_timestamp(arrow) or pa.types.is_time64(arrow)
    ):
        return LONG_WORDS, arrow, 8
    if physical == 5 and arrow == pa.float64():
        return LONG_WORDS, arrow, 8
    if physical == 6 and arrow in (pa.string(), pa.binary()):
        return TEXT, arrow, 4
    if physical == 7 and pa.types.is_decimal(arrow) and arrow.precision <= 18 and 1 <= length <= 8:
        return BIG, pa.int64(), length
    return None


def is_ours(chunk: ColumnChunk | None) -> TypeGuard[ColumnChunk]:
    """Whether our decoder supports the codec and the encodings of a chunk."""
    return chunk is not None and chunk.codec in CODECS and ENCODINGS.issuperset(chunk.encodings) and not chunk.elsewhere
