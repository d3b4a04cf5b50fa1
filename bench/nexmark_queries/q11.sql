-- How many bids did each user make in each session?
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM SESSION(bid PARTITION BY bidder, date_time, gap => INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
