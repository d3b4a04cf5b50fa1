"""The queries of the temporal benchmark: for each line our text, and the fastest equivalent in each other engine.

DuckDB uses integer arithmetic instead of `time_bucket`, which is slower; a hopping window is a join with a series.
Polars uses lazy queries over frames. Spark uses `window()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from bench import temporal_polars
from bench.ads import YSB
from bench.temporal_polars import Lazy


@dataclass(frozen=True)
class Case:
    """One line: texts by engine, and the target speedup over each peer. `rows`: the input size as a share of the ad
    events."""

    name: str
    tables: tuple[str, ...]
    tsql: str
    duckdb: str | None = None
    polars: Lazy | None = None
    spark: str | None = None
    aims: Mapping[str, float] = field(default_factory=dict)
    rows: float = 1.0


def bucket(seconds: float, column: str = "event_time") -> str:
    """The start of the window in microseconds, for DuckDB. Times here are after 1970, where // rounds down."""
    size = int(seconds * 1_000_000)
    return f"epoch_us({column}) // {size} * {size}"


def tumble(
    table: str = "ads", key: str = "ad_id", seconds: int = 10, aims: Mapping[str, float] | None = None, name: str = ""
) -> Case:
    """Filter, tumble, sum."""
    shown = "ad_id" if key == "ad_id" else f"{key} AS ad_id"
    return Case(
        name or f"filter, tumble {seconds} s, sum by ad",
        (table,),
        f"SELECT window_start, {shown}, sum(amount) AS total FROM TUMBLE({table}, event_time, INTERVAL "
        f"'{seconds} seconds') "
        f"WHERE event_type = 'view' GROUP BY window_start, {key}",
        f"SELECT make_timestamp(w) AS window_start, k AS ad_id, total FROM "
        f"(SELECT {bucket(seconds)} AS w, {key} AS k, sum(amount) AS total FROM {table} WHERE event_type = "
        "'view' GROUP BY w, k)",
        temporal_polars.tumble(table, seconds) if key == "ad_id" else None,
        f"SELECT window.start AS window_start, {shown}, sum(amount) AS total FROM {table} "
        f"WHERE event_type = 'view' GROUP BY window(event_time, '{seconds} seconds'), {key}",
        aims or {},
    )


def hop(
    seconds: int,
    table: str = "ads",
    *,
    key: str = "ad_id",
    aims: Mapping[str, float] | None = None,
    polars: bool = False,
    panes: bool = False,
) -> Case:
    """Filter, hop every second, sum. `panes`: DuckDB sums each second first, as an expert would write it, and Spark is
    left out."""
    source = (
        f"(SELECT (epoch_us(event_time) // 1000000)::INTEGER AS w, {key}, amount FROM {table} WHERE "
        "event_type = 'view')"
    )
    if panes:
        source = f"(SELECT w, {key}, sum(amount) AS amount FROM {source} GROUP BY ALL)"
    return Case(
        f"filter, hop {seconds} s / 1 s, sum by {key}" + (", DuckDB by panes" if panes else ""),
        (table,),
        f"SELECT window_start, {key}, sum(amount) AS total FROM HOP({table}, event_time, slide => INTERVAL "
        f"'1 second', size => INTERVAL '{seconds} seconds') "
        f"WHERE event_type = 'view' GROUP BY window_start, {key}",
        f"SELECT make_timestamp(s::BIGINT * 1000000) AS window_start, {key}, total FROM "
        f"(SELECT w - back AS s, {key}, sum(amount) AS total FROM {source}, (SELECT "
        f"unnest(range({seconds}))::INTEGER AS back) GROUP BY ALL)",
        temporal_polars.hop(table, seconds, key) if polars else None,
        None
        if panes
        else f"SELECT window.start AS window_start, {key}, sum(amount) AS total FROM {table} "
        f"WHERE event_type = 'view' GROUP BY window(event_time, '{seconds} seconds', '1 second'), {key}",
        aims or {},
    )


def session(table: str = "ads", aims: Mapping[str, float] | None = None) -> Case:
    """Sessions of users. DuckDB finds session starts with LAG and numbers them by a running sum."""
    return Case(
        "sessions of users, gap 2 s",
        (table,),
        f"SELECT user_id, window_start, window_end, count(*) AS n, sum(amount) AS total "
        f"FROM SESSION({table} PARTITION BY user_id, event_time, gap => INTERVAL '2 seconds') GROUP BY "
        "user_id, window_start, window_end",
        f"""WITH marked AS (
              SELECT user_id, event_time, amount,
                     CASE WHEN epoch_us(event_time)
                          - lag(epoch_us(event_time)) OVER (PARTITION BY user_id ORDER BY event_time) <= 2000000
                          THEN 0 ELSE 1 END AS new
              FROM {table}
            ), numbered AS (
              SELECT *, sum(new) OVER (PARTITION BY user_id ORDER BY event_time ROWS UNBOUNDED PRECEDING) AS number
              FROM marked
            )
            SELECT user_id, min(event_time) AS window_start, max(event_time) + INTERVAL '2 seconds' AS window_end,
                   count(*) AS n, sum(amount) AS total
            FROM numbered GROUP BY user_id, number""",
        temporal_polars.session(table),
        "SELECT user_id, session_window.start AS window_start, session_window.end AS window_end, count(*) AS n, "
        f"sum(amount) AS total FROM {table} GROUP BY user_id, session_window(event_time, '2 seconds')",
        aims or {},
    )


