"""PREPARE, EXECUTE and DEALLOCATE → statements; `tsql/statements/named.py` keeps what is prepared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.analyze import kinds as statements
from tsql.grammar.parser.statements import DeallocateStatement, ExecuteStatement, PrepareStatement
from tsql.grammar.script import split
from tsql.planner.bind.query_text import position_of

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer


def prepare(analyzer: Analyzer, node: PrepareStatement) -> statements.Prepare:
    """PREPARE. The text is analyzed once the types of its parameters are known: at once if it has none."""
    source, tokens = analyzer.parsed.source, analyzer.parsed.tokens
    text = source.text[tokens[node.args["first"]].start : tokens[-1].end + 1]
    (piece,) = split(text)
    if not piece.parameters:
        analyzer.inside(node.args["statement"], tokens[node.args["first"] :])
    return statements.Prepare(node.name, text, piece.parameters)


def execute(analyzer: Analyzer, node: ExecuteStatement) -> statements.Execute:
    """EXECUTE; the arguments are a query of one row."""
    names = [part.this.name if isinstance(part, exp.PropertyEQ) else None for part in node.expressions]
    values = [part.expression if isinstance(part, exp.PropertyEQ) else part for part in node.expressions]
    if any(name is None for name in names) and any(name is not None for name in names):
        raise analyzer.error("Cannot mix named and positional arguments of EXECUTE", node)
    for value in values:
        if value.find(exp.Query) is not None:
            raise analyzer.error("an argument of EXECUTE is a constant expression, no subquery", value)
    named = tuple(name or str(place) for place, name in enumerate(names, 1))
    for place, name in enumerate(named):
        if name in named[:place]:
            raise analyzer.error(f"the argument ${name} of EXECUTE is given twice", node.expressions[place])
    query = None
    if values:
        select = exp.Select(
            expressions=[
                exp.Alias(this=value, alias=exp.to_identifier(f"p{place}")) for place, value in enumerate(values)
            ]
        )
        query = analyzer.query(select, analyzer.parsed.text)
    return statements.Execute(node.name, named, query, position_of(node.this))


def deallocate(analyzer: Analyzer, node: DeallocateStatement) -> statements.Deallocate:
    """DEALLOCATE."""
    return statements.Deallocate(node.name)
