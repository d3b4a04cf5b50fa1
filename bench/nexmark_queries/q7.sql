-- The highest bids of each 10 seconds.
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
  SELECT max(price) AS highest, window_end
  FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
  GROUP BY window_start, window_end
) w ON b.price = w.highest
WHERE b.date_time BETWEEN w.window_end - INTERVAL '10 seconds' AND w.window_end
