SELECT src_ip, dest_ip, time_bucket(INTERVAL '1 minute', ts, TIMESTAMP '1970-01-01') AS window_start, count(*) AS n
FROM main1 GROUP BY ALL
