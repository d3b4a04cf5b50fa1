SELECT p.id, p.name, p.window_start
FROM (SELECT DISTINCT id, name, time_bucket(INTERVAL '10 seconds', date_time, TIMESTAMP '1970-01-01') AS window_start FROM person) p
JOIN (SELECT DISTINCT seller, time_bucket(INTERVAL '10 seconds', date_time, TIMESTAMP '1970-01-01') AS window_start FROM auction) a
  ON p.id = a.seller AND p.window_start = a.window_start
