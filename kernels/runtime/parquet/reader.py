"""The reader of one Parquet column chunk in the kernel language: opens page after page and decodes the requested rows.

A `READER` record holds all state between two calls of the kernel (`operations.py`), so a chunk is decoded batch by
batch. Its STREAMs are those of `bits.py`, its pages those that `headers.py` lists."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.parquet import bits, headers
from tsql.kernels.runtime.parquet.bits import (
    BLOCK,
    CUT,
    NEED_PAGE,
    NO_DICTIONARY,
    NO_PAGE,
    STREAM_WORDS,
    WRONG_RUN,
    WRONG_SIZE,
    bytes_until,
    pointer,
    put,
    word,
)
from tsql.kernels.runtime.parquet.snappy import decompress
from tsql.kernels.runtime.parquet.strings import TEXT_WORDS, dictionary_text, plain_text
from tsql.kernels.runtime.parquet.values import BIG, BITS, CODES, FORMS, TEXT, big_numbers, gather, spread, spread_bits

STATUS, ROWS, FILLED, OUT, VALIDITY, NULLS, FORM, WIDTH = range(8)
CHUNK, PAGES, PAGE_COUNT, PAGE, CODEC, SCRATCH, READY, WORK = range(8, 16)
DICTIONARY, DICTIONARY_TEXT, DICTIONARY_VALUES, LEFT, ENCODED, SELECTION, SELECTED, TAKEN = range(16, 24)
LEVEL_STREAM = 24
VALUE_STREAM = LEVEL_STREAM + STREAM_WORDS
TEXT_RECORD = VALUE_STREAM + STREAM_WORDS
OWN_WORDS = TEXT_RECORD + TEXT_WORDS
CHUNK_BYTES, CHUNK_VALUES, PLAIN_BYTES, WANTS_CODES, NULLABLE, CHECKS_TEXT, OPENED, ODD_TEXT = range(
    OWN_WORDS, OWN_WORDS + 8
)
OUT_ROOM, BITMAP, BITMAP_ROOM, SCRATCH_ROOM, PAGES_ROOM, PAGE_BYTES, PAGE_ROOM, OFFSETS, OFFSETS_ROOM = range(
    OWN_WORDS + 8, OWN_WORDS + 17
)
STRINGS_RECORD, HEADERS, SUMMARY = OWN_WORDS + 17, OWN_WORDS + 17 + TEXT_WORDS, OWN_WORDS + 18 + TEXT_WORDS
READER_WORDS = OWN_WORDS + 19 + TEXT_WORDS
"""The words of a reader.

STATUS is 0 or an error. ROWS are wanted and FILLED are done. OUT receives the values (offsets of strings: one more than
rows), VALIDITY a bitmap, or is 0 for a column without levels. PAGE is the number of the page to open next; READY is one
more than the number of the page that the host has put into SCRATCH. DICTIONARY holds values as they are delivered, or
the offsets into DICTIONARY_TEXT. LEFT rows remain in the open page. ENCODED is 1 if its values are indices. If only
some rows are wanted (`pick.py`), SELECTION holds SELECTED row numbers as i32 in order, relative to the first of the
ROWS, then a number greater than all; TAKEN of them are done. A reader that opens its chunk itself (`fetch.py`) has more
words, from OWN_WORDS on.

