"""SparkSQL as a peer of the temporal benchmark: `window()` over cached tables, on the threads of this machine."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pyarrow as pa


class Spark:
    """Spark in local mode with its tables cached in memory."""

    name = "spark"

    def __init__(self, threads: int):
        from pyspark.sql import SparkSession

        self.version = metadata.version("pyspark")
        builder = SparkSession.builder.master(f"local[{threads}]").appName("bench.temporal")
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "6g",
            "spark.driver.maxResultSize": "0",
            "spark.sql.shuffle.partitions": str(2 * threads),
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "ERROR",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()

    def load(self, table: str, path: Path) -> None:
        frame = self.session.read.parquet(str(path)).cache()
        frame.count()
        frame.createOrReplaceTempView(table)

    def run(self, sql: str) -> pa.Table:
        return self.session.sql(sql).toArrow()

    def process_id(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.session.stop()
