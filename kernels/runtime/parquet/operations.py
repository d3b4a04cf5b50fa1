"""The kernel of the Parquet decoder: `main(record, other, operation)`, called by `backends/io/parquet/pages.py`.

In: records of words in host memory. Out: the result of an operation, in the first word of `other`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.runtime.parquet import headers
from tsql.kernels.runtime.parquet.bits import pointer, put, word
from tsql.kernels.runtime.parquet.fetch import fetch_all, keep_all
from tsql.kernels.runtime.parquet.pick import pick
from tsql.kernels.runtime.parquet.reader import STATUS, decode
from tsql.kernels.runtime.parquet.snappy import decompress
from tsql.kernels.runtime.parquet.strings import TEXT_WORDS, not_ascii, plain_text

SCAN, DECODE, DECOMPRESS, STRINGS, NOT_ASCII, PICK, FETCH, KEEP = range(8)
"""The operations of the kernel."""


def _scan(k: Kernel, record: Val, out: Val) -> Val:
    """(chunk, its bytes, its values, pages, most pages, scratch) and a summary at `out`: the number of pages, or an
    error."""
    return headers.scan_pages(
        k,
        pointer(k, record, 0),
        word(k, record, 1),
        word(k, record, 2),
        pointer(k, record, 3),
        word(k, record, 4),
        pointer(k, record, 5),
        out,
    )


def _by_each(k: Kernel, record: Val, out: Val, read: Callable[[Kernel, Val], Val]) -> Val:
    """The addresses of readers and, at `out`, their number. Each reads its rows and has its own STATUS."""
    count = word(k, out, 0)
    with k.range(count) as number:
        reader = k.load("ptr", record, number)
        put(k, reader, STATUS, read(k, reader))
    return count


def _decompress(k: Kernel, record: Val, out: Val) -> Val:
    """(source, its bytes, target, its bytes): the status."""
    return decompress(k, pointer(k, record, 0), word(k, record, 1), pointer(k, record, 2), word(k, record, 3))


def _strings(k: Kernel, record: Val, out: Val) -> Val:
    """(stream: address and end, values, offsets) and a text record at `out`: the status. Reads a dictionary of
    strings."""
    count = word(k, record, 2)
    k.store(pointer(k, record, 3), k.i32(0))
    return plain_text(k, record, out, count, count, pointer(k, record, 3), k.null, k.i64(0))


OPERATIONS: dict[int, Callable[[Kernel, Val, Val], Val]] = {
    SCAN: _scan,
    DECODE: partial(_by_each, read=decode),
    PICK: partial(_by_each, read=pick),
    FETCH: fetch_all,
    KEEP: keep_all,
    DECOMPRESS: _decompress,
    STRINGS: _strings,
    NOT_ASCII: lambda k, record, out: not_ascii(k, pointer(k, record, 0), word(k, record, 1)),
}


@cache
def decoder_module() -> Module:
    """The kernel of the decoder: `main(record, other, operation)`. The first word of `other` becomes the result; that
    of STRINGS is the word behind the text record."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    record, other, operation = k.params
    for number, body in OPERATIONS.items():
        with k.when(operation == number):
            result = body(k, record, other)
            put(k, other, TEXT_WORDS if number == STRINGS else 0, result)
    k.ret()
    k.finish()
    return module
