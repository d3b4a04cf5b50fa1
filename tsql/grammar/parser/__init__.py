"""The grammar of statements and clauses, where it differs from sqlglot's DuckDB grammar."""
