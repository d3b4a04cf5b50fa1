-- A window over a band join: how many packets of each minute have an answer at most 5 seconds away, before or after.
SELECT window_start, window_end, count(*) AS n
FROM TUMBLE((
  SELECT a.ts
  FROM main1 a JOIN main2 b
    ON a.ts BETWEEN b.ts - INTERVAL '5 seconds' AND b.ts + INTERVAL '5 seconds'
    AND a.src_ip = b.dest_ip AND a.dest_ip = b.src_ip AND a.src_port = b.dest_port AND a.dest_port = b.src_port
), ts, INTERVAL '1 minute')
GROUP BY window_start, window_end
