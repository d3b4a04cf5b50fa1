-- The auctions with most bids in the last 10 seconds, every 2 seconds.
WITH counts AS (
  SELECT auction, window_start, window_end, count(*) AS num
  FROM HOP(bid, date_time, slide => INTERVAL '2 seconds', size => INTERVAL '10 seconds')
  GROUP BY auction, window_start, window_end
)
SELECT c.auction, c.num, c.window_start, c.window_end
FROM counts c
JOIN (SELECT max(num) AS most, window_start FROM counts GROUP BY window_start) m ON c.window_start = m.window_start AND c.num = m.most
