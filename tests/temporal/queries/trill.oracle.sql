WITH alive AS (SELECT ad_id, ts AS vs, ts + INTERVAL '5 minutes' AS ve FROM clicks WHERE user_id % 100 < 5 AND ts IS NOT NULL),
     changes AS (
       SELECT ad_id, t, sum(d) AS d FROM (SELECT ad_id, vs AS t, 1 AS d FROM alive UNION ALL SELECT ad_id, ve, -1 FROM alive) GROUP BY ALL HAVING sum(d) <> 0
     ),
     levels AS (SELECT ad_id, t AS valid_from, lead(t) OVER w AS valid_to, sum(d) OVER w AS n FROM changes WINDOW w AS (PARTITION BY ad_id ORDER BY t))
SELECT ad_id, n::BIGINT AS n, valid_from, valid_to FROM levels WHERE n > 0