DICTIONARY, DICTIONARY_TEXT and DICTIONARY_VALUES are adjacent: together they are the dictionary record that pipelines
read."""

PLAIN_PAGES, SNAPPY_PAGES, HOST_PAGES = range(3)
"""CODEC: pages are read in place, decompressed here, or decompressed by the host."""

PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8

BITMAP_PADDING = 16
"""Bytes of a bitmap after the byte of its last row."""

INDICES_AT, VALUES_AT, BITS_AT = 64, 64 + 4 * (BLOCK + 16), 64 + 12 * (BLOCK + 16)
PICKED_AT = BITS_AT + BLOCK // 8 + 64
PICKED_BITS_AT = PICKED_AT + 8 * (BLOCK + 16)
WORK_BYTES = PICKED_BITS_AT + BLOCK // 8 + 64
"""WORK has room for the indices, values and bits of a block, with some space around each; then for the values and bits
of a block of which only some rows are wanted."""


def part(k: Kernel, record: Val, number: int) -> Val:
    return k.element("i64", record, number)


@routine("parquet_open", ("ptr",), "i64")
def open_page(k: Kernel, reader: Val) -> None:
    """Open the next page with data: the status."""
    with k.forever() as loop:
        with k.when(word(k, reader, PAGE) >= word(k, reader, PAGE_COUNT)):
            k.ret(k.i64(NO_PAGE))
        kind = word(
            k, k.element("i64", pointer(k, reader, PAGES), word(k, reader, PAGE) * headers.PAGE_WORDS), headers.KIND
        )
        loop.stop_if((kind == headers.DATA_PAGE) | (kind == headers.DATA_PAGE_V2))
        put(k, reader, PAGE, word(k, reader, PAGE) + 1)
    number = word(k, reader, PAGE)
    page = k.element("i64", pointer(k, reader, PAGES), number * headers.PAGE_WORDS)
    put(k, reader, PAGE, number + 1)
    second = word(k, page, headers.KIND) == headers.DATA_PAGE_V2
    stored, plain = word(k, page, headers.STORED_BYTES), word(k, page, headers.BYTES)
    # In version 2 the levels precede the values and are never compressed.
    repeats, levels = (
        k.select(second, word(k, page, number), k.i64(0)) for number in (headers.REPEATS, headers.LEVELS)
    )
    before = repeats + levels
    with k.when((repeats != 0) | levels.ugt(stored) | levels.ugt(plain)):
        k.ret(k.i64(WRONG_SIZE))
    raw = pointer(k, reader, CHUNK) + word(k, page, headers.START)
    data, scratch = k.var(raw + before), pointer(k, reader, SCRATCH)
    size = plain - before
    codec = k.select(word(k, page, headers.PACKED_VALUES) != 0, word(k, reader, CODEC), k.i64(PLAIN_PAGES))
    with k.when(codec == PLAIN_PAGES):
        with k.when(stored != plain):
            k.ret(k.i64(WRONG_SIZE))
    with k.when((codec == SNAPPY_PAGES) & (size > 0)):
        data.set(scratch)
        status = decompress(k, raw + before, stored - before, scratch, size)
        with k.when(status != 0):
            k.ret(status)
    with k.when((codec == HOST_PAGES) & (size > 0)):
        data.set(scratch)
        with k.when(word(k, reader, READY) != number + 1):
            put(k, reader, PAGE, number)
            k.ret(k.i64(NEED_PAGE))
    end = data.value + size
    put(k, reader, LEFT, word(k, page, headers.VALUES))
    with k.when(word(k, reader, VALIDITY) != 0):
        stream = part(k, reader, LEVEL_STREAM)
        with k.when(second):
            put(k, stream, bits.AT, raw)
            put(k, stream, bits.END, raw + levels)
        with k.otherwise():
            status = _sized(k, data.value, end, stream)
            with k.when(status != 0):
                k.ret(status)
            data.set(pointer(k, stream, bits.END))
        put(k, stream, bits.LEFT, 0)
        put(k, stream, bits.WIDTH, 1)
    k.ret(open_values(k, reader, data.value, end, word(k, page, headers.ENCODING), word(k, page, headers.VALUES)))


@routine("parquet_sized", ("ptr", "ptr", "ptr"), "i64")
def _sized(k: Kernel, data: Val, end: Val, stream: Val) -> None:
    """A stream that is preceded by its size in four bytes: the status."""
    left = bytes_until(data, end) - 4
    with k.when(left < 0):
        k.ret(k.i64(CUT))
    size = k.load("i32", data).uto("i64")
    with k.when(size > left):
        k.ret(k.i64(WRONG_SIZE))
    put(k, stream, bits.AT, data + 4)
    put(k, stream, bits.END, data + 4 + size)
    put(k, stream, bits.LEFT, 0)
    k.ret(k.i64(0))


@routine("parquet_open_values", ("ptr", "ptr", "ptr", "i64", "i64"), "i64")
def open_values(k: Kernel, reader: Val, data: Val, end: Val, encoding: Val, values: Val) -> None:
    """Start the values of a page: the status."""
    stream = part(k, reader, VALUE_STREAM)
    encoded = (encoding == RLE_DICTIONARY) | (encoding == PLAIN_DICTIONARY)
    put(k, reader, ENCODED, encoded.to("i64"))
    put(k, stream, bits.AT, data)
    put(k, stream, bits.END, end)
    put(k, stream, bits.LEFT, 0)
    with k.when(encoded):
        with k.when(word(k, reader, DICTIONARY) == 0):
            k.ret(k.i64(NO_DICTIONARY))
        # A page of only NULLs may have no bytes at all, not even the width.
        with k.when(bytes_until(data, end) > 0):
            width = k.load("i8", data).uto("i64")
            put(k, stream, bits.WIDTH, width)
            put(k, stream, bits.AT, data + 1)
            with k.when(width > 32):
                k.ret(k.i64(WRONG_RUN))
    with k.when(word(k, reader, FORM) == BITS):
        put(k, stream, bits.WIDTH, 1)
        with k.when(encoding == RLE):
            k.ret(_sized(k, data, end, stream))
        # Plain booleans are one bit-packed run.
        put(k, stream, bits.PACKED, data)
        put(k, stream, bits.VALUE, 0)
        put(k, stream, bits.LEFT, k.min(bytes_until(data, end) << 3, values))
        put(k, stream, bits.AT, end)
    k.ret(k.i64(0))


def begin_column(k: Kernel, reader: Val, rows: Val) -> None:
    """Clear what a column of `rows` rows has besides its values."""
    with k.when(word(k, reader, FILLED) == 0):
        bitmap_bytes = rows.ushr(3) + BITMAP_PADDING
        with k.when(word(k, reader, VALIDITY) != 0):
            k.call("memset", pointer(k, reader, VALIDITY), 0, bitmap_bytes)
        with k.when(word(k, reader, FORM) == BITS):
            k.call("memset", pointer(k, reader, OUT), 0, bitmap_bytes)
        with k.when(word(k, reader, FORM) == TEXT):
            k.store(pointer(k, reader, OUT), k.i32(0))


@routine("parquet_decode", ("ptr",), "i64")
def decode(k: Kernel, reader: Val) -> None:
    """Decode until FILLED is ROWS: the status."""
    rows = word(k, reader, ROWS)
    begin_column(k, reader, rows)
    with k.forever() as loop:
        loop.stop_if(word(k, reader, FILLED) >= rows)
        with k.when(word(k, reader, LEFT) <= 0):
            status = open_page(k, reader)
            with k.when(status != 0):
                k.ret(status)
        filled, left = word(k, reader, FILLED), word(k, reader, LEFT)
        count = k.min(k.min(rows - filled, left), k.i64(BLOCK))
        values = k.var(count)
        with k.when(word(k, reader, VALIDITY) != 0):
            values.set(bits.read_bits(k, part(k, reader, LEVEL_STREAM), count, pointer(k, reader, VALIDITY), filled))
            with k.when(values.value < 0):
                k.ret(-values.value)
            put(k, reader, NULLS, word(k, reader, NULLS) + count - values.value)
        status = decode_block(k, reader, filled, count, values.value)
        with k.when(status != 0):
            k.ret(status)
        put(k, reader, FILLED, filled + count)
        put(k, reader, LEFT, left - count)
    k.ret(k.i64(0))


@routine("parquet_block", ("ptr", "i64", "i64", "i64"), "i64")
def decode_block(k: Kernel, reader: Val, first: Val, rows: Val, values: Val) -> None:
    """Decode the values of at most BLOCK rows from row `first` on: the status."""
    form, stream, indices = word(k, reader, FORM), part(k, reader, VALUE_STREAM), pointer(k, reader, WORK) + INDICES_AT
    with k.when((word(k, reader, ENCODED) != 0) & (values > 0)):
        status = bits.read_indices(k, stream, indices, values, word(k, reader, DICTIONARY_VALUES))
        with k.when(status != 0):
            k.ret(status)
    for number in range(len(FORMS)):
        with k.when(form == number):
            if number == BITS:
                k.ret(_bits_block(k, reader, first, rows, values))
            elif number == TEXT:
                k.ret(_text_block(k, reader, first, rows, values))
            else:
                k.ret(_fixed_block(k, number, reader, first, rows, values))
    k.ret(k.i64(WRONG_RUN))


def _fixed_block(k: Kernel, form: int, reader: Val, first: Val, rows: Val, values: Val) -> Val:
    machine = FORMS[form].delivered

    @routine(f"parquet_block_{FORMS[form].stored}", ("ptr", "i64", "i64", "i64"), "i64")
    def body(k: Kernel, reader: Val, first: Val, rows: Val, values: Val) -> None:
        work, stream = pointer(k, reader, WORK), part(k, reader, VALUE_STREAM)
        indices, out = work + INDICES_AT, k.element(machine, pointer(k, reader, OUT), first)
        dense = values == rows
        target = k.var(k.select(dense, out, work + VALUES_AT))
        if form == CODES:
            with k.when(dense):
                k.call("memcpy", out, indices, rows * 4)
                k.ret(k.i64(0))
            target.set(indices)
        else:
            with k.when(word(k, reader, ENCODED) != 0):
                gather(k, machine, pointer(k, reader, DICTIONARY), indices, values, target.value)
            with k.otherwise():
                at, width = pointer(k, stream, bits.AT), word(k, reader, WIDTH)
                size = values * width
                with k.when(bytes_until(at, pointer(k, stream, bits.END)) < size):
                    k.ret(k.i64(CUT))
                if form == BIG:
                    big_numbers(k, width, at, values, target.value)
                else:
                    k.call("memcpy", target.value, at, size)
                put(k, stream, bits.AT, at + size)
            with k.when(dense):
                k.ret(k.i64(0))
        spread(k, machine, target.value, pointer(k, reader, VALIDITY), first, rows, out)
        k.ret(k.i64(0))

    return body(k, reader, first, rows, values)


@routine("parquet_block_bits", ("ptr", "i64", "i64", "i64"), "i64")
def _bits_block(k: Kernel, reader: Val, first: Val, rows: Val, values: Val) -> None:
    """Booleans; OUT is a bitmap of zeros."""
    stream, out, found = part(k, reader, VALUE_STREAM), pointer(k, reader, OUT), k.var(k.i64(0))
    with k.when(values == rows):
        found.set(bits.read_bits(k, stream, values, out, first))
    with k.otherwise():
        some = pointer(k, reader, WORK) + BITS_AT
        k.call("memset", some, 0, BLOCK // 8 + 8)
        found.set(bits.read_bits(k, stream, values, some, k.i64(0)))
        with k.when(found.value >= 0):
            spread_bits(k, some, pointer(k, reader, VALIDITY), first, rows, out)
    k.ret(k.select(found.value < 0, -found.value, k.i64(0)))


@routine("parquet_block_text", ("ptr", "i64", "i64", "i64"), "i64")
def _text_block(k: Kernel, reader: Val, first: Val, rows: Val, values: Val) -> None:
    """Strings; OUT has the offset of row `first`."""
    text, offsets, bitmap = (
        part(k, reader, TEXT_RECORD),
        k.element("i32", pointer(k, reader, OUT), first),
        pointer(k, reader, VALIDITY),
    )
    with k.when(word(k, reader, ENCODED) != 0):
        dictionary, words, indices = (
            pointer(k, reader, DICTIONARY),
            pointer(k, reader, DICTIONARY_TEXT),
            pointer(k, reader, WORK) + INDICES_AT,
        )
        k.ret(dictionary_text(k, dictionary, words, text, indices, values, rows, offsets, bitmap, first))
    k.ret(plain_text(k, part(k, reader, VALUE_STREAM), text, values, rows, offsets, bitmap, first))
