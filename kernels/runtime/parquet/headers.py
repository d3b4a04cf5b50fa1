"""Parquet page headers in the kernel language: `scan_pages` walks the bytes of a column chunk and lists its pages.

Headers are structs of Thrift's compact protocol. Only what pages use is supported. A header with a list or a map is
reported as `STRANGE_HEADER`, and another reader then reads the column chunk."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.parquet.bits import bytes_until, pointer, put, word

KIND, START, STORED_BYTES, BYTES, CHECKSUM, VALUES, ENCODING, LEVELS, REPEATS, PACKED_VALUES = range(10)
PAGE_WORDS = 10
"""The words of a page: its kind; the start of its bytes in the chunk; their number as stored and uncompressed; the
checksum (`NO_CHECKSUM` if there is none); the number of values and their encoding. LEVELS and REPEATS are the encodings
of the levels, or their bytes in a page of version 2. PACKED_VALUES says whether such a page's values are compressed."""

NO_CHECKSUM = 1 << 40
LATE_DICTIONARY = 4
"""In a set of kinds: a dictionary that is not the first page."""

COUNT, TOTAL_VALUES, LARGEST, KINDS, ENCODINGS, LEVEL_ENCODINGS, CHECKSUMS = range(7)
SUMMARY_WORDS = 7
"""What `scan_pages` reports of all pages: their number or an error; the values in data pages; the bytes of the largest
page; bit sets of their kinds and of the encodings of values and of levels in data pages; whether any has a checksum."""

DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)

BROKEN_HEADER, STRANGE_HEADER, TOO_MANY_PAGES = -1, -2, -3

_HERE, _LIMIT = 0, 1
_CURSOR_WORDS = 2
_FIELDS = 16
"""A header is read into tables of this many words: its own fields, those of its structs 5, 7 and 8, and of other
structs."""

SCRATCH_WORDS = _CURSOR_WORDS + 6 * _FIELDS
_MAX_DEPTH = 8


def _signed(number: Val) -> Val:
    """Thrift's zigzag numbers."""
    return number.ushr(1) ^ -(number & 1)


@routine("parquet_varint", ("ptr",), "i64")
def varint(k: Kernel, cursor: Val) -> None:
    """The unsigned number at the cursor, which moves past it. A truncated or too long number moves it past the end."""
    at, value, shift, more = k.var(pointer(k, cursor, _HERE)), k.var(k.i64(0)), k.var(k.i64(0)), k.var(k.true)
    end = pointer(k, cursor, _LIMIT)
    with k.forever() as loop:
        loop.stop_if(~more.value)
        with k.when((bytes_until(at.value, end) <= 0) | (shift.value > 63)):
            put(k, cursor, _HERE, end + 1)
            k.ret(k.i64(0))
        byte = k.load("i8", at.value).uto("i64")
        value.set(value.value | ((byte & 127) << shift.value))
        shift.set(shift.value + 7)
        at.set(at.value + 1)
        more.set(byte >= 128)
    put(k, cursor, _HERE, at.value)
    k.ret(value.value)


@routine("parquet_struct", ("ptr", "ptr", "i64"), "i64")
def read_struct(k: Kernel, cursor: Val, table: Val, depth: Val) -> None:
    """Read the struct at the cursor: numbers and booleans go into a table by field id. Returns the status. At depth 0
    the tables of nested structs follow."""
    with k.when(depth > _MAX_DEPTH):
        k.ret(k.i64(BROKEN_HEADER))
    end, number = pointer(k, cursor, _LIMIT), k.var(k.i64(0))
    with k.forever():
        at = pointer(k, cursor, _HERE)
        with k.when(bytes_until(at, end) <= 0):
            k.ret(k.i64(BROKEN_HEADER))
        head = k.load("i8", at).uto("i64")
        put(k, cursor, _HERE, at + 1)
        with k.when(head == 0):
            k.ret(k.i64(0))
        number.set(number.value + head.ushr(4))
        with k.when(head.ushr(4) == 0):
            number.set(_signed(varint(k, cursor)))
        kind, value = head & 15, k.var(k.i64(0))
        with k.when((kind == 1) | (kind == 2)):
            value.set((kind == 1).to("i64"))
        with k.when((kind >= 4) & (kind <= 6)):
            value.set(_signed(varint(k, cursor)))
        with k.when((kind == 3) | (kind == 7)):
            put(k, cursor, _HERE, pointer(k, cursor, _HERE) + k.select(kind == 3, k.i64(1), k.i64(8)))
        with k.when(kind == 8):
            size = varint(k, cursor)
            here = pointer(k, cursor, _HERE)
            with k.when(size.ugt(bytes_until(here, end))):
                k.ret(k.i64(BROKEN_HEADER))
            put(k, cursor, _HERE, here + size)
        with k.when(kind == 12):
            place = k.select(
                number.value == 5,
                k.i64(1),
                k.select(number.value == 7, k.i64(2), k.select(number.value == 8, k.i64(3), k.i64(4))),
            )
            # Deeper nested structs (statistics) go into a table that is never read.
            inner_table = k.select(depth == 0, table + place * (8 * _FIELDS), k.element("i64", cursor, _CURSOR_WORDS))
            inner = read_struct(k, cursor, inner_table, depth + 1)
            with k.when(inner != 0):
                k.ret(inner)
        with k.when(((kind >= 9) & (kind <= 11)) | (kind > 12)):
            k.ret(k.i64(STRANGE_HEADER))
        with k.when(bytes_until(pointer(k, cursor, _HERE), end) < 0):
            k.ret(k.i64(BROKEN_HEADER))
        with k.when(number.value.ult(_FIELDS) & (kind != 12)):
            k.store(table, value.value, number.value)


