"""Ad events, as in the Yahoo streaming benchmark and the numbers of the design: views, clicks and purchases of ads by
users.

    python -m bench.ads --rows 20000000 --out DIR

writes `ads.parquet` (in the order of time), `ads_shuffled.parquet` (the same rows in random order) and
`campaigns.parquet`. Everything is made with numpy from a seed; a row takes about 60 bytes in Arrow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_700_000_000_000_000
"""The time of the first event, 2023-11-14 22:13:20."""
EVENT_TYPES = ("view", "click", "purchase")
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
CAMPAIGN_ADS = 10
"""How many ads a campaign has."""
CHUNK_ROWS = 1_000_000
SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("user_id", pa.int64()),
        ("page_id", pa.int64()),
        ("ad_id", pa.int64()),
        ("ad_type", pa.string()),
        ("event_type", pa.string()),
        ("amount", pa.int64()),
    ]
)

YSB = """
SELECT campaign_id, window_start, count(*) AS views
FROM TUMBLE((SELECT c.campaign_id, a.event_time FROM ads a JOIN campaigns c ON a.ad_id = c.ad_id
             WHERE a.event_type = 'view'), event_time, INTERVAL '10 seconds')
GROUP BY campaign_id, window_start
"""
"""The query of the Yahoo streaming benchmark: views per campaign in windows of 10 seconds."""

YSB_ORACLE = """
SELECT c.campaign_id, time_bucket(INTERVAL '10 seconds', a.event_time, TIMESTAMP '1970-01-01') AS window_start,
       count(*) AS views
FROM ads a JOIN campaigns c ON a.ad_id = c.ad_id WHERE a.event_type = 'view' GROUP BY ALL
"""


def events(
    rows: int,
    ads: int = 10_000,
    users: int = 1_000_000,
    per_second: int = 100_000,
    seed: int = 7,
    shuffled: bool = False,
) -> pa.Table:
    """The whole table. `shuffled` has the same rows in random order, so the same answers."""
    table = pa.concat_tables(chunks(rows, ads, users, per_second, seed)) if rows else SCHEMA.empty_table()
    return _mixed(table, seed) if shuffled else table


def chunks(
    rows: int, ads: int = 10_000, users: int = 1_000_000, per_second: int = 100_000, seed: int = 7
) -> Iterator[pa.Table]:
    """The table in time order, one part at a time. Each column of each part has its own seed, so the first rows do not
    depend on the total number."""
    for number, first in enumerate(range(0, rows, CHUNK_ROWS)):
        count = min(CHUNK_ROWS, rows - first)

        def drawn(column: int, low: int, high: int, count: int = count, number: int = number) -> np.ndarray:
            return np.random.default_rng([seed, number, column]).integers(low, high, count)

        # One event per tick with a random delay of less than a tick: times are in order, and repeat only if a tick is a
        # microsecond.
        tick = max(1_000_000 // per_second, 1)
        columns = {
            "event_time": pa.array(START_US + np.arange(first, first + count) * tick + drawn(0, 0, tick)).cast(
                pa.timestamp("us")
            ),
            "user_id": pa.array(drawn(1, 0, users)),
            "page_id": pa.array(drawn(2, 0, 1_000)),
            "ad_id": pa.array(drawn(3, 0, ads)),
            "ad_type": _chosen(AD_TYPES, drawn(4, 0, len(AD_TYPES))),
            "event_type": _chosen(EVENT_TYPES, drawn(5, 0, len(EVENT_TYPES))),
            "amount": pa.array(drawn(6, 1, 100_000)),
        }
        yield pa.table(columns, schema=SCHEMA)


def campaigns(ads: int = 10_000) -> pa.Table:
    """The campaign of each ad."""
    numbers = np.arange(ads)
    return pa.table({"ad_id": pa.array(numbers), "campaign_id": pa.array(numbers // CAMPAIGN_ADS)})


def write(folder: Path, rows: int, **options: int) -> dict[str, Path]:
    """Write the three tables as Parquet files in `folder`, and return their paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.parquet" for name in ("ads", "ads_shuffled", "campaigns")}
    table = events(rows, **options)
    pq.write_table(table, paths["ads"], row_group_size=CHUNK_ROWS)
    pq.write_table(_mixed(table, options.get("seed", 7)), paths["ads_shuffled"], row_group_size=CHUNK_ROWS)
    pq.write_table(campaigns(options.get("ads", 10_000)), paths["campaigns"])
    return paths


def _mixed(table: pa.Table, seed: int) -> pa.Table:
    """The rows in a random order."""
    order = np.random.default_rng([seed, table.num_rows]).permutation(table.num_rows)
    return table.combine_chunks().take(pa.array(order))


def _chosen(words: tuple[str, ...], codes: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(words)).cast(pa.string())


def main(arguments: list[str] | None = None) -> int:
    """Write the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.ads", description="Make ad events as Parquet files")
    parser.add_argument("--rows", type=int, default=20_000_000, help="number of events (default: 20 million)")
    parser.add_argument("--ads", type=int, default=10_000, help="number of ads (default: 10 thousand)")
    parser.add_argument("--users", type=int, default=1_000_000, help="number of users (default: 1 million)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    if min(options.rows, options.ads, options.users) < 1:
        parser.error("--rows, --ads and --users are positive numbers")
    for name, path in write(options.out, options.rows, ads=options.ads, users=options.users, seed=options.seed).items():
        print(f"{name}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
