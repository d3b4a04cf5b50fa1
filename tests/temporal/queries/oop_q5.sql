-- The same over two links.
SELECT src_ip, dest_ip, window_start, count(*) AS n
FROM TUMBLE((SELECT * FROM main1 UNION ALL SELECT * FROM main2), ts, INTERVAL '1 minute')
GROUP BY src_ip, dest_ip, window_start
