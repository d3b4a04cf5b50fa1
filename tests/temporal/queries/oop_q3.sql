-- Pairs of SYN and SYN_ACK within 2 minutes, by their times.
SELECT a.ts AS ts0, b.ts AS ts1, count(*) AS n
FROM main1 a JOIN main2 b ON a.dest_ip = b.src_ip AND a.dest_port = b.src_port
  AND b.ts > a.ts AND b.ts < a.ts + INTERVAL '2 minutes'
WHERE a.flag = 'SYN' AND b.flag = 'SYN_ACK'
GROUP BY a.ts, b.ts
