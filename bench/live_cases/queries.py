"""The queries of `bench.live`: each runs over tables at once, and over the same tables in batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bench import ads
from bench.ads import YSB, YSB_ORACLE

TIMES = {"ads": "event_time", "trades": "ts", "quotes": "ts"}
"""The tables whose rows arrive, with the column that the promises about them are about."""


@dataclass(frozen=True)
class Case:
    """A query. oracle: the same for DuckDB, "" if it cannot say it, None for the same text. rows: the share of
    `--rows` that it gets. aim: the least share of the bounded query's rate."""

    name: str
    sql: str
    oracle: str | None = ""
    rows: float = 0.5
    aim: float = 0.5
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def for_duckdb(self) -> str:
        return self.sql if self.oracle is None else self.oracle


def hop(seconds: int) -> Case:
    return Case(
        f"hop {seconds} s / 1 s",
        "SELECT window_start, ad_id, sum(amount)::BIGINT AS total FROM HOP(ads, event_time, slide => INTERVAL "
        f"'1 second', size => INTERVAL '{seconds} seconds') GROUP BY window_start, ad_id",
        "SELECT make_timestamp((w - back) * 1000000) AS window_start, ad_id, sum(amount)::BIGINT AS total FROM (SELECT "
        "epoch_us(event_time) // 1000000 AS w, ad_id, sum(amount) AS amount FROM ads GROUP BY ALL), "
        f"(SELECT unnest(range({seconds})) AS back) GROUP BY ALL",
    )


YAHOO = Case("YSB", YSB, YSB_ORACLE, rows=1.0, aim=0.7, options={"per_second": 100_000, "ads": 10_000})

OPERATORS = (
    hop(10),
    hop(60),
    Case(
        "session, gap 2 s",
        "SELECT user_id, window_start, window_end, count(*) AS n FROM SESSION(ads PARTITION BY user_id, event_time, "
        "gap => INTERVAL '2 seconds') GROUP BY user_id, window_start, window_end",
    ),
    Case(
        "count windows of 100",
        "SELECT ad_id, window_id, window_start, sum(amount)::BIGINT AS total FROM TUMBLE(ads PARTITION BY ad_id, "
        "event_time, rows => 100) GROUP BY ad_id, window_id, window_start",
        "SELECT ad_id, window_id, min(event_time) AS window_start, sum(amount)::BIGINT AS total FROM (SELECT ad_id, "
        "event_time, amount, (row_number() OVER (PARTITION BY ad_id ORDER BY event_time) - 1) // 100 AS window_id "
        "FROM ads) GROUP BY ad_id, window_id HAVING count(*) = 100",
    ),
    Case(
        "snapshot, SLIDE 10 s",
        "SELECT ad_id, count(*) AS n FROM SLIDE(ads, event_time, INTERVAL '10 seconds') GROUP BY ad_id",
    ),
    Case(
        "band join, 10 s",
        "SELECT v.user_id, v.page_id, c.amount FROM ads v JOIN ads c ON v.user_id = c.user_id AND c.event_time BETWEEN "
        "v.event_time AND v.event_time + INTERVAL '10 seconds' WHERE v.event_type = 'view' AND c.event_type = 'click'",
        None,
    ),
    Case(
        "ASOF join",
        "SELECT t.sym, t.ts, t.price, q.bid FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.ts >= q.ts",
        None,
    ),
    Case(
        "NOT EXISTS of lifetimes",
        "SELECT user_id, valid_from, valid_to FROM SLIDE((SELECT user_id, event_time FROM ads WHERE event_type = "
        "'view'), event_time, INTERVAL '5 seconds') v WHERE NOT EXISTS (SELECT 1 FROM SLIDE((SELECT user_id, "
        "event_time FROM ads WHERE event_type = 'click'), event_time, INTERVAL '5 seconds') c WHERE c.user_id = "
        "v.user_id)",
    ),
    Case(
        "lag by key",
        "SELECT ad_id, event_time, amount - lag(amount) OVER (PARTITION BY ad_id ORDER BY event_time) AS change FROM "
        "ads",
        None,
    ),
    Case(
        "3 best rows of a window",
        "SELECT window_start, ad_id, amount, event_time FROM TUMBLE(ads, event_time, INTERVAL '10 seconds') QUALIFY "
        "row_number() OVER (PARTITION BY window_start, ad_id ORDER BY amount DESC, event_time) <= 3",
    ),
    Case(
        "MATCH_RECOGNIZE",
        "SELECT ad_id, started, n FROM ads MATCH_RECOGNIZE (PARTITION BY ad_id ORDER BY event_time MEASURES "
        "FIRST(event_time) AS started, count(*) AS n PATTERN (S DOWN+ UP+) WITHIN INTERVAL '5 seconds' DEFINE DOWN AS "
        "amount < PREV(amount), UP AS amount > PREV(amount))",
    ),
)


def tables(case: Case, rows: int) -> dict[str, pa.Table]:
    """The tables that a query reads. `ads` has 20,000 events a second, unless the case says otherwise."""
    count = max(int(rows * case.rows), 1)
    if "FROM trades" in case.sql:
        return {"trades": prices(count // 2, "price", 3), "quotes": prices(count // 2, "bid", 0)}
    options = {"ads": 1_000, "users": 100_000, "per_second": 20_000, **case.options}
    found = {"ads": ads.events(count, **options)}
    return found | ({"campaigns": ads.campaigns(options["ads"])} if "campaigns" in case.sql else {})


def prices(rows: int, column: str, offset_us: int) -> pa.Table:
    """A price every 100 us or so, of 1,000 symbols. All times differ, so there are no ties."""
    random = np.random.default_rng([11, offset_us])
    times = ads.START_US + np.arange(rows) * 100 + random.integers(0, 5, rows) + offset_us
    return pa.table(
        {
            "sym": pa.array(random.integers(0, 1_000, rows)),
            "ts": pa.array(times).cast(pa.timestamp("us")),
            column: pa.array(random.integers(1, 10_000, rows)),
        }
    )
