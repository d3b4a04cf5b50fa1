"""Window steps in parts: walked by several workers, placed in partitions, and block by block from files. The answers
are DuckDB's."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tsql
from tests.duck import empty_duckdb
from tests.local.test_spill import SPILLED, random_table, rows_of
from tsql.backends.local.run import host
from tsql.backends.local.sort import sorting
from tsql.backends.local.sort.window_data import SpreadWindow
from tsql.backends.local.spill.windows import SortedBlocks, WindowJobs
from tsql.kernels.expr.errors import ExecutionError, OutOfMemoryError

pytestmark = pytest.mark.usefixtures("settled")

A = random_table(1000, 40, 3)
ROWS = 150_000
LIMIT = 4 << 20

CALLS = {
    "ranks": ("row_number() OVER (PARTITION BY k ORDER BY n) AS a, rank() OVER (PARTITION BY k ORDER BY d) AS b, "
              "dense_rank() OVER (PARTITION BY k ORDER BY d) AS c"),
    "ranks of all rows": ("row_number() OVER (ORDER BY s, n) AS a, rank() OVER (ORDER BY b) AS b, "
                          "dense_rank() OVER (ORDER BY s) AS c, ntile(7) OVER (ORDER BY s, n) AS e"),
    "parts of the rows": ("percent_rank() OVER (PARTITION BY b ORDER BY d) AS a, cume_dist() OVER (PARTITION BY b "
                          "ORDER BY d) AS b, cume_dist() OVER (ORDER BY f) AS c"),
    "peers in all blocks": ("rank() OVER (PARTITION BY k ORDER BY b) AS a, dense_rank() OVER (ORDER BY b, k) AS b, "
                            "sum(n) OVER (ORDER BY b) AS c"),
    "lag and lead": ("lag(s) OVER (PARTITION BY k ORDER BY n) AS a, lead(d, 3) OVER (PARTITION BY b ORDER BY n) AS b, "
                     "lag(n, 400, -1) OVER (ORDER BY n DESC) AS c"),
    "shifts that turn around": ("lag(n, -2) OVER (ORDER BY s, n) AS a, lead(n, -700) OVER (ORDER BY n) AS b, lag(b, "
                                "0) OVER (ORDER BY n) AS c"),
    "shifts by columns": ("lag(s, n % 5) OVER (PARTITION BY b ORDER BY n) AS a, lag(s IGNORE NULLS) OVER (ORDER BY n) "
                          "AS b"),
    "running": ("sum(n) OVER (PARTITION BY b ORDER BY n) AS a, count(s) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING) AS "
                "b, max(d) OVER (PARTITION BY b ORDER BY d, n) AS c"),
    "running with peers": ("sum(n) OVER (PARTITION BY b ORDER BY d) AS a, min(n) OVER (ORDER BY k DESC) AS b, "
                           "bool_or(b) OVER (ORDER BY d DESC) AS c"),
    "running and behind": ("count(*) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 5 PRECEDING) AS a, "
                           "sum(n) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 300 FOLLOWING) AS b"),
    "running decimals": ("sum(n::DECIMAL(30, 3)) OVER (PARTITION BY b ORDER BY n) AS a, avg(k) OVER (ORDER BY n) AS b, "
                         "round(sum(f) FILTER (NOT isnan(f)) OVER (ORDER BY n ROWS 3 PRECEDING), 9) AS c"),
    "running texts": ("max(s) OVER (PARTITION BY b ORDER BY n) AS a, string_agg(b::VARCHAR, '') OVER (PARTITION BY k "
                      "ORDER BY n) AS b, first_value(s) OVER (ORDER BY n) AS c"),
    "sliding": ("sum(n) OVER (PARTITION BY b ORDER BY n ROWS BETWEEN 20 PRECEDING AND 5 FOLLOWING) AS a, "
                "max(n) OVER (ORDER BY s, n ROWS 250 PRECEDING) AS b"),
    "sliding texts": ("max(s) OVER (ORDER BY n ROWS BETWEEN 3 PRECEDING AND 300 FOLLOWING) AS a, string_agg(s, "
                      "'') OVER (ORDER BY n ROWS 2 PRECEDING) AS b"),
    "sliding and exclude": ("sum(n) OVER (ORDER BY n ROWS BETWEEN 9 PRECEDING AND 9 FOLLOWING EXCLUDE CURRENT ROW) AS "
                            "a, min(n) OVER (ORDER BY d ROWS BETWEEN 200 PRECEDING AND CURRENT ROW EXCLUDE GROUP) IS "
                            "NULL AS b"),
    "values of frames": ("last_value(s) OVER (ORDER BY n) AS a, first_value(d) OVER (ORDER BY n ROWS 5 PRECEDING) AS "
                         "b, nth_value(n, 2) OVER (ORDER BY n ROWS BETWEEN 3 FOLLOWING AND 9 FOLLOWING) AS c"),
    "ranges": ("sum(n) OVER (ORDER BY k RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a, count(*) OVER (PARTITION BY b "
               "ORDER BY d RANGE INTERVAL 30 DAY PRECEDING) AS b, max(n) OVER (ORDER BY f DESC RANGE 1 PRECEDING) "
               "AS c"),
    "groups": ("sum(n) OVER (ORDER BY k GROUPS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a, "
               "first_value(d) OVER (PARTITION BY b ORDER BY d, n GROUPS 3 PRECEDING) AS b"),
    "whole partitions": ("sum(n) OVER (PARTITION BY k) AS a, count(*) OVER () AS b, max(s) OVER (PARTITION BY s, "
                         "b) AS c"),
    "values in order": ("median(n) OVER (ORDER BY n ROWS 30 PRECEDING) AS a, count(DISTINCT k) OVER (ORDER BY n ROWS "
                        "30 PRECEDING) AS b, mode(b) OVER (ORDER BY n ROWS 30 PRECEDING) AS c"),
    "ends that move": ("sum(n) OVER (ORDER BY n ROWS BETWEEN k PRECEDING AND 2 FOLLOWING) AS a, "
                       "min(n) OVER (PARTITION BY b ORDER BY n ROWS BETWEEN n % 7 PRECEDING AND CURRENT ROW) AS b"),
    "computed keys": ("row_number() OVER (PARTITION BY n % 5, length(s) ORDER BY -n) AS a, sum(n) OVER (PARTITION BY 1 "
                      "ORDER BY n) AS b, rank() OVER (ORDER BY 1) AS c"),
    "no order": ("count(*) OVER (ROWS UNBOUNDED PRECEDING) > 0 AS a, rank() OVER () AS b, "
                 "percent_rank() OVER (PARTITION BY k) AS c"),
}  # fmt: skip


def query(name: str) -> str:
    return (
        f"SELECT n, s, {CALLS[name]} FROM a"
        if "k PRECEDING" not in CALLS[name]
        else f"SELECT n, {CALLS[name]} FROM a WHERE k IS NOT NULL"
    )


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with empty_duckdb() as connection:
        connection.register("a", A)
        yield connection


@pytest.fixture(scope="module")
def expected(oracle: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    return {name: rows_of(oracle.sql(query(name)).to_arrow_table()) for name in CALLS}


HELD = {"shifts by columns", "running texts", "ranges", "groups", "values in order", "ends that move"}
"""What needs all rows of a partition in memory, wherever they come from; the others are walked in blocks if they are
spilled."""


def answers(name: str, **settings: Any) -> list[str]:
    with tsql.connect(**settings) as db:
        db.register("a", A)
        return rows_of(db.sql(query(name)).arrow())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The datasets and jobs that are not plain rows in memory."""
    found: list[Any] = []
    for kind in (SpreadWindow, SortedBlocks):
        begin = kind.__init__
        monkeypatch.setattr(
            kind, "__init__", lambda self, *given, begin=begin: (begin(self, *given), found.append(self))[0]
        )
    return found


