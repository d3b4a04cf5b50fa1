"""Tiered compilation: the first run takes quick code, the full code is made behind its back, and all runs give the same
answer."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.patience import PATIENCE_SECONDS
from tsql.backends.local.run import kernels as run_kernels
from tsql.kernels.codegen import llvm, promote
from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel
from tsql.kernels.codegen.levels import settled
from tsql.kernels.codegen.llvm import FULL, QUICK, TIERED
from tsql.kernels.codegen.promote import Promoter, promoter

ROWS = 20_000
QUERIES = [
    (
        "SELECT g, count(*) AS n, sum(x) AS total, min(s) AS low, max(d) AS high FROM t WHERE x % 7 <> 3 "
        "GROUP BY g ORDER BY g"
    ),
    "SELECT a.g, sum(a.x * b.x) AS total FROM t a JOIN t b ON a.x = b.x AND a.g < b.g GROUP BY a.g ORDER BY a.g",
    (
        "SELECT id, sum(d) OVER (PARTITION BY g ORDER BY x, id ROWS 5 PRECEDING) AS w FROM t QUALIFY w > 40 "
        "ORDER BY id LIMIT 50"
    ),
    "SELECT DISTINCT upper(s) || g AS u FROM t WHERE s LIKE '%1%' ORDER BY u",
    "SELECT x, d FROM t ORDER BY d DESC, x LIMIT 20",
]


@pytest.fixture(autouse=True)
def better_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is made after all."""
    monkeypatch.delenv("TSQL_BETTER_CODE")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 3000, ROWS)
    return pa.table(
        {
            "id": range(ROWS),
            "g": pa.array(numbers % 11, mask=numbers % 17 == 0),
            "x": numbers,
            "d": numbers / 8 + 0.25,
            "s": pa.array(numbers * 31 % 977).cast(pa.string()),
        }
    )


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, bool]]]:
    """(level, in the foreground) of each compilation; nothing comes from the caches of earlier runs."""
    monkeypatch.setenv("TSQL_CACHE", "")
    made: list[tuple[int, bool]] = []
    fresh = llvm.Compiler()
    compile = fresh.compile

    def noted(module: Module, opt: int = FULL, check: Any = lambda: None, foreground: bool = True) -> Any:
        if module is not promote._NOTHING:
            made.append((opt, foreground))
        return compile(module, opt, check, foreground)

    monkeypatch.setattr(fresh, "compile", noted)
    monkeypatch.setattr(llvm, "_compiler", fresh)
    yield made
    promoter.wait()


@pytest.mark.parametrize("query", QUERIES)
def test_both_tiers_give_the_same_answer(table: pa.Table, levels: list[tuple[int, bool]], query: str) -> None:
    with tsql.connect(threads=2, small_rows=1000) as db, empty_duckdb() as duck:
        db.register("t", table)
        duck.register("t", table)
        expected = duck.sql(query).fetchall()
        assert db.sql(query).fetchall() == expected
        promoter.wait()
        assert (QUICK, True) in levels and (FULL, False) in levels
        # What links the table of a join, and what places the rows of a window, are kernels for all queries, and always
        # made in full.
        assert (FULL, True) not in levels or "JOIN" in query or "OVER" in query, (
            "the first run does not wait for full code"
        )
        before = len(levels)
        assert db.sql(query).fetchall() == expected
        promoter.wait()
        assert (FULL, False) not in levels[before:], "what is compiled in full is not compiled again"


def test_few_rows_stay_with_quick_code(
    table: pa.Table, levels: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many a user calls few."""
    monkeypatch.setattr(run_kernels, "FULL_ROWS", ROWS // 2)
    with tsql.connect(threads=2, small_rows=ROWS) as db:
        db.register("t", table)
        db.sql(QUERIES[0]).arrow()
        promoter.wait()
    assert {level for level, _ in levels} == {QUICK}


def test_many_rows_wait_for_full_code(
    table: pa.Table, levels: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_kernels, "FULL_ROWS", ROWS // 2)
    with tsql.connect(threads=2, small_rows=1) as db:
        db.register("t", table)
        db.sql("SELECT sum(x), max(d) FROM t WHERE g = 3").arrow()
    assert (FULL, True) in levels


def test_rows_of_unknown_number_begin_with_quick_code(
    table: pa.Table, levels: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They may be many: the full code is asked for at once, and taken while the query runs."""
    asked: list[int] = []
    add = promoter.add
    monkeypatch.setattr(promoter, "add", lambda module, done: (asked.append(len(levels)), add(module, done)))
    pacsv.write_csv(table, tmp_path / "t.csv")
    with tsql.connect(threads=2) as db:
        found = db.sql(f"SELECT sum(x), max(d) FROM '{tmp_path}/t.csv' WHERE g = 3").fetchall()
        assert asked and asked[0] == 1, "before the next kernel of the query is made"
        promoter.wait()
        db.register("t", table)
        assert found == db.sql("SELECT sum(x), max(d) FROM t WHERE g = 3").fetchall()
    assert (QUICK, True) in levels and (FULL, False) in levels and (FULL, True) not in levels


def a_module(name: str = "main") -> Module:
    module = Module()
    k = Kernel(module, name, ("ptr", "ptr", "i64"), None)
    k.ret()
    k.finish()
    return module


def test_a_failing_promotion_is_told_and_the_next_one_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, done = Promoter(), threading.Event()
    told: list[str] = []
    monkeypatch.setattr(warnings, "warn", lambda message, *_, **__: told.append(str(message)))

    def refuse(compiled: Any) -> None:
        raise RuntimeError("no room")

    ours.add(a_module(), refuse)
    ours.add(a_module(), lambda compiled: done.set())
    assert done.wait(PATIENCE_SECONDS)
    assert told == ["a kernel was not compiled in full and stays slower than it could be: RuntimeError: no room"]
    ours.stop()


@pytest.mark.parametrize("value", ["0", "1/3"])
def test_nothing_is_compiled_twice_on_request(
    table: pa.Table, levels: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TSQL_BETTER_CODE", value)
    with tsql.connect(threads=2, small_rows=1) as db:
        db.register("t", table)
        for query in (QUERIES[0], QUERIES[3], QUERIES[4]):
            db.sql(query).arrow()
    promoter.wait()
    assert {level for level, _ in levels} == ({QUICK} if value == "0" else {QUICK, FULL})
    assert all(foreground for _, foreground in levels)


def test_a_share_of_kernels_is_compiled_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [a_module(f"kernel_{i}") for i in range(200)]
    monkeypatch.setenv("TSQL_BETTER_CODE", "1/4")
    chosen = [settled(module, TIERED) for module in modules]
    assert chosen == [settled(module, TIERED) for module in modules] and set(chosen) == {QUICK, FULL}
    assert 20 < chosen.count(FULL) < 80
    assert settled(modules[0], FULL) == FULL and settled(modules[0], QUICK) == QUICK
    for value in ("1", "0", "1/0", "yes"):
        monkeypatch.setenv("TSQL_BETTER_CODE", value)
        if value in ("0", "1"):
            assert settled(modules[0], TIERED) == (TIERED if value == "1" else QUICK)
        else:
            with pytest.raises(ValueError, match=f"TSQL_BETTER_CODE={value}: it is 0, 1 or 1/N"):
                settled(modules[0], TIERED)


def test_a_stopped_promoter_takes_no_jobs() -> None:
    ours = Promoter()
    ours.stop()
    ours.add(a_module(), lambda compiled: pytest.fail("it was stopped"))
    assert ours.thread is None
