"""Parquet files for the benchmarks on Spark, each made once per size and kept in the folder of benchmark data.

Tables have several row groups, so that tasks can share a file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import ads
from bench.temporal_data import ad_sizes
from tsql.tpch.data import data_folder

GROUPS = 8
"""The fewest row groups of a table, if it has as many rows."""
GROUP_ROWS = 1_000_000
FILE_ROWS = 12_500_000
PAIR_BITS = 36
"""Keys and values have so many random bits: the sum of 100 million of them is a BIGINT still."""


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of benchmark data, filled by `make` if it is not there. Nobody sees a part of it."""
    folder = data_folder() / "spark" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            (work / "tables").mkdir()
            make(work / "tables")
            try:
                (work / "tables").rename(folder)
            except OSError:
                # Another process was faster. Its tables are the same.
                if not folder.exists():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


def write(path: Path, tables: Iterable[pa.Table], rows: int) -> None:
    """Write the parts of a table of `rows` rows as one file."""
    writer: pq.ParquetWriter | None = None
    for table in tables:
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=max(min(GROUP_ROWS, rows // GROUPS), 1))
    assert writer is not None
    writer.close()


def ad_events(rows: int) -> Path:
    """The ad events of `bench.ads` in the order of time."""
    folder = made_once(
        f"ads-{rows}", lambda folder: write(folder / "ads.parquet", ads.chunks(rows, **ad_sizes(rows)), rows)
    )
    return folder / "ads.parquet"


def pairs(rows: int) -> Path:
    """A folder of files with rows of 16 bytes: a BIGINT key `k` and a BIGINT value `v`, both random."""

    def make(folder: Path) -> None:
        for number, first in enumerate(range(0, rows, FILE_ROWS)):
            count = min(FILE_ROWS, rows - first)
            write(folder / f"{number:03}.parquet", _pair_chunks(number, count), count)

    return made_once(f"pairs-{rows}", make)


def _pair_chunks(file: int, rows: int) -> Iterable[pa.Table]:
    for number, first in enumerate(range(0, rows, GROUP_ROWS)):
        random = np.random.default_rng([file, number])
        k, v = random.integers(0, 1 << PAIR_BITS, (2, min(GROUP_ROWS, rows - first)))
        yield pa.table({"k": k, "v": v})


def one_row() -> Path:
    """A file with one row, for what a query costs without work."""
    folder = made_once("one-row", lambda folder: write(folder / "one.parquet", [pa.table({"k": [1], "v": [2]})], 1))
    return folder / "one.parquet"
