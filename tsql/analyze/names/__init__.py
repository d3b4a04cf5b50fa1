"""Names: of result columns and subqueries as DuckDB writes them, and of tables with their database and schema."""
