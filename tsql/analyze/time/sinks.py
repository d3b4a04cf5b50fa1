"""CREATE SINK .. WITH (..) → an entry of the catalog, and INSERT INTO one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze import kinds as statements
from tsql.analyze.files import constant
from tsql.analyze.time.streams import main_name, named_option
from tsql.catalog.external import SINK, Connection, External
from tsql.grammar.time.nodes import CreateSink
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.schema import Schema
from tsql.planner.bind.query_text import position_of

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer


def create_sink(analyzer: Analyzer, node: CreateSink) -> statements.CreateExternal | statements.Nothing:
    """CREATE SINK name WITH (connector = .., ..)."""
    from tsql.backends.live.sinks.connectors import CONNECTORS, check_options

    name = main_name(analyzer, node.this)
    if node.args.get("exists") and analyzer.catalog.entry(name) is not None:
        return statements.Nothing()
    options: dict[str, Any] = {}
    positions: dict[str, exp.Expr] = {}
    for option in node.args["options"].expressions:
        options[option.name] = constant(option.args["value"], analyzer.parsed.source)
        positions[option.name] = option
    connector = options.pop("connector", None)
    if not isinstance(connector, str):
        raise analyzer.error(
            'option "connector" is missing', node.args["options"], f"connectors are {', '.join(CONNECTORS)}"
        )
    try:
        check_options(connector.lower(), options)
    except TsqlError as error:
        error.position = position_of(named_option(positions, error.message))
        raise error.locate(analyzer.parsed.source.text) from None
    entry = External(SINK, Schema(()), connection=Connection(connector.lower(), options))
    return statements.CreateExternal(name, entry, bool(node.args.get("replace")))


def insert_into_sink(analyzer: Analyzer, node: exp.Insert, name: str, query: exp.Expr) -> statements.InsertIntoSink:
    """INSERT INTO sink query: the rows are those of the query, under its names."""
    for clause, words in (("conflict", "ON CONFLICT"), ("returning", "RETURNING"), ("by_name", "BY NAME")):
        if node.args.get(clause):
            raise analyzer.error(f"{words} is for tables, and {name} is a sink", node.this)
    if isinstance(node.this, exp.Schema) or node.args.get("default"):
        raise analyzer.error(f"{name} is a sink, which has no columns: INSERT INTO {name} SELECT ..", node.this)
    return statements.InsertIntoSink(name, analyzer.query(query, analyzer.text_of(query)))
