SELECT bidder, count(*) AS bid_count, starttime, starttime + INTERVAL '10 seconds' AS endtime
FROM (SELECT bidder, time_bucket(INTERVAL '10 seconds', date_time, TIMESTAMP '1970-01-01') AS starttime FROM bid)
GROUP BY bidder, starttime
