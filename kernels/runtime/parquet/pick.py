"""Selected rows of a Parquet column chunk, in the kernel language: only the rows that a filter or join left are
decoded.

`pick` is `decode` for the rows of SELECTION instead of all ROWS. Pages without a wanted row are not even decompressed.
In a page of numbers or codes without NULLs, each wanted value is found by its place. In other pages blocks without a
wanted row are skipped, and other blocks are decoded whole and picked from."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.parquet import bits, headers
from tsql.kernels.runtime.parquet.bits import BLOCK, CUT, WRONG_INDEX, bytes_until, pointer, put, word
from tsql.kernels.runtime.parquet.reader import (
    BITMAP_PADDING,
    DICTIONARY,
    DICTIONARY_TEXT,
    DICTIONARY_VALUES,
    ENCODED,
    FILLED,
    FORM,
    INDICES_AT,
    LEFT,
    LEVEL_STREAM,
    NULLS,
    OUT,
    PAGE,
    PAGE_COUNT,
    PAGES,
    PICKED_AT,
    PICKED_BITS_AT,
    ROWS,
    SELECTED,
    SELECTION,
    TAKEN,
    TEXT_RECORD,
    VALIDITY,
    VALUE_STREAM,
    VALUES_AT,
    WIDTH,
    WORK,
    begin_column,
    decode_block,
    open_page,
    part,
)
from tsql.kernels.runtime.parquet.strings import ADDRESS, USED, copy, dictionary_text, next_text, text_room
from tsql.kernels.runtime.parquet.values import BITS, CODES, FORMS, LONG_WORDS, TEXT, WORDS, spread

PLACED = (WORDS, LONG_WORDS, CODES)
"""The forms whose values are found by place."""


def _wanted(k: Kernel, reader: Val, number: Val) -> Val:
    """A row number of the selection. The one after the last is greater than all rows."""
    return k.load("i32", pointer(k, reader, SELECTION), number).to("i64")


@routine("parquet_pick", ("ptr",), "i64")
def pick(k: Kernel, reader: Val) -> None:
    """Go through ROWS rows and decode those of the selection, one after the other: the status."""
    rows, selected, form = word(k, reader, ROWS), word(k, reader, SELECTED), word(k, reader, FORM)
    begin_column(k, reader, selected)
    with k.forever() as loop:
        with k.when(word(k, reader, LEFT) <= 0):
            skip_pages(k, reader)
        loop.stop_if(word(k, reader, FILLED) >= rows)
        with k.when(word(k, reader, LEFT) <= 0):
            status = open_page(k, reader)
            with k.when(status != 0):
                k.ret(status)
        filled, left = word(k, reader, FILLED), word(k, reader, LEFT)
        count, status = k.var(k.min(rows - filled, left)), k.var(k.i64(0))
        placed = (form == PLACED[0]) | (form == PLACED[1]) | (form == PLACED[2])
        with k.when(placed & (word(k, reader, VALIDITY) == 0)):
            for number in PLACED:
                with k.when(form == number):
                    status.set(_pick_placed(k, number, reader, filled, count.value))
        with k.otherwise():
            count.set(k.min(count.value, k.i64(BLOCK)))
            status.set(_pick_block(k, reader, filled, count.value))
        with k.when(status.value != 0):
            k.ret(status.value)
        put(k, reader, FILLED, filled + count.value)
        put(k, reader, LEFT, left - count.value)
    k.ret(k.i64(0))


@routine("parquet_skip_pages", ("ptr",), None)
def skip_pages(k: Kernel, reader: Val) -> None:
    """Skip the pages before the one with the next wanted row. A page that extends past the last of the ROWS is
    opened."""
    until = k.min(_wanted(k, reader, word(k, reader, TAKEN)), word(k, reader, ROWS))
    with k.forever() as loop:
        number = word(k, reader, PAGE)
        loop.stop_if(number >= word(k, reader, PAGE_COUNT))
        page = k.element("i64", pointer(k, reader, PAGES), number * headers.PAGE_WORDS)
        kind = word(k, page, headers.KIND)
        holds = (kind == headers.DATA_PAGE) | (kind == headers.DATA_PAGE_V2)
        end = word(k, reader, FILLED) + k.select(holds, word(k, page, headers.VALUES), k.i64(0))
        loop.stop_if(end > until)
        put(k, reader, FILLED, end)
        put(k, reader, PAGE, number + 1)


def _pick_placed(k: Kernel, form: int, reader: Val, first: Val, rows: Val) -> Val:
    machine = FORMS[form].delivered

    @routine(f"parquet_pick_{FORMS[form].stored}", ("ptr", "i64", "i64"), "i64")
    def body(k: Kernel, reader: Val, first: Val, rows: Val) -> None:
        """Pick the wanted rows among `rows` rows of a page without NULLs: the status."""
        stream, out, end = part(k, reader, VALUE_STREAM), pointer(k, reader, OUT), first + rows
        selection, taken = pointer(k, reader, SELECTION), k.var(word(k, reader, TAKEN))
        with k.when(word(k, reader, ENCODED) == 0):
            at, width = pointer(k, stream, bits.AT), word(k, reader, WIDTH)
            size = rows * width
            with k.when(bytes_until(at, pointer(k, stream, bits.END)) < size):
                k.ret(k.i64(CUT))
            with k.forever() as loop:
                row = k.load("i32", selection, taken.value).to("i64")
                loop.stop_if(row >= end)
                k.store(out, k.load(machine, at, row - first), taken.value)
                taken.set(taken.value + 1)
            put(k, stream, bits.AT, at + size)
            put(k, reader, TAKEN, taken.value)
            k.ret(k.i64(0))
        dictionary, limit, width = (
            pointer(k, reader, DICTIONARY),
            word(k, reader, DICTIONARY_VALUES),
            word(k, stream, bits.WIDTH),
        )
        mask, wrong, base = (k.i64(1) << width) - 1, k.var(k.false), k.var(first)

        def give(index: Val) -> None:
            wrong.set(wrong.value | index.uge(limit))
            if form == CODES:
                k.store(out, index.to("i32"), taken.value)
            else:
                k.store(out, k.load(machine, dictionary, k.select(index.ult(limit), index, k.i64(0))), taken.value)
            taken.set(taken.value + 1)

        with k.forever() as runs:
            here = base.value
            runs.stop_if(here >= end)
            with k.when(word(k, stream, bits.LEFT) <= 0):
                status = bits.next_run(k, stream)
                with k.when(status != 0):
                    k.ret(status)
            left, packed, value = (
                word(k, stream, bits.LEFT),
                pointer(k, stream, bits.PACKED),
                word(k, stream, bits.VALUE),
            )
            count = k.min(end - here, left)
            with k.when(packed == k.null):
                with k.forever() as loop:
                    loop.stop_if(k.load("i32", selection, taken.value).to("i64") >= here + count)
                    give(value)
            with k.otherwise():
                with k.forever() as loop:
                    row = k.load("i32", selection, taken.value).to("i64")
                    loop.stop_if(row >= here + count)
                    at = (value + row - here) * width
                    give(k.load("i64", packed + at.ushr(3)).ushr(at & 7) & mask)
                put(k, stream, bits.VALUE, value + count)
            put(k, stream, bits.LEFT, left - count)
            base.set(here + count)
        put(k, reader, TAKEN, taken.value)
        k.ret(k.select(wrong.value, k.i64(WRONG_INDEX), k.i64(0)))

    return body(k, reader, first, rows)


@routine("parquet_pick_block", ("ptr", "i64", "i64"), "i64")
def _pick_block(k: Kernel, reader: Val, first: Val, rows: Val) -> None:
    """Pick the wanted rows among at most BLOCK rows: the status."""
    bitmap, values = pointer(k, reader, WORK) + PICKED_BITS_AT, k.var(rows)
    nullable = word(k, reader, VALIDITY) != 0
    with k.when(nullable):
        k.call("memset", bitmap, 0, BLOCK // 8 + BITMAP_PADDING)
        values.set(bits.read_bits(k, part(k, reader, LEVEL_STREAM), rows, bitmap, k.i64(0)))
        with k.when(values.value < 0):
            k.ret(-values.value)
    with k.when(_wanted(k, reader, word(k, reader, TAKEN)) >= first + rows):
        k.ret(_skip_values(k, reader, values.value))
    form = word(k, reader, FORM)
    with k.when(form == TEXT):
        with k.when(word(k, reader, ENCODED) != 0):
            k.ret(_pick_dictionary(k, reader, first, rows, values.value))
        k.ret(_pick_text(k, reader, first, rows))
    # The block is decoded whole, outside the output.
    out, validity, some = word(k, reader, OUT), word(k, reader, VALIDITY), pointer(k, reader, WORK) + PICKED_AT
    with k.when(form == BITS):
        k.call("memset", some, 0, BLOCK // 8 + BITMAP_PADDING)
    put(k, reader, OUT, some)
    with k.when(nullable):
        put(k, reader, VALIDITY, bitmap)
    status = decode_block(k, reader, k.i64(0), rows, values.value)
    put(k, reader, OUT, out)
    put(k, reader, VALIDITY, validity)
    with k.when(status != 0):
        k.ret(status)
    for number, given in enumerate(FORMS):
        if number != TEXT:
            with k.when(form == number):
                with _each_wanted(k, reader, first, rows) as (place, row):
                    if number == BITS:
                        with k.when(k.load_bit(some, row)):
                            _set_bit(k, pointer(k, reader, OUT), place)
                    else:
                        k.store(pointer(k, reader, OUT), k.load(given.delivered, some, row), place)
                    with k.when(nullable):
                        _place_validity(k, reader, bitmap, row, place)
    k.ret(k.i64(0))


class _each_wanted:
    """The wanted rows of a block: (their places in the output, their numbers in the block). TAKEN advances."""

    def __init__(self, k: Kernel, reader: Val, first: Val, rows: Val):
        self.k, self.reader, self.first, self.end = k, reader, first, first + rows
        self.taken = k.var(word(k, reader, TAKEN))

    def __enter__(self) -> tuple[Val, Val]:
        self.loop = self.k.forever()
        stop = self.loop.__enter__()
        place = self.taken.value
        row = _wanted(self.k, self.reader, place)
        stop.stop_if(row >= self.end)
        return place, row - self.first

    def __exit__(self, *error: object) -> None:
        self.taken.set(self.taken.value + 1)
        self.loop.__exit__(*error)
        put(self.k, self.reader, TAKEN, self.taken.value)


def _set_bit(k: Kernel, bitmap: Val, at: Val) -> None:
    place = bitmap + at.ushr(3)
    k.store(place, k.load("i8", place) | (k.i8(1) << (at & 7).to("i8")))


def _place_validity(k: Kernel, reader: Val, bitmap: Val, row: Val, place: Val) -> None:
    """Copy the validity bit of a row in the block to its row in the output."""
    with k.when(k.load_bit(bitmap, row)):
        _set_bit(k, pointer(k, reader, VALIDITY), place)
    with k.otherwise():
        put(k, reader, NULLS, word(k, reader, NULLS) + 1)


@routine("parquet_pick_dictionary", ("ptr", "i64", "i64", "i64"), "i64")
def _pick_dictionary(k: Kernel, reader: Val, first: Val, rows: Val, values: Val) -> None:
    """Strings of a dictionary: the status. All indices of the block are read, but only the strings of the wanted
    ones."""
    work, dictionary = pointer(k, reader, WORK), pointer(k, reader, DICTIONARY)
    indices, chosen, bitmap = work + INDICES_AT, work + VALUES_AT, work + PICKED_BITS_AT
    nullable, of_row, start = word(k, reader, VALIDITY) != 0, k.var(indices), word(k, reader, TAKEN)
    with k.when(values > 0):
        status = bits.read_indices(
            k, part(k, reader, VALUE_STREAM), indices, values, word(k, reader, DICTIONARY_VALUES)
        )
        with k.when(status != 0):
            k.ret(status)
    with k.when(nullable):
        spread(k, "i32", indices, bitmap, k.i64(0), rows, work + PICKED_AT)
        of_row.set(work + PICKED_AT)
    count = k.var(k.i64(0))
    with _each_wanted(k, reader, first, rows) as (place, row):
        k.store(chosen, k.load("i32", of_row.value, row), count.value)
        with k.when(nullable):
            _place_validity(k, reader, bitmap, row, place)
            count.set(count.value + k.load_bit(bitmap, row).uto("i64"))
        with k.otherwise():
            count.set(count.value + 1)
    offsets = k.element("i32", pointer(k, reader, OUT), start)
    text, taken = part(k, reader, TEXT_RECORD), word(k, reader, TAKEN) - start
    k.ret(
        dictionary_text(
            k,
            dictionary,
            pointer(k, reader, DICTIONARY_TEXT),
            text,
            chosen,
            count.value,
            taken,
            offsets,
            pointer(k, reader, VALIDITY),
            start,
        )
    )


@routine("parquet_pick_text", ("ptr", "i64", "i64"), "i64")
def _pick_text(k: Kernel, reader: Val, first: Val, rows: Val) -> None:
    """Plain strings: the status. All lengths are read; only the bytes of wanted strings are copied."""
    stream, text, bitmap = (
        part(k, reader, VALUE_STREAM),
        part(k, reader, TEXT_RECORD),
        pointer(k, reader, WORK) + PICKED_BITS_AT,
    )
    at, end, nullable, taken = (
        k.var(pointer(k, stream, bits.AT)),
        pointer(k, stream, bits.END),
        word(k, reader, VALIDITY) != 0,
        k.var(word(k, reader, TAKEN)),
    )
    with k.range(rows) as row:
        wanted, valid, size = _wanted(k, reader, taken.value) == first + row, k.var(k.true), k.var(k.i64(0))
        with k.when(nullable):
            valid.set(k.load_bit(bitmap, row))
        with k.when(valid.value):
            size.set(next_text(k, at.value, end))
            with k.when(wanted):
                status = text_room(k, text, size.value)
                with k.when(status != 0):
                    k.ret(status)
                copy(k, pointer(k, text, ADDRESS) + word(k, text, USED), at.value + 4, size.value)
                put(k, text, USED, word(k, text, USED) + size.value)
            at.set(at.value + size.value + 4)
        with k.when(wanted):
            k.store(pointer(k, reader, OUT), word(k, text, USED).to("i32"), taken.value + 1)
            with k.when(nullable):
                _place_validity(k, reader, bitmap, row, taken.value)
            taken.set(taken.value + 1)
    put(k, stream, bits.AT, at.value)
    put(k, reader, TAKEN, taken.value)
    k.ret(k.i64(0))


@routine("parquet_skip_values", ("ptr", "i64"), "i64")
def _skip_values(k: Kernel, reader: Val, values: Val) -> None:
    """Skip `values` values of the open page: the status."""
    stream, form, left = part(k, reader, VALUE_STREAM), word(k, reader, FORM), k.var(values)
    with k.when((word(k, reader, ENCODED) != 0) | (form == BITS)):
        with k.forever() as loop:
            loop.stop_if(left.value <= 0)
            with k.when(word(k, stream, bits.LEFT) <= 0):
                status = bits.next_run(k, stream)
                with k.when(status != 0):
                    k.ret(status)
            count = k.min(left.value, word(k, stream, bits.LEFT))
            put(k, stream, bits.LEFT, word(k, stream, bits.LEFT) - count)
            with k.when(pointer(k, stream, bits.PACKED) != k.null):
                put(k, stream, bits.VALUE, word(k, stream, bits.VALUE) + count)
            left.set(left.value - count)
        k.ret(k.i64(0))
    at, end = k.var(pointer(k, stream, bits.AT)), pointer(k, stream, bits.END)
    with k.when(form == TEXT):
        with k.range(values):
            at.set(at.value + next_text(k, at.value, end) + 4)
    with k.otherwise():
        size = values * word(k, reader, WIDTH)
        with k.when(bytes_until(at.value, end) < size):
            k.ret(k.i64(CUT))
        at.set(at.value + size)
    put(k, stream, bits.AT, at.value)
    k.ret(k.i64(0))
