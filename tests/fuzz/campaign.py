"""Runs random queries over random tables on our engine and on DuckDB and reports every difference.

    python -m tests.fuzz.campaign --queries 10000 --seed 1

`--kind` says what is drawn: `plain` (tests/fuzz/relational.py), `limits` (any LIMIT in subqueries that name outer
columns), `wide` (tests/fuzz/wide.py), `changes` (statements that change a table, tests/fuzz/changes.py). `--config` is
a configuration of the corpus, or `parquet`, where the tables are files. `spark` and `spark_parquet` run the tasks of
the Spark backend in this process, with no table small enough for a broadcast in every other schema.

Query `n` of a seed and a kind is always the same: `--only n` runs it alone and prints its tables. What DuckDB refuses,
or fails at, is left out and counted. A difference counts as DuckDB's own if it agrees with us once its optimizer is
off. The exit code is 1 if there was another difference."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz.changes import SEPARATOR, ChangeGenerator
from tests.fuzz.relational import Generator
from tests.fuzz.schemas import Table, random_tables, script
from tests.fuzz.wide import WideGenerator
from tests.slt.engines import CONFIGS
from tests.slt.render import Result, differing_row, render
from tests.spark.cluster import InProcess

KINDS: dict[str, tuple[type[Generator], bool]] = {
    "plain": (Generator, False),
    "limits": (Generator, True),
    "wide": (WideGenerator, False),
    "wide_limits": (WideGenerator, True),
    "changes": (ChangeGenerator, False),
}
PARQUET, SPARK, SPARK_PARQUET = "parquet", "spark", "spark_parquet"
OTHERS = (PARQUET, SPARK, SPARK_PARQUET)
ROWS_PER_GROUP = 7
SPARK_SETTINGS: tuple[dict[str, Any], ...] = ({}, {"batch_rows": 1, "equal_hashes": True}, {"spill_after": 1})

ORDERED = re.compile(r"\) ordered ORDER BY [^()]*$")
"""A query whose rows have a fixed order: WideGenerator orders them by all columns."""

QUERIES_PER_SCHEMA = 40
LARGEST = 200_000
"""Larger results of DuckDB are not compared: such a query multiplies tables and tells nothing new."""


@dataclass(frozen=True)
class Difference:
    """A query on which the engines differ."""

    number: int
    sql: str
    reason: str
    tables: str

    def __str__(self) -> str:
        return f"query {self.number}: {self.reason}\n{self.tables}\n{self.sql};\n"


class Schema:
    """Random tables, in both engines. `stored`: as tables that statements can change."""

    def __init__(self, seed: int, number: int, config: str, stored: bool = False, tables: list[Table] | None = None):
        import tsql
        from tsql.kernels.expr.errors import TsqlError

        self.tables = random_tables(Random(f"{seed}/schema/{number}")) if tables is None else tables
        self.error, about = TsqlError, CONFIGS["default" if config in OTHERS else config]
        self.reloads = about.reload_plan
        self.load_plan = tsql.load_plan_text
        self.patch = pytest.MonkeyPatch()
        if config in (SPARK, SPARK_PARQUET):
            self.engine = tsql.connect(spark=InProcess(3), **SPARK_SETTINGS[number % len(SPARK_SETTINGS)])
            if number % 2:
                self.patch.setattr("tsql.planner.cost.constants.BROADCAST_BYTES", -1)
        else:
            self.engine = tsql.connect(backend=about.backend, **about.settings)
        self.oracle = duckdb.connect(config={"threads": 1, "memory_limit": "2GB"})
        self.files = tempfile.TemporaryDirectory() if config in (PARQUET, SPARK_PARQUET) else None
        for table in self.tables:
            if about.blocks or stored:
                self.engine.register(f"{table.name}_arrow", table.data)
                self.engine.execute(f"CREATE TABLE {table.name} AS SELECT * FROM {table.name}_arrow")
            elif self.files is not None:
                path = Path(self.files.name) / f"{table.name}.parquet"
                pq.write_table(table.data, path, row_group_size=ROWS_PER_GROUP)
                self.engine.execute(f"CREATE VIEW {table.name} AS SELECT * FROM '{path}'")
            else:
                self.engine.register(table.name, table.data)
            self.oracle.register("arrow_input", table.data)
            self.oracle.execute(f"CREATE TABLE {table.name} AS SELECT * FROM arrow_input")
            self.oracle.unregister("arrow_input")

    def expected(self, sql: str) -> Result | None:
        """DuckDB's result; None if it has none."""
        try:
            found = unchanged(self.oracle, sql, lambda text: self.oracle.sql(text).to_arrow_table())
        except duckdb.Error:
            return None
        return render(found) if found.num_rows <= LARGEST else None

    def contradicts_itself(self, sql: str) -> bool:
        """Whether DuckDB without its optimizer gives what we give."""
        self.oracle.execute("PRAGMA disable_optimizer")
        try:
            wanted = self.expected(sql)
        finally:
            self.oracle.execute("PRAGMA enable_optimizer")
        return wanted is not None and self.compare(sql, wanted) is None

    def given(self, sql: str) -> Result:
        return render(unchanged(self.engine, sql, self._fetched))

    def _fetched(self, sql: str) -> pa.Table:
        relation = self.engine.sql(sql)
        return self.load_plan(relation.plan()).run(self.engine).arrow() if self.reloads else relation.arrow()

    def compare(self, sql: str, wanted: Result) -> str | None:
        """How our result differs; None if it does not."""
        try:
            given = self.given(sql)
        except self.error as problem:
            return f"only our engine fails: {problem.message}"
        except Exception as problem:
            return f"{type(problem).__name__}: {str(problem)[:300]}"
        if given.types != wanted.types:
            return f"types {given.types} instead of {wanted.types}"
        mode = "nosort" if ORDERED.search(sql) else "rowsort"
        return differing_row(given.sorted(mode), wanted.sorted(mode), wanted.types)

    def close(self) -> None:
        self.patch.undo()
        self.engine.close()
        self.oracle.close()
        if self.files is not None:
            self.files.cleanup()


