"""Made-up ad events as Parquet files: the same ones each time, made once and kept beside the other generated data."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tsql.tpch.data import data_folder

COUNTRIES = ("US", "IN", "BR", "DE", "JP", "GB", "FR", "MX", "KE", "NZ")
EVENT_TYPES = ("view", "click", "purchase")
FILES = 4
START_US = 1_767_225_600_000_000
"""2026-01-01 00:00:00 UTC."""


def ad_events(rows: int) -> Path:
    """The folder with `rows` events over one day, in `FILES` Parquet files ordered by time; made if it is not there
    yet."""
    folder = data_folder() / "events" / f"rows{rows}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        made = work / "files"
        made.mkdir()
        for number in range(FILES):
            pq.write_table(_part(number, rows // FILES), made / f"events-{number}.parquet", row_group_size=250_000)
        made.rename(folder)
    except OSError:
        if not folder.exists():  # else another process was faster, with the same events
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _part(number: int, rows: int) -> pa.Table:
    """The events of one quarter of the day."""
    random = np.random.default_rng([2026, number])
    quarter_us = 86_400_000_000 // FILES
    ts = np.sort(random.integers(0, quarter_us, rows)) + START_US + number * quarter_us
    ad_id = random.zipf(1.3, rows) % 10_000
    event_type = random.choice(len(EVENT_TYPES), rows, p=(0.9, 0.09, 0.01)).astype(np.int8)
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us")),
            "ad_id": pa.array(ad_id, pa.int64()),
            "campaign_id": pa.array((ad_id % 97).astype(np.int32)),
            "user_id": pa.array(random.integers(0, 500_000, rows), pa.int64(), mask=random.random(rows) < 0.02),
            "event_type": pa.DictionaryArray.from_arrays(event_type, EVENT_TYPES).cast(pa.string()),
            "price": _decimals(random.integers(0, 25_000, rows) * event_type, pa.decimal128(10, 4)),
            "country": pa.DictionaryArray.from_arrays(
                random.integers(0, len(COUNTRIES), rows).astype(np.int8), COUNTRIES
            ).cast(pa.string()),
        }
    )


def _decimals(unscaled: np.ndarray, kind: pa.Decimal128Type) -> pa.Array:
    """Decimals from their integers; a decimal128 is a low and a high 64-bit word."""
    words = np.stack([unscaled, unscaled >> 63], axis=1).astype(np.int64)
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(words)])
