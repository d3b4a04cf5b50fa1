"""Window functions: what a row costs over frames of 10, 1,000 and 100,000 rows, and how that compares with DuckDB.

    python -m bench.windows [--rows 1000000] [--runs 5] [--only TEXT]

Both engines hold the same table in this one process, aggregate the results of the window functions (so that no time goes into
handing out rows), and take turns. An answer that differs ends the benchmark before anything is timed. The time per row of a
sliding frame should be flat: the last column is the slowest over the fastest frame.
"""

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
    """A window function; `{}` in its text is the size of the frame. `peer`: DuckDB takes part (it takes minutes where it does not)."""

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
    Case("sum(bigint) by 1,000 keys, rows", "sum(v) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)"),
    Case("max(double), exclude current row", "max(x) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW)"),
    Case("median(bigint), rows", "median(v) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)", peer=False),
    Case("count(distinct), rows", "count(DISTINCT k) OVER (ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW)", peer=False),
]
OTHERS = [
    Case("row_number by 1,000 keys", "row_number() OVER (PARTITION BY k ORDER BY t)"),
    Case("rank by 1,000 keys", "rank() OVER (PARTITION BY k ORDER BY v)"),
    Case("lag by 1,000 keys", "lag(v) OVER (PARTITION BY k ORDER BY t)"),
    Case("running sum by 1,000 keys", "sum(v) OVER (PARTITION BY k ORDER BY t)"),
    Case("whole partition, 1,000 keys", "max(v) OVER (PARTITION BY k)"),
    Case("row_number over all rows", "row_number() OVER (ORDER BY v, t)"),
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
    """A query that computes the call for every row and gives one."""
    if call.startswith("max(s)"):
        return f"SELECT min(w) AS low, max(w) AS high, count(w) AS n FROM (SELECT {call} AS w FROM events)"
    return f"SELECT sum(w::DOUBLE) AS total, count(w) AS n FROM (SELECT {call} AS w FROM events)"


def measure(case: Case, call: str, tsql: Tsql, duckdb: DuckDB, runs: int) -> tuple[float, float | None]:
    """Milliseconds of both engines; the second is None where DuckDB does not take part."""
    sql = text(call)
    work = {"tsql": partial(tsql.run, sql)}
    if case.peer:
        wrong = difference(tsql.run(sql), duckdb.run(sql), ordered=True)
        if wrong is not None:
            sys.exit(f"{call}: {wrong}")
        work["duckdb"] = partial(duckdb.run, sql)
    times = interleaved(work, runs, warmup=1)
    return times["tsql"].median, times["duckdb"].median if case.peer else None


def main(arguments: list[str] | None = None) -> int:
    """Print a table of nanoseconds per row and of ratios to DuckDB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    options = parser.parse_args(arguments)
    tsql, duckdb = Tsql(THREADS), DuckDB(THREADS)
    data = table(options.rows)
    tsql.session.register("arrow_events", data)
    tsql.execute("CREATE TABLE events AS SELECT * FROM arrow_events")
    duckdb.connection.register("arrow_events", data)
    duckdb.execute("CREATE TABLE events AS SELECT * FROM arrow_events")

    def per_row(ms: float) -> str:
        return f"{ms * 1e6 / options.rows:8.0f}"

    print(f"{'ns per row, duckdb / tsql':<36}" + "".join(f"{f'{f:,} rows':>24}" for f in FRAMES) + f"{'slowest/fastest':>18}")
    for case in SLIDING:
        if options.only in case.name:
            cells, taken = [], []
            for frame in FRAMES:
                ours, theirs = measure(case, case.call.format(frame), tsql, duckdb, options.runs)
                taken.append(ours)
                cells.append(f"{per_row(ours)} {f'{theirs / ours:.2f}x' if theirs is not None else '':>15}")
            print(f"{case.name:<36}{''.join(cells)}{max(taken) / min(taken):>18.2f}")
    for case in OTHERS:
        if options.only in case.name:
            ours, theirs = measure(case, case.call, tsql, duckdb, options.runs)
            print(f"{case.name:<36}{per_row(ours)} {f'{theirs / ours:.2f}x':>15}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
