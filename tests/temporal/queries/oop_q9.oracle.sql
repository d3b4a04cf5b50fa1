WITH packets AS (SELECT ts FROM main1 UNION ALL SELECT ts FROM main2 UNION ALL SELECT ts FROM control)
SELECT window_start, window_start + INTERVAL '5 minutes' AS window_end, count(*) AS n
FROM (
  SELECT time_bucket(INTERVAL '1 minute', ts, TIMESTAMP '1970-01-01') - back * INTERVAL '1 minute' AS window_start
  FROM packets, (SELECT unnest(range(5)) AS back)
)
GROUP BY window_start