@routine("parquet_pages", ("ptr", "i64", "i64", "ptr", "i64", "ptr", "ptr"), "i64")
def scan_pages(
    k: Kernel, chunk: Val, size: Val, values: Val, pages: Val, limit: Val, scratch: Val, summary: Val
) -> None:
    """List the pages of a chunk of `size` bytes up to its `values`-th value: their number, at most `limit`, or an
    error."""
    table = k.element("i64", scratch, _CURSOR_WORDS + _FIELDS)
    end = chunk + size
    k.call("memset", summary, 0, SUMMARY_WORDS * 8)
    put(k, scratch, _HERE, chunk)
    put(k, scratch, _LIMIT, end)
    with k.forever() as loop:
        found, seen = word(k, summary, COUNT), word(k, summary, TOTAL_VALUES)
        loop.stop_if((seen >= values) | (bytes_until(pointer(k, scratch, _HERE), end) <= 0))
        with k.when(found >= limit):
            k.ret(k.i64(TOO_MANY_PAGES))
        k.call("memset", table, 0, 5 * _FIELDS * 8)
        second = k.element("i64", table, 3 * _FIELDS)
        put(k, second, 7, 1)
        put(k, table, 4, NO_CHECKSUM)
        status = read_struct(k, scratch, table, k.i64(0))
        with k.when(status != 0):
            k.ret(status)
        kind, start, stored, plain = word(k, table, 1), pointer(k, scratch, _HERE), word(k, table, 3), word(k, table, 2)
        with k.when(stored.ugt(bytes_until(start, end)) | plain.ugt((1 << 31) - 1) | kind.ugt(DATA_PAGE_V2)):
            k.ret(k.i64(BROKEN_HEADER))
        is_second = kind == DATA_PAGE_V2
        is_data = is_second | (kind == DATA_PAGE)
        inner = k.select(
            is_second,
            second,
            k.element("i64", table, k.select(kind == DICTIONARY_PAGE, k.i64(2 * _FIELDS), k.i64(_FIELDS))),
        )
        count = k.select(kind == INDEX_PAGE, k.i64(0), word(k, inner, 1))
        encoding = k.select(is_second, word(k, inner, 4), word(k, inner, 2))
        levels = k.select(is_second, word(k, inner, 5), word(k, inner, 3))
        with k.when(count.ugt((1 << 31) - 1) | encoding.ugt(62) | (levels.ugt(62) & ~is_second)):
            k.ret(k.i64(BROKEN_HEADER))
        fields = {
            KIND: kind, START: bytes_until(chunk, start), STORED_BYTES: stored, BYTES: plain,
            CHECKSUM: word(k, table, 4), VALUES: count, ENCODING: encoding, LEVELS: levels,
            REPEATS: k.select(is_second, word(k, inner, 6), word(k, inner, 4)),
            PACKED_VALUES: k.select(is_second, word(k, inner, 7), k.i64(1)),
        }  # fmt: skip
        page = k.element("i64", pages, found * PAGE_WORDS)
        for number, value in fields.items():
            put(k, page, number, value)
        put(k, summary, COUNT, found + 1)
        put(k, summary, TOTAL_VALUES, seen + k.select(is_data, count, k.i64(0)))
        put(k, summary, LARGEST, k.max(word(k, summary, LARGEST), plain))
        nothing, one = k.i64(0), k.i64(1)
        sets = {
            KINDS: one << k.select((kind == DICTIONARY_PAGE) & (found > 0), k.i64(LATE_DICTIONARY), kind),
            ENCODINGS: k.select(is_data, one << encoding, nothing),
            LEVEL_ENCODINGS: k.select(kind == DATA_PAGE, one << (levels & 63), nothing),
            CHECKSUMS: (word(k, table, 4) != NO_CHECKSUM).to("i64"),
        }
        for number, value in sets.items():
            put(k, summary, number, word(k, summary, number) | value)
        put(k, scratch, _HERE, start + stored)
    k.ret(word(k, summary, COUNT))
