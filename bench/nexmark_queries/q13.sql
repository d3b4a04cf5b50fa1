-- Bids joined to a table of values. (Looked up in processing time in the original.)
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
