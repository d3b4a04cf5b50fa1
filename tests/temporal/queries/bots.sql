-- Bot elimination (section 3.7 of Quill's paper): clicks per ad and minute, without those of users who then have more than 3 clicks in the last 10 seconds.
WITH bots AS (
  SELECT user_id FROM SLIDE(clicks, ts, INTERVAL '10 seconds') GROUP BY user_id HAVING count(*) > 3
),
clean AS (
  SELECT c.ad_id
  FROM LIFETIME(clicks, start => ts, duration => INTERVAL '1 microsecond') c
  WHERE NOT EXISTS (SELECT 1 FROM bots b WHERE b.user_id = c.user_id)
)
SELECT ad_id, count(*) AS n
FROM QUANTIZE(clean, slide => INTERVAL '1 minute', size => INTERVAL '1 minute')
GROUP BY ad_id
