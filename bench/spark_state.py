"""Where the state of a job on Spark should be: in Spark's own state store (`transformWithState`), or in versioned files
that tasks write for each micro-batch.

    python -m bench.spark_state [keys] [batches] [rows]

A count per key and window of 100 k keys over 20 micro-batches, with two shards, on a local cluster with two executors.
In both ways the state of a shard is one value. `files` is the job that `start()` runs. `store` gives rows to
`transformWithState`, by shard, with the state as Arrow in one ValueState of RocksDB: no more than a merge of counts in
Arrow, without what a live query does besides. Both results are checked. Prints the milliseconds of micro-batches."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import tsql
from tsql.backends.spark.start import start

KEYS, BATCHES, ROWS, SHARDS = 100_000, 20, 200_000, 2
START, MINUTE = 1_709_208_000_000_000, 60_000_000
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def write_files(folder: Path, keys: int, batches: int, rows: int) -> pa.Table:
    """A file for each micro-batch. All rows are in one window, so all keys stay."""
    choose = np.random.default_rng(7)
    tables = []
    for number in range(batches):
        times = START + np.sort(choose.integers(0, MINUTE // 2, rows)) + number
        columns = {"ts": pa.array(times, pa.timestamp("us")), "k": choose.integers(0, keys, rows)}
        tables.append(pa.table(columns))
        path = folder / f"part-{number:03}.parquet"
        pq.write_table(tables[-1], path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    return pa.concat_tables(tables)


def in_files(spark: Any, folder: Path, state: Path) -> tuple[dict[int, int], list[float]]:
    """The job."""
    with tsql.connect(spark=spark) as db:
        db.sql("SET shards = 2")
        mark = "WATERMARK FOR ts AS ts - INTERVAL '1 hour'"
        db.sql(
            f"CREATE STREAM clicks (ts TIMESTAMP, k BIGINT, {mark}) WITH (connector = 'parquet', path = '{folder}/*')"
        )
        sql = "SELECT k, count(*) AS n FROM TUMBLE(clicks, ts, INTERVAL '1 minute') GROUP BY k, window_start"
        job = db.sql(sql).start(checkpoint=state)
        job.wait()
        told = job._job.told
        print(f"files: {told.warm} shards had their state, {told.cold} read it")
        progress = [p.durationMs["addBatch"] for p in job._job._query.recentProgress]
        found = job.table()
        return dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)), progress


class Counts(StatefulProcessor):
    """Counts of the keys of one shard."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.value = handle.getValueState("counts", "blob BINARY")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        parts = [pa.Table.from_pandas(part[["k", "n"]], preserve_index=False) for part in rows]
        if self.value.exists():
            parts.append(pa.ipc.open_stream(self.value.get()[0]).read_all())
        counts = pa.concat_tables(parts).group_by("k").aggregate([("n", "sum")]).rename_columns(["k", "n"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, counts.schema) as writer:
            writer.write_table(counts)
        self.value.update((sink.getvalue().to_pybytes(),))
        yield pd.DataFrame({"shard": [key[0]], "keys": [counts.num_rows], "total": [sum(counts["n"].to_pylist())]})

    def close(self) -> None:
        """Nothing to free."""


def in_store(spark: Any, folder: Path, state: Path) -> tuple[list[Any], list[float]]:
    """Rows are counted per key before they move, as in the job."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    spark.conf.set("spark.sql.shuffle.partitions", str(SHARDS))
    last: list[Any] = []

    def partial(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = pa.table(batch).group_by("k").aggregate([("k", "count")]).rename_columns(["k", "n"])
            shard = pa.array(np.asarray(counts["k"]) % SHARDS, pa.int32())
            table = pa.table({"shard": shard, "k": counts["k"], "n": counts["n"]})
            yield from table.combine_chunks().to_batches()

    def keep(frame: Any, number: int) -> None:
        last[:] = frame.collect()

    rows = spark.readStream.schema("ts TIMESTAMP_NTZ, k LONG").option("maxFilesPerTrigger", 1).parquet(str(folder))
    counted = rows.select("k").mapInArrow(partial, "shard INT, k LONG, n LONG")
    out = counted.groupBy("shard").transformWithStateInPandas(
        Counts(), "shard INT, keys LONG, total LONG", "Update", "None"
    )
    query = out.select(F.col("*")).writeStream.outputMode("update").foreachBatch(keep)
    query = query.option("checkpointLocation", str(state)).trigger(availableNow=True).start()
    query.awaitTermination()
    return last, [p.durationMs["addBatch"] for p in query.recentProgress]


def shown(name: str, ms: list[float]) -> str:
    later = ms[len(ms) // 4 :]
    middle = statistics.median(later)
    return (
        f"{name}: {middle:.0f} ms a micro-batch in the middle, {max(later):.0f} at most, {sum(ms) / 1e3:.1f} s in all"
    )


def main() -> None:
    keys, batches, rows = map(int, sys.argv[1:4]) if len(sys.argv) == 4 else (KEYS, BATCHES, ROWS)
    work = Path(tempfile.mkdtemp(prefix="tsql-bench-"))
    spark, ours = start("local-cluster[2,1,2048]")
    try:
        spark.conf.set("spark.tsql.maxFilesPerTrigger", "1")
        (work / "in").mkdir()
        table = write_files(work / "in", keys, batches, rows)
        expected = table.group_by("k").aggregate([("k", "count")])
        for turn in range(2):
            begun = time.perf_counter()
            found, ms = in_files(spark, work / "in", work / f"files-{turn}")
            assert found == dict(zip(*(column.to_pylist() for column in expected.columns), strict=True))
            print(shown("files", ms), f"({time.perf_counter() - begun:.1f} s with start and end)")
            begun = time.perf_counter()
            last, ms = in_store(spark, work / "in", work / f"store-{turn}")
            assert sum(row.total for row in last) == table.num_rows and sum(row.keys for row in last) == len(expected)
            print(shown("store", ms), f"({time.perf_counter() - begun:.1f} s with start and end)")
    finally:
        if ours:
            spark.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