def unchanged(db: Any, text: str, fetch: Callable[[str], pa.Table]) -> pa.Table:
    """The result of a query. Statements before it are run first, and undone behind it."""
    *changes, query = text.split(SEPARATOR)
    if not changes:
        return fetch(query)
    db.execute("BEGIN TRANSACTION")
    try:
        for change in changes:
            db.execute(change)
        return fetch(query)
    finally:
        db.execute("ROLLBACK")


def query_text(seed: int, number: int, tables: list[Table], kind: str = "plain") -> str:
    make, limits = KINDS[kind]
    return make(Random(f"{seed}/query/{number}"), tables, limits).query()


def differences(
    seed: int, numbers: range, config: str = "default", counts: Counter[str] | None = None, kind: str = "plain"
) -> Iterator[Difference]:
    """The queries of these numbers on which the engines differ."""
    counts = Counter() if counts is None else counts
    schema: Any = None
    held = -1
    try:
        for number in numbers:
            if number // QUERIES_PER_SCHEMA != held:
                if schema is not None:
                    schema.close()
                held = number // QUERIES_PER_SCHEMA
                schema = Schema(seed, held, config, kind == "changes")
            sql = query_text(seed, number, schema.tables, kind)
            wanted = schema.expected(sql)
            counts["compared" if wanted is not None else "left out"] += 1
            if wanted is None:
                continue
            reason = schema.compare(sql, wanted)
            if reason is not None and schema.contradicts_itself(sql):
                counts["own"] += 1
            elif reason is not None:
                counts["different"] += 1
                yield Difference(number, sql, reason, script(schema.tables))
    finally:
        if schema is not None:
            schema.close()


def show(seed: int, number: int, kind: str, config: str) -> None:
    """Print one query with its tables, and whether the engines differ."""
    with closing(Schema(seed, number // QUERIES_PER_SCHEMA, config, kind == "changes")) as schema:
        sql = query_text(seed, number, schema.tables, kind)
        print(f"{script(schema.tables)}\n{sql};")
        wanted = schema.expected(sql)
        reason = None if wanted is None else schema.compare(sql, wanted)
        print("DuckDB refuses it" if wanted is None else "the engines agree" if reason is None else reason)
        if reason is not None and schema.contradicts_itself(sql):
            print("DuckDB agrees with us once its optimizer is off")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description="Random queries against DuckDB.")
    parser.add_argument("--queries", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first query")
    parser.add_argument("--only", type=int, help="show and run the query of this number alone")
    parser.add_argument(
        "--config",
        choices=sorted((*CONFIGS, *OTHERS)),
        default="default",
        help="a configuration of the corpus, or tables in files",
    )
    parser.add_argument("--stop-after", type=int, default=0, help="stop after so many differences")
    parser.add_argument("--kind", choices=sorted(KINDS), default="plain", help="what is drawn")
    given = parser.parse_args(arguments)
    if given.only is not None:
        show(given.seed, given.only, given.kind, given.config)
        return 0
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for found in differences(
        given.seed, range(given.first, given.first + given.queries), given.config, counts, given.kind
    ):
        print(found, flush=True)
        if given.stop_after and counts["different"] >= given.stop_after:
            break
    print(
        f"seed {given.seed}, {given.kind}, {given.config}: {counts['compared']} compared, "
        f"{counts['left out']} left out, {counts['own']} of DuckDB's own, {counts['different']} different, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
