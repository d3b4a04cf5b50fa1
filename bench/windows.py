"""Window functions: what a row costs over frames of 10, 1,000 and 100,000 rows, and how that compares with DuckDB.

    python -m bench.windows [--rows 1000000] [--runs 5] [--only TEXT]

Both engines hold the same table in this one process, aggregate the results of the window functions (so that no time
is spent on returning rows), and take turns. A different answer ends the benchmark before anything is timed. The time
per row of a sliding frame should be flat: the last column is the slowest frame over the fastest. The second table has
functions without a frame size, with DuckDB and the same query on one thread."""

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
FRAMES = (10, 1_000, 100_000)


@dataclass(frozen=True)
class Case:
    """A window function; `{}` in its text is the frame size. `peer`: DuckDB is measured too (otherwise it would take
    minutes)."""

    name: str
    call: str
    peer: bool = True


SLIDING = [
    Case("sum(bigint), rows", "sum(v) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)"),
    Case("avg(double), rows", "avg(x) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)"),
    Case("min(bigint), rows", "min(v) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)"),
    Case("max(text), rows", "max(s) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)"),
    Case("stddev(double), rows", "stddev(x) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)"),
    Case("sum(bigint), range", "sum(v) OVER (ORDER BY t RANGE BETWEEN {} PRECEDING AND CURRENT ROW)"),
    Case(
        "sum(bigint) by 1,000 keys, rows",
        "sum(v) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)",
    ),
    Case(
        "max(double), exclude current row",
        "max(x) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW)",
    ),
    Case("median(bigint), rows", "median(v) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)", peer=False),
    Case(
        "count(distinct), rows",
        "count(DISTINCT k) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)",
        peer=False,
    ),
]
OTHERS = [
    Case("row_number", "row_number() OVER (ORDER BY t)"),
    Case("row_number, two keys of order", "row_number() OVER (ORDER BY v, t)"),
    Case("rank", "rank() OVER (ORDER BY k)"),
    Case("dense_rank", "dense_rank() OVER (ORDER BY k)"),
    Case("lag", "lag(v) OVER (ORDER BY t)"),
    Case("running sum", "sum(v) OVER (ORDER BY t)"),
    Case("running max of doubles", "max(x) OVER (ORDER BY t)"),
    Case("all rows", "sum(v) OVER ()"),
    Case("row_number by 1,000 keys", "row_number() OVER (PARTITION BY k ORDER BY t)"),
    Case("rank by 1,000 keys", "rank() OVER (PARTITION BY k ORDER BY v)"),
    Case("lag by 1,000 keys", "lag(v) OVER (PARTITION BY k ORDER BY t)"),
    Case("running sum by 1,000 keys", "sum(v) OVER (PARTITION BY k ORDER BY t)"),
    Case(
        "range by 1,000 keys", "sum(v) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN 100000 PRECEDING AND CURRENT ROW)"
    ),
    Case("whole partition, 1,000 keys", "max(v) OVER (PARTITION BY k)"),
    Case("row_number by 3 keys", "row_number() OVER (PARTITION BY k % 3 ORDER BY t)"),
    Case("first_value, 100,000 keys of text", "first_value(v) OVER (PARTITION BY s ORDER BY t)"),
]


def table(rows: int, seed: int = 7) -> pa.Table:
    """Rows in random order: `t` numbers them by time, `k` has 1,000 keys, `s` 100,000."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "t": pa.array(random.permutation(rows)),
            "k": pa.array(random.integers(0, 1_000, rows)),
            "v": pa.array(random.integers(-(10**9), 10**9, rows)),
            "x": pa.array(random.integers(0, 1 << 20, rows) / 64),
            "s": pa.array(np.char.add("key ", random.integers(0, 100_000, rows).astype(str))),
        }
    )


def text(call: str) -> str:
    """A query that computes the call for every row and returns one row."""
    if call.startswith("max(s)"):
        return f"SELECT min(w) AS low, max(w) AS high, count(w) AS n FROM (SELECT {call} AS w FROM events)"
    return f"SELECT sum(w::DOUBLE) AS total, count(w) AS n FROM (SELECT {call} AS w FROM events)"


def measure(case: Case, call: str, engines: dict[str, Tsql | DuckDB], runs: int) -> dict[str, float]:
    """The milliseconds of each engine. DuckDB is left out if it is not measured."""
    sql = text(call)
    taking_part = {name: engine for name, engine in engines.items() if case.peer or name != "duckdb"}
    answers = {name: engine.run(sql) for name, engine in taking_part.items()}
    for name, answer in answers.items():
        wrong = difference(answers["tsql"], answer, ordered=True)
        if wrong is not None:
            sys.exit(f"{call}: {name}: {wrong}")
    times = interleaved({name: partial(engine.run, sql) for name, engine in taking_part.items()}, runs, warmup=1)
    return {name: t.median for name, t in times.items()}


def engines_with(data: pa.Table) -> dict[str, Tsql | DuckDB]:
    """Both engines, and ours with one thread, with the table in memory."""
    tsql, one, duckdb = Tsql(THREADS), Tsql(1), DuckDB(THREADS)
    for ours in (tsql, one):
        ours.session.register("arrow_events", data)
    duckdb.connection.register("arrow_events", data)
    found: dict[str, Tsql | DuckDB] = {"tsql": tsql, "one": one, "duckdb": duckdb}
    for engine in found.values():
        engine.execute("CREATE TABLE events AS SELECT * FROM arrow_events")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print tables of nanoseconds per row, and of ratios to DuckDB and to one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    options = parser.parse_args(arguments)
    engines = engines_with(table(options.rows))
    both = {name: engine for name, engine in engines.items() if name != "one"}

    def cell(times: dict[str, float], peer: str) -> str:
        return f"{times[peer] / times['tsql']:.2f}x" if peer in times else ""

    def per_row(times: dict[str, float]) -> str:
        return f"{times['tsql'] * 1e6 / options.rows:8.0f}"

    print(
        f"{'ns per row, duckdb / tsql':<36}"
        + "".join(f"{f'{f:,} rows':>24}" for f in FRAMES)
        + f"{'slowest/fastest':>18}"
    )
    for case in SLIDING:
        if options.only in case.name:
            found = [measure(case, case.call.format(frame), both, options.runs) for frame in FRAMES]
            taken = [times["tsql"] for times in found]
            cells = "".join(f"{per_row(times)} {cell(times, 'duckdb'):>15}" for times in found)
            print(f"{case.name:<36}{cells}{max(taken) / min(taken):>18.2f}", flush=True)
    print(f"\n{'ns per row':<36}{'':8} {'duckdb / tsql':>15} {'1 thread / 2':>15}")
    for case in OTHERS:
        if options.only in case.name:
            times = measure(case, case.call, engines, options.runs)
            print(f"{case.name:<36}{per_row(times)} {cell(times, 'duckdb'):>15} {cell(times, 'one'):>15}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
