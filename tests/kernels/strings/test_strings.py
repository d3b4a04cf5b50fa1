"""String functions against DuckDB on nasty strings: empty, NULL, every width of UTF-8, combining marks, NUL, long
ones."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.kernels.harness import both, evaluate
from tests.kernels.strings.string_cases import (
    NASTY,
    NUMBERS,
    call,
    check,
    check_nasty,
    columns_of,
    duckdb_values,
    nasty_table,
    text,
)
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.nodes import Call, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, DOUBLE, INTEGER, VARCHAR
from tsql.kernels.functions.registry import SCALARS
from tsql.planner.bind.binder import parse_expression

SHAPES = {
    "length": ("text",), "strlen": ("text",), "bit_length": ("text",), "ascii": ("text",), "unicode": ("text",),
    "lower": ("text",), "upper": ("text",),
    "trim": ("text",), "ltrim": ("text",), "rtrim": ("text",), "octet_length": ("blob",),
    "substr": ("text", "number"), "left": ("text", "number"), "right": ("text", "number"), "repeat": ("text", "number"),
    "strpos": ("text", "short"), "contains": ("text", "short"), "starts_with": ("text", "short"),
    "ends_with": ("text", "short"),
    "split_part": ("text", "short", "number"), "replace": ("text", "short", "short"),
    "translate": ("text", "short", "text"),
    "concat": ("text", "short", "text"), "concat_ws": ("short", "text", "short", "text"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_as_duckdb(name: str) -> None:
    columns = {f"c{i}": kind for i, kind in enumerate(SHAPES[name])}
    check_nasty(name, nasty_table(150, 7, **columns))


@pytest.mark.parametrize("name", ["trim", "ltrim", "rtrim"])
def test_trim_of_characters(name: str) -> None:
    check_nasty(
        name, nasty_table(200, 3, s="text", characters=[None, "", "a", "ab", "é", "xé ", "🦆a", "語日", "\u0301e"])
    )


@pytest.mark.parametrize("name", ["lpad", "rpad"])
def test_padding(name: str) -> None:
    check_nasty(name, nasty_table(200, 4, s="text", count="int", padding=["a", "xy", "é", "🦆b", "語", None]))


def test_substring_over_a_grid() -> None:
    places = list(range(-8, 9))
    rows = [(s, o, n) for s in ("", "hello", "a🦆é語b") for o in places for n in places]
    check("substr", pa.table({"s": [r[0] for r in rows], "o": [r[1] for r in rows], "n": [r[2] for r in rows]}))


def test_concat_op() -> None:
    check_nasty("concat_op", nasty_table(100, 5, a="text", b="text"), "a || b")
    check_nasty("concat_op", nasty_table(100, 6, a="blob", b="blob"), "a || b")


def test_repeat_of_blobs() -> None:
    check_nasty("repeat", nasty_table(60, 8, a="blob", n="number"))


def test_chr() -> None:
    codes = pa.table(
        {
            "c": pa.array(
                [0, 1, 65, 127, 128, 255, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF, None], pa.int32()
            )
        }
    )
    check("chr", codes)


@pytest.mark.parametrize("kind", ["lower", "upper"])
def test_case_of_every_letter(kind: str) -> None:
    letters = [
        c for c in map(chr, range(1, 0x20000)) if not 0xD800 <= ord(c) < 0xE000 and (c.lower() != c or c.upper() != c)
    ]
    table = pa.table({"s": letters})
    (got,) = evaluate([call(kind, *columns_of(table))], table)
    assert got.to_pylist() == duckdb_values(f"{kind}(s)", table)


def test_case_of_long_text() -> None:
    table = pa.table({"s": ["The Quick Brown Fox " * 20, "Ünïcödé ÄND ASCII " * 20, "ⱥȺ" * 50]})
    for kind in ("lower", "upper"):
        check(kind, table)


FAILURES = [
    ("chr", (Literal(-1, INTEGER),), "Invalid UTF8 Codepoint -1"),
    ("chr", (Literal(0xD800, INTEGER),), "Invalid UTF8 Codepoint"),
    ("chr", (Literal(0x110000, INTEGER),), "Invalid UTF8 Codepoint 1114112"),
    ("substr", (text("hello"), Literal(2**32, BIGINT)),
     r"Substring offset outside of supported range \(> 4294967295\)"),
    ("substr", (text(""), Literal(-(2**63), BIGINT), Literal(1, BIGINT)),
     r"Substring offset outside of supported range \(< -4294967296\)"),
    ("substr", (text("hello"), Literal(1, BIGINT), Literal(2**63 - 1, BIGINT)),
     r"Substring length outside of supported range \(> 4294967295\)"),
    ("left", (text("hello"), Literal(2**63 - 1, BIGINT)), "Substring length outside of supported range"),
    ("lpad", (text("hi"), Literal(5, INTEGER), text("")), "Insufficient padding in LPAD."),
    ("rpad", (text("hi"), Literal(5, INTEGER), text("")), "Insufficient padding in RPAD."),
    ("repeat", (text("ab"), Literal(10**11, BIGINT)),
     "Cannot create a string of size: '200000000000', the maximum supported string size"),
    ("repeat", (text("ab"), Literal(2**63 - 1, BIGINT)), "maximum supported string size"),
    ("lpad", (text("hi"), Literal(2**31 - 1, INTEGER), text("語")), "maximum supported string size"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "message"), FAILURES)
@pytest.mark.parametrize("interpret", [False, True])
def test_failures(name: str, args: tuple, message: str, interpret: bool) -> None:
    with pytest.raises(ExecutionError, match=message):
        evaluate([call(name, *args)], interpret=interpret)


def test_limits_that_hold() -> None:
    lowest, highest = Literal(-(2**63), BIGINT), Literal(2**63 - 1, BIGINT)
    hello = text("hello")
    calls = [
        call("left", hello, lowest),
        call("right", hello, lowest),
        call("right", hello, highest),
        call("substr", hello, Literal(-(2**32), BIGINT)),
    ]
    calls += [call("split_part", text("a,b"), text(","), n) for n in (lowest, highest)] + [
        call("repeat", text(""), highest),
        call("repeat", hello, lowest),
    ]
    assert [r.to_pylist()[0] for r in both(calls)] == ["", "", "hello", "hell", "", "", "", ""]


def test_no_failure_for_null() -> None:
    table = pa.table({"s": pa.array([None], pa.string()), "n": pa.array([2**40], pa.int64())})
    (got,) = both([call("substr", *columns_of(table))], table)
    assert got.to_pylist() == [None]


def test_the_strings_are_nasty() -> None:
    assert None in NASTY and "" in NASTY and 0 in NUMBERS
    assert {len(c.encode()) for s in NASTY if s for c in s} == {1, 2, 3, 4}
    assert call("concat", text("a")).type == VARCHAR


def test_overlay() -> None:
    check_nasty("overlay", nasty_table(150, 21, a="text", b="short", c="number"))
    check_nasty("overlay", nasty_table(150, 22, a="text", b="short", c="number", d="number"))
    limits = [Literal(v, BIGINT) for v in (-(2**63), 2**63 - 1)]
    got = both([call("overlay", text("abc"), text("X"), a, b) for a in limits for b in limits])
    assert [g.to_pylist()[0] for g in got] == ["Xabc", "Xabc", "abcX", "abcX"]


def test_levenshtein() -> None:
    check_nasty("levenshtein", nasty_table(80, 23, a="text", b="text"))


def test_hamming_and_jaccard() -> None:
    table = pa.table({"a": ["duck", "a", "abc", None, "éé"], "b": ["luck", "b", "abc", "x", "éa!"]})
    check("hamming", table)
    check("jaccard", table)
    for name, args in (("hamming", ("a", "ab")), ("hamming", ("", "")), ("jaccard", ("", "a"))):
        with pytest.raises(ExecutionError, match="Mismatch Function|Jaccard Function"):
            evaluate([call(name, *map(text, args))])


@pytest.mark.parametrize("name", ["strip_accents", "nfc_normalize"])
def test_accents(name: str) -> None:
    table = pa.table({"s": [*NASTY, "Ångström", "각", "\u0915\u093f", "Ǖ"]})
    host = SCALARS.find(name, (VARCHAR,)).host
    assert host(table.column("s").combine_chunks()).to_pylist() == duckdb_values(f"{name}(s)", table)
    assert host(pa.scalar("é")).as_py() == ("e" if name == "strip_accents" else "é")


EXAMPLES = [
    (f.name, *example)
    for name in SCALARS.names()
    for f in SCALARS.overloads[name]
    for example in f.examples
    if (f.emit or f.host).__module__.rpartition(".")[2].startswith(("strings", "like", "regexp", "hashing", "encoding"))
]


@pytest.mark.parametrize(("name", "sql", "expected"), EXAMPLES)
def test_examples(name: str, sql: str, expected: object) -> None:
    """What a function's documentation shows holds here and in DuckDB."""
    assert duckdb_values(sql) == [expected]
    expr = parse_expression(sql, Schema(()))
    host = SCALARS.find(expr.name, tuple(a.type for a in expr.args)).host if isinstance(expr, Call) else None
    if host is not None:
        assert host(*(pa.scalar(a.value, a.type.to_arrow()) for a in expr.args)).as_py() == expected
    else:
        assert evaluate([expr], interpret=True)[0].to_pylist() == [expected]


