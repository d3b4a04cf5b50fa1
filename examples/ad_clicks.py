"""Ad clicks: windows over a stream of Parquet files that arrive in no order. `python examples/ad_clicks.py [rows]`.

How many clicks does each ad have per minute, which ads are at the top of the last five minutes, and how does the day
add up?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from present import present, rows_wanted

import tsql

START_US = 1_767_258_000_000_000
"""2026-01-01 09:00:00 UTC."""

STREAM = """
CREATE STREAM clicks (ad_id BIGINT, user_id BIGINT, price DOUBLE, ts TIMESTAMP,
  WATERMARK FOR ts AS ts - INTERVAL '30 seconds' ALLOWED LATENESS INTERVAL '1 minute')
WITH (connector = 'parquet', path = '{folder}/*.parquet')
"""

PER_MINUTE = """
SELECT window_start, ad_id, count(*) AS clicks, sum(price) AS spend
FROM TUMBLE(clicks, ts, INTERVAL '1 minute')
GROUP BY window_start, ad_id
ORDER BY clicks DESC, window_start, ad_id
LIMIT 5
EMIT FINAL
"""

TOP_ADS = """
SELECT window_end, ad_id, clicks
FROM (
  SELECT window_end, ad_id, count(*) AS clicks
  FROM HOP(clicks, ts, slide => INTERVAL '1 minute', size => INTERVAL '5 minutes')
  GROUP BY window_end, ad_id
)
QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY clicks DESC, ad_id) = 1
ORDER BY window_end
"""

SO_FAR = """
SELECT window_start, window_end, count(*) AS clicks, count(DISTINCT user_id) AS users
FROM CUMULATE(clicks, ts, step => INTERVAL '15 minutes', size => INTERVAL '1 hour')
GROUP BY window_start, window_end
ORDER BY window_start, window_end
"""

QUERIES = {
    "Clicks per ad and minute": PER_MINUTE,
    "The top ad of the last five minutes": TOP_ADS,
    "The hour so far": SO_FAR,
}


def clicks(rows: int, seed: int = 1) -> pa.Table:
    """Clicks within an hour, in no order; one in a thousand has no time."""
    random = np.random.default_rng(seed)
    times = random.integers(0, 3_600_000_000, rows) + START_US
    return pa.table(
        {
            "ad_id": pa.array(random.zipf(1.5, rows) % 200),
            "user_id": pa.array(random.integers(0, max(rows // 20, 1), rows)),
            "price": pa.array(np.round(random.exponential(0.4, rows), 2)),
            "ts": pa.array(times, pa.timestamp("us"), mask=random.random(rows) < 0.001),
        }
    )


def connected(rows: int, folder: Path) -> tsql.Session:
    """A session with the stream `clicks` over three files."""
    table = clicks(rows)
    for number in range(3):
        pq.write_table(
            table.slice(number * rows // 3, (number + 1) * rows // 3 - number * rows // 3),
            folder / f"part-{number}.parquet",
        )
    db = tsql.connect()
    db.sql(STREAM.format(folder=folder))
    return db


def main() -> None:
    """Make the files, and ask."""
    with tempfile.TemporaryDirectory() as folder, connected(rows_wanted(1_000_000), Path(folder)) as db:
        for title, query in QUERIES.items():
            present(db, title, query)


if __name__ == "__main__":
    main()
