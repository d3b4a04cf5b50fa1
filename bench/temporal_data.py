"""The tables of the temporal benchmark as Parquet files, made once per size and kept in the cache folder of benchmark
data."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import ads
from tsql.tpch.data import data_folder

SYMBOLS = 1_000
SEED = 11
TABLES = ("ads", "ads_shuffled", "campaigns", "trades", "quotes")


def tables(rows: int) -> dict[str, Path]:
    """The path of each table for `rows` ad events and half as many trades and quotes. Missing tables are made."""
    folder = data_folder() / "temporal" / str(rows)
    paths = {name: folder / f"{name}.parquet" for name in TABLES}
    if not all(path.exists() for path in paths.values()):
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{rows}-", dir=folder.parent))
        try:
            write(work / "tables", rows)
            shutil.rmtree(folder, ignore_errors=True)
            (work / "tables").rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return paths


def ad_sizes(rows: int) -> dict[str, int]:
    """Options of `ads`: a sample has fewer ads and users, so that each has as many rows."""
    shrink = max(20_000_000 // rows, 1)
    return {
        "ads": max(10_000 // shrink, 10),
        "users": max(1_000_000 // shrink, 100),
        "per_second": max(100_000 // shrink, 100),
    }


def write(folder: Path, rows: int) -> None:
    """All tables in a new folder."""
    ads.write(folder, rows, **ad_sizes(rows))
    count = rows // 2
    pq.write_table(prices(count, "price", offset_us=3), folder / "trades.parquet")
    pq.write_table(prices(count, "bid", offset_us=0), folder / "quotes.parquet")


def prices(rows: int, column: str, offset_us: int) -> pa.Table:
    """A price every 10 us or so, of a random symbol. All times differ, so there are no ties."""
    random = np.random.default_rng([SEED, offset_us])
    symbols = np.char.mod("SYM%03d", np.arange(SYMBOLS))
    codes = random.integers(0, SYMBOLS, rows).astype(np.int16)
    return pa.table(
        {
            "sym": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(symbols.astype(object), pa.string())).cast(
                pa.string()
            ),
            "ts": pa.array(ads.START_US + np.arange(rows) * 10 + random.integers(0, 5, rows) + offset_us).cast(
                pa.timestamp("us")
            ),
            column: pa.array(random.integers(1, 10_000, rows)),
        }
    )
