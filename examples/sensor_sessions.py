"""Sensors that fall silent: sessions per sensor, and the gaps between them. `python examples/sensor_sessions.py
[rows]`.

A session is a stretch in which a sensor reports at least every two minutes. What lies between two sessions is an
outage."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from present import present, rows_wanted

import tsql

START_US = 1_767_225_600_000_000
"""2026-01-01 00:00:00 UTC."""

SESSIONS = """
SELECT sensor, window_start, window_end, count(*) AS readings, round(avg(celsius), 1) AS mean
FROM SESSION(readings PARTITION BY sensor, ts, gap => INTERVAL '2 minutes')
GROUP BY sensor, window_start, window_end
ORDER BY sensor, window_start
"""

OUTAGES = """
WITH sessions AS (
  SELECT sensor, window_start, window_end
  FROM SESSION(readings PARTITION BY sensor, ts, gap => INTERVAL '2 minutes')
  GROUP BY sensor, window_start, window_end
),
gaps AS (
  SELECT sensor, window_end AS silent_from,
         lead(window_start) OVER (PARTITION BY sensor ORDER BY window_start) AS silent_until
  FROM sessions
)
SELECT sensor, silent_from, silent_until, silent_until - silent_from AS length
FROM gaps
WHERE silent_until IS NOT NULL
ORDER BY length DESC, sensor, silent_from
LIMIT 5
"""

HOURLY = """
SELECT window_start, count(DISTINCT sensor) AS sensors, min(celsius) AS low, max(celsius) AS high
FROM TUMBLE(readings, ts, INTERVAL '1 hour')
GROUP BY window_start
ORDER BY window_start
"""

QUERIES = {"Sessions": SESSIONS, "The longest outages": OUTAGES, "By the hour": HOURLY}


def readings(rows: int, seed: int = 3) -> pa.Table:
    """A reading every half minute or so of each of ten sensors, with an outage now and then."""
    random = np.random.default_rng(seed)
    sensors = 10
    each = max(rows // sensors, 1)
    steps = random.integers(10_000_000, 50_000_000, (sensors, each))
    steps += (random.random((sensors, each)) < 0.01) * random.integers(180_000_000, 1_800_000_000, (sensors, each))
    times = np.cumsum(steps, axis=1) + START_US
    celsius = np.round(20 + 5 * np.sin(times / 7.2e9) + random.normal(0, 0.5, (sensors, each)), 2)
    order = random.permutation(sensors * each)
    names = np.repeat([f"s{number}" for number in range(sensors)], each)
    return pa.table(
        {
            "sensor": pa.array(names[order]),
            "celsius": pa.array(celsius.reshape(-1)[order]),
            "ts": pa.array(times.reshape(-1)[order], pa.timestamp("us")),
        }
    )


def connected(rows: int) -> tsql.Session:
    """A session with the stream `readings`."""
    db = tsql.connect()
    db.stream("readings", readings(rows), time="ts", watermark="ts - INTERVAL '1 minute'")
    return db


def main() -> None:
    """Make the readings, and ask."""
    with connected(rows_wanted(50_000)) as db:
        for title, query in QUERIES.items():
            present(db, title, query)


if __name__ == "__main__":
    main()
