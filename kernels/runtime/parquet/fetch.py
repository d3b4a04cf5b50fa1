"""Readers that open their chunk themselves and reuse their memory for the next, in the kernel language.

`backends/io/parquet/lanes.py` has one per column of a scan and worker, and fetches a batch of several columns in one
call: page headers, the dictionary, the values of all or of the selected rows. Rare and damaged input is not
distinguished here: the status is not 0, and the host reads the column with a `ChunkReader`, which reports the error."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.parquet import headers
from tsql.kernels.runtime.parquet.bits import NO_MEMORY, PADDING, WRONG_RUN, WRONG_SIZE, pointer, put, word
from tsql.kernels.runtime.parquet.pick import pick
from tsql.kernels.runtime.parquet.reader import (
    BITMAP,
    BITMAP_PADDING,
    BITMAP_ROOM,
    CHECKS_TEXT,
    CHUNK,
    CHUNK_BYTES,
    CHUNK_VALUES,
    CODEC,
    DICTIONARY,
    DICTIONARY_TEXT,
    DICTIONARY_VALUES,
    FILLED,
    FORM,
    HEADERS,
    LEFT,
    NULLABLE,
    NULLS,
    ODD_TEXT,
    OFFSETS,
    OFFSETS_ROOM,
    OPENED,
    OUT,
    OUT_ROOM,
    PAGE,
    PAGE_BYTES,
    PAGE_COUNT,
    PAGE_ROOM,
    PAGES,
    PAGES_ROOM,
    PLAIN,
    PLAIN_BYTES,
    PLAIN_DICTIONARY,
    PLAIN_PAGES,
    RLE,
    RLE_DICTIONARY,
    ROWS,
    SCRATCH,
    SCRATCH_ROOM,
    SELECTED,
    SELECTION,
    STATUS,
    STRINGS_RECORD,
    SUMMARY,
    TAKEN,
    TEXT_RECORD,
    VALIDITY,
    WANTS_CODES,
    WIDTH,
    decode,
    part,
)
from tsql.kernels.runtime.parquet.snappy import decompress
from tsql.kernels.runtime.parquet.strings import ADDRESS, USED, not_ascii, plain_text
from tsql.kernels.runtime.parquet.values import BIG, BITS, CODES, FORMS, TEXT

MORE_PAGES = 8
DENSE_SHARE = (2, 5)
"""If more than this part of the rows is selected, all are decoded and the others dropped."""

_DICTIONARY_BITS = 1 << PLAIN_DICTIONARY | 1 << RLE_DICTIONARY
_VALUE_BITS, _BOOLEAN_BITS = 1 << PLAIN | _DICTIONARY_BITS, 1 << PLAIN | 1 << RLE


@routine("parquet_grow", ("ptr", "i64", "i64", "i64"), "i64")
def _grow(k: Kernel, reader: Val, address: Val, room: Val, size: Val) -> None:
    """Make sure that the buffer whose address and room are in two words of the reader has this many bytes, and padding:
    the status."""
    with k.when(k.load("i64", reader, room) < size):
        wanted = size + size.ushr(2) + PADDING
        k.call("free", k.load("ptr", reader, address))
        grown = k.call("malloc", wanted + PADDING)
        k.store(reader, grown, address)
        k.store(reader, k.select(grown == k.null, k.i64(0), wanted), room)
        with k.when(grown == k.null):
            k.ret(k.i64(NO_MEMORY))
    k.ret(k.i64(0))


def _has(k: Kernel, reader: Val, address: int, room: int, size: Val) -> None:
    """Ensure room, or return the status."""
    status = _grow(k, reader, k.i64(address), k.i64(room), size)
    with k.when(status != 0):
        k.ret(status)


def _refuse(k: Kernel, odd: Val) -> None:
    with k.when(odd):
        k.ret(k.i64(WRONG_SIZE))


@routine("parquet_open_chunk", ("ptr",), "i64")
def open_chunk(k: Kernel, reader: Val) -> None:
    """List the pages, check their headers, and read the dictionary: the status."""
    summary, form = pointer(k, reader, SUMMARY), word(k, reader, FORM)
    for number in (PAGE, LEFT, DICTIONARY, DICTIONARY_VALUES, DICTIONARY_TEXT, ODD_TEXT):
        put(k, reader, number, 0)
    found = k.var(k.i64(headers.TOO_MANY_PAGES))
    with k.forever() as loop:
        limit = word(k, reader, PAGES_ROOM).udiv(k.i64(8 * headers.PAGE_WORDS))
        found.set(
            headers.scan_pages(
                k,
                pointer(k, reader, CHUNK),
                word(k, reader, CHUNK_BYTES),
                word(k, reader, CHUNK_VALUES),
                pointer(k, reader, PAGES),
                limit,
                pointer(k, reader, HEADERS),
                summary,
            )
        )
        loop.stop_if(found.value != headers.TOO_MANY_PAGES)
        _has(k, reader, PAGES, PAGES_ROOM, (limit + 8) * (MORE_PAGES * headers.PAGE_WORDS * 8))
    put(k, reader, PAGE_COUNT, found.value)
    values, largest = word(k, summary, headers.TOTAL_VALUES), word(k, summary, headers.LARGEST)
    kinds, encodings, levels = (
        word(k, summary, n) for n in (headers.KINDS, headers.ENCODINGS, headers.LEVEL_ENCODINGS)
    )
    _refuse(k, (found.value < 0) | (values != word(k, reader, CHUNK_VALUES)) | (largest > word(k, reader, PLAIN_BYTES)))
    _refuse(k, (word(k, summary, headers.CHECKSUMS) != 0) | ((kinds.ushr(headers.LATE_DICTIONARY) & 1) != 0))
    known = k.select(form == BITS, k.i64(~_BOOLEAN_BITS), k.i64(~_VALUE_BITS))
    _refuse(k, ((encodings & known) != 0) | ((word(k, reader, NULLABLE) != 0) & ((levels & ~(1 << RLE)) != 0)))
    with k.when(word(k, reader, CODEC) != PLAIN_PAGES):
        _has(k, reader, SCRATCH, SCRATCH_ROOM, largest)
    with k.when((kinds.ushr(headers.DICTIONARY_PAGE) & 1) != 0):
        status = _open_dictionary(k, reader)
        with k.when(status != 0):
            k.ret(status)
        with k.when((form == TEXT) & (word(k, reader, WANTS_CODES) != 0) & ((encodings & ~_DICTIONARY_BITS) == 0)):
            put(k, reader, FORM, CODES)
    put(k, reader, OPENED, 1)
    k.ret(k.i64(0))


@routine("parquet_open_dictionary", ("ptr",), "i64")
def _open_dictionary(k: Kernel, reader: Val) -> None:
    page, form = pointer(k, reader, PAGES), word(k, reader, FORM)
    size, count, encoding = word(k, page, headers.BYTES), word(k, page, headers.VALUES), word(k, page, headers.ENCODING)
    raw, stored = pointer(k, reader, CHUNK) + word(k, page, headers.START), word(k, page, headers.STORED_BYTES)
    _refuse(
        k,
        (form == BITS)
        | (form == BIG)
        | ((encoding != PLAIN) & (encoding != PLAIN_DICTIONARY))
        | (count * word(k, reader, WIDTH) > size),
    )
    data = k.var(raw)
    with k.when(word(k, reader, CODEC) == PLAIN_PAGES):
        _refuse(k, size != stored)
    with k.otherwise():
        _has(k, reader, PAGE_BYTES, PAGE_ROOM, size)
        data.set(pointer(k, reader, PAGE_BYTES))
        status = decompress(k, raw, stored, data.value, size)
        with k.when(status != 0):
            k.ret(status)
    put(k, reader, DICTIONARY_VALUES, count)
    with k.when(form != TEXT):
        put(k, reader, DICTIONARY, data.value)
        k.ret(k.i64(0))
    _has(k, reader, OFFSETS, OFFSETS_ROOM, count * 4 + 4)
    # A stream is its address and its end: two words of the headers' scratch suffice.
    stream, text, offsets = pointer(k, reader, HEADERS), part(k, reader, STRINGS_RECORD), pointer(k, reader, OFFSETS)
    put(k, stream, 0, data.value)
    put(k, stream, 1, data.value + size)
    put(k, text, USED, 0)
    k.store(offsets, k.i32(0))
    status = plain_text(k, stream, text, count, count, offsets, k.null, k.i64(0))
    put(k, reader, DICTIONARY, offsets)
    put(k, reader, DICTIONARY_TEXT, pointer(k, text, ADDRESS))
    with k.when((status == 0) & (word(k, reader, CHECKS_TEXT) != 0)):
        put(k, reader, ODD_TEXT, not_ascii(k, pointer(k, text, ADDRESS), word(k, text, USED)))
    k.ret(status)


@routine("parquet_fetch", ("ptr",), "i64")
def fetch(k: Kernel, reader: Val) -> None:
    """Read the next ROWS rows, or the selected ones of them, into memory of the reader: the status."""
    with k.when(word(k, reader, OPENED) == 0):
        status = open_chunk(k, reader)
        with k.when(status != 0):
            k.ret(status)
    rows, form, text = word(k, reader, ROWS), word(k, reader, FORM), part(k, reader, TEXT_RECORD)
    bitmap = rows.ushr(3) + BITMAP_PADDING
    _has(k, reader, OUT, OUT_ROOM, k.select(form == BITS, bitmap, rows * 8 + 8))
    put(k, reader, VALIDITY, 0)
    with k.when(word(k, reader, NULLABLE) != 0):
        _has(k, reader, BITMAP, BITMAP_ROOM, bitmap)
        put(k, reader, VALIDITY, pointer(k, reader, BITMAP))
    for number in (FILLED, NULLS, TAKEN):
        put(k, reader, number, 0)
    put(k, text, USED, 0)
    selected, status = word(k, reader, SELECTED), k.var(k.i64(0))
    share, whole = DENSE_SHARE
    few = (word(k, reader, SELECTION) != 0) & (selected * whole <= rows * share)
    with k.when(few):
        status.set(pick(k, reader))
    with k.otherwise():
        status.set(decode(k, reader))
        with k.when((status.value == 0) & (word(k, reader, SELECTION) != 0)):
            status.set(keep(k, reader))
    with k.when((status.value == 0) & (form == TEXT) & (word(k, reader, CHECKS_TEXT) != 0)):
        put(
            k,
            reader,
            ODD_TEXT,
            word(k, reader, ODD_TEXT) | not_ascii(k, pointer(k, text, ADDRESS), word(k, text, USED)),
        )
    k.ret(status.value)


@routine("parquet_keep", ("ptr",), "i64")
def keep(k: Kernel, reader: Val) -> None:
    """Keep only the SELECTED rows of those that were read, in place: a row moves to the front or stays. The status."""
    form, out, selection, count = (
        word(k, reader, FORM),
        pointer(k, reader, OUT),
        pointer(k, reader, SELECTION),
        word(k, reader, SELECTED),
    )
    with k.when(word(k, reader, VALIDITY) != 0):
        _keep_bits(k, pointer(k, reader, VALIDITY), selection, count)
    for number, given in enumerate(FORMS):
        with k.when(form == number):
            if number == BITS:
                _keep_bits(k, out, selection, count)
            elif number == TEXT:
                _keep_text(k, out, part(k, reader, TEXT_RECORD), selection, count)
            else:
                with k.range(count) as i:
                    k.store(out, k.load(given.delivered, out, k.load("i32", selection, i).to("i64")), i)
            k.ret(k.i64(0))
    k.ret(k.i64(WRONG_RUN))


@routine("parquet_keep_bits", ("ptr", "ptr", "i64"), None)
def _keep_bits(k: Kernel, bitmap: Val, selection: Val, count: Val) -> None:
    with k.range(count) as i:
        hit, place = k.load_bit(bitmap, k.load("i32", selection, i).to("i64")), bitmap + i.ushr(3)
        bit = k.i8(1) << (i & 7).to("i8")
        byte = k.load("i8", place)
        k.store(place, k.select(hit, byte | bit, byte & ~bit))


@routine("parquet_keep_text", ("ptr", "ptr", "ptr", "i64"), None)
def _keep_text(k: Kernel, offsets: Val, text: Val, selection: Val, count: Val) -> None:
    """If the next wanted row has not moved, no row before it has, and the offset written is the one that was there."""
    base, used = pointer(k, text, ADDRESS), k.var(k.i64(0))
    with k.range(count) as i:
        row = k.load("i32", selection, i).to("i64")
        start, end = k.load("i32", offsets, row).to("i64"), k.load("i32", offsets, row + 1).to("i64")
        k.call("memmove", base + used.value, base + start, end - start)
        used.set(used.value + (end - start))
        k.store(offsets, used.value.to("i32"), i + 1)
    put(k, text, USED, used.value)


def fetch_all(k: Kernel, record: Val, out: Val) -> Val:
    """(rows, selection or 0, selected, number of readers, readers ..): 0, or nonzero if a reader has a STATUS."""
    rows, selection, selected, wrong = word(k, record, 0), word(k, record, 1), word(k, record, 2), k.var(k.i64(0))
    with k.range(word(k, record, 3)) as number:
        reader = k.load("ptr", record, number + 4)
        for place, value in ((ROWS, rows), (SELECTION, selection), (SELECTED, selected)):
            put(k, reader, place, value)
        status = fetch(k, reader)
        put(k, reader, STATUS, status)
        wrong.set(wrong.value | status | word(k, reader, ODD_TEXT))
    return wrong.value


def keep_all(k: Kernel, record: Val, out: Val) -> Val:
    """As `fetch_all`, for rows that were already read."""
    with k.range(word(k, record, 3)) as number:
        reader = k.load("ptr", record, number + 4)
        put(k, reader, SELECTION, word(k, record, 1))
        put(k, reader, SELECTED, word(k, record, 2))
        put(k, reader, STATUS, keep(k, reader))
    return k.i64(0)
