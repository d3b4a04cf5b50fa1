WITH counted AS (
  SELECT *, count(*) OVER (PARTITION BY user_id ORDER BY ts RANGE BETWEEN INTERVAL '9.999999 seconds' PRECEDING AND CURRENT ROW) AS recent
  FROM clicks WHERE ts IS NOT NULL
),
minutes AS (
  SELECT ad_id, time_bucket(INTERVAL '1 minute', ts, TIMESTAMP '1970-01-01') AS minute, count(*) AS n
  FROM counted WHERE recent <= 3 OR user_id IS NULL GROUP BY ALL
),
runs AS (SELECT *, minute - row_number() OVER (PARTITION BY ad_id, n ORDER BY minute) * INTERVAL '1 minute' AS run FROM minutes)
SELECT ad_id, n, min(minute) AS valid_from, max(minute) + INTERVAL '1 minute' AS valid_to
FROM runs GROUP BY ad_id, n, run
