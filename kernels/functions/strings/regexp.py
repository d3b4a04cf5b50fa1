"""Regular expressions: host functions over RE2 as pyarrow.compute offers it (DuckDB uses RE2 too), and regexp_escape.

A host function receives Arrow arrays, or Scalars for constants, and returns an array; a Scalar if all arguments are. A
pattern that differs from row to row is applied once per distinct pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.types import BOOLEAN, INTEGER, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, built
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.runtime.text.utf8 import new_record

Values = Any
"""An Arrow array, or a Scalar that stands for all rows."""

MAX_GROUP = 9
HIGHEST_SHIFTED = 7
"""`\\1` .. `\\7` still have one digit when two groups come before them."""


def per_constants(apply: Callable[..., pa.Array], result: pa.DataType, strings: Values, *others: Values) -> Values:
    """`apply(array, *constants)` for each distinct combination of the other arguments; NULL where one of them is
    NULL."""
    if all(isinstance(o, pa.Scalar) for o in others):
        is_scalar = isinstance(strings, pa.Scalar)
        array = pa.array([strings.as_py()], pa.string()) if is_scalar else strings
        constants = [o.as_py() for o in others]
        found = pa.nulls(len(array), result) if None in constants else apply(array, *constants)
        return found[0] if is_scalar else found
    rows = next(len(o) for o in others if not isinstance(o, pa.Scalar))
    columns = [[o.as_py()] * rows if isinstance(o, pa.Scalar) else o.to_pylist() for o in (strings, *others)]
    places: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*columns[1:], strict=True)):
        places.setdefault(key, []).append(row)
    parts = []
    for key, where in places.items():
        part = pa.array([columns[0][row] for row in where], pa.string())
        parts.append(pa.nulls(len(where), result) if None in key else apply(part, *key))
    order = pa.array([row for where in places.values() for row in where], pa.int64())
    found = (
        pa.concat_arrays([p.combine_chunks() if isinstance(p, pa.ChunkedArray) else p for p in parts])
        if parts
        else pa.nulls(0, result)
    )
    return found.take(pc.sort_indices(order))


def parse_options(options: str, may_be_global: bool = False) -> tuple[str, bool, bool]:
    """DuckDB's options as (inline flags for RE2, whether the pattern is literal text, whether all matches are
    replaced)."""
    fold, dot_matches_newline, literal, every = False, False, False, False
    for option in options:
        match option:
            case "c" | "i":
                fold = option == "i"
            case "l":
                literal = True
            case "m" | "n" | "p" | "s":
                dot_matches_newline = option == "s"
            case "g" if may_be_global:
                every = True
            case "g":
                raise ExecutionError("Option 'g' (global replace) is only valid for regexp_replace")
            case " " | "\t" | "\n":
                pass
            case _:
                raise ExecutionError(f"Unrecognized Regex option {option}")
    flags = ("i" if fold else "") + ("s" if dot_matches_newline else "")
    return f"(?{flags})" if flags else "", literal, every


def quote(pattern: str) -> str:
    """The pattern that matches this very text."""
    return re.sub(
        r"[\x00-\x7f]",
        lambda m: m[0] if m[0].isalnum() or m[0] == "_" else r"\x00" if m[0] == "\0" else "\\" + m[0],
        pattern,
    )


@lru_cache(maxsize=256)
def compiled(pattern: str, options: str, may_be_global: bool = False) -> tuple[str, str, bool]:
    """(flags, pattern, global) of a pattern that RE2 accepts; raises RE2's complaint otherwise."""
    flags, literal, every = parse_options(options, may_be_global)
    if literal:
        pattern = quote(pattern)
    try:
        pc.match_substring_regex(pa.array([""]), flags + pattern)
    except pa.ArrowInvalid as error:
        raise ExecutionError(str(error).removeprefix("Invalid regular expression: ")) from None
    return flags, pattern, every


def given(options: pa.Scalar | None) -> str:
    """The text of an options argument, which is a constant and not NULL; none was given if it is None."""
    if options is None:
        return ""
    text = options.as_py()
    if text is None:
        raise ExecutionError("Regex options field must not be NULL")
    return text


