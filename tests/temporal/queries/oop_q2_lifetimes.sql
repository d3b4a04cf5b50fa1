-- The sliding-window join of Q2, said with lifetimes: both rows are alive at some instant. The result has the lifetime of the pair.
SELECT a.id AS id1, b.id AS id2
FROM SLIDE(main1, ts, INTERVAL '3 minutes') a JOIN SLIDE(main2, ts, INTERVAL '2 minutes') b ON a.src_ip = b.dest_ip
