"""String functions that measure, cut, join and pad: length, substr, left, right, trim, concat, lpad, repeat, reverse,
chr.

Characters are code points, as in DuckDB, except where a function says bytes. Parts of strings are not copied; new
strings are built in scratch memory by the routines below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, BLOB, INTEGER, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.runtime.text.format import put_integer
from tsql.kernels.runtime.text.utf8 import (
    code_width,
    counted,
    new_record,
    sliced,
    utf8_decode,
    utf8_encode,
    utf8_length,
    utf8_skip,
    utf8_substring,
    utf8_trim,
)

LONGEST = 2**31 - 1
"""Bytes of the longest string: an Arrow string column has 32-bit offsets."""

Text = tuple[Val, Val]


def built(k: PipelineKernel, make: Callable[..., Val], *args: Any) -> Text:
    """The string that a routine makes in scratch memory; `make(k, ctx, *args)` returns its record."""
    k.uses_scratch = True
    return counted(k, make(k, k.ctx, *args))


def fail_with(k: PipelineKernel, cond: Val, message: str, number: Val) -> None:
    """Fail with a number as the {detail} of the message."""
    with k.when(cond):
        digits = k.scratch(24)
        end = put_integer(k, digits, number)
        k.fail(k.true, message, (digits, end.bits_as("i64") - digits.bits_as("i64")))


def check_size(k: PipelineKernel, bytes: Val) -> Val:
    """Fail for a result that is too long; returns a size that is safe to go on with."""
    too_long = bytes > LONGEST
    fail_with(
        k,
        too_long,
        f"Cannot create a string of size: '{{detail}}', the maximum supported string size is: '{LONGEST}'",
        bytes,
    )
    return k.select(too_long, k.i64(0), bytes)


@function(
    "length", "len", "char_length", "character_length", args=(VARCHAR,), returns=BIGINT, lazy=True,
    examples=(("length('Hello🦆')", 6), ("length('')", 0), ("length(NULL)", None)),
)  # fmt: skip
def length(k: PipelineKernel, s: Datum) -> Val:
    """The number of code points."""
    return utf8_length(k, s.ptr, s.len)


@function("strlen", args=(VARCHAR,), returns=BIGINT, examples=(("strlen('🦆')", 4),))
def strlen(k: PipelineKernel, s: Datum) -> Val:
    """The number of bytes."""
    return s.len


@function("octet_length", args=(BLOB,), returns=BIGINT, examples=((r"octet_length('\xAA\xBB'::BLOB)", 2),))
def octet_length(k: PipelineKernel, s: Datum) -> Val:
    """The number of bytes of a BLOB."""
    return s.len


@function("bit_length", args=(VARCHAR,), returns=BIGINT, examples=(("bit_length('abc')", 24), ("bit_length('é')", 16)))
def bit_length(k: PipelineKernel, s: Datum) -> Val:
    return s.len * 8


def first_code(k: PipelineKernel, s: Datum, empty: int) -> Val:
    (code,) = k.choose(s.len > 0, lambda: (utf8_decode(k, s.ptr),), lambda: (k.i64(empty),), ("i64",))
    return code.to("i32")


@function("ascii", args=(VARCHAR,), returns=INTEGER, lazy=True, examples=(("ascii('Ω')", 937), ("ascii('')", 0)))
def ascii(k: PipelineKernel, s: Datum) -> Val:
    """The first code point, or 0."""
    return first_code(k, s, 0)


@function(
    "unicode", "ord", args=(VARCHAR,), returns=INTEGER, lazy=True, examples=(("unicode('ü')", 252), ("ord('')", -1))
)
def unicode(k: PipelineKernel, s: Datum) -> Val:
    """The first code point, or -1."""
    return first_code(k, s, -1)


@function(
    "chr",
    args=(INTEGER,),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("chr(65)", "A"), ("chr(128512)", "😀"), ("strlen(chr(0))", 1)),
)
def chr_(k: PipelineKernel, code: Datum) -> Text:
    """The character of a code point."""
    value = code.value.to("i64")
    bad = (value < 0) | (value > 0x10FFFF) | ((value >= 0xD800) & (value <= 0xDFFF))
    fail_with(k, bad, "Invalid UTF8 Codepoint {detail}", value)
    place = k.scratch(8)
    return place, utf8_encode(k, place, k.select(bad, k.i64(0), value))


UINT32 = 2**32 - 1


def check_range(k: PipelineKernel, value: Val, what: str) -> None:
    k.fail(value > UINT32, f"Substring {what} outside of supported range (> {UINT32})")
    k.fail(value < -(2**32), f"Substring {what} outside of supported range (< {-(2**32)})")


@function(
    "substr", "substring", args=(VARCHAR, BIGINT, BIGINT), returns=VARCHAR, lazy=True, can_fail=True,
    examples=(("substr('Hello', 2, 3)", "ell"), ("substr('Hello', -4, 2)", "el"), ("substr('Hello', 0, 2)", "H"),
              ("substr('Hello', 4, -2)", "el"), ("substring('🦆ab', 2, 1)", "a")),
)  # fmt: skip
def substring(k: PipelineKernel, s: Datum, offset: Datum, length: Datum) -> Text:
    """`length` characters from the 1-based `offset` on; a negative offset counts from the end, a negative length goes
    left."""
    check_range(k, offset.value, "offset")
    check_range(k, length.value, "length")
    return sliced(k, s.ptr, utf8_substring(k, s.ptr, s.len, offset.value, length.value))


@function(
    "substr",
    "substring",
    args=(VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("substr('Hello', 3)", "llo"), ("substr('Hello', -2)", "lo"), ("substr('Hello', 0)", "Hello")),
)
def substring_from(k: PipelineKernel, s: Datum, offset: Datum) -> Text:
    """Everything from the 1-based `offset` on."""
    check_range(k, offset.value, "offset")
    return sliced(k, s.ptr, utf8_substring(k, s.ptr, s.len, offset.value, k.i64(UINT32)))


@routine("utf8_left", ("ptr", "i64", "i64"), "i64")
def utf8_left(k: Kernel, p: Val, n: Val, count: Val) -> None:
    """The bytes of the first `count` characters, or of all but the last -count."""
    with k.when(count >= 0):
        k.ret(utf8_skip(k, p, n, count))
    k.ret(utf8_skip(k, p, n, utf8_length(k, p, n) + count))


@routine("utf8_right", ("ptr", "i64", "i64"), "i64")
def utf8_right(k: Kernel, p: Val, n: Val, count: Val) -> None:
    """The bytes before the last `count` characters, or of the first -count."""
    with k.when(count < 0):
        # The negation of the lowest number is itself: everything is cut off.
        k.ret(k.select(-count < 0, n, utf8_skip(k, p, n, -count)))
    k.ret(utf8_skip(k, p, n, utf8_length(k, p, n) - count))


@function(
    "left",
    args=(VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("left('hello', 2)", "he"), ("left('hello', -2)", "hel"), ("left('🦆a', 1)", "🦆")),
)
def left(k: PipelineKernel, s: Datum, count: Datum) -> Text:
    """The first `count` characters; all but the last -count if negative."""
    k.fail(count.value > UINT32, f"Substring length outside of supported range (> {UINT32})")
    return s.ptr, utf8_left(k, s.ptr, s.len, count.value)


@function(
    "right",
    args=(VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    examples=(("right('hello', 2)", "lo"), ("right('hello', -2)", "llo"), ("right('hello', 0)", "")),
)
def right(k: PipelineKernel, s: Datum, count: Datum) -> Text:
    """The last `count` characters; all but the first -count if negative."""
    start = utf8_right(k, s.ptr, s.len, count.value)
    return s.ptr + start, s.len - start


def _register_trim(name: str, sides: tuple[bool, bool], examples: tuple[tuple[str, str], ...]) -> None:
    @function(name, args=(VARCHAR,), returns=VARCHAR, lazy=True, examples=examples[:1])
    def trim(k: PipelineKernel, s: Datum) -> Text:
        """Without spaces (every Unicode space, but no tabs or line ends) at the ends."""
        return sliced(k, s.ptr, utf8_trim(k, s.ptr, s.len, k.null, k.i64(0), k.bool(sides[0]), k.bool(sides[1])))

    @function(name, args=(VARCHAR, VARCHAR), returns=VARCHAR, lazy=True, examples=examples[1:])
    def trim_characters(k: PipelineKernel, s: Datum, characters: Datum) -> Text:
        """Without any of `characters` at the ends."""
        # An empty set may come with a null pointer, which means spaces to the routine.
        pointer = k.select(characters.len == 0, s.ptr, characters.ptr)
        return sliced(k, s.ptr, utf8_trim(k, s.ptr, s.len, pointer, characters.len, k.bool(sides[0]), k.bool(sides[1])))


_register_trim("trim", (True, True), (("trim('  test ')", "test"), ("trim('>>>>test<<', '><')", "test")))
_register_trim("ltrim", (True, False), (("ltrim('  test ')", "test "), ("ltrim('>>>>test<<', '><')", "test<<")))
_register_trim("rtrim", (False, True), (("rtrim('  test ')", "  test"), ("rtrim('>>>>test<<', '><')", ">>>>test")))


def joined(k: PipelineKernel, parts: list[Text]) -> Text:
    """The parts one after the other."""
    total = parts[0][1]
    for _, size in parts[1:]:
        total = total + size
    place = k.scratch(total)
    at = place
    for pointer, size in parts:
        k.call("memcpy", at, pointer, size)
        at = at + size
    return place, total


@function(
    "concat_op",
    args=(VARCHAR, VARCHAR),
    returns=VARCHAR,
    lazy=True,
    duckdb="||",
    examples=(("'Duck' || 'DB'", "DuckDB"), ("'a' || NULL", None)),
)
def concat_op(k: PipelineKernel, a: Datum, b: Datum) -> Text:
    """The operator ||: NULL if either side is NULL."""
    return joined(k, [a.text, b.text])


@function(
    "concat_op",
    args=(BLOB, BLOB),
    returns=BLOB,
    lazy=True,
    duckdb="||",
    examples=((r"'\xAA'::BLOB || 'b'::BLOB", b"\xaab"),),
)
def concat_blobs(k: PipelineKernel, a: Datum, b: Datum) -> Text:
    return joined(k, [a.text, b.text])


@function(
    "concat",
    args=(VARCHAR, VARCHAR),
    variadic=True,
    returns=VARCHAR,
    nulls="custom",
    examples=(("concat('Hello', ' ', NULL, 1, true)", "Hello 1true"), ("concat(NULL)", "")),
)
def concat(k: PipelineKernel, *args: Datum) -> Text:
    """All arguments as text, NULLs left out; never NULL."""
    return joined(k, [(a.ptr, a.len if a.valid is None else k.select(a.valid, a.len, k.i64(0))) for a in args])


@function(
    "concat_ws", args=(VARCHAR, VARCHAR, VARCHAR), variadic=True, returns=VARCHAR, nulls="custom",
    examples=(("concat_ws(', ', 'Banana', NULL, 'Melon')", "Banana, Melon"), ("concat_ws(NULL, 'a')", None),
              ("concat_ws(',', NULL)", ""), ("concat_ws(',', '', '')", ",")),
)  # fmt: skip
def concat_ws(k: PipelineKernel, separator: Datum, *args: Datum) -> Datum:
    """The arguments that are not NULL with the separator between them; NULL only if the separator is."""
    parts: list[Text] = []
    started = k.false
    for a in args:
        valid = k.true if a.valid is None else a.valid
        if parts:
            parts.append((separator.ptr, k.select(started & valid, separator.len, k.i64(0))))
        parts.append((a.ptr, k.select(valid, a.len, k.i64(0))))
        started = started | valid
    return Datum(VARCHAR, joined(k, parts), separator.valid)


@routine("str_repeat", ("ptr", "ptr", "i64", "i64"), "ptr")
def str_repeat(k: Kernel, ctx: Val, p: Val, n: Val, bytes: Val) -> None:
    """A record of `bytes` bytes filled with the string again and again; the filled part is copied, and doubles."""
    record, text = new_record(k, ctx, bytes)
    k.store(record, bytes)
    filled = k.var(k.min(n, bytes))
    k.call("memcpy", text, p, filled.value)
    with k.forever() as loop:
        loop.stop_if(filled.value >= bytes)
        more = k.min(filled.value, bytes - filled.value)
        k.call("memcpy", text + filled.value, text, more)
        filled.set(filled.value + more)
    k.ret(record)


def repeated(k: PipelineKernel, s: Datum, count: Datum) -> Text:
    times = k.select((count.value < 0) | (s.len == 0), k.i64(0), count.value)
    bytes = k.select(k.overflows("mul", s.len, times), k.i64(2**63 - 1), s.len * times)
    return built(k, str_repeat, s.ptr, s.len, check_size(k, bytes))


@function(
    "repeat",
    args=(VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(("repeat('A', 5)", "AAAAA"), ("repeat('ab', -1)", "")),
)
def repeat(k: PipelineKernel, s: Datum, count: Datum) -> Text:
    """The string `count` times."""
    return repeated(k, s, count)


@function(
    "repeat",
    args=(BLOB, BIGINT),
    returns=BLOB,
    lazy=True,
    can_fail=True,
    examples=((r"repeat('\xAA'::BLOB, 2)", b"\xaa\xaa"),),
)
def repeat_blob(k: PipelineKernel, s: Datum, count: Datum) -> Text:
    return repeated(k, s, count)


@routine("pad_bytes", ("ptr", "i64", "i64"), "i64")
def pad_bytes(k: Kernel, pad: Val, n: Val, characters: Val) -> None:
    """How many bytes `characters` characters of the repeated padding take (the padding is not empty)."""
    per_round = utf8_length(k, pad, n)
    k.ret(characters // per_round * n + utf8_skip(k, pad, n, characters % per_round))


def _register_pad(name: str, is_left: bool, examples: tuple[tuple[str, str], ...]) -> None:
    @function(name, args=(VARCHAR, INTEGER, VARCHAR), returns=VARCHAR, lazy=True, can_fail=True, examples=examples)
    def pad(k: PipelineKernel, s: Datum, count: Datum, padding: Datum) -> Text:
        """Padded, or cut at the right, to `count` characters."""
        wanted = k.max(count.value.to("i64"), k.i64(0))
        missing = wanted - utf8_length(k, s.ptr, s.len)
        k.fail((missing > 0) & (padding.len == 0), f"Insufficient padding in {name.upper()}.")

        def padded() -> Text:
            extra = pad_bytes(k, padding.ptr, padding.len, missing)
            total = check_size(k, s.len + extra)
            extra = k.select(total == 0, k.i64(0), extra)
            filler = built(k, str_repeat, padding.ptr, padding.len, extra)
            return joined(k, [filler, s.text] if is_left else [s.text, filler])

        pointer, length = k.choose(
            (missing > 0) & (padding.len > 0),
            padded,
            lambda: (s.ptr, utf8_skip(k, s.ptr, s.len, wanted)),
            ("ptr", "i64"),
        )
        return pointer, length


_register_pad(
    "lpad",
    True,
    (("lpad('hello', 8, '>')", ">>>hello"), ("lpad('hi', 5, 'xy')", "xyxhi"), ("lpad('hello', 2, '>')", "he")),
)
_register_pad(
    "rpad",
    False,
    (("rpad('hello', 10, '<')", "hello<<<<<"), ("rpad('hé', 4, 'é')", "hééé"), ("rpad('hi', -1, 'x')", "")),
)


@routine("str_translate", ("ptr", "ptr", "i64", "ptr", "i64", "ptr", "i64"), "ptr")
def str_translate(k: Kernel, ctx: Val, p: Val, n: Val, source: Val, source_n: Val, target: Val, target_n: Val) -> None:
    """Each character that is in `source` becomes the one at the same place of `target`, or goes if there is none."""
    record, text = new_record(k, ctx, n * 4)
    at, out = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        here = p + at.value
        width = code_width(k.load("i8", here))
        code = utf8_decode(k, here)
        place, before = k.var(k.i64(0)), k.var(k.i64(0))
        with k.forever() as search:
            search.stop_if(place.value >= source_n)
            search.stop_if(utf8_decode(k, source + place.value) == code)
            place.set(place.value + code_width(k.load("i8", source, place.value)))
            before.set(before.value + 1)
        with k.when(place.value >= source_n):
            k.call("memcpy", text + out.value, here, width)
            out.set(out.value + width)
        with k.otherwise():
            to = utf8_skip(k, target, target_n, before.value)
            with k.when(to < target_n):
                size = code_width(k.load("i8", target, to))
                k.call("memcpy", text + out.value, target + to, size)
                out.set(out.value + size)
        at.set(at.value + width)
    k.store(record, out.value)
    k.ret(record)


@function(
    "translate",
    args=(VARCHAR, VARCHAR, VARCHAR),
    returns=VARCHAR,
    lazy=True,
    examples=(("translate('12345', '143', 'ax')", "a2x5"), ("translate('héllo', 'él', 'e')", "heo")),
)
def translate(k: PipelineKernel, s: Datum, source: Datum, target: Datum) -> Text:
    """Replace the characters of `source` by those of `target`; characters without a partner are removed."""
    return built(k, str_translate, *s.parts, *source.parts, *target.parts)