COUNT_WINDOWS = Case(
    "count windows of 100 rows per ad",
    ("ads",),
    "SELECT ad_id, window_id, window_start, window_end, sum(amount) AS total "
    "FROM TUMBLE(ads PARTITION BY ad_id, event_time, rows => 100) GROUP BY ad_id, window_id, window_start, window_end",
    """SELECT ad_id, window_id, min(event_time) AS window_start,
              max(event_time) + INTERVAL '1 microsecond' AS window_end, sum(amount) AS total
       FROM (SELECT ad_id, event_time, amount,
                    (row_number() OVER (PARTITION BY ad_id ORDER BY event_time) - 1) // 100 AS window_id FROM ads)
       GROUP BY ad_id, window_id HAVING count(*) = 100""",
    aims={"duckdb": 5},
)


def holistic(call: str, name: str) -> Case:
    """An aggregate that needs all values of its window."""
    return Case(
        f"{name} by ad, tumble 10 s",
        ("ads",),
        (
            f"SELECT window_start, ad_id, {call} AS found FROM TUMBLE(ads, event_time, INTERVAL '10 seconds') "
            "GROUP BY window_start, ad_id"
        ),
        (
            f"SELECT make_timestamp(w) AS window_start, ad_id, found FROM (SELECT {bucket(10)} AS w, ad_id, "
            f"{call} AS found FROM ads GROUP BY ALL)"
        ),
        aims={"duckdb": 1},
    )


def snapshot(name: str, lifetime: str, end: str) -> Case:
    """How many rows are alive at each time. DuckDB adds up starts and ends."""
    return Case(
        name,
        ("ads",),
        f"SELECT ad_id, count(*) AS n FROM {lifetime} GROUP BY ad_id",
        f"""WITH changes AS (
              SELECT ad_id, t, sum(d) AS d
              FROM (SELECT ad_id, event_time AS t, 1 AS d FROM ads UNION ALL SELECT ad_id, {end}, -1 FROM ads)
              GROUP BY ad_id, t HAVING sum(d) <> 0
            ), levels AS (
              SELECT ad_id, t AS valid_from, lead(t) OVER w AS valid_to, sum(d) OVER w AS n FROM changes
              WINDOW w AS (PARTITION BY ad_id ORDER BY t)
            )
            SELECT ad_id, n::BIGINT AS n, valid_from, valid_to FROM levels WHERE n > 0""",
        aims={"duckdb": 10},
    )


ASOF = Case(
    "ASOF join of trades and quotes",
    ("trades", "quotes"),
    (
        "SELECT count(*) AS n, sum(t.price - q.bid) AS gain FROM trades t ASOF JOIN quotes q ON t.sym = "
        "q.sym AND t.ts >= q.ts"
    ),
    (
        "SELECT count(*) AS n, sum(t.price - q.bid) AS gain FROM trades t ASOF JOIN quotes q ON t.sym = "
        "q.sym AND t.ts >= q.ts"
    ),
    temporal_polars.asof,
    aims={"duckdb": 2, "polars": 2},
    rows=1.0,
)
BAND_TEXT = """SELECT count(*) AS n, sum(c.amount - v.amount) AS more
FROM ads v JOIN ads c ON v.user_id = c.user_id
 AND c.event_time BETWEEN v.event_time AND v.event_time + INTERVAL '10 seconds'
WHERE v.event_type = 'view' AND c.event_type = 'click'"""
BAND = Case("band join: clicks of a user within 10 s of a view", ("ads",), BAND_TEXT, BAND_TEXT, aims={"duckdb": 2})
YAHOO = Case(
    "Yahoo streaming benchmark",
    ("ads", "campaigns"),
    YSB,
    f"""SELECT campaign_id, make_timestamp(w) AS window_start, views
        FROM (SELECT c.campaign_id, {bucket(10, "a.event_time")} AS w, count(*) AS views
              FROM ads a JOIN campaigns c ON a.ad_id = c.ad_id WHERE a.event_type = 'view' GROUP BY ALL)""",
    spark="""SELECT campaign_id, window.start AS window_start, count(*) AS views
             FROM ads a JOIN campaigns c ON a.ad_id = c.ad_id WHERE event_type = 'view'
             GROUP BY campaign_id, window(event_time, '10 seconds')""",
)

WINDOWS = (
    tumble(aims={"polars": 4, "duckdb": 8}),
    hop(10, aims={"duckdb": 15}, polars=True),
    hop(60, aims={"duckdb": 50, "spark": 500}),
    hop(60, panes=True),
    session(aims={"duckdb": 8}),
    COUNT_WINDOWS,
    holistic("count(DISTINCT user_id)", "distinct count"),
    holistic("median(amount)", "median"),
    snapshot(
        "snapshot count by ad, 10 s each",
        "SLIDE(ads, event_time, INTERVAL '10 seconds')",
        "event_time + INTERVAL '10 seconds'",
    ),
    snapshot(
        "snapshot count by ad, lifetimes of their own",
        "LIFETIME(ads, start => event_time, duration => to_milliseconds(amount))",
        "event_time + to_milliseconds(amount)",
    ),
    YAHOO,
)
JOINS = (BAND, ASOF)

ORDER = tuple((made("ads"), made("ads_shuffled")) for made in (tumble, partial(hop, 60, panes=True), session))
"""Each query over rows in time order and over the same rows shuffled: at most 1.5 times longer."""

LONG_WINDOW = (
    tumble(key="ad_type", seconds=1, name="tumble 1 s, sum by ad_type"),
    hop(3_600, key="ad_type", panes=True),
)
"""The second takes at most 1.5 times longer than the first. By ad type there are 2,000 times fewer result rows than by
ad, so that writing them costs nothing."""

KEYS = tuple(
    tumble(key=f"(user_id * 10 + ad_id % 10) % {keys}", name=f"filter, tumble 10 s, sum by {keys:,} keys")
    for keys in (1, 100, 10_000, 1_000_000, 10_000_000)
)
