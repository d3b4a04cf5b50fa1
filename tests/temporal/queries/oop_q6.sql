-- A tumbling-window join: packets and their answers in the same 10 seconds, each side the union of two links.
WITH m1 AS (SELECT * FROM main1 UNION ALL SELECT * FROM control), m2 AS (SELECT * FROM main2 UNION ALL SELECT * FROM backup)
SELECT a.src_ip, a.dest_ip, a.ts
FROM TUMBLE(m1, ts, INTERVAL '10 seconds') a
JOIN TUMBLE(m2, ts, INTERVAL '10 seconds') b
  ON a.window_start = b.window_start AND a.window_end = b.window_end
  AND a.src_ip = b.dest_ip AND a.dest_ip = b.src_ip AND a.src_port = b.dest_port AND a.dest_port = b.src_port
