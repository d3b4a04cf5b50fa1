"""LIKE and ILIKE against DuckDB: constant patterns (taken apart at emission) and patterns from a column (the
matcher)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.kernels.harness import both, evaluate
from tests.kernels.strings.string_cases import (
    NASTY,
    call,
    check,
    check_nasty,
    columns_of,
    duckdb_values,
    nasty_table,
    text,
)
from tsql.kernels.expr.errors import ExecutionError
from tsql.kernels.functions.strings.like import like_pieces

PATTERNS = [
    "", "%", "%%", "_", "__", "%_", "_%", "a", "abc", "a%", "%c", "a%c", "%b%", "%b%c%", "a%b%c", "%a%a%a%", "%aa%a",
    "é", "%é%", "_é", "é_", "%🦆", "🦆%🦆", "a_b", "%_b%", "%,%", "hello", "hell_", "%\\%", "100%", "%語%語%", "a\0b",
    "%\0%", "A%", "%É%", "%more than%bytes", "a longer%", "%x%x%x%", "x%x", "abab%abab", "%e\u0301%", "straße",
    "STRASSE", "i%", "%ΣΣ",
]  # fmt: skip


def sql_text(value: str) -> str:
    parts = ["'" + p.replace("'", "''") + "'" for p in value.split("\0")]
    return " || chr(0) || ".join(parts)


@pytest.mark.parametrize("name", ["like", "ilike"])
def test_constant_patterns(name: str) -> None:
    table = pa.table({"s": NASTY})
    (s,) = columns_of(table)
    expected = [duckdb_values(f"s {name} ({sql_text(p)})", table) for p in PATTERNS]
    got = both([call(name, s, text(p)) for p in PATTERNS], table)
    for pattern, result, want in zip(PATTERNS, got, expected, strict=True):
        assert dict(zip(NASTY, result.to_pylist(), strict=True)) == dict(zip(NASTY, want, strict=True)), (
            f"{name} {pattern!r}"
        )


@pytest.mark.parametrize("name", ["like", "ilike"])
def test_patterns_from_a_column(name: str) -> None:
    check_nasty(name, nasty_table(300, 11, s="text", pattern=[*PATTERNS, None]), f"s {name} pattern")


def test_random_patterns() -> None:
    """Many % and _ over a small alphabet: the hard case for backtracking."""
    rng = random.Random(12)
    strings = ["".join(rng.choice("abé") for _ in range(rng.randrange(12))) for _ in range(400)]
    patterns = ["".join(rng.choice("abé%%_") for _ in range(rng.randrange(8))) for _ in range(400)]
    check("like", pa.table({"s": strings, "p": patterns}), "s LIKE p", random_from=0)


def test_a_pattern_that_backtracks_much_ends_soon() -> None:
    table = pa.table({"s": ["a" * 20000 + "b"]})
    (got,) = evaluate([call("like", *columns_of(table), text("_%a%a%a%a%a%a%a%c"))], table)
    assert got.to_pylist() == [False]


def test_escape() -> None:
    strings = ["a%b", "a_b", "axb", "a!b", "a%", "%", "!", "a!", "A%B", None, "aéb"]
    patterns = ["a!%b", "a!_b", "a!!b", "a!%", "!%", "a%", "a_b", "%!%%", "a!éb", None]
    rows = [(s, p, e) for s in strings for p in patterns for e in ("!", "", None)]
    table = pa.table({"s": [r[0] for r in rows], "p": [r[1] for r in rows], "e": [r[2] for r in rows]})
    for name in ("like_escape", "ilike_escape"):
        check(name, table)
    table = pa.table({"s": strings})
    (s,) = columns_of(table)
    for name in ("like", "ilike"):
        for escape in ("!", ""):
            known = [p for p in patterns if p is not None]
            got = both([call(name, s, text(p), text(escape)) for p in known], table)
            for pattern, result in zip(known, got, strict=True):
                assert result.to_pylist() == duckdb_values(f"s {name} '{pattern}' ESCAPE '{escape}'", table), (
                    name,
                    pattern,
                    escape,
                )


def test_the_escape_character_ignores_case_in_ilike() -> None:
    table = pa.table({"s": ["a%", "axb", "ab", "A%"], "p": ["aX%", "aXb", "aXb", "ax%"], "e": ["X", "X", "X", "X"]})
    check("ilike_escape", table)
    (got,) = both([call("ilike", columns_of(table)[0], text("aX%"), text("X"))], table)
    assert got.to_pylist() == duckdb_values("s ILIKE 'aX%' ESCAPE 'X'", table)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("a", "a%!", "!"), "Like pattern must not end with escape character!"),
        (("a", "a", "!!"), "Invalid escape string"),
        (("a", "a", "é"), "Invalid escape string"),
    ],
)
def test_failures(args: tuple[str, ...], message: str, interpret: bool) -> None:
    with pytest.raises(ExecutionError, match=message):
        evaluate([call("like", *map(text, args))], interpret=interpret)


def test_pieces() -> None:
    assert like_pieces("a%b%") == [b"a", b"b", b""]
    assert like_pieces("a!%b", "!") == [b"a%b"]
    assert like_pieces("a_b") is None
    assert like_pieces("ab!", "!") is None


def test_null_patterns() -> None:
    table = pa.table({"s": ["a", None]})
    (s,) = columns_of(table)
    got = both(
        [call("like", s, text(None)), call("ilike", text(None), text("a")), call("like", s, text("a"), text(None))],
        table,
    )
    assert [g.to_pylist() for g in got] == [[None, None]] * 3
