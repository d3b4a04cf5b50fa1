-- Who has come and opened an auction within the same 10 seconds?
SELECT p.id, p.name, p.window_start
FROM (
  SELECT id, name, window_start, window_end FROM TUMBLE(person, date_time, INTERVAL '10 seconds') GROUP BY id, name, window_start, window_end
) p
JOIN (
  SELECT seller, window_start, window_end FROM TUMBLE(auction, date_time, INTERVAL '10 seconds') GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
