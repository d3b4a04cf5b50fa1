WITH placed AS (
  SELECT auction, time_bucket(INTERVAL '2 seconds', date_time, TIMESTAMP '1970-01-01') - back * INTERVAL '2 seconds' AS window_start
  FROM bid, (SELECT unnest(range(5)) AS back)
), counts AS (
  SELECT auction, window_start, window_start + INTERVAL '10 seconds' AS window_end, count(*) AS num FROM placed GROUP BY ALL
)
SELECT c.auction, c.num, c.window_start, c.window_end
FROM counts c
JOIN (SELECT max(num) AS most, window_start FROM counts GROUP BY window_start) m ON c.window_start = m.window_start AND c.num = m.most
