"""How far strings are apart: levenshtein, hamming, jaccard. They compare bytes, as DuckDB's do."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.emit.context import PipelineKernel, scratch_alloc
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DOUBLE, VARCHAR
from tsql.kernels.functions.registry import function


@routine("str_levenshtein", ("ptr", "ptr", "i64", "ptr", "i64"), "i64")
def str_levenshtein(k: Kernel, ctx: Val, a: Val, a_len: Val, b: Val, b_len: Val) -> None:
    """The fewest insertions, deletions and replacements; one row of the table is kept."""
    row = scratch_alloc(k, ctx, (b_len + 1) * 8)
    with k.range(b_len + 1) as j:
        k.store(row, j, j)
    with k.range(a_len) as i:
        byte = k.load("i8", a, i)
        diagonal = k.var(i)
        k.store(row, i + 1)
        with k.range(b_len) as j:
            above, left = k.load("i64", row, j + 1), k.load("i64", row, j)
            replaced = diagonal.value + (byte != k.load("i8", b, j)).to("i64")
            k.store(row, k.min(k.min(above, left) + 1, replaced), j + 1)
            diagonal.set(above)
    k.ret(k.load("i64", row, b_len))


@function(
    "levenshtein",
    "editdist3",
    args=(VARCHAR, VARCHAR),
    returns=BIGINT,
    lazy=True,
    examples=(("levenshtein('kitten', 'sitting')", 3), ("levenshtein('é', 'e')", 2), ("levenshtein('', 'abc')", 3)),
)
def levenshtein(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    """The fewest single-byte edits that make one string the other."""
    k.uses_scratch = True
    return str_levenshtein(k, k.ctx, *a.parts, *b.parts)


@routine("str_hamming", ("ptr", "ptr", "i64"), "i64")
def str_hamming(k: Kernel, a: Val, b: Val, n: Val) -> None:
    total = k.var(k.i64(0))
    with k.range(n) as i:
        total.set(total.value + (k.load("i8", a, i) != k.load("i8", b, i)).to("i64"))
    k.ret(total.value)


@function(
    "hamming",
    "mismatches",
    args=(VARCHAR, VARCHAR),
    returns=BIGINT,
    lazy=True,
    can_fail=True,
    examples=(("hamming('duck', 'luck')", 1),),
)
def hamming(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    """In how many places two strings of one length differ."""
    k.fail(a.len != b.len, "Mismatch Function: Strings must be of equal length!")
    k.fail(a.len < 1, "Mismatch Function: Strings must be of length > 0!")
    return str_hamming(k, a.ptr, b.ptr, k.min(a.len, b.len))


@routine("str_jaccard", ("ptr", "ptr", "i64", "ptr", "i64"), "f64")
def str_jaccard(k: Kernel, ctx: Val, a: Val, a_len: Val, b: Val, b_len: Val) -> None:
    """The bytes that both have by the bytes that one has; a set is 256 flags."""
    flags = scratch_alloc(k, ctx, k.i64(256))
    k.call("memset", flags, 0, 256)
    for bit, (p, n) in enumerate(((a, a_len), (b, b_len))):
        with k.range(n) as i:
            byte = k.load("i8", p, i).uto("i64")
            k.store(flags, k.load("i8", flags, byte) | (1 << bit), byte)
    shared, present = k.var(k.i64(0)), k.var(k.i64(0))
    with k.range(k.i64(256)) as i:
        flag = k.load("i8", flags, i)
        shared.set(shared.value + (flag == 3).to("i64"))
        present.set(present.value + (flag != 0).to("i64"))
    k.ret(shared.value.to("f64") / present.value.to("f64"))


@function(
    "jaccard",
    args=(VARCHAR, VARCHAR),
    returns=DOUBLE,
    lazy=True,
    can_fail=True,
    examples=(("jaccard('duck', 'luck')", 0.6),),
)
def jaccard(k: PipelineKernel, a: Datum, b: Datum) -> Val:
    """How much of the bytes that occur in the strings is in both, from 0 to 1."""
    k.fail((a.len < 1) | (b.len < 1), "Jaccard Function: An argument too short!")
    k.uses_scratch = True
    return str_jaccard(k, k.ctx, *a.parts, *b.parts)
