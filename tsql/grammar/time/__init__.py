"""Temporal SQL in front of the plan: the syntax nodes of everything that concerns time (`nodes.py`, `match_nodes.py`),
the parts of the grammar that make them (`parse_*.py`, mixed into `tsql/grammar/parser/statements.py`), their text
(`generate.py` ours, `duckdb_text.py` the oracle's), and the one place that refuses what nothing executes (`refuse.py`).

Lifetimes: `analyze_*.py` are called by the analyzer where a relation has one; `lifetimes.py`, `cut.py`, `joins.py`,
`sets.py`, `snapshot.py`, `stitch.py` and `clip.py` turn relations with lifetimes into logical plans."""
