"""Subscripts and slices of strings, and GLOB: what `planner/bind/strings.py` binds `s[i]`, `s[a:b]` and `s GLOB p`
to."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, BLOB, BOOLEAN, VARCHAR
from tsql.kernels.functions.registry import function
from tsql.kernels.functions.strings.basics import Text, check_range
from tsql.kernels.runtime.text.glob import glob_match
from tsql.kernels.runtime.text.utf8 import pack, sliced, utf8_length, utf8_skip, utf8_substring


@function(
    "array_extract", "list_extract", "list_element", args=(VARCHAR, BIGINT), returns=VARCHAR, lazy=True, can_fail=True,
    examples=(("array_extract('hello', 2)", "e"), ("'hello'[-1]", "o"), ("'hello'[0]", ""), ("'héllo'[2]", "é"),
              ("'a'[NULL]", None)),
)  # fmt: skip
def array_extract(k: PipelineKernel, s: Datum, index: Datum) -> Text:
    """One character, counted from 1, or from the end if negative; empty if there is none."""
    check_range(k, index.value, "offset")
    return sliced(k, s.ptr, utf8_substring(k, s.ptr, s.len, index.value, k.i64(1)))


@routine("slice_start", ("i64", "i64"), "i64")
def slice_start(k: Kernel, first: Val, count: Val) -> None:
    """How many of `count` elements come before a slice that starts at the 1-based `first`."""
    with k.when(first > 0):
        k.ret(k.min(first - 1, count))
    k.ret(k.select(first == 0, k.i64(0), k.max(count + first, k.i64(0))))


@routine("slice_end", ("i64", "i64"), "i64")
def slice_end(k: Kernel, last: Val, count: Val) -> None:
    """How many of `count` elements come before the end of a slice; -1 is the last element."""
    k.ret(k.select(last >= 0, k.min(last, count), k.max(count + last + 1, k.i64(0))))


@routine("utf8_slice", ("ptr", "i64", "i64", "i64"), "i64")
def utf8_slice(k: Kernel, p: Val, n: Val, first: Val, last: Val) -> None:
    """The packed slice of the characters from `first` to `last`."""
    count = utf8_length(k, p, n)
    low, high = slice_start(k, first, count), slice_end(k, last, count)
    start = utf8_skip(k, p, n, low)
    k.ret(pack(start, utf8_skip(k, p + start, n - start, k.max(high - low, k.i64(0)))))


@function(
    "array_slice",
    "list_slice",
    args=(VARCHAR, BIGINT, BIGINT),
    returns=VARCHAR,
    lazy=True,
    examples=(("'hello'[2:3]", "el"), ("'hello'[-3:]", "llo"), ("'hello'[:-2]", "hell")),
)
def array_slice(k: PipelineKernel, s: Datum, first: Datum, last: Datum) -> Text:
    """The characters from the 1-based `first` to `last`; negative places count from the end."""
    return sliced(k, s.ptr, utf8_slice(k, s.ptr, s.len, first.value, last.value))


@function(
    "array_slice",
    "list_slice",
    args=(BLOB, BIGINT, BIGINT),
    returns=BLOB,
    lazy=True,
    examples=((r"('\xAA\xBB\xCC'::BLOB)[2:]", b"\xbb\xcc"),),
)
def array_slice_bytes(k: PipelineKernel, s: Datum, first: Datum, last: Datum) -> Text:
    """The bytes from the 1-based `first` to `last`."""
    low, high = slice_start(k, first.value, s.len), slice_end(k, last.value, s.len)
    return s.ptr + low, k.max(high - low, k.i64(0))


@function(
    "glob",
    args=(VARCHAR, VARCHAR),
    returns=BOOLEAN,
    lazy=True,
    examples=(("'hello' GLOB 'h*o'", True), ("'b' GLOB '[!a-c]'", False), ("'a' GLOB NULL", None)),
)
def glob(k: PipelineKernel, s: Datum, pattern: Datum) -> Val:
    """Whether the whole string matches a pattern of file names: * any bytes, ? one, [a-z] one of a range."""
    return glob_match(k, *s.parts, *pattern.parts)
