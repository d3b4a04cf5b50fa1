"""String functions against DuckDB on nasty strings: empty, NULL, every width of UTF-8, combining marks, NUL, long ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.kernels.harness import both, evaluate
from tests.kernels.string_cases import NASTY, NUMBERS, call, check, columns_of, duckdb_values, nasty_table, text
from tsql.kernels.errors import ExecutionError
from tsql.kernels.expr import Literal
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.types import BIGINT, INTEGER, VARCHAR

SHAPES = {
    "length": ("text",), "strlen": ("text",), "bit_length": ("text",), "ascii": ("text",), "unicode": ("text",), "lower": ("text",), "upper": ("text",),
    "trim": ("text",), "ltrim": ("text",), "rtrim": ("text",), "octet_length": ("blob",),
    "substr": ("text", "number"), "left": ("text", "number"), "right": ("text", "number"), "repeat": ("text", "number"),
    "strpos": ("text", "short"), "contains": ("text", "short"), "starts_with": ("text", "short"), "ends_with": ("text", "short"),
    "split_part": ("text", "short", "number"), "replace": ("text", "short", "short"), "translate": ("text", "short", "text"),
    "concat": ("text", "short", "text"), "concat_ws": ("short", "text", "short", "text"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_as_duckdb(name: str) -> None:
    columns = {f"c{i}": kind for i, kind in enumerate(SHAPES[name])}
    check(name, nasty_table(150, 7, **columns))


@pytest.mark.parametrize("name", ["trim", "ltrim", "rtrim"])
def test_trim_of_characters(name: str) -> None:
    check(name, nasty_table(200, 3, s="text", characters=[None, "", "a", "ab", "é", "xé ", "🦆a", "語日", "\u0301e"]))


@pytest.mark.parametrize("name", ["lpad", "rpad"])
def test_padding(name: str) -> None:
    check(name, nasty_table(200, 4, s="text", count="int", padding=["a", "xy", "é", "🦆b", "語", None]))


def test_substring_over_a_grid() -> None:
    places = list(range(-8, 9))
    rows = [(s, o, n) for s in ("", "hello", "a🦆é語b") for o in places for n in places]
    check("substr", pa.table({"s": [r[0] for r in rows], "o": [r[1] for r in rows], "n": [r[2] for r in rows]}))


def test_concat_op() -> None:
    check("concat_op", nasty_table(100, 5, a="text", b="text"), "a || b")
    check("concat_op", nasty_table(100, 6, a="blob", b="blob"), "a || b")


def test_repeat_of_blobs() -> None:
    check("repeat", nasty_table(60, 8, a="blob", n="number"))


def test_chr() -> None:
    codes = pa.table({"c": pa.array([0, 1, 65, 127, 128, 255, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF, None], pa.int32())})
    check("chr", codes)


@pytest.mark.parametrize("kind", ["lower", "upper"])
def test_case_of_every_letter(kind: str) -> None:
    letters = [c for c in map(chr, range(1, 0x20000)) if not 0xD800 <= ord(c) < 0xE000 and (c.lower() != c or c.upper() != c)]
    table = pa.table({"s": letters})
    (got,) = evaluate([call(kind, *columns_of(table))], table)
    assert got.to_pylist() == duckdb_values(f"{kind}(s)", table)


def test_case_of_long_text() -> None:
    table = pa.table({"s": ["The Quick Brown Fox " * 20, "Ünïcödé ÄND ASCII " * 20, "ⱥȺ" * 50]})
    for kind in ("lower", "upper"):
        check(kind, table)


FAILURES = [
    ("chr", (Literal(-1, INTEGER),), "Invalid UTF8 Codepoint"),
    ("chr", (Literal(0xD800, INTEGER),), "Invalid UTF8 Codepoint"),
    ("chr", (Literal(0x110000, INTEGER),), "Invalid UTF8 Codepoint"),
    ("substr", (text("hello"), Literal(2**32, BIGINT)), r"Substring offset outside of supported range \(> 4294967295\)"),
    ("substr", (text(""), Literal(-(2**63), BIGINT), Literal(1, BIGINT)), r"Substring offset outside of supported range \(< -4294967296\)"),
    ("substr", (text("hello"), Literal(1, BIGINT), Literal(2**63 - 1, BIGINT)), r"Substring length outside of supported range \(> 4294967295\)"),
    ("left", (text("hello"), Literal(2**63 - 1, BIGINT)), "Substring length outside of supported range"),
    ("lpad", (text("hi"), Literal(5, INTEGER), text("")), "Insufficient padding in LPAD."),
    ("rpad", (text("hi"), Literal(5, INTEGER), text("")), "Insufficient padding in RPAD."),
    ("repeat", (text("ab"), Literal(10**11, BIGINT)), "maximum supported string size"),
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
    calls = [call("left", hello, lowest), call("right", hello, lowest), call("right", hello, highest), call("substr", hello, Literal(-(2**32), BIGINT))]
    calls += [call("split_part", text("a,b"), text(","), n) for n in (lowest, highest)] + [call("repeat", text(""), highest), call("repeat", hello, lowest)]
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
    check("overlay", nasty_table(150, 21, a="text", b="short", c="number"))
    check("overlay", nasty_table(150, 22, a="text", b="short", c="number", d="number"))
    limits = [Literal(v, BIGINT) for v in (-(2**63), 2**63 - 1)]
    got = both([call("overlay", text("abc"), text("X"), a, b) for a in limits for b in limits])
    assert [g.to_pylist()[0] for g in got] == ["Xabc", "Xabc", "abcX", "abcX"]


def test_levenshtein() -> None:
    check("levenshtein", nasty_table(80, 23, a="text", b="text"))


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
    if (f.emit or f.host).__module__.rpartition(".")[2] in ("strings", "strings_search", "strings_case", "strings_grapheme", "strings_distance", "strings_accents", "like", "regexp", "hashing", "encoding")
]


@pytest.mark.parametrize(("name", "sql", "expected"), EXAMPLES)
def test_examples_hold_in_duckdb(name: str, sql: str, expected: object) -> None:
    assert duckdb_values(sql) == [expected]


def test_every_function_has_an_example() -> None:
    with_examples = {e[0] for e in EXAMPLES}
    for f in (f for name in SCALARS.names() for f in SCALARS.overloads[name]):
        body = f.emit or f.host
        if body.__module__.rpartition(".")[2].startswith(("strings", "like", "regexp", "hashing", "encoding")):
            assert any(g.examples for other in with_examples for g in SCALARS.overloads[other] if (g.emit or g.host) is body), f.name
