"""MATCH_RECOGNIZE: rows per second over 5 million rows of 1,000 keys, beside DuckDB's hand-written formulation where
there is one.

    python -m bench.patterns [--rows 5000000] [--runs 5] [--only TEXT]

DuckDB has no MATCH_RECOGNIZE: it runs an equivalent with LAG and LEAD, if there is one. Both engines hold the same
table in this one process, aggregate the matches, and take turns. A different answer ends the benchmark before anything
is timed. Sorting the rows by key and time is most of the work; the line "lag" is that and a plain window function."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from tsql.tpch.engines import DuckDB, Tsql
from tsql.tpch.measure import difference, interleaved

THREADS = 2
MOVES = "DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)"


@dataclass(frozen=True)
class Case:
    """A query, and its equivalent in DuckDB (None: there is none)."""

    name: str
    sql: str
    peer: str | None = None


def matched(measures: str, pattern: str, define: str, more: str = "") -> str:
    return f"events MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES {measures} {more} PATTERN ({pattern}) {define})"


CASES = [
    Case(
        "lag",
        (
            "SELECT count(*) AS n, sum(d) AS total FROM (SELECT price - lag(price) OVER (PARTITION BY k ORDER "
            "BY t) AS d FROM events)"
        ),
        (
            "SELECT count(*) AS n, sum(d) AS total FROM (SELECT price - lag(price) OVER (PARTITION BY k ORDER "
            "BY t) AS d FROM events)"
        ),
    ),
    Case(
        "V of three rows, to next row",
        (
            "SELECT count(*) AS n, sum(a) AS first, sum(z) AS last FROM "
            f"{matched('S.price AS a, UP.price AS z', 'S DOWN UP', MOVES, 'AFTER MATCH SKIP TO NEXT ROW')}"
        ),
        "SELECT count(*) AS n, sum(a) AS first, sum(z) AS last FROM (SELECT price AS a, lead(price) OVER w "
        "AS b, lead(price, 2) OVER w AS z FROM events "
        "WINDOW w AS (PARTITION BY k ORDER BY t)) WHERE b < a AND z > b",
    ),
    Case(
        "V of any length",
        (
            "SELECT count(*) AS n, sum(bottom) AS bottoms FROM "
            f"{matched('LAST(DOWN.price) AS bottom', 'S DOWN+ UP+', MOVES, 'AFTER MATCH SKIP TO LAST UP')}"
        ),
        "SELECT count(*) AS n, sum(price) AS bottoms FROM (SELECT price, d, lead(d) OVER (PARTITION BY k "
        "ORDER BY t) AS e FROM "
        "(SELECT k, t, price, price - lag(price) OVER (PARTITION BY k ORDER BY t) AS d FROM events)) WHERE "
        "d < 0 AND e > 0",
    ),
    Case(
        "sessions",
        (
            "SELECT count(*) AS n, sum(m * m) AS sizes FROM "
            f"{matched('count(*) AS m', 'B S*', 'DEFINE S AS t - PREV(t) <= 1000')}"
        ),
        "SELECT count(*) AS n, sum(m * m) AS sizes FROM (SELECT count(*) AS m FROM (SELECT k, sum(new) "
        "OVER (PARTITION BY k ORDER BY t) AS s FROM "
        "(SELECT k, t, (coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) > 1000, true))::INT AS new "
        "FROM events)) GROUP BY k, s)",
    ),
    Case(
        "conditions over the match so far",
        (
            "SELECT count(*) AS n, sum(m) AS total FROM "
            f"{matched('count(*) AS m', 'A B+', 'DEFINE B AS price > FIRST(A.price) AND sum(B.price) < 100000')}"
        ),
    ),
    Case(
        "all rows per match",
        (
            "SELECT count(*) AS n, max(c) AS c, sum(m) AS total FROM "
            f"{matched('CLASSIFIER() AS c, count(UP.price) AS m', 'S DOWN+ UP+', MOVES, 'ALL ROWS PER MATCH')}"
        ),
    ),
]


def table(rows: int, seed: int = 7) -> pa.Table:
    """Rows in random order: `t` numbers them by time, `k` has 1,000 keys."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "t": pa.array(random.permutation(rows)),
            "k": pa.array(random.integers(0, 1_000, rows)),
            "price": pa.array(random.integers(0, 10_000, rows)),
        }
    )


def measure(case: Case, engines: dict[str, Tsql | DuckDB], runs: int) -> dict[str, float]:
    """Milliseconds of each engine that takes part."""
    texts = {"tsql": case.sql} | ({"duckdb": case.peer} if case.peer is not None else {})
    answers = {name: engines[name].run(text) for name, text in texts.items()}
    wrong = difference(answers["tsql"], answers.get("duckdb", answers["tsql"]), ordered=True)
    if wrong is not None:
        sys.exit(f"{case.name}: {wrong}")
    times = interleaved({name: partial(engines[name].run, text) for name, text in texts.items()}, runs, warmup=1)
    return {name: t.median for name, t in times.items()}


def engines_with(data: pa.Table) -> dict[str, Tsql | DuckDB]:
    """Both engines with the table in memory."""
    tsql, duckdb = Tsql(THREADS), DuckDB(THREADS)
    tsql.session.register("arrow_events", data)
    duckdb.connection.register("arrow_events", data)
    found: dict[str, Tsql | DuckDB] = {"tsql": tsql, "duckdb": duckdb}
    for engine in found.values():
        engine.execute("CREATE TABLE events AS SELECT * FROM arrow_events")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print a table of milliseconds, rows per second and ratios to DuckDB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    options = parser.parse_args(arguments)
    engines = engines_with(table(options.rows))
    print(f"{'':<36}{'ms':>10}{'M rows/s':>12}{'duckdb ms':>12}{'duckdb / tsql':>16}")
    for case in CASES:
        if options.only in case.name:
            times = measure(case, engines, options.runs)
            peer = f"{times['duckdb']:>12.0f}{times['duckdb'] / times['tsql']:>15.2f}x" if "duckdb" in times else ""
            print(f"{case.name:<36}{times['tsql']:>10.0f}{options.rows / times['tsql'] / 1e3:>12.1f}{peer}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
