"""The grammar of statements and clauses, where sqlglot's DuckDB grammar does not do."""
