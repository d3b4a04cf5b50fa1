"""Grapheme clusters against DuckDB: reversal, lengths and parts of strings with marks, emoji sequences, flags and
Hangul."""

from __future__ import annotations

import random
import unicodedata

import pyarrow as pa
import pytest

from tests.kernels.harness import evaluate
from tests.kernels.strings.string_cases import NASTY, call, check, columns_of, duckdb_values

PIECES = [
    "a", "b", "é", "e\u0301", "\u0301", "\u200d", "\ufe0f", "🦆", "🤦", "🏼", "♂", "🇩", "🇪", "🇫", "\r", "\n", "\r\n",
    "\u1100", "\u1161", "\u11a8", "가", "각", "\u0903", "\u0600", "क", "\u094d", "\u00a9", "\u200b", "語", "\U000e0061",
    "ไ", "ำ", "\u200c",
]  # fmt: skip


def texts(rows: int, seed: int) -> list[str | None]:
    rng = random.Random(seed)
    return [*NASTY, *("".join(rng.choice(PIECES) for _ in range(rng.randrange(9))) for _ in range(rows))]


@pytest.mark.parametrize("name", ["reverse", "length_grapheme"])
def test_as_duckdb(name: str) -> None:
    check(name, pa.table({"s": texts(120, 1)}))
    table = pa.table({"s": texts(4000, 2)})
    (got,) = evaluate([call(name, *columns_of(table))], table)
    assert got.to_pylist() == duckdb_values(f"{name}(s)", table)


@pytest.mark.parametrize("name", ["left_grapheme", "right_grapheme", "substring_grapheme"])
def test_parts(name: str) -> None:
    strings = texts(100, 3)
    rng = random.Random(4)
    counts = pa.array([rng.choice([0, 1, -1, 2, -2, 3, -4, 10, -10]) for _ in strings], pa.int64())
    table = pa.table({"s": strings, "n": counts})
    check(name, table)
    if name == "substring_grapheme":
        check(name, table.append_column("m", pa.array([rng.choice([0, 1, -1, 2, -3, 9]) for _ in strings], pa.int64())))


def test_the_class_of_every_character() -> None:
    """Of those that Python's character database knows: newer ones differ between versions of Unicode."""
    codes = [
        c
        for c in (*range(1, 0x3400), *range(0xA000, 0xD7FF), *range(0xF900, 0x1FC00), *range(0xE0000, 0xE0200))
        if unicodedata.category(chr(c)) != "Cn"
    ]
    for form in ("a{}a", "🦆{}\u200d🦆", "\u1100{}\u11a8", "{}\u0301"):
        table = pa.table({"s": [form.format(chr(c)) for c in codes]})
        (got,) = evaluate([call("length_grapheme", *columns_of(table))], table)
        want = duckdb_values("length_grapheme(s)", table)
        assert [hex(c) for c, a, b in zip(codes, got.to_pylist(), want, strict=True) if a != b] == []
