"""What is measured of progressive queries: TPC-H, window queries over ad events, and averages that stop early."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from bench.temporal_cases import JOINS, KEYS, LONG_WINDOW, WINDOWS, Case
from tsql.tpch.check import tables_of
from tsql.tpch.data import data_folder, tables
from tsql.tpch.queries import query

CUT_ROWS = 10_000
"""The rows of a row group of files that are cut: at scale 1, lineitem has 600 of them."""

EVENTS: tuple[Case, ...] = (
    *(case for case in WINDOWS if "by panes" not in case.name),
    *LONG_WINDOW,
    KEYS[1],
    KEYS[3],
    *JOINS,
)
"""Each with its text for DuckDB."""


@dataclass(frozen=True)
class Asked:
    """A query with its name in the report, and the tables that it reads."""

    name: str
    sql: str
    tables: tuple[str, ...]


def tpch(numbers: Iterable[int], scale: float) -> dict[int, Asked]:
    """The queries of TPC-H."""
    texts = {number: query(number, scale) for number in numbers}
    return {number: Asked(f"Q{number}", sql, tuple(tables_of(sql))) for number, sql in texts.items()}


def cut_tables(scale: float, rows: int = CUT_ROWS) -> dict[str, Path]:
    """The files of TPC-H again with row groups of `rows` rows; made once."""
    made = tables(scale)
    folder = data_folder() / "tpch" / f"sf{scale:g}-cut-{rows}"
    paths = {name: folder / f"{name}.parquet" for name in made}
    if not all(path.exists() for path in paths.values()):
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for name, path in made.items():
                _cut(path, work / f"{name}.parquet", rows)
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return paths


def _cut(path: Path, to: Path, rows: int) -> None:
    source = pq.ParquetFile(path)
    compression = source.metadata.row_group(0).column(0).compression
    with pq.ParquetWriter(to, source.schema_arrow, compression=compression) as writer:
        for batch in source.iter_batches(batch_size=rows):
            writer.write_batch(batch)


NUMBERS = """CREATE TABLE numbers AS
SELECT i % 10 AS g, u, exp(sqrt(-2 * ln(a)) * cos(6.283185307179586 * b)) AS v
FROM (SELECT i, (hash(i) % 1000003) / 1000003.0 AS u, (hash(-i) % 1000003 + 1) / 1000004.0 AS a,
             hash(i + 1000000007) % 1000003 / 1000003.0 AS b
      FROM range({rows}) AS t(i)) AS drawn"""
"""Even numbers `u`, lognormal ones `v` that have nothing to do with them, and ten groups. Hashes are spread as random
numbers are: a sequence that is more even than that would make all units alike."""

UNTIL = {
    "avg(u), even": "SELECT avg(u) AS m FROM numbers",
    "avg(v), lognormal": "SELECT avg(v) AS m FROM numbers",
    "avg(v) where u < 0.5": "SELECT avg(v) AS m FROM numbers WHERE u < 0.5",
    "avg(v) by 10 groups": "SELECT g, avg(v) AS m FROM numbers GROUP BY g ORDER BY g",
}
