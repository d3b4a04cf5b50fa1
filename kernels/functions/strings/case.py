"""lower and upper: ASCII bytes at once, everything else by a table of Unicode's simple case mappings."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built
from tsql.kernels.runtime.text.utf8 import code_width, new_record, utf8_decode, utf8_encode, utf8_is_ascii

PAGE = 128
PAGES = 0x1EA00 // PAGE
"""Cased letters end at U+1E943; code points past the table map to themselves."""

SPECIAL = {"lower": {0x130: 0x69}, "upper": {0xDF: 0x1E9E}}
"""İ and ß: Python knows only their mappings to two characters."""


def simple_case(kind: str, character: str) -> str:
    """The one character that a character becomes; itself where Unicode maps it to several and to no single one."""
    special = SPECIAL[kind].get(ord(character))
    if special is not None:
        return chr(special)
    mapped = character.lower() if kind == "lower" else character.upper()
    if len(mapped) != 1:
        mapped = character.title()
    return mapped if len(mapped) == 1 else character


def simple_lower(text: str) -> str:
    """What lower() makes of a constant."""
    return text.lower() if text.isascii() else "".join(simple_case("lower", c) for c in text)


@cache
def case_table(kind: str) -> bytes:
    """The mapping of each code point: PAGES 16-bit page numbers, then pages of PAGE 32-bit code points. Page 0 is
    ASCII; a page number of -1 stands for a page that maps to itself."""
    numbers, pages = array("h", [-1] * PAGES), array("i")
    convert: Callable[[str], str] = str.lower if kind == "lower" else str.upper
    for number in range(PAGES):
        codes = range(number * PAGE, (number + 1) * PAGE)
        text = array("I", codes).tobytes().decode("utf-32-le", "surrogatepass")
        if convert(text) != text:
            numbers[number] = len(pages) // PAGE
            pages.extend(ord(simple_case(kind, c)) for c in text)
    return numbers.tobytes() + pages.tobytes()


@routine("case_code", ("ptr", "i64"), "i64")
def case_code(k: Kernel, table: Val, code: Val) -> None:
    """The mapping of a code point by a `case_table`."""
    with k.when(code >= PAGES * PAGE):
        k.ret(code)
    page = k.load("i16", table, code.ushr(7)).to("i64")
    with k.when(page < 0):
        k.ret(code)
    k.ret(k.load("i32", k.offset(table, PAGES * 2), page * PAGE + (code & (PAGE - 1))).to("i64"))


@routine("str_case", ("ptr", "ptr", "ptr", "i64", "i8"), "ptr")
def str_case(k: Kernel, ctx: Val, table: Val, p: Val, n: Val, first: Val) -> None:
    """A new string in another case. `first` is the first of the 26 ASCII letters that change."""
    with k.when(utf8_is_ascii(k, p, n)):
        record, text = new_record(k, ctx, n)
        with k.range(n) as i:
            byte = k.load("i8", p, i)
            k.store(text, byte ^ k.select((byte - first).ult(26), k.i8(0x20), k.i8(0)), i)
        k.store(record, n)
        k.ret(record)
    # A character of two bytes may become one of three; none grows by more than half.
    record, text = new_record(k, ctx, n * 2 + 4)
    at, out = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        here = p + at.value
        code = case_code(k, table, utf8_decode(k, here))
        out.set(out.value + utf8_encode(k, text + out.value, code))
        at.set(at.value + code_width(k.load("i8", here)))
    k.store(record, out.value)
    k.ret(record)


def in_case(k: PipelineKernel, kind: str, s: Datum) -> Text:
    """The string in lower or upper case."""
    return built(k, str_case, k.static(case_table(kind)), s.ptr, s.len, k.i8(ord("A") if kind == "lower" else ord("a")))


@function(
    "lower",
    "lcase",
    args=(VARCHAR,),
    returns=VARCHAR,
    lazy=True,
    examples=(("lower('Hello ÄÖ')", "hello äö"), ("lower('İ')", "i"), ("lower(NULL)", None)),
)
def lower(k: PipelineKernel, s: Datum) -> Text:
    """In lower case, character by character."""
    return in_case(k, "lower", s)


@function(
    "upper",
    "ucase",
    args=(VARCHAR,),
    returns=VARCHAR,
    lazy=True,
    examples=(("upper('Hello äö')", "HELLO ÄÖ"), ("upper('ß')", "ẞ")),
)
def upper(k: PipelineKernel, s: Datum) -> Text:
    """In upper case, character by character."""
    return in_case(k, "upper", s)
