"""Bot elimination (the running example of Quill's paper, section 3.7): `python examples/bot_elimination.py [rows]`.

A user is a bot while there are more than three clicks of theirs within the last ten seconds. Clicks per ad and minute,
without those of bots. A bot is one only for a while, so that is a question about every moment: `SLIDE` keeps each click
alive for ten seconds, the groups with more than three are alive as long as they are bots, and NOT EXISTS leaves the
clicks that come while their user is none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from present import present, rows_wanted

import tsql

START_US = 1_767_258_000_000_000
"""2026-01-01 09:00:00 UTC."""

BOTS = """
SELECT user_id, count(*) AS clicks
FROM SLIDE(clicks, ts, INTERVAL '10 seconds')
GROUP BY user_id
HAVING count(*) > 3
ORDER BY clicks DESC, user_id, valid_from
LIMIT 5
"""

WITHOUT_BOTS = """
WITH bots AS (
  SELECT user_id FROM SLIDE(clicks, ts, INTERVAL '10 seconds') GROUP BY user_id HAVING count(*) > 3
),
clean AS (
  SELECT c.ad_id
  FROM LIFETIME(clicks, start => ts, duration => INTERVAL '1 microsecond') c
  WHERE NOT EXISTS (SELECT 1 FROM bots b WHERE b.user_id = c.user_id)
)
SELECT ad_id, count(*) AS n
FROM QUANTIZE(clean, slide => INTERVAL '1 minute', size => INTERVAL '1 minute')
GROUP BY ad_id
ORDER BY valid_from, ad_id
"""

QUERIES = {"Who is a bot, and when": BOTS, "Clicks per ad and minute, without bots": WITHOUT_BOTS}


def clicks(rows: int, seed: int = 7) -> pa.Table:
    """Clicks within ten minutes: most users click now and then, five of them in bursts."""
    random = np.random.default_rng(seed)
    users = random.integers(100, 100 + max(rows // 4, 1), rows)
    times = random.integers(0, 600_000_000, rows)
    bursts = random.random(rows) < 0.2
    users[bursts] = random.integers(0, 5, int(bursts.sum()))
    times[bursts] = (times[bursts] // 60_000_000) * 60_000_000 + random.integers(0, 8_000_000, int(bursts.sum()))
    return pa.table(
        {
            "user_id": pa.array(users, pa.int64()),
            "ad_id": pa.array(random.integers(0, 8, rows), pa.int64()),
            "ts": pa.array(times + START_US, pa.timestamp("us")),
        }
    )


def connected(rows: int) -> tsql.Session:
    """A session with the table `clicks`."""
    db = tsql.connect()
    db.register("clicks", clicks(rows), time="ts")
    return db


def main() -> None:
    """Make the clicks, and ask."""
    with connected(rows_wanted(20_000)) as db:
        for title, query in QUERIES.items():
            present(db, title, query)


if __name__ == "__main__":
    main()
