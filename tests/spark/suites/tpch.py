"""TPC-H on a Spark session: 22 queries in many arrangements, against DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tsql
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import query

FILES, GROUPS = 3, 4
"""A table of many rows is in so many files, of so many row groups each."""
MANY_ROWS = 1_000


@dataclass(frozen=True)
class Arrangement:
    """The settings of a session, and where a plan is made. local_shards: the plan is the local backend's, as text, with
    so many shards. locally: the plan of Spark runs on the local backend. moved: no table is small enough to be sent to
    all tasks."""

    settings: dict[str, Any] = field(default_factory=dict)
    local_shards: int = 0
    locally: bool = False
    moved: bool = False


ARRANGEMENTS = {
    "as it is": Arrangement(),
    "one shard": Arrangement({"shards": 1}),
    "three shards, small batches": Arrangement({"shards": 3, "batch_rows": 1000}),
    "seven shards, moved": Arrangement({"shards": 7}, moved=True),
    "spilled": Arrangement({"spill_after": 10_000}),
    "little memory, moved": Arrangement({"memory_limit": "48MB"}, moved=True),
    "a plan of the local backend": Arrangement(local_shards=1),
    "on the local backend": Arrangement(locally=True),
}


class Tpch:
    """The tables at a scale in several files, on a session of Spark and on the local backend."""

    def __init__(self, spark: Any, scale: float, folder: Path):
        paths = data.tables(scale)
        self.scale, self.spark = scale, spark
        self.oracle = Oracle(scale, paths)
        self.files = {name: split(path, folder / name) for name, path in paths.items()}

    @contextmanager
    def session(self, **settings: Any) -> Iterator[Any]:
        with tsql.connect(**settings) as db:
            for name, files in self.files.items():
                db.execute(f"CREATE VIEW {name} AS SELECT * FROM '{files}'")
            yield db

    def check(self, number: int, arrangement: Arrangement) -> None:
        """The answer to a query is DuckDB's."""
        with ExitStack() as stack:
            db = stack.enter_context(self.session(spark=self.spark, **arrangement.settings))
            sql = query(number, self.scale)
            if arrangement.locally:
                plan, db = db.sql(sql).plan(), stack.enter_context(self.session(threads=2))
                assert "target spark" in plan
                relation = tsql.load_plan_text(plan).run(db)
            elif arrangement.local_shards:
                local = stack.enter_context(self.session(threads=2, shards=arrangement.local_shards))
                relation = tsql.load_plan_text(local.sql(sql).plan()).run(db)
            else:
                relation = db.sql(sql)
            outcome = self.oracle.compare("tsql", number, relation.arrow)
        assert outcome.right, str(outcome)

    def close(self) -> None:
        self.oracle.close()


def split(path: Path, folder: Path) -> str:
    """The rows of a file in several files with several row groups; their glob."""
    table = pq.read_table(path)
    files = FILES if table.num_rows > MANY_ROWS else 1
    folder.mkdir(parents=True)
    for number in range(files):
        low, high = number * table.num_rows // files, (number + 1) * table.num_rows // files
        rows = max(1, -(-(high - low) // GROUPS))
        pq.write_table(table.slice(low, high - low), folder / f"part-{number}.parquet", row_group_size=rows)
    return f"{folder}/*.parquet"
