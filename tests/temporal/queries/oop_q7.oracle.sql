SELECT window_start, window_start + INTERVAL '1 minute' AS window_end, count(*) AS n
FROM (
  SELECT time_bucket(INTERVAL '1 minute', a.ts, TIMESTAMP '1970-01-01') AS window_start
  FROM main1 a JOIN main2 b
    ON a.ts BETWEEN b.ts - INTERVAL '5 seconds' AND b.ts + INTERVAL '5 seconds'
    AND a.src_ip = b.dest_ip AND a.dest_ip = b.src_ip AND a.src_port = b.dest_port AND a.dest_port = b.src_port
)
GROUP BY window_start
