"""How alike strings are: damerau_levenshtein, jaro_similarity, jaro_winkler_similarity. They compare bytes, as DuckDB's
do."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel, scratch_alloc
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DOUBLE, VARCHAR
from tsql.kernels.functions.registry import function

PREFIX = 4
"""Bytes at the start that Winkler's variant counts more, each by a tenth."""
WINKLER_FROM = 0.7
"""Less similar strings get nothing for a common start."""


@routine("str_damerau", ("ptr", "ptr", "i64", "ptr", "i64"), "i64")
def str_damerau(k: Kernel, ctx: Val, a: Val, a_len: Val, b: Val, b_len: Val) -> None:
    """The fewest insertions, deletions, replacements and swaps of neighbours (Lowrance and Wagner 1975: what was
    swapped may be edited again). The table has a row and a column more than usual, which stand for impossible
    places."""
    width = b_len + 2
    table = scratch_alloc(k, ctx, (a_len + 2) * width * 8)
    last_row = scratch_alloc(k, ctx, k.i64(256 * 8))
    k.call("memset", last_row, 0, 256 * 8)
    impossible = a_len + b_len
    k.store(table, impossible)
    with k.range(a_len + 1) as i:
        k.store(table, impossible, (i + 1) * width)
        k.store(table, i, (i + 1) * width + 1)
    with k.range(b_len + 1) as j:
        k.store(table, impossible, j + 1)
        k.store(table, j, width + j + 1)
    with k.range(a_len) as i:
        byte = k.load("i8", a, i)
        last_column = k.var(k.i64(0))
        row = (i + 1) * width
        with k.range(b_len) as j:
            other = k.load("i8", b, j)
            swapped_row = k.load("i64", last_row, other.uto("i64"))
            swapped_column = last_column.value
            same = byte == other
            replaced = k.load("i64", table, row + j + 1) + (~same).to("i64")
            moved = k.min(k.load("i64", table, row + width + j + 1), k.load("i64", table, row + j + 2)) + 1
            swapped = (
                k.load("i64", table, swapped_row * width + swapped_column)
                + (i - swapped_row)
                + (j - swapped_column)
                + 1
            )
            k.store(table, k.min(k.min(replaced, moved), swapped), row + width + j + 2)
            with k.when(same):
                last_column.set(j + 1)
        k.store(last_row, i + 1, byte.uto("i64"))
    k.ret(k.load("i64", table, (a_len + 1) * width + b_len + 1))


@function(
    "damerau_levenshtein",
    args=(VARCHAR, VARCHAR),
    returns=BIGINT,
    lazy=True,
    examples=(("damerau_levenshtein('duckdb', 'udckbd')", 2), ("damerau_levenshtein('ca', 'abc')", 2)),
)
def damerau_levenshtein(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    """The fewest single-byte edits and swaps of neighbours that make one string the other."""
    k.uses_scratch = True
    return str_damerau(k, k.ctx, *a.parts, *b.parts)


@routine("str_jaro", ("ptr", "ptr", "i64", "ptr", "i64"), "f64")
def str_jaro(k: Kernel, ctx: Val, a: Val, a_len: Val, b: Val, b_len: Val) -> None:
    """Jaro's similarity: bytes match that are equal and not further apart than half of the longer string; half of the
    matches that are in another order count as transpositions."""
    with k.when((a_len == 0) | (b_len == 0)):
        k.ret(k.f64(0.0))
    window = k.max(k.max(a_len, b_len).ushr(1) - 1, k.i64(0))
    flags = scratch_alloc(k, ctx, a_len + b_len)
    k.call("memset", flags, 0, a_len + b_len)
    in_b = flags + a_len
    matches = k.var(k.i64(0))
    with k.range(a_len) as i:
        at = k.var(k.max(i - window, k.i64(0)))
        end = k.min(i + window + 1, b_len)
        with k.forever() as loop:
            loop.stop_if(at.value >= end)
            hit = (k.load("i8", a, i) == k.load("i8", b, at.value)) & (k.load("i8", in_b, at.value) == 0)
            with k.when(hit):
                k.store(flags, k.i8(1), i)
                k.store(in_b, k.i8(1), at.value)
                matches.set(matches.value + 1)
            loop.stop_if(hit)
            at.set(at.value + 1)
    with k.when(matches.value == 0):
        k.ret(k.f64(0.0))
    other, moved = k.var(k.i64(0)), k.var(k.i64(0))
    with k.range(a_len) as i:
        with k.when(k.load("i8", flags, i) != 0):
            with k.forever() as loop:
                loop.stop_if(k.load("i8", in_b, other.value) != 0)
                other.set(other.value + 1)
            moved.set(moved.value + (k.load("i8", a, i) != k.load("i8", b, other.value)).to("i64"))
            other.set(other.value + 1)
    common = matches.value.to("f64")
    in_order = (matches.value - moved.value.ushr(1)).to("f64")
    k.ret((common / a_len.to("f64") + common / b_len.to("f64") + in_order / common) / 3.0)


@routine("str_jaro_winkler", ("ptr", "ptr", "i64", "ptr", "i64"), "f64")
def str_jaro_winkler(k: Kernel, ctx: Val, a: Val, a_len: Val, b: Val, b_len: Val) -> None:
    """Jaro's similarity, raised for strings that start alike."""
    similarity = str_jaro(k, ctx, a, a_len, b, b_len)
    with k.when(similarity <= WINKLER_FROM):
        k.ret(similarity)
    same = k.var(k.i64(0))
    limit = k.min(k.min(a_len, b_len), k.i64(PREFIX))
    with k.forever() as loop:
        loop.stop_if(same.value >= limit)
        loop.stop_if(k.load("i8", a, same.value) != k.load("i8", b, same.value))
        same.set(same.value + 1)
    k.ret(similarity + same.value.to("f64") * 0.1 * (1.0 - similarity))


for _name, _routine, _examples in (
    (
        "jaro_similarity",
        str_jaro,
        (("jaro_similarity('duck', 'duckdb')", 0.8888888888888888), ("jaro_similarity('', '')", 0.0)),
    ),
    ("jaro_winkler_similarity", str_jaro_winkler, (("jaro_winkler_similarity('duck', 'duckdb')", 0.9333333333333333),)),
):

    @function(_name, args=(VARCHAR, VARCHAR), returns=DOUBLE, lazy=True, examples=_examples)
    def similarity(k: PipelineKernel, a: Datum, b: Datum, measure=_routine) -> Val:
        """From 0 for strings with nothing in common to 1 for equal ones."""
        k.uses_scratch = True
        return measure(k, k.ctx, *a.parts, *b.parts)

    @function(
        _name,
        args=(VARCHAR, VARCHAR, DOUBLE),
        returns=DOUBLE,
        lazy=True,
        examples=((f"{_name}('duck', 'cat', 0.9)", 0.0),),
    )
    def similarity_from(k: PipelineKernel, a: Datum, b: Datum, least: Datum, measure=_routine) -> Val:
        """As with two arguments, but 0 for anything below the third."""
        k.uses_scratch = True
        found = measure(k, k.ctx, *a.parts, *b.parts)
        return k.select(found >= least.value, found, k.f64(0.0))
