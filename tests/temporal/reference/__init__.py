"""What each temporal construct means, as a few lines of plain Python over rows; nothing here is fast, and the engine
imports none of it.

A row is a dict, a relation a list of rows in input order. Times are integers, microseconds since 1970, and None is
NULL. A temporal relation has `valid_from` and `valid_to` in each row (`valid_to` None: still open). Functions never
change the rows that they are given."""
