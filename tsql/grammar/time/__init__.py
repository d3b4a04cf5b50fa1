"""Temporal SQL in front of the plan: the syntax nodes of everything that concerns time (`nodes.py`, `match_nodes.py`),
the parts of the grammar that make them (mixed into `tsql/grammar/parser/statements.py`), and their text (`text.py`
ours, `duckdb_text.py` the oracle's). What the nodes mean is in `tsql/analyze/time/`."""
