WITH packets AS (SELECT ts FROM control UNION ALL SELECT ts FROM main1 UNION ALL SELECT ts FROM main2)
SELECT window_start, window_start + INTERVAL '1 minute' AS window_end, count(*) AS n
FROM (SELECT time_bucket(INTERVAL '1 minute', ts, TIMESTAMP '1970-01-01') AS window_start FROM packets)
GROUP BY window_start
