"""tsql and SparkSQL on the same Spark cluster and session: TPC-H, windows, latency and shuffles, from Parquet files.

    python -m bench.spark [--scale 1] [--runs 3] [--queries 1,6] [--only tpch|windows|latency|shuffle] [--cpu]
    [--rows 20000000] [--pairs 100000000] [--shards 8] [--master local-cluster[2,1,4096]] [--data DIR] [--adaptive]
    [--json FILE] [--markdown FILE]

SparkSQL runs as it is by default (adaptive execution, 200 partitions of a shuffle), without adaptive execution, and
without it but with a partition per core. The main ratio is the fastest of these over tsql. Answers are compared before
anything is timed: with DuckDB's for TPC-H, with each other for the rest. `docs/benchmarks.md` holds tables made by
it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench.cluster import latency, shuffle, tpch, windows
from bench.cluster.options import add_options, finish, opened
from tsql.tpch.queries import NUMBERS
from tsql.tpch.report import Section

PARTS = ("latency", "tpch", "windows", "shuffle")
"""In the order in which they run: the first query of new workers can be measured before all else only."""
TPCH_AIM = 1.0


def main(arguments: list[str] | None = None, session: Any = None) -> int:
    """Run the benchmark, on a session that is there or on one of its own. The exit code is 1 if an answer is wrong or
    tsql fails, and 0 even if it is slower: a slow machine is not a failure."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__.partition("\n\n")[0])
    add_options(parser, PARTS)
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-H (default: 1)")
    parser.add_argument("--queries", help="numbers of TPC-H queries, comma-separated (default: all)")
    parser.add_argument("--rows", type=int, default=20_000_000, help="ad events (default: 20 million)")
    parser.add_argument("--pairs", type=int, default=100_000_000, help="rows of the shuffle (default: 100 million)")
    parser.add_argument("--shards", type=int, default=8, help="shards of the shuffle (default: 8)")
    options = parser.parse_args(arguments)
    try:
        numbers = [int(number) for number in options.queries.split(",")] if options.queries else list(NUMBERS)
    except ValueError:
        parser.error("--queries is a list of numbers, as 1,6")
    if not set(numbers) <= set(NUMBERS):
        parser.error("TPC-H has queries 1 to 22")
    if options.scale <= 0 or options.runs < 1 or min(options.rows, options.pairs, options.shards) < 1:
        parser.error("--scale, --runs, --rows, --pairs and --shards are positive numbers")
    parts = options.only or PARTS
    sections: list[Section] = []
    failures = 0
    with opened(options, session) as (cluster, facts):
        for part in PARTS:
            if part not in parts:
                continue
            if part == "latency":
                # Short queries: more runs cost little.
                sections.append(latency.first_query(cluster, options.runs))
                table = latency.compare(cluster, 5 * options.runs, options.cpu)
                sections.append(table.section)
            elif part == "tpch":
                table = tpch.compare(cluster, options.scale, numbers, options.runs, options.cpu)
                sections.append(table.conclude(TPCH_AIM))
            elif part == "windows":
                table = windows.compare(cluster, options.rows, options.runs, options.cpu)
                sections.append(table.conclude())
            else:
                table = shuffle.compare(cluster, options.pairs, options.shards, options.runs, options.cpu)
                sections.append(table.section)
            failures += table.failures
        return finish(options, sections, facts, failures)


if __name__ == "__main__":
    sys.exit(main())
