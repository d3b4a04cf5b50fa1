"""Kinds of targets, each with a query over two streams that files grow into, and its answer by DuckDB."""

from __future__ import annotations

import glob
import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.json as pajson
import pyarrow.parquet as pq

from tests.temporal.data import to_rows
from tests.temporal.reference.lateness import SlowLateness
from tests.temporal.reference.rows import SECOND

Row = tuple[Any, ...]

START = datetime(2024, 1, 1)
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
COLUMNS = "id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMP"
DISORDER_SECONDS = 10
LATE_SECONDS = 6
"""Rows are late behind this, in the case that keeps late rows."""
FILE_ROWS = 40
ROW_SECONDS = 1

TUMBLE = """SELECT k, window_start, window_end, count(*) AS n, sum(v)::BIGINT AS s
FROM TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY k, window_start, window_end"""
BUCKETS = """SELECT k, window_start, window_start + INTERVAL '10 seconds', count(*), sum(v)::BIGINT
FROM (SELECT *, time_bucket(INTERVAL '10 seconds', ts) AS window_start FROM events) GROUP BY ALL"""
SESSIONS = """SELECT k, window_start AS first, count(*) AS n
FROM SESSION(events PARTITION BY k, ts, gap => INTERVAL '4 seconds') GROUP BY k, window_start, window_end"""
SESSIONS_ORACLE = """WITH marked AS (
  SELECT k, ts, ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) > INTERVAL '4 seconds' AS is_new FROM events
), numbered AS (
  SELECT *, count(*) FILTER (is_new) OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING) AS number FROM marked
) SELECT k, min(ts) AS first, count(*) AS n FROM numbered GROUP BY k, number"""
JOIN = """SELECT e.id, o.id AS other, e.v + o.v AS v FROM events e JOIN others o
ON e.k = o.k AND o.ts BETWEEN e.ts - INTERVAL '6 seconds' AND e.ts"""


@dataclass(frozen=True)
class Case:
    """A kind of target. connector: of the streams. sql: the query of the job; oracle: DuckDB's. has_late: some rows
    are late, and go into a table."""

    name: str
    connector: str
    sql: str
    oracle: str
    has_late: bool = False

    @property
    def columns(self) -> str:
        """Of the streams, with their watermark."""
        if self.has_late:
            return f"{COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '{LATE_SECONDS} seconds' ON LATE INTO late"
        return f"{COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '{DISORDER_SECONDS} seconds'"


CASES = {
    case.name: case
    for case in (
        Case("parquet", "parquet", f"{TUMBLE} EMIT FINAL", BUCKETS),
        Case("ndjson", "json", f"{SESSIONS} EMIT FINAL", SESSIONS_ORACLE),
        Case("delta", "parquet", JOIN, JOIN),
        Case("postgres", "json", "SELECT k, count(*) AS n, sum(v)::BIGINT AS s FROM events GROUP BY k EMIT CHANGES",
             "SELECT k, count(*) AS n, sum(v)::BIGINT AS s FROM events GROUP BY k"),
        Case("table", "parquet", f"{TUMBLE} EMIT EVERY INTERVAL '20 ms' BEFORE WATERMARK",
             BUCKETS, has_late=True),
    )
}  # fmt: skip


class Input:
    """The streams of a case: rows within the disorder that the watermark allows, written as files on the way."""

    def __init__(self, folder: Path, connector: str, seed: int):
        self.folder, self.connector = folder, connector
        self.random = random.Random(f"input {seed}")
        self.files = 0
        self.rows: dict[str, list[dict[str, Any]]] = {"events": [], "others": []}
        for name in self.rows:
            (folder / name).mkdir(parents=True)

    def grow(self) -> None:
        """Write a further file of each stream."""
        for name, known in self.rows.items():
            fresh = []
            for number in range(len(known), len(known) + FILE_ROWS):
                at = number * ROW_SECONDS - self.random.uniform(0, DISORDER_SECONDS)
                moment = START + timedelta(microseconds=int(at * 1e6))
                k, v = self.random.randrange(5), self.random.randrange(100)
                fresh.append({"id": number, "k": k, "v": v, "ts": moment})
            self._write(name, pa.Table.from_pylist(fresh, SCHEMA))
            known += fresh
        self.files += 1

    def _write(self, name: str, table: pa.Table) -> None:
        path = self.folder / name / f"{self.files:06d}.{self.connector}"
        staged = path.with_suffix(".tmp")
        if self.connector == "parquet":
            pq.write_table(table, staged)
        else:
            lines = (json.dumps(row | {"ts": str(row["ts"])}) for row in table.to_pylist())
            staged.write_text("".join(f"{line}\n" for line in lines))
        # Files are read in the order of their times, and two of them may have the same one.
        at = (1_700_000_000 + self.files) * 10**9
        os.utime(staged, ns=(at, at))
        os.rename(staged, path)

    def answer(self, case: Case) -> list[Row]:
        late = {row[0] for row in self.late()} if case.has_late else set()
        with duckdb.connect() as connection:
            for name, rows in self.rows.items():
                kept = [row for row in rows if name != "events" or row["id"] not in late]
                connection.register(name, pa.Table.from_pylist(kept, SCHEMA))
            return connection.sql(case.oracle).fetchall()

    def late(self) -> list[Row]:
        """The events that are late, in the order in which they were written."""
        slow = SlowLateness(LATE_SECONDS * SECOND, 0, "INTO")
        for row in to_rows(pa.Table.from_pylist(self.rows["events"], SCHEMA)):
            slow.take(row)
        late = {row["id"] for row in slow.late}
        return [tuple(row.values()) for row in self.rows["events"] if row["id"] in late]


def found(case: Case, folder: Path, url: str) -> list[Row]:
    """What everybody sees in the target."""
    match case.name:
        case "parquet":
            return [row for path in glob.glob(str(folder / "out" / "*.parquet")) for row in _rows(pq.read_table(path))]
        case "ndjson":
            schema = pa.schema([("k", pa.int64()), ("first", pa.timestamp("us")), ("n", pa.int64())])
            options = pajson.ParseOptions(explicit_schema=schema)
            return _rows(pajson.read_json(folder / "out.ndjson", parse_options=options))
        case "delta":
            from deltalake import DeltaTable

            return _rows(DeltaTable(folder / "out").to_pyarrow_table())
        case "postgres":
            with psycopg.connect(url) as connection:
                return connection.execute("SELECT k, n, s FROM results").fetchall()
        case "table":
            import tsql

            with tsql.connect(folder / "db", read_only=True) as session:
                return session.sql("FROM results").fetchall()
    raise AssertionError(case.name)


def late_rows(folder: Path) -> list[Row]:
    """The table of late rows."""
    import tsql

    with tsql.connect(folder / "db", read_only=True) as session:
        return session.sql("FROM late").fetchall()


def difference(wanted: list[Row], rows: list[Row]) -> str | None:
    """What is lost, and what is there twice or should not be; None if nothing is."""
    missing, extra = Counter(wanted) - Counter(rows), Counter(rows) - Counter(wanted)
    if not missing and not extra:
        return None
    lost, more = dict(missing.most_common(5)), dict(extra.most_common(5))
    return f"lost {lost} of {missing.total()}; too many {more} of {extra.total()}"


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_rows else []
