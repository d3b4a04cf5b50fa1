"""Statements of temporal SQL: every form of the dialect at least once. The tests of the front end share them."""

from __future__ import annotations

_TEXT = """
CREATE STREAM bids (auction BIGINT, bidder BIGINT, price DOUBLE, ts TIMESTAMP, \
WATERMARK FOR ts AS ts - INTERVAL '5 seconds' IDLE TIMEOUT INTERVAL '30 seconds' ALLOWED LATENESS INTERVAL '1 minute' \
ON LATE DROP) WITH (connector = 'parquet', path = 'bids/*.parquet')
CREATE OR REPLACE STREAM s (a INT NOT NULL, ts TIMESTAMP, PERIOD FOR p (ts, te), \
WATERMARK FOR ts AS ts ON LATE INTO s_late)
CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts ON LATE ADJUST)
CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts ON LATE ERROR ALLOWED LATENESS INTERVAL '0 seconds')
CREATE SINK out WITH (connector = 'parquet', path = 'folder')
CREATE OR REPLACE SINK out WITH (connector = 'kafka', 'kafka.acks' = 'all', topic = 't')
CREATE SINK IF NOT EXISTS out WITH (connector = 'ndjson', path = 'rows.ndjson')
DROP SINK IF EXISTS out
SHOW SINKS
CREATE MATERIALIZED VIEW v AS SELECT a, count(*) FROM t GROUP BY a EMIT CHANGES
DROP MATERIALIZED VIEW v
CREATE STREAM IF NOT EXISTS s WITH ('scan.mode' = 'all', n = -5, flag = TRUE)
CREATE TABLE rates (cur VARCHAR, rate DOUBLE, vs TIMESTAMP, ve TIMESTAMP, PERIOD FOR valid_time (vs, ve)) \
WITH (connector = 'csv', path = 'rates.csv')
CREATE TABLE t (period INT, watermark INT, stream INT)
CREATE TABLE t AS SELECT * FROM TUMBLE(bids, ts, INTERVAL '10 minutes')
CREATE VIEW v AS SELECT * FROM TUMBLE(bids, ts, INTERVAL '10 minutes')
DROP STREAM s
DROP STREAM IF EXISTS s, u
SHOW STREAMS
DESCRIBE bids
SELECT window_start, auction, max(price) FROM TUMBLE(bids, ts, INTERVAL '10 minutes') GROUP BY ALL
SELECT window_end, count(*) FROM HOP(bids, ts, slide => INTERVAL '1 minute', size => INTERVAL '10 minutes') \
GROUP BY window_end
SELECT * FROM CUMULATE(bids, ts, step => INTERVAL '1 hour', size => INTERVAL '1 day') AS c(a, b)
SELECT bidder, count(*) FROM SESSION(bids PARTITION BY bidder, ts, gap => INTERVAL '30 minutes', \
max_size => INTERVAL '1 day') GROUP BY bidder, window_start, window_end
SELECT * FROM TUMBLE(bids PARTITION BY auction, ts, rows => 100)
SELECT * FROM HOP(bids PARTITION BY (auction, bidder % 4), ts, slide_rows => 10, rows => 100)
SELECT * FROM TUMBLE(bids, ts, INTERVAL '1 day', INTERVAL '-6 hours', timezone => 'UTC')
SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
SELECT * FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)) AS w
SELECT * FROM TABLE(CUMULATE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), STEP => INTERVAL '10' MINUTES, SIZE => \
INTERVAL '1' HOUR))
SELECT * FROM TABLE(SESSION(TABLE bids PARTITION BY auction, bidder, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) w \
WHERE w.price > 3
SELECT * FROM TUMBLE((SELECT * FROM bids WHERE price > 3) b, b.ts, INTERVAL '1 hour') w JOIN x ON w.a = x.a
WITH c AS (SELECT * FROM bids) SELECT * FROM TUMBLE(c, c.ts, INTERVAL '1 hour')
FROM x, TUMBLE(bids, ts, INTERVAL 1 HOUR) SELECT *
FROM TUMBLE(bids, ts, INTERVAL 1 HOUR) JOIN x USING (a)
SELECT * FROM TUMBLE('bids/*.parquet', ts::TIMESTAMP, INTERVAL (2) HOURS)
SELECT * FROM TUMBLE(read_csv('bids.csv', header => true), ts, INTERVAL '1 hour')
SELECT * FROM TUMBLE(HOP(bids, ts, INTERVAL '1 minute', INTERVAL '10 minutes'), window_end, INTERVAL '1 hour')
SELECT * FROM TUMBLE(bids, ts, $size)
SELECT auction, count(*) AS open FROM LIFETIME(bids, start => ts, duration => INTERVAL '10 minutes') GROUP BY auction
SELECT auction, count(*) FROM LIFETIME(bids, ts, INTERVAL '1 month' * auction) GROUP BY auction
SELECT auction, count(*) FROM SLIDE(bids, ts, INTERVAL '10 minutes') GROUP BY auction
SELECT o.id, r.rate FROM LIFETIME(orders, start => ts, duration => INTERVAL '1 hour') o \
JOIN LIFETIME(rates) r ON o.cur = r.cur
SELECT s.id FROM LIFETIME(sessions, start => a, end => b) s WHERE NOT EXISTS (SELECT 1 \
FROM LIFETIME(purchases, start => ts) p WHERE p.user_id = s.user_id)
SELECT * FROM CHOP(STITCH(QUANTIZE(POINT_AT_END(EXTEND(CLIP(LIFETIME(t), INTERVAL '1 day'), INTERVAL 1 HOUR)), \
slide => INTERVAL 1 MINUTE, size => INTERVAL 10 MINUTE)), INTERVAL '1 hour')
SELECT * FROM SHIFT(LIFETIME(bids, start => ts), INTERVAL '-1 hour')
SELECT * FROM QUANTIZE(LIFETIME(t), slide => INTERVAL '1 day', step => INTERVAL '6 hours', offset => INTERVAL '1 hour')
SELECT s.id FROM LIFETIME(logins, start => ts) s CLIP JOIN logouts e ON s.user_id = e.user_id
SELECT * FROM logins CLIP JOIN logouts ON logins.user_id = logouts.user_id JOIN users u ON u.id = logins.user_id
SEQUENCED VALIDTIME SELECT cur, count(*) FROM rates GROUP BY cur
SEQUENCED VALIDTIME SELECT cur FROM rates UNION SELECT cur FROM other ORDER BY 1 LIMIT 3
SEQUENCED VALIDTIME (SELECT cur FROM rates) EXCEPT (SELECT cur FROM other)
SEQUENCED VALIDTIME FROM rates
SEQUENCED VALIDTIME WITH c AS (SELECT a FROM r) SELECT * FROM c
WITH c AS (SELECT a FROM r) SEQUENCED VALIDTIME SELECT * FROM c EMIT FINAL
WITH c AS (SEQUENCED VALIDTIME SELECT a FROM r) SELECT * FROM c, (SEQUENCED VALIDTIME SELECT b FROM q) d \
WHERE a IN (SEQUENCED VALIDTIME SELECT 1 FROM z) AND EXISTS (SEQUENCED VALIDTIME SELECT 1 FROM z)
SELECT (SEQUENCED VALIDTIME SELECT max(b) FROM q)
SELECT a FROM t UNION (SEQUENCED VALIDTIME SELECT b FROM q)
EXPLAIN SEQUENCED VALIDTIME SELECT b FROM q
DESCRIBE SEQUENCED VALIDTIME SELECT b FROM q
SELECT * FROM orders o JOIN shipments s ON o.id = s.order_id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '4 hours'
SELECT * FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.ts >= q.ts
SELECT * FROM trades t ASOF JOIN quotes q ON t.sym = q.sym AND t.ts >= q.ts TOLERANCE INTERVAL '50 milliseconds' \
WHERE x > 1
SELECT * FROM trades t ASOF LEFT JOIN quotes q USING (sym, ts) TOLERANCE INTERVAL '50 milliseconds' JOIN z ON z.a = t.a
SELECT * FROM trades t ASOF INNER JOIN quotes q USING (sym, ts)
SELECT * FROM orders o LEFT JOIN rates FOR VALID_TIME AS OF o.ts AS r ON o.cur = r.cur
SELECT * FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts + INTERVAL 1 HOUR r ON o.cur = r.cur
SELECT * FROM rates FOR VALID_TIME AS OF TIMESTAMP '2020-01-01'
SELECT * FROM trades MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts \
MEASURES A.ts AS start_ts, FINAL LAST(B.price) - RUNNING sum(B.price) AS x, match_number() AS n, classifier() AS c \
ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) WITHIN INTERVAL '1 hour' SUBSET u = (A, B) \
DEFINE B AS B.price > PREV(B.price, 2) AND u.x < 3, C AS C.price < LAST(B.price)) AS m JOIN z ON z.a = m.n
SELECT * FROM (SELECT * FROM trades) t MATCH_RECOGNIZE (ORDER BY ts DESC MEASURES count(B.*) AS x ALL ROWS PER MATCH \
WITH UNMATCHED ROWS AFTER MATCH SKIP TO FIRST B PATTERN (^ (A | B C)* "B"{2,3}? D{,3} E{2,} F{4} G?? H+? () $) \
DEFINE A AS TRUE)
SELECT * FROM t MATCH_RECOGNIZE (MEASURES RUNNING first(A.x)::INT AS f ALL ROWS PER MATCH SHOW EMPTY MATCHES \
AFTER MATCH SKIP TO NEXT ROW PATTERN (A*) DEFINE A AS NEXT(A.x) > FIRST(A.x, 1))
SELECT * FROM t MATCH_RECOGNIZE (ALL ROWS PER MATCH OMIT EMPTY MATCHES AFTER MATCH SKIP TO LAST u \
PATTERN (A | B | (C D)) SUBSET u = (A), v = (A, D) DEFINE A AS TRUE)
FROM trades MATCH_RECOGNIZE (ORDER BY ts AFTER MATCH SKIP TO last PATTERN (last A? A$) DEFINE A AS A.x = ?) WHERE b = 3
SELECT * FROM TUMBLE(trades MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS mts PATTERN (A) \
DEFINE A AS TRUE) AS m, mts, INTERVAL '1 hour')
SELECT a FROM t EMIT FINAL
SELECT a, count(*) FROM t GROUP BY ALL EMIT FINAL
SELECT a, count(*) FROM t GROUP BY ALL PROGRESSIVE EVERY 5 PERCENT
SELECT a FROM t EMIT FINAL, CHANGES AFTER WATERMARK
SELECT a FROM t GROUP BY a EMIT CHANGES WITHIN INTERVAL '200 milliseconds'
WITH c AS (SELECT 1) SELECT a FROM t UNION ALL SELECT b FROM u ORDER BY a LIMIT 5 EMIT EVERY INTERVAL '10 seconds' \
BEFORE WATERMARK, CHANGES AFTER WATERMARK WITHIN INTERVAL '200 milliseconds'
(SELECT a FROM t) EMIT FINAL
SELECT 1 EMIT FINAL
INSERT INTO x SELECT a FROM TUMBLE(t, ts, INTERVAL '1 hour') EMIT FINAL
EXPLAIN LOGICAL SELECT a FROM TUMBLE(t, ts, INTERVAL '1 hour') EMIT FINAL
COMPILE PLAN 'q.plan' FOR SELECT a FROM TUMBLE(t, ts, INTERVAL '1 hour')
SELECT country, avg(latency) AS m, lower_bound(m), upper_bound(m) FROM hits GROUP BY country \
PROGRESSIVE EVERY 5 PERCENT UNTIL ERROR <= 0.02 WITHIN INTERVAL '10 seconds' CONFIDENCE 0.95 SEED 7
SELECT a FROM t PROGRESSIVE EVERY 0.5 PERCENT SEED 1 CONFIDENCE 0.9
SELECT tumble, hop(a), session.x, emit, progressive, within, tolerance FROM emit AS session, progressive clip WHERE \
slide(a) > 1
SELECT match_recognize, pattern FROM within AS match_recognize, sequenced validtime
SELECT * FROM sequenced validtime (a, b)
SEQUENCED VALIDTIME ((SELECT a FROM t))
"""
EXAMPLES = _TEXT.strip().splitlines()