@function(
    "regexp_matches",
    args=(VARCHAR, VARCHAR),
    returns=BOOLEAN,
    host=True,
    examples=(("regexp_matches('anabanana', '(an)*')", True), ("regexp_matches('abc', 'x')", False)),
)
def regexp_matches(strings: Values, pattern: Values, options: pa.Scalar | None = None) -> Values:
    """Whether some part of the string matches."""
    chosen = given(options)

    def apply(array: pa.Array, pattern: str) -> pa.Array:
        flags, pattern, _ = compiled(pattern, chosen)
        return pc.match_substring_regex(array, flags + pattern)

    return per_constants(apply, pa.bool_(), strings, pattern)


@function(
    "regexp_full_match",
    args=(VARCHAR, VARCHAR),
    returns=BOOLEAN,
    host=True,
    examples=(("regexp_full_match('anabanana', '(an)*')", False), ("'abc' SIMILAR TO 'a.c'", True)),
)
def regexp_full_match(strings: Values, pattern: Values, options: pa.Scalar | None = None) -> Values:
    """Whether the whole string matches; SIMILAR TO is this function."""
    chosen = given(options)

    def apply(array: pa.Array, pattern: str) -> pa.Array:
        flags, pattern, _ = compiled(pattern, chosen)
        return pc.match_substring_regex(array, rf"\A(?:{flags}{pattern})\z")

    return per_constants(apply, pa.bool_(), strings, pattern)


function(
    "regexp_matches",
    args=(VARCHAR, VARCHAR, VARCHAR),
    returns=BOOLEAN,
    host=True,
    constant=(2,),
    examples=(("regexp_matches('ABC', 'b', 'i')", True),),
)(regexp_matches)
function(
    "regexp_full_match",
    args=(VARCHAR, VARCHAR, VARCHAR),
    returns=BOOLEAN,
    host=True,
    constant=(2,),
    examples=(("regexp_full_match('ABC', 'a.c', 'i')", True),),
)(regexp_full_match)


def replaced(array: pa.Array, flags: str, pattern: str, replacement: str, every: bool) -> pa.Array:
    """The first match replaced, or all. pyarrow's own way to replace one match looks at the match without what is
    around it, and fails for `\\b` and the like; here one match from the start takes the text before it along as a
    group."""
    references = [int(d) for d in re.findall(r"\\(\d)", replacement.replace("\\\\", ""))]
    if every or max(references, default=0) > HIGHEST_SHIFTED:
        return pc.replace_substring_regex(array, flags + pattern, replacement, max_replacements=None if every else 1)
    shifted = re.sub(r"\\(\d|\\)", lambda m: m[0] if m[1] == "\\" else f"\\{int(m[1]) + 2}", replacement)
    return pc.replace_substring_regex(array, rf"\A((?s:.*?))({flags}{pattern})", rf"\1{shifted}")


@function(
    "regexp_replace", args=(VARCHAR, VARCHAR, VARCHAR), returns=VARCHAR, host=True,
    examples=(("regexp_replace('hello', '[lo]', '-')", "he-lo"),
              (r"regexp_replace('hello', '(l+)', '<\1>')", "he<ll>o")),
)  # fmt: skip
def regexp_replace(strings: Values, pattern: Values, replacement: Values, options: pa.Scalar | None = None) -> Values:
    """The first match (all with option g) becomes the replacement, in which \\0 is the match and \\1 .. \\9 its
    groups."""
    chosen = given(options)

    def apply(array: pa.Array, pattern: str, replacement: str) -> pa.Array:
        flags, pattern, every = compiled(pattern, chosen, True)
        try:
            # Checks the replacement against the pattern as the user wrote both, so that the message names their groups.
            pc.replace_substring_regex(pa.array([""]), flags + pattern, replacement)
        except pa.ArrowInvalid as error:
            raise ExecutionError(
                str(error).replace("Invalid replacement string:", "Invalid replacement string for regexp_replace:")
            ) from None
        return replaced(array, flags, pattern, replacement, every)

    return per_constants(apply, pa.string(), strings, pattern, replacement)


function(
    "regexp_replace", args=(VARCHAR, VARCHAR, VARCHAR, VARCHAR), returns=VARCHAR, host=True, constant=(3,),
    examples=(("regexp_replace('HELLO', 'l', '-', 'gi')", "HE--O"),),
)(regexp_replace)  # fmt: skip

