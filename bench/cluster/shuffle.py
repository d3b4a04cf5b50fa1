"""Rows of 16 bytes from Parquet, redistributed by key and summed on the other side: what moving a row costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.cluster.compare import Agreement, Comparison
from bench.cluster.data import pairs
from bench.cluster.session import Cluster
from tsql.tpch.engines import quoted

ROW_BYTES = 16
PLAN = """plan version 1
target spark shards={shards}

rows    = scan {path} columns=(k, v)
keyed   = rekey rows key=(k)
placed  = redistribute keyed scope=global shards={shards}
partial = aggregate placed phase=partial by=() n=count(*) ks=sum(k) vs=sum(v)
all     = gather partial
total   = aggregate all phase=final by=() n=count(*) ks=sum(k) vs=sum(v)
output total (n, ks, vs)
"""


def plan(path: Path, shards: int) -> str:
    """The plan file for tsql. The key is summed too, so that both columns move."""
    return PLAN.format(path=quoted(path / "*.parquet"), shards=shards)


def frame(session: Any, path: Path, shards: int) -> Any:
    """The same for SparkSQL."""
    from pyspark.sql import functions

    rows = session.read.parquet(str(path)).repartition(shards, "k")
    return rows.agg(functions.count("*").alias("n"), functions.sum("k").alias("ks"), functions.sum("v").alias("vs"))


def compare(cluster: Cluster, rows: int, shards: int, runs: int, processor: bool) -> Comparison:
    """Measure the shuffle of so many rows to so many shards."""
    path = pairs(rows)
    table = Comparison(f"A shuffle of {rows:,} rows of {ROW_BYTES} bytes", runs, processor=processor)
    contenders = [
        cluster.ours_by_plan(plan(path, shards)),
        *cluster.theirs(lambda session: frame(session, path, shards)),
    ]
    table.add(f"redistribute to {shards} shards", contenders, Agreement())
    (row,) = table.time().rows
    for name, times in table.cases[0].found.times.items():
        row.measured[f"{name}, ms"] += f", {rows * ROW_BYTES / times.median / 1e6:.2f} GB/s"
    return table
