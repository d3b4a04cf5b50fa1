"""Prints parsed statements: as our canonical text (`Temporal().generate`, which reads back to an equal tree), and as
the DuckDB text that tests give to the oracle (`to_duckdb`: hints dropped, our spellings mapped to DuckDB's)."""

from __future__ import annotations

from sqlglot import exp

from tsql.grammar.parser.statements import (
    CompilePlan,
    DeallocateStatement,
    DescribeQuery,
    ExecutePlan,
    ExecuteStatement,
    Explain,
    PrepareStatement,
    SetOption,
    ShowTables,
    parse,
)
from tsql.grammar.time.duckdb_text import DuckdbTimeText, Periods, periods_of
from tsql.grammar.time.text import TimeGenerator
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner.bind.syntax import TemporalExpressions
from tsql.planner.bind.syntax_nodes import CallNode


class TemporalGenerator(TimeGenerator):
    """Our canonical text."""

    QUERY_HINTS = True
    TRANSFORMS = {
        **TimeGenerator.TRANSFORMS,
        Explain: lambda self, node: f"EXPLAIN {node.args['level']} {self.sql(node, 'this')}",
        CompilePlan: lambda self, node: f"COMPILE PLAN {self.sql(node, 'path')} FOR {self.sql(node, 'this')}",
        ExecutePlan: lambda self, node: f"EXECUTE PLAN {self.sql(node, 'path')}",
        PrepareStatement: lambda self, node: f"PREPARE {self.sql(node, 'this')} AS {self.sql(node, 'statement')}",
        ExecuteStatement: lambda self, node: f"EXECUTE {self.sql(node, 'this')}({self.expressions(node, flat=True)})",
        DeallocateStatement: lambda self, node: f"DEALLOCATE {self.sql(node, 'this')}",
        SetOption: lambda self, node: (
            f"SET {self.sql(node, 'this')} = {self.sql(node, 'value')}"
            if node.args.get("value")
            else f"RESET {self.sql(node, 'this')}"
        ),
        ShowTables: lambda self, node: "SHOW TABLES",
        DescribeQuery: lambda self, node: f"DESCRIBE {self.sql(node, 'this')}",
    }


class OracleGenerator(DuckdbTimeText, TemporalGenerator):
    """DuckDB's text."""

    TRANSFORMS = {**TemporalGenerator.TRANSFORMS, **DuckdbTimeText.TRANSFORMS}

    def hint_sql(self, expression: exp.Hint) -> str:
        return ""

    def callnode_sql(self, node: CallNode) -> str:
        overloads = SCALARS.overloads.get(node.name)
        spelled = overloads[0].duckdb if overloads else None
        if spelled and spelled != node.name:
            return f"{spelled}({self.expressions(node, flat=True)})"
        return super().callnode_sql(node)


class TemporalOracle(TemporalExpressions):
    """The dialect class that sqlglot needs for a generator."""

    Generator = OracleGenerator


def to_duckdb(query: str | exp.Expr, periods: Periods | None = None) -> str:
    """The query (or script) as DuckDB reads it. `periods` gives the period columns of tables that the script does not
    create; a construct that DuckDB cannot say raises sqlglot's UnsupportedError."""
    nodes = [statement.node for statement in parse(query)] if isinstance(query, str) else [query]
    generator = TemporalOracle().generator()
    generator.periods = dict(periods or {})
    texts = []
    with deep_recursion():
        for node in nodes:
            generator.periods |= periods_of(node)
            texts.append(generator.generate(node))
    return "; ".join(texts)
