-- Packets between two addresses in each minute.
SELECT src_ip, dest_ip, window_start, count(*) AS n
FROM TUMBLE(main1, ts, INTERVAL '1 minute')
GROUP BY src_ip, dest_ip, window_start
