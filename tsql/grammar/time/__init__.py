"""The grammar of temporal SQL: its syntax nodes (`nodes.py`, `match_nodes.py`), the parsers that make them (mixed into
`tsql/grammar/parser/statements.py`), and their text (`text.py` for ours, `duckdb_text.py` for the oracle).
`tsql/analyze/time/` defines their meaning."""
