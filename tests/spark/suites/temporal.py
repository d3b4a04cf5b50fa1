"""The temporal suite on a Spark session: constructs against their references, workloads against DuckDB.

Answers must not depend on how rows are dealt: in memory or in files, in how many shards and batches, in which order
they come, spilled or not, planned here or read from the text of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import tsql
from bench import nexmark
from bench.ads import YSB, YSB_ORACLE, campaigns, events
from tests.temporal import test_constructs, test_workloads
from tests.temporal.asking import ask_duckdb, oracle_of, text_of
from tests.temporal.constructs import Construct, tables
from tests.temporal.data import shuffled, to_rows, write_pieces
from tests.temporal.workloads import clicks, packets
from tsql.tpch.measure import difference

CONSTRUCTS = test_constructs.CONSTRUCTS


@dataclass(frozen=True)
class Arrangement:
    """Rows of a shape, and how they are given. mixed: in another order (ties by input order are kept). files: the
    number of Parquet files of each table. plan: the plan is printed, read, and then run."""

    shape: str
    settings: dict[str, Any] = field(default_factory=dict)
    mixed: bool = False
    files: int = 0
    plan: bool = False


ARRANGEMENTS = {
    "as they are": Arrangement("unsorted"),
    "one shard, mixed": Arrangement("few_times", {"shards": 1}, mixed=True),
    "seven shards, files": Arrangement("null_times", {"shards": 7}, files=5),
    "rows one by one": Arrangement("null_keys", {"shards": 3, "batch_rows": 1}, mixed=True),
    "spilled, files": Arrangement("skewed", {"spill_after": 1}, files=3),
    "equal hashes": Arrangement("on_bounds", {"equal_hashes": True, "shards": 3}, mixed=True),
    "plan text, files": Arrangement("duplicates", {"shards": 4}, files=2, plan=True),
}


def check_construct(spark: Any, construct: Construct, arrangement: Arrangement, folder: Path) -> None:
    """The rows of a construct are those of its reference."""
    data = tables(arrangement.shape, seed=12)
    given = data
    if arrangement.mixed:
        given = {name: shuffled(table, 3, construct.keep.get(name, ())) for name, table in data.items()}
    with tsql.connect(spark=spark, **arrangement.settings) as db:
        for name, table in given.items():
            if arrangement.files:
                db.execute(f"CREATE VIEW {name} AS SELECT * FROM '{in_files(name, table, arrangement, folder)}'")
            else:
                db.register(name, table)
        for statement in construct.setup:
            db.execute(statement)
        relation = db.sql(construct.sql)
        if arrangement.plan:
            relation = tsql.load_plan_text(relation.plan()).run(db)
        ours, expected = to_rows(relation.arrow()), test_constructs.expected_of(construct, data)
    test_constructs.assert_answers(construct, ours, expected)


def in_files(name: str, table: pa.Table, arrangement: Arrangement, folder: Path) -> str:
    """The rows in Parquet files, made once; their glob."""
    mine = folder / arrangement.shape / name
    if not mine.exists():
        write_pieces(table, arrangement.files, mine)
    return f"{mine}/*.parquet"


@dataclass(frozen=True)
class Workload:
    """A query over tables, and what DuckDB is asked instead."""

    sql: str
    oracle: str
    tables: str


WORKLOADS = {
    **{f"nexmark {query.name}": Workload(query.sql, query.oracle, "nexmark") for query in nexmark.queries()},
    **{name: Workload(text_of(name), oracle_of(name), "papers") for name in test_workloads.REFERENCES},
    "yahoo": Workload(YSB, YSB_ORACLE, "ads"),
}


def workload_tables() -> dict[str, dict[str, pa.Table]]:
    """The tables of the workloads."""
    return {
        "nexmark": nexmark.tables(6_000, per_second=100),
        "papers": {**packets(0), "clicks": clicks(0)},
        "ads": {"ads": events(3_000, ads=50, users=100, per_second=50), "campaigns": campaigns(50)},
    }


class Workloads:
    """The workloads over files, on a session."""

    def __init__(self, spark: Any, folder: Path):
        self.tables = workload_tables()
        self.sessions = {name: tsql.connect(spark=spark) for name in self.tables}
        for kind, session in self.sessions.items():
            for name, table in self.tables[kind].items():
                write_pieces(table, 4, folder / kind / name)
                session.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder}/{kind}/{name}/*.parquet'")

    def check(self, workload: Workload) -> None:
        """The rows and types are DuckDB's."""
        expected = ask_duckdb(workload.oracle, self.tables[workload.tables])
        found = self.sessions[workload.tables].sql(workload.sql).arrow()
        why = difference(expected, found, ordered=False)
        assert why is None, why

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
