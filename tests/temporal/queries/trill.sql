-- Clicks per ad over the last 5 minutes, for a sample of users (section 2 of Trill's paper).
SELECT ad_id, count(*) AS n
FROM SLIDE((SELECT ad_id, ts FROM clicks WHERE user_id % 100 < 5), ts, INTERVAL '5 minutes')
GROUP BY ad_id