@pytest.mark.parametrize("settings", [{"shards": 1}, {"shards": 3, "batch_rows": 50}], ids=["1 shard", "3 shards"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.in_turn(2)
def test_spilled(name: str, settings: dict[str, int], expected: dict[str, list[str]], made: list[Any]) -> None:
    assert answers(name, threads=2, **SPILLED, **settings) == expected[name]
    assert all(isinstance(one, SortedBlocks) for one in made)
    assert max((len(one.blocks) for one in made), default=0) >= 3 or name in HELD


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.in_turn(2)
def test_by_several_workers(
    name: str, shards: int, expected: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "PARALLEL_ROWS", 100)
    assert answers(name, threads=5, shards=shards, small_rows=0) == expected[name]


def test_windows_of_the_spilling_configuration_are_walked_in_blocks(made: list[Any]) -> None:
    with tsql.connect(threads=2, **SPILLED) as db:
        db.register("a", A)
        db.sql("SELECT lag(s, 3) OVER (ORDER BY n) AS a, sum(n) OVER (ORDER BY n) AS b FROM a").arrow()
        db.sql("SELECT rank() OVER (PARTITION BY k ORDER BY n) AS a FROM a").arrow()
    assert len(made) > 1 and all(isinstance(one, SortedBlocks) for one in made)
    assert len(made[0].blocks) > 3 and sum(one.rows for one in made) == 2 * A.num_rows


def test_spilled_bytes_of_windows_are_shown() -> None:
    with tsql.connect(threads=2, **SPILLED) as db:
        db.register("a", A)
        text = db.sql(
            "SELECT rank() OVER (PARTITION BY k ORDER BY n) AS a, sum(n) OVER (ORDER BY n) AS b FROM a"
        ).explain("analyze")
    lines = [line for line in text.splitlines() if line.startswith("windowed")]
    for where in ("partition 1", "runs"):
        assert any(where in line and int(line.split()[-1].replace(",", "")) > 1000 for line in lines), text


def test_workers_share_one_partition(made: list[Any]) -> None:
    with tsql.connect(threads=3, small_rows=100) as db:
        db.register("a", A)
        db.sql("SELECT sum(r) FROM (SELECT row_number() OVER (ORDER BY n) AS r FROM a)").arrow()
        db.sql("SELECT n, row_number() OVER (PARTITION BY 1 ORDER BY n) AS r FROM a").arrow()
        db.sql("SELECT sum(n) OVER () AS r FROM a").arrow()
        db.sql("SELECT n, row_number() OVER (ORDER BY n) AS r FROM a WHERE n < 50").arrow()
    assert [(type(one), one.shards, one.rows) for one in made] == [(SpreadWindow, 3, A.num_rows)] * 2


def test_a_limit_takes_the_first_rows() -> None:
    with tsql.connect(threads=3, small_rows=100) as db:
        db.register("a", A)
        assert db.sql("SELECT row_number() OVER (ORDER BY n) AS r FROM a LIMIT 5").arrow()["r"].to_pylist() == [
            1,
            2,
            3,
            4,
            5,
        ]


def test_the_rows_of_a_result_are_in_the_order_of_the_window() -> None:
    with tsql.connect(threads=3, small_rows=100) as db:
        db.register("a", A)
        assert db.sql("SELECT row_number() OVER (ORDER BY s, n) AS r FROM a").arrow()["r"].to_pylist() == list(
            range(1, A.num_rows + 1)
        )


@pytest.fixture(scope="module")
def large() -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "t": rng.permutation(ROWS),
            "k": rng.integers(0, 2000, ROWS),
            "one": np.where(rng.random(ROWS) < 0.98, 1, rng.integers(2, 50, ROWS)),
            "s": pa.array(rng.integers(0, 10**9, ROWS)).cast(pa.string()),
        }
    )


