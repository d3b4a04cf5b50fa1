"""`Temporal`: the dialect, on sqlglot's DuckDB dialect, with `/*+ hints */` kept and statements of our own.

The class must not be called TSQL: sqlglot registers dialects by class name, and its `tsql` is Transact-SQL.
"""

from __future__ import annotations

from tsql.generator import TemporalGenerator
from tsql.parser import TemporalParser
from tsql.planner.bind_syntax import TemporalExpressions


class Temporal(TemporalExpressions):
    """Parses and prints our SQL; `tsql.generator.to_duckdb` prints what DuckDB understands."""

    Parser = TemporalParser
    Generator = TemporalGenerator