_GROUP = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\(\?P?<\w+>|\(\?|\(", re.DOTALL)


def only_group(pattern: str, index: int) -> str | None:
    """The pattern with its index-th group (0: all of it) named g and no other capturing; None if there is no such
    group."""
    count = 0

    def head(match: re.Match[str]) -> str:
        nonlocal count
        text = match[0]
        if text[0] != "(" or text == "(?":
            return text
        count += 1
        return "(?P<g>" if count == index else "(?:"

    rewritten = _GROUP.sub(head, pattern)
    if index == 0:
        return f"(?P<g>{rewritten})"
    return rewritten if index <= count else None


@function(
    "regexp_extract", args=(VARCHAR, VARCHAR, INTEGER), returns=VARCHAR, host=True, constant=(2,),
    examples=(("regexp_extract('hello_world', '([a-z ]+)_?', 1)", "hello"), ("regexp_extract('abc', 'x', 0)", ""),
              ("regexp_extract('abc', '(b)(x)?', 2)", "")),
)  # fmt: skip
def regexp_extract(
    strings: Values, pattern: Values, group: pa.Scalar | None = None, options: pa.Scalar | None = None
) -> Values:
    """What the group (0: the whole pattern) matched in the first match; empty if nothing matched."""
    index = 0 if group is None else group.as_py()
    chosen = given(options)
    if index is not None and not 0 <= index <= MAX_GROUP:
        raise ExecutionError(f"Group index must be between 0 and {MAX_GROUP}!")

    def apply(array: pa.Array, pattern: str) -> pa.Array:
        flags, pattern, _ = compiled(pattern, chosen)
        named = None if index is None else only_group(pattern, index)
        if named is None:
            found = pa.nulls(len(array), pa.string())
        else:
            found = pc.struct_field(pc.extract_regex(array, flags + named), "g")
        return pc.if_else(pc.is_null(array), pa.scalar(None, pa.string()), pc.fill_null(found, ""))

    return per_constants(apply, pa.string(), strings, pattern)


@function(
    "regexp_extract",
    args=(VARCHAR, VARCHAR),
    returns=VARCHAR,
    host=True,
    examples=(("regexp_extract('abc123', '[0-9]+')", "123"),),
)
def regexp_extract_all_of_it(strings: Values, pattern: Values) -> Values:
    """What the pattern matched."""
    return regexp_extract(strings, pattern)


@function(
    "regexp_extract",
    args=(VARCHAR, VARCHAR, VARCHAR),
    returns=VARCHAR,
    host=True,
    constant=(2,),
    examples=(("regexp_extract('ABC', 'b', 'i')", "B"),),
)
def regexp_extract_with_options(strings: Values, pattern: Values, options: pa.Scalar) -> Values:
    return regexp_extract(strings, pattern, None, options)


function(
    "regexp_extract", args=(VARCHAR, VARCHAR, INTEGER, VARCHAR), returns=VARCHAR, host=True, constant=(2, 3),
    examples=(("regexp_extract('ABC', '(b)', 1, 'i')", "B"),),
)(regexp_extract)  # fmt: skip


@routine("regexp_quote", ("ptr", "ptr", "i64"), "ptr")
def regexp_quote(k: Kernel, ctx: Val, p: Val, n: Val) -> None:
    """A backslash before every ASCII character that is no letter, digit or underscore; NUL becomes four characters."""
    record, text = new_record(k, ctx, n * 4)
    out = k.var(k.i64(0))
    with k.range(n) as i:
        byte = k.load("i8", p, i)
        letter = ((byte | 0x20) - ord("a")).ult(26) | (byte - ord("0")).ult(10)
        with k.when(~(letter | (byte < 0) | (byte == ord("_")))):
            k.store(text, k.i8(ord("\\")), out.value)
            out.set(out.value + 1)
        with k.when(byte == 0):
            for c in "x00":
                k.store(text, k.i8(ord(c)), out.value)
                out.set(out.value + 1)
        with k.otherwise():
            k.store(text, byte, out.value)
            out.set(out.value + 1)
    k.store(record, out.value)
    k.ret(record)


@function(
    "regexp_escape",
    args=(VARCHAR,),
    returns=VARCHAR,
    lazy=True,
    examples=(("regexp_escape('https://d.org')", r"https\:\/\/d\.org"), ("regexp_escape('a_é')", "a_é")),
)
def regexp_escape(k: PipelineKernel, s: Datum) -> Text:
    """The pattern that matches this very text."""
    return built(k, regexp_quote, s.ptr, s.len)
