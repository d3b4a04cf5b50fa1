-- How many bids did each user make in each 10 seconds? (Processing time in the original.)
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
