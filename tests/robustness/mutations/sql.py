"""Mutated queries of the corpus, on our engine and on DuckDB: where both answer, the rows are the same."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from tests.robustness.mutations.edits import mutate_sql
from tests.robustness.mutations.kind import Finding, expect_project_errors
from tests.slt import records
from tests.slt.datasets import DATASETS
from tests.slt.engines import DuckDB, reads_only
from tests.slt.render import differing_row, render
from tests.slt_runner import corpus_files

PATIENCE_SECONDS = 5.0
"""A query that takes longer is cancelled: many mutated queries multiply tables. The test is that it then ends."""
LARGEST_ROWS = 50_000
UNDETERMINED = re.compile(
    r"limit|offset|sample|fetch|random|uuid|now|current|today|version|first|last|any_value|arbitrary|mode|nth|list|array|string_agg|"
    r"group_concat|listagg|arg_m|m..?_by|approx|reservoir|row_number|rank|ntile|lead|lag|over|distinct\s+on|seed|explain|describe|show|"
    r"summarize|typeof|hash|pragma|duckdb|tsql|information|read_|glob|fsum|sumkahan|kahan|positional|match_recognize|rowid|"
    r"getvariable|pivot|qualify",
    re.IGNORECASE,
)
"""With one of these in a query, another answer may be equally valid, or is specific to an engine."""


class Queries:
    """Queries that need nothing but the shared datasets."""

    name = "sql"

    def __init__(self, folder: Path):
        import tsql

        self.texts = sorted({record.sql for path in corpus_files() for record in _alone(path)})
        self.db = tsql.connect(memory_limit="1GB")
        self.oracle = DuckDB()
        for name in DATASETS:
            self.db.register(name, DATASETS[name])
            self.oracle.load(name)
        self.oracle._db.execute("SET memory_limit = '1GB'")

    def case(self, random: Random) -> str:
        return mutate_sql(random.choice(self.texts), self.texts, random)

    def show(self, case: str) -> str:
        return case

    def run(self, case: str) -> str:
        from tsql.kernels.expr.errors import TsqlError

        if not reads_only(case):
            return self._only_ours(case)
        try:
            with expect_project_errors():
                given = _ours(self.db, case)
        except TsqlError:
            return "refused"
        if given is None:
            return "large"
        if UNDETERMINED.search(case):
            return "rows"
        try:
            wanted = _theirs(self.oracle, case)
        except (duckdb.Error, RuntimeError, UnicodeDecodeError):
            return "rows, oracle refuses"
        difference = _difference(given, wanted)
        if difference:
            raise Finding(difference)
        return "same rows"

    def _only_ours(self, case: str) -> str:
        from tsql.kernels.expr.errors import TsqlError

        if re.search(
            r"\b(copy|export|attach|insert|update|delete|drop|alter|create|set|compile|load|install)\b",
            case,
            re.IGNORECASE,
        ):
            return "left out"
        try:
            with expect_project_errors():
                self.db.execute(case)
        except TsqlError:
            return "refused"
        return "done"

    def close(self) -> None:
        self.db.close()
        self.oracle.close()


def _alone(path: Path) -> list[records.Record]:
    """The queries of a file that makes no tables of its own."""
    found = records.read(path)
    if any(record.kind == "statement" and record.error is None for record in found):
        return []
    return [record for record in found if record.kind == "query" and record.params is None]


def _ours(db: Any, sql: str) -> Any:
    """Our rows; None if there are too many to compare, or they take too long."""
    import pyarrow as pa

    from tsql.kernels.expr.errors import CancelledError

    relation = db.sql(sql)
    timer = threading.Timer(PATIENCE_SECONDS, relation.cancel)
    timer.start()
    try:
        batches, rows = [], 0
        for batch in relation:
            rows += batch.num_rows
            if rows > LARGEST_ROWS:
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches, relation.schema)
    except CancelledError:
        return None
    finally:
        timer.cancel()


def _theirs(oracle: DuckDB, sql: str) -> Any:
    timer = threading.Timer(PATIENCE_SECONDS, oracle._db.interrupt)
    timer.start()
    try:
        return oracle.query(sql)
    finally:
        timer.cancel()


def _difference(given: Any, wanted: Any) -> str | None:
    ours, theirs = render(given), render(wanted)
    if ours.types != theirs.types:
        return f"types {ours.types} instead of {theirs.types}"
    return differing_row(ours.sorted("rowsort"), theirs.sorted("rowsort"), theirs.types)
