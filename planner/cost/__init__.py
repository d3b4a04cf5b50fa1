"""What work costs, and what is known of rows: the constants, and estimates over logical plans. Steps estimate
themselves with it."""
