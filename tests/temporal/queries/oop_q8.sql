-- An equality join on time; one input has late packets.
SELECT a.src_ip, a.dest_ip, a.ts
FROM main1 a JOIN (SELECT * FROM main2 UNION ALL SELECT * FROM control) b
  ON a.ts = b.ts AND a.src_ip = b.dest_ip AND a.dest_ip = b.src_ip AND a.src_port = b.dest_port AND a.dest_port = b.src_port
