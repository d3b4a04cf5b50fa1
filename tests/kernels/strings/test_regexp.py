"""Regular expressions against DuckDB: matching, replacing, extracting, options, patterns from a column, bad
patterns."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.kernels.strings.string_cases import NASTY, check_nasty, duckdb_values, nasty_table
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.expr.types import INTEGER, VARCHAR, Type
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.functions.strings.regexp import only_group

STRINGS = [
    *NASTY,
    "a\nb",
    "abc123def456",
    "2020-01-02",
    "hello world",
    "Hello World",
    "foo.bar",
    "a+b",
    "(x)",
    "aaa bbb aaa",
]
PATTERNS = [
    "", "a", "^a", "a$", "a*", "(a)(b)?", "[a-z]+", "(an)*", r"\d+", r"(\d+)-(\d+)-(\d+)", ".", "..", "é", "[é語]",
    r"\bw", r"l\B", r"\w+$", "a|b", "(?i)HELLO", r"\.", r"\Qa+b\E", "[(]x[)]", "[]a]", "[[:alpha:]]+",
    "(?P<year>\\d{4})-(?:\\d+)-(\\d+)", "(a(b)(c))", "a.b", "^$", r"\pL+", "(l+)(o)",
]  # fmt: skip


def host(name: str, *args: Any) -> Any:
    """Call a host function with a column of strings and constants."""
    values = [
        a if isinstance(a, pa.Array | pa.Scalar) else pa.scalar(a, pa.int32() if isinstance(a, int) else pa.string())
        for a in args
    ]
    kinds: tuple[Type, ...] = tuple(INTEGER if pa.types.is_integer(v.type) else VARCHAR for v in values)
    function = SCALARS.find(name, kinds)
    assert function.host is not None
    result = function.host(*values)
    assert result.type == function.return_type(kinds).to_arrow()
    return result


def quoted(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def agree(name: str, *rest: str | int) -> None:
    table = pa.table({"s": STRINGS})
    got = host(name, table.column("s").combine_chunks(), *rest).to_pylist()
    want = duckdb_values(f"{name}(s, {', '.join(map(quoted, rest))})", table)
    assert dict(zip(STRINGS, got, strict=True)) == dict(zip(STRINGS, want, strict=True)), rest


@pytest.mark.parametrize("name", ["regexp_matches", "regexp_full_match", "regexp_extract"])
def test_patterns(name: str) -> None:
    for pattern in PATTERNS:
        agree(name, pattern)


@pytest.mark.parametrize("options", ["i", "s", "m", "n", "p", "l", "c", "ic", "ci", "is", "li", " i\t"])
def test_options(options: str) -> None:
    for pattern in ("HELLO", "a.b", "a+b", "^b", "[A-C]+"):
        agree("regexp_matches", pattern, options)
        agree("regexp_full_match", pattern, options)
        agree("regexp_extract", pattern, 0, options)
        agree("regexp_extract", pattern, options)
        agree("regexp_replace", pattern, "<\\0>", options)


def test_replacements() -> None:
    for pattern in PATTERNS:
        for replacement in ("", "X", "<\\0>", "\\\\", "é\\0\\0"):
            agree("regexp_replace", pattern, replacement)
            agree("regexp_replace", pattern, replacement, "g")
    agree("regexp_replace", r"(\d+)-(\d+)-(\d+)", r"\3/\2/\1")
    agree("regexp_replace", "(.)(.)(.)(.)(.)(.)(.)(.)(.)", r"\9\8\7")
    agree("regexp_replace", "(.)(.)", r"\2\1", "g")


@pytest.mark.parametrize("group", [0, 1, 2, 3, 9])
def test_groups(group: int) -> None:
    for pattern in PATTERNS:
        agree("regexp_extract", pattern, group)


@pytest.mark.parametrize("name", ["regexp_matches", "regexp_full_match", "regexp_extract"])
def test_patterns_from_a_column(name: str) -> None:
    table = nasty_table(120, 5, s=STRINGS, p=[*PATTERNS, None])
    got = host(name, *(c.combine_chunks() for c in table.columns))
    assert got.to_pylist() == duckdb_values(f"{name}(s, p)", table)


def test_replacements_from_a_column() -> None:
    table = nasty_table(120, 6, s=STRINGS, p=[*PATTERNS, None], r=["x", "", None, "<\\0>"])
    got = host("regexp_replace", *(c.combine_chunks() for c in table.columns), pa.scalar("g"))
    assert got.to_pylist() == duckdb_values("regexp_replace(s, p, r, 'g')", table)
    no_rows = pa.array([], pa.string())
    assert host("regexp_replace", no_rows, no_rows, "x").to_pylist() == []


def test_constants_and_nulls() -> None:
    assert host("regexp_matches", "abc", "b") == pa.scalar(True)
    assert host("regexp_extract", pa.scalar(None, pa.string()), "b").as_py() is None
    strings = pa.array(["abc", None])
    assert host("regexp_matches", strings, pa.scalar(None, pa.string())).to_pylist() == [None, None]
    assert host("regexp_extract", strings, "b", pa.scalar(None, pa.int32())).to_pylist() == duckdb_values(
        "regexp_extract(s, 'b', NULL::INTEGER)", pa.table({"s": strings})
    )


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("regexp_matches", ("(",)), ("regexp_matches", ("a)(b",)), ("regexp_full_match", ("a)(b",)),
        ("regexp_matches", ("[a",)), ("regexp_matches", ("*",)), ("regexp_matches", ("a", "q")),
        ("regexp_matches", ("a", "g")), ("regexp_extract", ("a", 10)), ("regexp_extract", ("a", -1)),
        ("regexp_replace", ("b", "\\2")), ("regexp_replace", ("(b)", "\\2")), ("regexp_replace", ("b", "\\")),
        ("regexp_replace", ("b", "\\q")), ("regexp_extract", ("a", "g")),
    ],
)  # fmt: skip
def test_failures(name: str, rest: tuple[str | int, ...]) -> None:
    """The message is DuckDB's, that is, RE2's."""
    with pytest.raises(duckdb.Error) as theirs:
        duckdb_values(f"{name}('abc', {', '.join(map(quoted, rest))})")
    with pytest.raises(ExecutionError) as ours:
        host(name, pa.array(["abc"]), *rest)
    assert ours.value.message in str(theirs.value)


def test_options_must_not_be_null() -> None:
    with pytest.raises(ExecutionError, match="Regex options field must not be NULL"):
        host("regexp_matches", pa.array(["abc"]), "b", pa.scalar(None, pa.string()))


def test_escape() -> None:
    check_nasty("regexp_escape", nasty_table(80, 9, s="text"))


def test_only_group() -> None:
    assert only_group("a(b)(c)", 2) == "a(?:b)(?P<g>c)"
    assert only_group("(a)", 2) is None
    assert only_group(r"\(([(])(?:x)(?P<n>y)\Q(\E", 2) == r"\((?:[(])(?:x)(?P<g>y)\Q(\E"
