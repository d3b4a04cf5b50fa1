"""Queries of Nexmark on Spark Structured Streaming and on Flink SQL, over the same Parquet files, beside ours as a
job."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tsql
from bench import nexmark
from bench.live_cases.auctions import TIMES

QUERIES = ("q0", "q1", "q2", "q8")
"""Those that Spark's streams can say with the same answer: q5 and q7 join an aggregate with what it was made of."""

FILES = 8
NOBODY = -1
HOUR_US = 3_600_000_000
SELECTS = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
}
FLINK = """
import sys, time
from pyflink.table import EnvironmentSettings, Schema, TableDescriptor, TableEnvironment
folder, sql = sys.argv[1:]
table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
table.get_config().set("parallelism.default", "2")
table.execute_sql("CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP_LTZ(6), "
                  f"extra STRING) WITH ('connector' = 'filesystem', 'path' = '{folder}/bid', 'format' = 'parquet')")
table.execute_sql(f"CREATE TEMPORARY VIEW result AS {sql}")
schema = Schema.new_builder().from_resolved_schema(table.from_path("result").get_resolved_schema()).build()
table.create_temporary_table("nothing", TableDescriptor.for_connector("blackhole").schema(schema).build())
begun = time.perf_counter()
table.execute_sql("INSERT INTO nothing SELECT * FROM result").wait()
print(time.perf_counter() - begun)
"""

Lines = Iterator[tuple[str, dict[str, str]]]


def compare(tables: Mapping[str, pa.Table], quick: bool, spark: bool, flink: str | None) -> Lines:
    """Each query in each engine, from the same files: seconds, and how many times as long as ours."""
    events = sum(table.num_rows for name, table in tables.items() if name in TIMES)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in TIMES:
            _write(tables[name], folder / name)
        ours = {name: min(_ours(name, folder) for _ in range(2)) for name in QUERIES}
        for name, (seconds, _) in ours.items():
            yield f"Nexmark {name} as a job over files", {"M events/s": f"{events / seconds / 1e6:,.2f}"}
        if spark:
            runs = _on_spark(folder)
            for name, (seconds, rows) in runs.items():
                if rows != ours[name][1]:
                    raise SystemExit(f"Nexmark {name}: Spark gives {rows:,} rows, and ours {ours[name][1]:,}")
                yield _line(f"Nexmark {name} on Spark", events, seconds, ours[name][0])
        if flink is not None:
            for name, sql in SELECTS.items():
                command = [flink, "-c", FLINK, str(folder), sql]
                found = subprocess.run(command, check=True, capture_output=True, text=True)
                yield _line(f"Nexmark {name} on Flink", events, json.loads(found.stdout), ours[name][0])


def _line(name: str, events: int, seconds: float, ours: float) -> tuple[str, dict[str, str]]:
    faster = f"{seconds / ours:,.1f}x"
    return name, {"M events/s": f"{events / seconds / 1e6:,.2f}", "ours is faster": faster, "aim": ">= 20x"}


def _write(table: pa.Table, folder: Path) -> None:
    """A table as a few files in the order of time. A row of nobody follows an hour later, since Spark's watermark needs
    one to pass the last window."""
    folder.mkdir(parents=True)
    table = table.set_column(
        table.schema.get_field_index("date_time"),
        "date_time",
        table["date_time"].cast(pa.int64()).cast(pa.timestamp("us", "UTC")),
    )
    last = table.slice(table.num_rows - 1)
    later = pa.array([last["date_time"][0].value + HOUR_US]).cast(pa.timestamp("us", "UTC"))
    changes = {"date_time": later, "id": pa.array([NOBODY]), "seller": pa.array([NOBODY - 1])}
    for column in set(changes) & set(table.column_names):
        last = last.set_column(last.schema.get_field_index(column), column, changes[column])
    table = pa.concat_tables([table, last])
    rows = max(-(-table.num_rows // FILES), 1)
    for number, start in enumerate(range(0, table.num_rows, rows)):
        pq.write_table(table.slice(start, rows), folder / f"{number:02}.parquet")


def _ours(name: str, folder: Path) -> tuple[float, int]:
    """(seconds, rows of the result) of a job from its start to its end."""
    rows = 0

    def take(batch: pa.RecordBatch) -> None:
        nonlocal rows
        rows += batch.num_rows

    (query,) = [one for one in nexmark.queries() if one.name == name]
    with tsql.connect(threads=2) as session:
        for table, column in TIMES.items():
            session.stream(table, str(folder / table / "*.parquet"), time=column)
        begun = time.perf_counter()
        session.sql(query.sql).start(sink=take, interval=0.2).wait(600)
        return time.perf_counter() - begun, rows


def _on_spark(folder: Path) -> dict[str, tuple[float, int]]:
    """The same of Spark, each query after a first run that does not count."""
    from bench.spark_peer import Spark

    spark = Spark(2)
    try:
        session = spark.session
        session.conf.set("spark.sql.streaming.statefulOperator.checkCorrectness.enabled", "true")
        found = {}
        for name in QUERIES:
            for _ in range(2):
                found[name] = _spark_run(session, folder, name)
        return found
    finally:
        spark.close()


def _spark_run(session: Any, folder: Path, name: str) -> tuple[float, int]:
    for table in TIMES:
        schema = session.read.parquet(str(folder / table)).schema
        frame = session.readStream.schema(schema).parquet(str(folder / table))
        frame.withWatermark("date_time", "0 seconds").createOrReplaceTempView(table)
    frame = WINDOWED[name](session) if name in WINDOWED else session.sql(SELECTS[name])
    rows = 0

    def take(batch: Any, _: int) -> None:
        nonlocal rows
        rows += batch.count()

    with tempfile.TemporaryDirectory() as state:
        begun = time.perf_counter()
        writer = frame.writeStream.foreachBatch(take) if name == "q8" else frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", state).outputMode("append").trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - begun
    if name != "q8":
        rows = session.sql(SELECTS[name].replace("FROM bid", f"FROM parquet.`{folder}/bid`")).count()
    return seconds, rows


def _q8(session: Any) -> Any:
    people = session.sql("SELECT id, name, window(date_time, '10 seconds') AS w FROM person GROUP BY 1, 2, 3")
    sellers = session.sql("SELECT seller, window(date_time, '10 seconds') AS v FROM auction GROUP BY 1, 2")
    joined = people.join(sellers, (people["id"] == sellers["seller"]) & (people["w"] == sellers["v"]))
    return joined.select("id", "name", "w")


WINDOWED: dict[str, Callable[[Any], Any]] = {"q8": _q8}