def test_every_function_has_an_example() -> None:
    with_examples = {e[0] for e in EXAMPLES}
    for f in (f for name in SCALARS.names() for f in SCALARS.overloads[name]):
        body = f.emit or f.host
        if body.__module__.rpartition(".")[2].startswith(("strings", "like", "regexp", "hashing", "encoding")):
            assert any(
                g.examples for other in with_examples for g in SCALARS.overloads[other] if (g.emit or g.host) is body
            ), f.name


def test_search_in_all_lengths() -> None:
    """Around the words of eight bytes that the search reads: every length, bytes that differ by one, long needles."""
    rng = random.Random(31)
    alphabet = ["a", "b", "`", "\0", "\x01", "é", "c"]

    def some(length: int) -> str:
        return "".join(rng.choice(alphabet[: rng.randrange(2, 8)]) for _ in range(length))

    haystacks = [some(n) for n in range(40) for _ in range(12)]
    needles = [
        h[(start := rng.randrange(len(h) + 1)) : start + rng.randrange(8)]
        if rng.random() < 0.6
        else some(rng.randrange(5))
        for h in haystacks
    ]
    haystacks += ["x" * 30 + "y" * n for n in (50, 64, 65, 90)] + ["a" * 200]
    needles += ["xy" + "y" * (n - 2) for n in (50, 64, 65, 90)] + ["a" * 100 + "b"]
    table = pa.table({"s": haystacks, "needle": needles})
    (got,) = evaluate([call("strpos", *columns_of(table))], table)
    assert got.to_pylist() == [h.find(n) + 1 for h, n in zip(haystacks, needles, strict=True)]
    check("contains", table.slice(100, 150))


