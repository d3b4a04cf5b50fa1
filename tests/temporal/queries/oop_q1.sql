-- Packets of three links in each minute.
WITH packets AS (SELECT ts FROM control UNION ALL SELECT ts FROM main1 UNION ALL SELECT ts FROM main2)
SELECT window_start, window_end, count(*) AS n
FROM TUMBLE(packets, ts, INTERVAL '1 minute')
GROUP BY window_start, window_end
