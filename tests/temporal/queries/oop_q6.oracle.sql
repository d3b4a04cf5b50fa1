WITH m1 AS (SELECT * FROM main1 UNION ALL SELECT * FROM control), m2 AS (SELECT * FROM main2 UNION ALL SELECT * FROM backup)
SELECT a.src_ip, a.dest_ip, a.ts
FROM m1 a
JOIN m2 b
  ON time_bucket(INTERVAL '10 seconds', a.ts, TIMESTAMP '1970-01-01') = time_bucket(INTERVAL '10 seconds', b.ts, TIMESTAMP '1970-01-01')
  AND a.src_ip = b.dest_ip AND a.dest_ip = b.src_ip AND a.src_port = b.dest_port AND a.dest_port = b.src_port
