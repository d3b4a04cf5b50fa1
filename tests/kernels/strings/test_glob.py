"""GLOB, slices, similarity and percent encoding against DuckDB, over random texts of small alphabets, where they go
wrong most."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.kernels.harness import both, evaluate
from tests.kernels.strings.string_cases import NASTY, call, check, columns_of, duckdb_values, text


def _texts(rng: random.Random, alphabet: str, longest: int, count: int) -> list[str | None]:
    return [
        "".join(rng.choice(alphabet) for _ in range(rng.randrange(longest))) if rng.random() > 0.03 else None
        for _ in range(count)
    ]


def test_random_globs() -> None:
    """Brackets that close late, early or never, ranges, escapes, and many stars."""
    rng = random.Random(21)
    table = pa.table({"s": _texts(rng, "ab-]!é", 9, 1200), "p": _texts(rng, "ab-é[[]]!**?\\", 9, 1200)})
    check("glob", table, "s GLOB p", random_from=0)


def test_a_glob_that_backtracks_much_ends_soon() -> None:
    table = pa.table({"s": ["a" * 20000 + "b"]})
    (got,) = evaluate([call("glob", *columns_of(table), text("?*a*a*a*a*a*a*a*c"))], table)
    assert got.to_pylist() == [False]


def test_slices_of_nasty_strings() -> None:
    rng = random.Random(22)
    rows = [
        (s, rng.choice((*range(-5, 6), 2**40, -(2**40))), rng.choice((*range(-5, 6), 2**40, -(2**40))))
        for s in NASTY
        for _ in range(8)
    ]
    table = pa.table(
        {
            "s": [r[0] for r in rows],
            "a": pa.array([r[1] for r in rows], pa.int64()),
            "b": pa.array([r[2] for r in rows], pa.int64()),
        }
    )
    check("array_slice", table, "s[a:b]", random_from=0)
    small = pa.table({"s": table["s"], "a": pa.array([max(-9, min(9, r[1])) for r in rows], pa.int64())})
    check("array_extract", small, "s[a]", random_from=0)


@pytest.mark.parametrize("name", ["damerau_levenshtein", "jaro_similarity", "jaro_winkler_similarity"])
def test_similarity(name: str) -> None:
    rng = random.Random(23)
    table = pa.table(
        {"a": [*NASTY, *_texts(rng, "abcé", 12, 600)], "b": [*reversed(NASTY), *_texts(rng, "abcé", 12, 600)]}
    )
    a, b = columns_of(table)
    (got,) = both([call(name, a, b)], table, random_from=len(NASTY))
    assert got.to_pylist() == pytest.approx(duckdb_values(f"{name}(a, b)", table))


@pytest.mark.parametrize("name", ["url_encode", "url_decode", "bin"])
def test_encodings(name: str) -> None:
    rng = random.Random(24)
    table = pa.table({"s": [*NASTY, *_texts(rng, "g% é-46/", 10, 400)]})
    check(name, table, f"{name}(s)", random_from=len(NASTY))


def test_sizes_at_the_edges_of_units() -> None:
    sizes = [
        sign * (base**power + step)
        for base in (1000, 1024)
        for power in range(1, 7)
        for step in (-1, 0, 1, 99, 102, 103)
        for sign in (1, -1)
    ]
    table = pa.table({"n": pa.array([s for s in sizes if -(2**63) <= s < 2**63], pa.int64())})
    for name in ("format_bytes", "formatreadabledecimalsize"):
        check(name, table, f"{name}(n)")
