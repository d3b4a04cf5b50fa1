"""Trades and quotes: joins in time over plain rows. `python examples/trades_and_quotes.py [rows]`.

What was the last quote before each trade, if it was not too old; what did the trade cost against it; and which fee was
valid then?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from present import present, rows_wanted

import tsql

START_US = 1_767_258_000_000_000
"""2026-01-01 09:00:00 UTC."""

FEES = """
CREATE TABLE fees (sym VARCHAR, cents INTEGER, vs TIMESTAMP, ve TIMESTAMP, PERIOD FOR valid_time (vs, ve));
INSERT INTO fees
SELECT 'S' || s, 1 + (s + h) % 3, TIMESTAMP '2026-01-01 09:00:00' + h * INTERVAL '1 hour',
       TIMESTAMP '2026-01-01 10:00:00' + h * INTERVAL '1 hour'
FROM range(5) a(s), range(2) b(h)
"""

SLIPPAGE = """
SELECT t.sym, count(*) AS trades, count(q.bid) AS quoted, round(avg(t.price - (q.bid + q.ask) / 2), 4) AS slippage
FROM trades t ASOF LEFT JOIN quotes q ON t.sym = q.sym AND t.ts >= q.ts TOLERANCE INTERVAL '500 milliseconds'
GROUP BY t.sym
ORDER BY t.sym
"""

COSTS = """
SELECT t.sym, f.cents, count(*) AS trades, sum(t.size * f.cents) / 100 AS dollars
FROM trades t LEFT JOIN fees FOR VALID_TIME AS OF t.ts AS f ON t.sym = f.sym
GROUP BY t.sym, f.cents
ORDER BY t.sym, f.cents
"""

FOLLOWED = """
SELECT t.sym, count(*) AS quotes_after
FROM trades t JOIN quotes q ON t.sym = q.sym AND q.ts BETWEEN t.ts AND t.ts + INTERVAL '100 milliseconds'
GROUP BY t.sym
ORDER BY t.sym
"""

QUERIES = {"Against the last quote": SLIPPAGE, "By the fee of the moment": COSTS, "Quotes just after a trade": FOLLOWED}


def market(rows: int, seed: int = 5) -> dict[str, pa.Table]:
    """Two hours of quotes of five symbols, and a trade for every ten quotes; both in no order."""
    random = np.random.default_rng(seed)

    def table(count: int) -> tuple[pa.Array, np.ndarray, pa.Array]:
        symbols = pa.array([f"S{number}" for number in random.integers(0, 5, count)])
        times = random.integers(0, 7_200_000_000, count)
        return (
            symbols,
            100 + np.sin(times / 6e8) + random.normal(0, 0.02, count),
            pa.array(times + START_US, pa.timestamp("us")),
        )

    symbols, middle, times = table(rows)
    quotes = pa.table(
        {
            "sym": symbols,
            "bid": pa.array(np.round(middle - 0.01, 3)),
            "ask": pa.array(np.round(middle + 0.01, 3)),
            "ts": times,
        }
    )
    count = max(rows // 10, 1)
    symbols, price, times = table(count)
    trades = pa.table(
        {
            "sym": symbols,
            "price": pa.array(np.round(price, 3)),
            "size": pa.array(random.integers(1, 500, count)),
            "ts": times,
        }
    )
    return {"quotes": quotes, "trades": trades}


def connected(rows: int) -> tsql.Session:
    """A session with `trades`, `quotes` and `fees`."""
    db = tsql.connect()
    for name, table in market(rows).items():
        db.register(name, table, time="ts")
    db.execute(FEES)
    return db


def main() -> None:
    """Make the market, and ask."""
    with connected(rows_wanted(200_000)) as db:
        for title, query in QUERIES.items():
            present(db, title, query)


if __name__ == "__main__":
    main()
