SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
  SELECT max(price) AS highest, time_bucket(INTERVAL '10 seconds', date_time, TIMESTAMP '1970-01-01') + INTERVAL '10 seconds' AS window_end
  FROM bid GROUP BY window_end
) w ON b.price = w.highest
WHERE b.date_time BETWEEN w.window_end - INTERVAL '10 seconds' AND w.window_end
