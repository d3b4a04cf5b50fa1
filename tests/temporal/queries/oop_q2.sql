-- A sliding-window join, 3 minutes on the first and 2 minutes on the second input, as a band.
SELECT a.id AS id1, b.id AS id2
FROM main1 a JOIN main2 b ON a.src_ip = b.dest_ip AND b.ts > a.ts - INTERVAL '2 minutes' AND b.ts < a.ts + INTERVAL '3 minutes'
