"""String functions that look for strings in strings: position, contains, starts_with, ends_with, split_part,
replace."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, BOOLEAN, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built, check_size
from tsql.kernels.runtime.text.search import str_count, str_ends, str_find, str_part, str_position, str_starts
from tsql.kernels.runtime.text.utf8 import new_record, sliced, utf8_length, utf8_skip


@function(
    "strpos",
    "position",
    "instr",
    args=(VARCHAR, VARCHAR),
    returns=BIGINT,
    lazy=True,
    examples=(
        ("strpos('test test', 'es')", 2),
        ("position('b' IN 'éab')", 3),
        ("instr('abc', 'd')", 0),
        ("instr('abc', '')", 1),
    ),
)
def position(k: PipelineKernel, s: Datum, needle: Datum) -> Val:
    """The place of the first occurrence in characters, from 1; 0 if there is none."""
    return str_position(k, *s.parts, *needle.parts)


@function(
    "contains",
    args=(VARCHAR, VARCHAR),
    returns=BOOLEAN,
    lazy=True,
    examples=(("contains('abc', 'b')", True), ("contains('abc', '')", True), ("contains('', 'a')", False)),
)
def contains(k: PipelineKernel, s: Datum, needle: Datum) -> Val:
    """Whether the string occurs."""
    return str_find(k, *s.parts, *needle.parts) >= 0


@function(
    "starts_with",
    "prefix",
    "^@",
    args=(VARCHAR, VARCHAR),
    returns=BOOLEAN,
    lazy=True,
    examples=(("starts_with('abc', 'a')", True), ("prefix('abc', 'bc')", False), ("'abc' ^@ 'ab'", True)),
)
def starts_with(k: PipelineKernel, s: Datum, prefix: Datum) -> Val:
    return str_starts(k, *s.parts, *prefix.parts)


@function(
    "ends_with",
    "suffix",
    args=(VARCHAR, VARCHAR),
    returns=BOOLEAN,
    lazy=True,
    examples=(("ends_with('abc', 'bc')", True), ("suffix('abc', 'ab')", False)),
)
def ends_with(k: PipelineKernel, s: Datum, suffix: Datum) -> Val:
    return str_ends(k, *s.parts, *suffix.parts)


@function(
    "split_part",
    args=(VARCHAR, VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    examples=(
        ("split_part('a;b;c', ';', 2)", "b"),
        ("split_part('a;b;c', ';', -1)", "c"),
        ("split_part('a;b;c', ';', 4)", ""),
        ("split_part('héllo', '', 2)", "é"),
    ),
)
def split_part(k: PipelineKernel, s: Datum, separator: Datum, index: Datum) -> Text:
    """The index-th part between separators, from 1, or from the end if negative; empty if there is none."""
    return sliced(k, s.ptr, str_part(k, *s.parts, *separator.parts, index.value))


@routine("str_replace", ("ptr", "ptr", "i64", "ptr", "i64", "ptr", "i64", "i64"), "ptr")
def str_replace(
    k: Kernel, ctx: Val, p: Val, n: Val, source: Val, source_n: Val, target: Val, target_n: Val, bytes: Val
) -> None:
    """Every `source` becomes `target`; the result has `bytes` bytes, or nothing is done if that is 0."""
    record, text = new_record(k, ctx, bytes)
    k.store(record, bytes)
    with k.when(bytes == 0):
        k.ret(record)
    at, out = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        found = str_find(k, p + at.value, n - at.value, source, source_n)
        kept = k.select(found < 0, n - at.value, found)
        k.call("memcpy", text + out.value, p + at.value, kept)
        out.set(out.value + kept)
        loop.stop_if(found < 0)
        k.call("memcpy", text + out.value, target, target_n)
        out.set(out.value + target_n)
        at.set(at.value + found + source_n)
    k.ret(record)


@function(
    "replace",
    args=(VARCHAR, VARCHAR, VARCHAR),
    returns=VARCHAR,
    lazy=True,
    can_fail=True,
    examples=(
        ("replace('hello', 'l', '-')", "he--o"),
        ("replace('aaaa', 'aa', 'b')", "bb"),
        ("replace('aaa', '', 'x')", "aaa"),
    ),
)
def replace(k: PipelineKernel, s: Datum, source: Datum, target: Datum) -> Text:
    """Every occurrence of `source` becomes `target`; an empty `source` occurs nowhere."""
    (found,) = k.choose(source.len > 0, lambda: (str_count(k, *s.parts, *source.parts),), lambda: (k.i64(0),), ("i64",))

    def changed() -> Text:
        bytes = check_size(k, s.len + found * (target.len - source.len))
        return built(k, str_replace, *s.parts, *source.parts, *target.parts, bytes)

    pointer, length = k.choose(found > 0, changed, lambda: s.parts, ("ptr", "i64"))
    return pointer, length


@routine("str_overlay", ("ptr", "ptr", "i64", "ptr", "i64", "i64", "i64"), "ptr")
def str_overlay(k: Kernel, ctx: Val, p: Val, n: Val, inner: Val, inner_n: Val, offset: Val, count: Val) -> None:
    """The characters before the 1-based `offset`, then `inner`, then what comes `count` characters later."""
    start = k.max(offset, k.i64(-(2**63) + 1)) - 1
    stop = k.select(k.overflows("add", start, count), k.i64(2**63 - 1), start + count)
    head, tail = utf8_skip(k, p, n, start), utf8_skip(k, p, n, stop)
    rest = n - tail
    record, text = new_record(k, ctx, head + inner_n + rest)
    k.store(record, head + inner_n + rest)
    k.call("memcpy", text, p, head)
    k.call("memcpy", text + head, inner, inner_n)
    k.call("memcpy", text + (head + inner_n), p + tail, rest)
    k.ret(record)


@function(
    "overlay",
    args=(VARCHAR, VARCHAR, BIGINT, BIGINT),
    returns=VARCHAR,
    lazy=True,
    examples=(("overlay('abcdef' PLACING 'XX' FROM 2 FOR 3)", "aXXef"), ("overlay('abcdef', 'XX', 3, 0)", "abXXcdef")),
)
def overlay(k: PipelineKernel, s: Datum, inner: Datum, offset: Datum, count: Datum) -> Text:
    """`count` characters from `offset` on become `inner`; a negative count stands for the length of `inner`."""
    characters = k.select(count.value < 0, utf8_length(k, *inner.parts), count.value)
    return built(k, str_overlay, *s.parts, *inner.parts, offset.value, characters)


@function(
    "overlay",
    args=(VARCHAR, VARCHAR, BIGINT),
    returns=VARCHAR,
    lazy=True,
    examples=(("overlay('abcdef' PLACING 'XX' FROM 2)", "aXXdef"),),
)
def overlay_as_long(k: PipelineKernel, s: Datum, inner: Datum, offset: Datum) -> Text:
    """As many characters as `inner` has become `inner`."""
    return built(k, str_overlay, *s.parts, *inner.parts, offset.value, utf8_length(k, *inner.parts))
