"""`Temporal`: sqlglot's DuckDB dialect with `/*+ hints */` kept and our own statements.

The class must not be called TSQL: sqlglot registers dialects by class name, and its `tsql` is Transact-SQL.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import TokenizerCore
from sqlglot.tokens import TokenType

from tsql.grammar.generator import TemporalGenerator
from tsql.grammar.parser.statements import TemporalParser
from tsql.planner.bind.syntax import TemporalExpressions

_DOLLAR_QUOTE = re.compile(r"\$([A-Za-z_]\w*)?\$")


class _Scanner(TokenizerCore):
    """sqlglot's scanner, but only names can be tags of dollar quotes: it would take `$1,$` of `$1,$2` for the start of
    a string."""

    __slots__ = ()

    def _scan_string(self, start: str) -> bool:
        if start == "$" and _DOLLAR_QUOTE.match(self.sql, self._current - 1) is None:
            self._add(TokenType.PARAMETER)
            return True
        return super()._scan_string(start)


class Temporal(TemporalExpressions):
    """Parses and prints our SQL; `tsql.grammar.generator.to_duckdb` prints what DuckDB understands."""

    class Tokenizer(TemporalExpressions.Tokenizer):
        def _init_core(self) -> TokenizerCore:
            """sqlglot makes its scanner with thirty settings and has no place to name another class."""
            core = super()._init_core()
            core.__class__ = _Scanner
            return core

    Parser = TemporalParser
    Generator = TemporalGenerator