LARGE = {
    "partitions": ("partition 1", "count(*), sum(a), sum(b), max(c)",
                   ("row_number() OVER (PARTITION BY k ORDER BY t) AS a, sum(t) OVER (PARTITION BY k "
                    "ORDER BY t ROWS 9 PRECEDING) AS b, max(s) OVER (PARTITION BY k) AS c")),
    "one partition": ("runs", "count(*), sum(a), sum(b), min(c)",
                      ("rank() OVER (ORDER BY k) AS a, sum(t) OVER (ORDER BY k, t) AS b, lag(s, "
                       "10) OVER (ORDER BY t) AS c")),
    "one large key": ("runs", "count(*), sum(a), sum(b), min(c)",
                      ("dense_rank() OVER (PARTITION BY one ORDER BY k) AS a, count(*) OVER (PARTITION BY one "
                       "ORDER BY t) AS b, lead(s) OVER (PARTITION BY one ORDER BY t) AS c")),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_more_rows_than_memory(name: str, large: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    where, outside, calls = LARGE[name]
    sql = f"SELECT {outside} FROM (SELECT *, {calls} FROM large)"
    counters = []
    begin = host.Shared.__init__
    monkeypatch.setattr(host.Shared, "__init__", lambda self, run: (begin(self, run), counters.append(self))[0])
    with empty_duckdb() as oracle, tsql.connect(threads=2, memory_limit=LIMIT) as db:
        oracle.register("large", large)
        db.register("large", large)
        assert rows_of(db.sql(sql).arrow()) == rows_of(oracle.sql(sql).to_arrow_table())
    gc.collect()
    assert 0 < max(c.peak for c in counters) <= LIMIT and [c.memory for c in counters] == [0] * len(counters)
    steps = [(name, step.get("spilled", 0)) for counter in counters for name, step in counter.run.steps.items()]
    assert any(name.startswith("windowed") and where in name and spilled > 1 << 20 for name, spilled in steps), steps


@pytest.mark.parametrize(
    "call",
    [
        "median(t) OVER (ORDER BY k ROWS 9 PRECEDING)",
        "first_value(s) OVER (ORDER BY t)",
        "sum(t) OVER (ORDER BY t RANGE 5 PRECEDING)",
    ],
)
def test_what_needs_all_rows_of_a_partition_is_refused(call: str, large: pa.Table) -> None:
    with tsql.connect(threads=2, memory_limit=LIMIT) as db:
        db.register("large", large)
        with pytest.raises(OutOfMemoryError, match="more memory than memory_limit allows"):
            db.sql(f"SELECT max(w) FROM (SELECT s, {call} AS w FROM large)").arrow()


@pytest.mark.parametrize("window", ["PARTITION BY k ORDER BY t", "ORDER BY t"])
def test_a_directory_that_cannot_be_written(window: str, large: pa.Table, tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    with tsql.connect(threads=2, memory_limit=LIMIT, temp_directory=str(folder)) as db:
        db.register("large", large)
        with pytest.raises(ExecutionError, match="cannot make a file in the temporary directory"):
            db.sql(f"SELECT max(r) FROM (SELECT s, row_number() OVER ({window}) AS r FROM large)").arrow()


def test_partitions_are_split_again(large: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[int] = []
    placed = WindowJobs._placed
    monkeypatch.setattr(WindowJobs, "_placed", lambda self, *given: (levels.append(given[3]), placed(self, *given))[1])
    monkeypatch.setattr(WindowJobs, "_window_partitions", lambda self, bytes, share: 2)
    sql = "SELECT count(*) FROM (SELECT s, row_number() OVER (PARTITION BY k ORDER BY t) AS r FROM large) WHERE r = 1"
    with tsql.connect(threads=2, memory_limit=LIMIT) as db:
        db.register("large", large)
        assert db.sql(sql).arrow().column(0).to_pylist() == [2000]
    assert 2 in levels
