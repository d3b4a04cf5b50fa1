"""A year of events in daily windows, in the memory of some days: files in the order of time (`progress`) beside the run
over all windows at once.

    python -m bench.year [--rows 24000000] [--keys 500000]

Writes a year of events to Parquet files in the cache folder, once. Each way runs in its own process. Measured are the
peak memory minus the memory before the query, and the time. The answer is compared with DuckDB's first."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tsql.tpch.data import data_folder

DAY_US = 86_400_000_000
START_US = 1_704_067_200_000_000
MONTHS, DAYS = 12, 30
QUERIES = {
    "daily windows": (
        "SELECT window_start AS w, k, count(*) AS n, sum(v) AS s FROM TUMBLE('{}', ts, INTERVAL '1 day') GROUP BY ALL",
        (
            "SELECT time_bucket(INTERVAL '1 day', ts, TIMESTAMP '1970-01-01') AS w, k, count(*) AS n, sum(v) "
            "AS s FROM '{}' GROUP BY ALL"
        ),
    ),
    "two days, hopping by one": (
        (
            "SELECT window_start AS w, k, count(*) AS n, sum(v) AS s FROM HOP('{}', ts, slide => INTERVAL '1 "
            "day', size => INTERVAL '2 days') GROUP BY ALL"
        ),
        (
            "SELECT b - to_days(d::INTEGER) AS w, k, count(*) AS n, sum(v) AS s FROM (SELECT "
            "time_bucket(INTERVAL '1 day', ts, TIMESTAMP '1970-01-01') AS b, k, v FROM '{}'), range(2) r(d) "
            "GROUP BY ALL"
        ),
    ),
}
AROUND = "SELECT count(*) AS windows, sum(n)::BIGINT AS n, sum(s)::BIGINT AS s, max(n) AS most FROM ({})"
WAYS = ("all at once", "in the order of time", "DuckDB")


def files(rows: int, keys: int) -> str:
    """The path pattern of the files of a year. Missing files are written."""
    folder = data_folder() / f"year-{rows}-{keys}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(5)
        for month in range(MONTHS):
            length = DAYS * DAY_US
            times = np.sort(random.integers(0, length, rows // MONTHS)) + START_US + month * length
            columns = {
                "k": random.integers(0, keys, len(times)),
                "v": random.integers(0, 100, len(times)),
                "ts": pa.array(times, pa.timestamp("us")),
            }
            pq.write_table(pa.table(columns), folder / f"{month:02}.parquet", row_group_size=200_000)
        (folder / "done").touch()
    return str(folder / "*.parquet")


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def one(way: str, name: str, pattern: str) -> dict[str, object]:
    """Run a query one way, in this process."""
    ours, theirs = (AROUND.format(text.format(pattern)) for text in QUERIES[name])
    if way == "DuckDB":
        import duckdb

        connection = duckdb.connect(config={"threads": 2})
        before, begun = status("VmRSS"), time.perf_counter()
        answer = connection.sql(theirs).fetchall()
    else:
        import tsql
        from tsql.planner.physical.planfile import parse_plan

        session = tsql.connect(threads=2)
        session.sql("SELECT 1").arrow()
        text = session.sql(ours).plan().replace(" progress=ts", "")
        if way == "in the order of time":
            text = text.replace("columns=(k, v, ts)", "columns=(k, v, ts) progress=ts")
            parse_plan(text, session.catalog)
        plan = tsql.load_plan_text(text)
        before, begun = status("VmRSS"), time.perf_counter()
        answer = plan.run(session).fetchall()
    return {
        "answer": [int(v) for v in answer[0]],
        "ms": (time.perf_counter() - begun) * 1000,
        "mib": (status("VmHWM") - before) / (1 << 20),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=24_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "QUERY"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    pattern = files(chosen.rows, chosen.keys)
    if chosen.one:
        print(json.dumps(one(chosen.one[0], chosen.one[1], pattern)))
        return 0
    print("| query | way | ms | MiB beyond the start |\n|---|---|---|---|")
    for name in QUERIES:
        found = {}
        for way in WAYS:
            command = [
                sys.executable,
                "-m",
                "bench.year",
                "--rows",
                str(chosen.rows),
                "--keys",
                str(chosen.keys),
                "--one",
                way,
                name,
            ]
            found[way] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if any(f["answer"] != found["DuckDB"]["answer"] for f in found.values()):
            print(f"{name}: the answers differ: {found}", file=sys.stderr)
            return 1
        for way in WAYS:
            print(f"| {name} | {way} | {found[way]['ms']:,.0f} | {found[way]['mib']:,.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