def test_length_and_skips_in_all_lengths() -> None:
    rng = random.Random(32)
    strings = ["".join(rng.choice("abcdefgé語🦆" if n % 2 else "abc") for _ in range(n)) for n in range(40)]
    check("length", pa.table({"s": strings}))
    check("left", pa.table({"s": strings, "n": pa.array([rng.randrange(-40, 40) for _ in strings], pa.int64())}))


def test_bar() -> None:
    rng = random.Random(41)
    special = [0.0, 1.0, 10.0, -3.0, float("nan"), float("inf"), None]
    rows = [
        [rng.choice(special) if rng.random() < 0.2 else rng.uniform(lo, hi) for lo, hi in ((-5, 15), (-2, 2), (5, 12))]
        for _ in range(150)
    ]
    data = {name: pa.array([row[i] for row in rows], pa.float64()) for i, name in enumerate("xlh")}
    check("bar", pa.table(data))
    check(
        "bar",
        pa.table({**data, "w": pa.array([rng.choice([1.0, 1.5, 3.0, 10.5, 25.0, None]) for _ in rows], pa.float64())}),
    )
    for width, message in (
        (0.5, ">= 1"),
        (1001.0, "<= 1000"),
        (float("nan"), "must not be NaN"),
        (float("inf"), "must not be NaN"),
    ):
        with pytest.raises(ExecutionError, match=message):
            evaluate([call("bar", *(Literal(v, DOUBLE) for v in (1.0, 0.0, 2.0, width)))])
    with pytest.raises(ExecutionError, match="Bar width must not be NaN"):
        evaluate([call("bar", *(Literal(v, DOUBLE) for v in (1.0, float("-inf"), 2.0)))])
