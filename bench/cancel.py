"""Cancellation: how soon a query ends after it was cancelled, whatever it is doing.

    python -m bench.cancel [--threads 2] [--after 0.1] [--runs 3] [--only TEXT]

The limit is 100 ms on an idle machine. One thread runs the query, another cancels it `--after` seconds later. Shown are
the milliseconds until the caller was released, and the processor time in between (medians of the runs). A query that
fails in another way, or a session that answers wrongly afterwards, ends the benchmark.
tests/robustness/test_cancel.py uses the same queries to check that they end at all."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tsql
from tsql.kernels.expr.errors import CancelledError

ROWS = 3_000_000
FILE_ROWS = 1_000_000

QUERIES = {
    "group by a string": "SELECT s, count(*), max(a) FROM t GROUP BY s",
    "sort of strings": "SELECT s, a FROM t ORDER BY s, a",
    "sort of numbers": "SELECT a FROM t ORDER BY a DESC",
    "count distinct": "SELECT count(DISTINCT md5(s)) FROM t",
    "digests": "SELECT max(md5(md5(md5(md5(s))))) FROM t",
    "host function": (
        "SELECT count(*) FROM t WHERE regexp_matches(s, '(1|2|3).*(4|5).*6') AND regexp_matches(s, '7.*(8|9)+')"
    ),
    "file": "SELECT s, count(*), min(md5(s)) FROM f GROUP BY s",
    "long rows": "SELECT sum(length(repeat(s, 100000))) FROM t",
    "window": "SELECT sum(w) FROM (SELECT median(a) OVER (ORDER BY s ROWS 100000 PRECEDING) AS w FROM t)",
    "window, long rows": "SELECT count(w) FROM (SELECT mode(a) OVER (ORDER BY a ROWS 20000 PRECEDING) AS w FROM t)",
    "compilation": "SELECT "
    + ", ".join(f"sum(CASE WHEN a % {i + 2} = 0 THEN a * {i} ELSE a + {i} END)" for i in range(150))
    + " FROM t",
}


def numbers_and_texts() -> pa.Table:
    numbers = np.random.default_rng(7).integers(0, 1 << 40, ROWS)
    return pa.table({"a": numbers, "s": pa.array(numbers % 1_000_000).cast(pa.string())})


def register(db: tsql.Session, table: pa.Table, folder: Path) -> None:
    """The tables `t`, in memory, and `f`, a file."""
    path = folder / "f.parquet"
    pq.write_table(table.slice(0, FILE_ROWS), path)
    db.register("t", table)
    db.register("f", db.read_parquet(path))


def cancelled(db: tsql.Session, sql: str, after: float) -> tuple[float, float] | None:
    """Wall-clock and processor seconds from the cancellation to the end; None if the query had already finished."""
    relation = db.sql(sql)
    ended: list[tuple[float, float]] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in relation.batches():
                pass
        except BaseException as error:
            errors.append(error)
        ended.append((time.perf_counter(), time.process_time()))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(after)
    begun = time.perf_counter(), time.process_time()
    relation.cancel()
    thread.join()
    if not errors:
        return None
    if not isinstance(errors[0], CancelledError):
        raise errors[0]
    return ended[0][0] - begun[0], ended[0][1] - begun[1]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.cancel", description="how soon a query ends after it was cancelled")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--after", type=float, default=0.1, help="seconds that a query runs before it is cancelled")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="queries whose names contain this text")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, tsql.connect(threads=options.threads) as db:
        register(db, numbers_and_texts(), Path(folder))
        print(f"{'query':<20} {'ms':>8} {'cpu ms':>8}")
        for name, sql in QUERIES.items():
            if options.only not in name:
                continue
            taken = [t for _ in range(options.runs) if (t := cancelled(db, sql, options.after)) is not None]
            if db.sql("SELECT count(*) FROM t WHERE a < 0").fetchall() != [(0,)]:
                print(f"wrong answer after {name!r} was cancelled", file=sys.stderr)
                return 1
            if taken:
                clock, cpu = (statistics.median(times) * 1000 for times in zip(*taken))
                print(f"{name:<20} {clock:>8.1f} {cpu:>8.1f}", flush=True)
            else:
                print(f"{name:<20} {'done before':>17}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
