"""The queries whose plans are kept as golden files: name -> (SQL, shards). Names are those of the files."""

from __future__ import annotations

QUERIES: dict[str, tuple[str, int]] = {
    "scan_all": ("SELECT * FROM clicks", 3),
    "scan_one_shard": ("SELECT ad_id, price FROM clicks", 1),
    "count": ("SELECT count(*) AS n FROM clicks", 3),
    "count_one_shard": ("SELECT count(*) AS n FROM clicks", 1),
    "filter": ("SELECT ad_id FROM clicks WHERE price > 5 AND country = 'DE'", 3),
    "filter_or": ("SELECT ad_id FROM clicks WHERE price > 20 OR country IN ('DE', 'NZ') OR country IS NULL", 3),
    "filter_like": ("SELECT user_id FROM clicks WHERE code LIKE '%o_e' AND NOT country ILIKE 'd%'", 3),
    "project": ("SELECT ad_id * 2 AS twice, upper(country) AS place, coalesce(price, -1) AS price FROM clicks", 3),
    "project_case": (
        "SELECT CASE WHEN price > 10 THEN 'dear' WHEN price IS NULL THEN 'free' ELSE 'cheap' END AS kind FROM clicks",
        3,
    ),
    "quoted_names": (
        'SELECT ad_id AS "ad id", price AS "p=(q)", country AS "a ""b""", \'it\'\'s # no comment\' AS "#" FROM clicks',
        3,
    ),
    "group_few": ("SELECT ad_id, count(*) AS n FROM clicks GROUP BY ad_id", 3),
    "group_one_shard": ("SELECT ad_id, count(*) AS n FROM clicks GROUP BY ad_id", 1),
    "group_many_aggregates": (
        (
            "SELECT ad_id, sum(price) AS s, avg(cost) AS a, min(ts) AS first, max(country) AS last, "
            "stddev(cost) AS d FROM clicks GROUP BY ad_id"
        ),
        3,
    ),
    "group_expression": (
        "SELECT date_trunc('day', ts) AS d, price % 3 AS k, count(*) AS n FROM clicks GROUP BY ALL",
        3,
    ),
    "group_whole": ("SELECT ad_id, median(price) AS m FROM clicks GROUP BY ad_id", 3),
    "group_whole_expression": ("SELECT user_id % 4 AS k, median(cost) AS m, max(price) AS p FROM clicks GROUP BY 1", 3),
    "group_distinct": ("SELECT country, count(DISTINCT user_id) AS users FROM clicks GROUP BY country", 3),
    "group_filter": (
        (
            "SELECT ad_id, count(*) FILTER (WHERE price > 10) AS dear, sum(cost) FILTER (WHERE country = 'DE') "
            "AS german FROM clicks GROUP BY ad_id"
        ),
        3,
    ),
    "group_having": (
        (
            "SELECT ad_id, sum(price) AS s FROM clicks WHERE price IS NOT NULL GROUP BY ad_id HAVING count(*) "
            "> 30 AND ad_id <> 2"
        ),
        3,
    ),
    "group_nested": (
        "SELECT n, count(*) AS ads FROM (SELECT ad_id, count(*) AS n FROM clicks GROUP BY ad_id) GROUP BY n",
        3,
    ),
    "string_agg_ordered": (
        "SELECT ad_id, string_agg(DISTINCT country, ',' ORDER BY country) AS places FROM clicks GROUP BY ad_id",
        3,
    ),
    "aggregate_empty": ("SELECT count(*) AS n, sum(price) AS s FROM nothing", 3),
    "rollup": ("SELECT country, ad_id, count(*) AS n FROM clicks GROUP BY ROLLUP (country, ad_id)", 3),
    "grouping_sets": (
        (
            "SELECT country, ad_id, grouping(country, ad_id) AS g, sum(price) AS s FROM clicks GROUP BY "
            "GROUPING SETS ((country), (ad_id), (country, ad_id))"
        ),
        3,
    ),
    "distinct": ("SELECT DISTINCT country, ad_id FROM clicks", 3),
    "distinct_on": ("SELECT DISTINCT ON (ad_id) ad_id, ts, cost FROM clicks ORDER BY ad_id, ts", 3),
    "sort": ("SELECT ad_id, ts FROM clicks ORDER BY ts DESC", 3),
    "sort_nulls": ("SELECT country, price, ts FROM clicks ORDER BY country DESC NULLS FIRST, price NULLS LAST, ts", 3),
    "sort_expression": ("SELECT user_id FROM clicks ORDER BY -user_id % 7, user_id, cost", 3),
    "top": ("SELECT ts, price FROM clicks ORDER BY ts LIMIT 5", 3),
    "top_one_shard": ("SELECT ts, price FROM clicks ORDER BY ts LIMIT 5", 1),
    "top_offset": ("SELECT ts FROM clicks ORDER BY ts DESC LIMIT 5 OFFSET 3", 3),
    "top_groups": ("SELECT ad_id, count(*) AS n FROM clicks GROUP BY ad_id ORDER BY n DESC, ad_id LIMIT 3", 3),
    "limit_subquery": ("SELECT count(*) AS n FROM (SELECT * FROM clicks ORDER BY ts LIMIT 50) WHERE price > 5", 3),
    "offset_only": ("SELECT ts FROM clicks ORDER BY ts OFFSET 290", 3),
    "values": ("SELECT x + 1 AS y, s FROM (VALUES (1, 'a'), (2, NULL), (3, 'it''s')) AS v(x, s) WHERE x <> 2", 3),
    "no_from": ("SELECT 1 AS one, 'x' AS s, DATE '2024-02-29' AS d, INTERVAL '3 days' AS i, NULL AS n", 3),
    "union_all": ("SELECT ad_id FROM clicks WHERE price > 20 UNION ALL SELECT user_id FROM clicks WHERE price < 2", 3),
    "union": ("SELECT ad_id FROM clicks UNION SELECT price FROM clicks", 3),
    "intersect": ("SELECT ad_id FROM clicks INTERSECT SELECT price FROM clicks", 3),
    "except_all": ("SELECT user_id FROM clicks EXCEPT ALL SELECT price FROM clicks", 3),
    "cte_twice": (
        (
            "WITH ads AS (SELECT ad_id, count(*) AS n FROM clicks GROUP BY ad_id) SELECT ad_id FROM ads WHERE "
            "n > 40 UNION ALL SELECT n FROM ads"
        ),
        3,
    ),
    "types": (
        (
            "SELECT CAST(price AS DECIMAL(9, 2)) AS d, TRY_CAST(code AS TINYINT) AS t, CAST(day AS TIMESTAMP) "
            "AS w, cost::FLOAT AS f FROM clicks"
        ),
        3,
    ),
    "hint_one_phase": ("SELECT /*+ AGG('one_phase') */ ad_id, count(*) AS n FROM clicks GROUP BY ad_id", 3),
    "hint_two_phase": ("SELECT /*+ AGG('two_phase') */ ad_id, count(*) AS n FROM clicks GROUP BY ad_id", 3),
    "hint_redistribute": (
        (
            "SELECT /*+ REDISTRIBUTE(c, user_id), SHARDS(4) */ ad_id, count(*) AS n FROM clicks c WHERE price "
            "> 3 GROUP BY ad_id"
        ),
        3,
    ),
    "hint_redistribute_key": (
        "SELECT /*+ REDISTRIBUTE(clicks, ad_id) */ ad_id, country, count(*) AS n FROM clicks GROUP BY ad_id, country",
        3,
    ),
    "hint_broadcast": (
        (
            "SELECT /*+ BROADCAST(a, scope => 'global') */ a.ts, b.price FROM clicks a JOIN (SELECT * FROM "
            "clicks WHERE price = 3) b ON a.user_id = b.user_id"
        ),
        3,
    ),
    "hint_leading": (
        (
            "SELECT /*+ LEADING(c, b, a) */ a.ts, b.price, c.code FROM clicks a, clicks b, clicks c WHERE a.ts "
            "= b.ts AND b.ts = c.ts AND b.price = 7"
        ),
        3,
    ),
    "hint_join_hash": (
        (
            "SELECT /*+ JOIN(a, b, 'hash') */ a.ts, b.ts AS later FROM clicks a JOIN clicks b ON a.user_id = "
            "b.user_id AND a.ts < b.ts"
        ),
        3,
    ),
    "hint_join_loop": (
        (
            "SELECT /*+ JOIN(a, b, 'loop') */ a.ts FROM clicks a WHERE EXISTS (SELECT 1 FROM clicks b WHERE "
            "b.ad_id = a.user_id)"
        ),
        3,
    ),
    "hint_join_range": (
        (
            "SELECT /*+ JOIN(a, b, 'range') */ a.ts, b.ts AS later FROM clicks a LEFT JOIN clicks b ON "
            "a.user_id = b.user_id AND a.price < b.user_id"
        ),
        3,
    ),
    "window_rank": (
        (
            "SELECT ad_id, ts, row_number() OVER (PARTITION BY ad_id ORDER BY ts) AS rn, rank() OVER "
            "(PARTITION BY ad_id ORDER BY ts) AS r FROM clicks"
        ),
        3,
    ),
    "window_one_shard": ("SELECT ts, lag(price, 2, 0) OVER (ORDER BY ts) AS before FROM clicks", 1),
    "window_all_rows": (
        (
            "SELECT ts, sum(price) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS "
            "s FROM clicks"
        ),
        3,
    ),
    "window_frames": (
        "SELECT ts, sum(price) OVER w AS a, avg(cost) OVER (w ROWS 3 PRECEDING) AS b, count(*) FILTER "
        "(WHERE price > 5) OVER (w RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) AS c, "
        "max(code) OVER (w GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS d FROM clicks WINDOW w AS "
        "(PARTITION BY country ORDER BY ts)",
        3,
    ),
    "window_expression_key": (
        "SELECT ts, count(*) OVER (PARTITION BY user_id % 5, upper(country)) AS n FROM clicks",
        3,
    ),
    "window_two": (
        (
            "SELECT ts, first_value(price IGNORE NULLS) OVER (PARTITION BY ad_id ORDER BY ts) AS f, "
            "dense_rank() OVER (ORDER BY day DESC NULLS FIRST) AS d FROM clicks"
        ),
        3,
    ),
    "window_qualify": (
        "SELECT ad_id, ts FROM clicks QUALIFY row_number() OVER (PARTITION BY ad_id ORDER BY ts DESC) = 1",
        3,
    ),
    "window_grouped": (
        "SELECT ad_id, sum(price) AS s, sum(sum(price)) OVER (ORDER BY ad_id) AS running FROM clicks GROUP BY ad_id",
        3,
    ),
    "window_placed": (
        (
            "SELECT ad_id, n, rank() OVER (PARTITION BY ad_id ORDER BY n, country) AS r FROM (SELECT ad_id, "
            "country, median(price) AS n FROM clicks GROUP BY ad_id, country)"
        ),
        3,
    ),
    "band_of_constant_lengths": (
        (
            "SELECT a.ad_id, b.ts AS other FROM clicks a JOIN clicks b ON a.user_id = b.user_id AND a.ts < b.ts + "
            "INTERVAL '2 hours' AND b.ts < a.ts + INTERVAL '1 hour'"
        ),
        3,
    ),
    "overlap": (
        (
            "SELECT a.ad_id, b.ts AS other FROM clicks a LEFT JOIN clicks b ON a.user_id = b.user_id AND a.ts < b.ts + "
            "b.price * INTERVAL '1 hour' AND b.ts < a.ts + a.price * INTERVAL '1 hour' AND a.cost < b.cost"
        ),
        3,
    ),
    "overlap_without_keys": (
        "SELECT ad_id, ts FROM clicks a SEMI JOIN clicks b ON a.price < b.user_id AND b.ad_id <= a.ad_id",
        3,
    ),
}
