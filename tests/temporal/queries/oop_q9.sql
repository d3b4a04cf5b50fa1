-- Packets of three links in the last 5 minutes, every minute.
WITH packets AS (SELECT ts FROM main1 UNION ALL SELECT ts FROM main2 UNION ALL SELECT ts FROM control)
SELECT window_start, window_end, count(*) AS n
FROM HOP(packets, ts, slide => INTERVAL '1 minute', size => INTERVAL '5 minutes')
GROUP BY window_start, window_end
