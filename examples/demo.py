"""`make demo`: three queries on this machine's cores, one of them again on Spark, with their results, plans and times,
one that shows its answer while it runs, and a data pipeline on Spark.

The data (4 million ad events and TPC-H at scale 0.1) is made once and kept in the user's cache folder, or in
$TSQL_DATA."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipeline
from events import ad_events

import tsql
from tsql.tpch.data import tables
from tsql.tpch.queries import query

ROWS = 4_000_000
ROOT = Path(__file__).resolve().parent.parent

BY_COUNTRY = """
SELECT country,
       count(*) AS events,
       count(*) FILTER (WHERE event_type = 'click') AS clicks,
       sum(price) AS spend,
       max(price) AS top_price
FROM {events}
WHERE campaign_id <> 13
GROUP BY country
ORDER BY spend DESC
LIMIT 5
"""

BY_HOUR = """
SELECT date_trunc('hour', ts) AS hour,
       count(*) AS clicks,
       count(DISTINCT ad_id) AS ads,
       avg(price) AS mean_price
FROM {events}
WHERE event_type = 'click' AND user_id IS NOT NULL
GROUP BY ALL
ORDER BY hour
LIMIT 6
"""

SETTLING = """
SELECT l_shipmode, count(*) AS items, avg(l_extendedprice) AS mean_price
FROM lineitem
GROUP BY l_shipmode
ORDER BY l_shipmode
PROGRESSIVE EVERY 5 PERCENT
"""


def quoted(path: Path) -> str:
    """A path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its milliseconds."""
    start = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - start) * 1000


def present(title: str, db: tsql.Session, sql: str) -> Any:
    """Run a query twice and print it, its rows, its plan and both times: the first run compiles, the second does
    not."""
    print(f"\n=== {title}\n{sql.strip()}\n")
    relation = db.sql(sql)
    table, first_ms = timed(relation.arrow)
    _, second_ms = timed(db.sql(sql).arrow)
    relation.show()
    print(f"\nplan:\n{relation.plan()}")
    print(f"\ntime: {first_ms:.1f} ms the first time, {second_ms:.1f} ms the second")
    return table


def settle(title: str, db: tsql.Session, sql: str) -> None:
    """Run a progressive query and print its first answers, and the exact one."""
    print(f"\n=== {title}\n{sql.strip()}\n")
    *_, plain_ms = timed(db.sql(sql).arrow)
    for number, snap in enumerate(db.sql(sql).snapshots()):
        if number < 2 or snap.is_final:
            print(f"{snap}\n")
    print(f"time: the exact answer alone takes {plain_ms:.1f} ms")


def main() -> int:
    """Run the demo; exit code 1 if Spark gives another answer than this machine or plain Python."""
    print(f"making data: {ROWS:,} ad events and TPC-H at scale 0.1 (kept for the next time)", flush=True)
    folder, made_ms = timed(lambda: ad_events(ROWS))
    paths, tpch_ms = timed(lambda: tables(0.1))
    print(f"data ready in {(made_ms + tpch_ms) / 1000:.1f} s")

    db = tsql.connect()
    events = quoted(folder / "*.parquet")
    by_country = BY_COUNTRY.format(events=events)
    expected = present("Spend by country, from Parquet", db, by_country)
    present("Clicks by hour, from Parquet", db, BY_HOUR.format(events=events))
    db.sql(f"CREATE TABLE lineitem AS SELECT * FROM {quoted(paths['lineitem'])}")
    present("TPC-H query 1, from memory", db, query(1))
    settle("Mean prices that settle while the query runs", db, SETTLING)

    if subprocess.run([ROOT / ".ci" / "java", "--check"]).returncode:
        print("\nSpark: left out, since there is no Java 17 or later")
        return 0
    print("\n=== Spend by country, on Spark\nstarting Spark ...", flush=True)
    spark, start_ms = timed(lambda: tsql.connect(backend="spark"))
    found, first_ms = timed(lambda: spark.sql(by_country).arrow())
    _, second_ms = timed(lambda: spark.sql(by_country).arrow())
    spark.sql(by_country).show()
    print(f"\ntime: {(start_ms + first_ms) / 1000:.1f} s with the start of Spark, {second_ms:.0f} ms the second time")
    if not found.equals(expected):
        print("Spark and the local backend give different answers", file=sys.stderr)
        return 1
    print("the same answer as on the local backend")

    print("\n=== A data pipeline on Spark: examples/pipeline.py", flush=True)
    with spark, tempfile.TemporaryDirectory() as work:
        backend: Any = spark.backend
        is_right, pipeline_ms = timed(lambda: pipeline.run(spark, backend.spark, Path(work)))
    print(f"time: {pipeline_ms / 1000:.1f} s")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
