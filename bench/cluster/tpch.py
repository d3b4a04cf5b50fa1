"""The queries of TPC-H from Parquet files, each checked against DuckDB's answer, as a table of times and ratios."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bench.cluster.compare import OURS, Comparison
from bench.cluster.session import Cluster
from tsql.tpch.check import Oracle
from tsql.tpch.data import tables
from tsql.tpch.queries import query


def compare(cluster: Cluster, scale: float, numbers: Iterable[int], runs: int, processor: bool) -> Comparison:
    """Measure the queries at a scale factor."""
    paths = tables(scale)
    for name, path in paths.items():
        cluster.view(name, path)
    oracle = Oracle(scale, paths)
    table = Comparison(f"TPC-H from Parquet, scale {scale:g}", runs, processor=processor)
    try:
        for number in numbers:
            sql = query(number, scale)

            def wrong(name: str, answer: pa.Table, number: int = number) -> str | None:
                # Types are compared for tsql only, and the oracle knows it by this name.
                outcome = oracle.compare("tsql" if name == OURS else "SparkSQL", number, lambda: answer)
                return None if outcome.right else "; ".join(outcome.wrong) or outcome.refused

            table.add(f"Q{number}", [cluster.ours(sql), *cluster.theirs(sql)], wrong)
    finally:
        oracle.close()
    return table
