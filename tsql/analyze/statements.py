"""SQL text → statements with typed logical plans. The session calls `analyze`; every error has a place in the text.

The parts: `tsql/grammar/parser/` text to tree, `query.py` queries, `from_.py` FROM and joins, `select.py` one SELECT,
`group.py` its aggregation, `subquery.py` subqueries in expressions, `scope.py` names,
`columns.py` names of unnamed columns, `planner/bind/binder.py` expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.analyze import changes as analyze_change
from tsql.analyze import definitions as analyze_ddl
from tsql.analyze import kinds as statements
from tsql.analyze.emit import check_emit, emission
from tsql.analyze.files import constant
from tsql.analyze.macros import expand_macros
from tsql.analyze.named import deallocate, execute, prepare
from tsql.analyze.progressive import check_progressive, progression
from tsql.analyze.query import QueryAnalyzer
from tsql.analyze.scope import AnalyzedRelation, unread_star
from tsql.analyze.select import project
from tsql.analyze.select_items import left_out
from tsql.analyze.time.refuse import check_time
from tsql.analyze.time.sequenced import finished
from tsql.analyze.time.sinks import create_sink
from tsql.analyze.time.streams import create_stream
from tsql.grammar.hint_text import HintReader
from tsql.grammar.parser import changes as parser_changes
from tsql.grammar.parser import statements as parser
from tsql.grammar.parser.statements import Parsed, parse
from tsql.grammar.time.nodes import CreateSink, CreateStream, ShowStreams
from tsql.kernels.expr.errors import BindError, ParseError, TsqlError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.types import INTEGER, NULL, Type
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax import parse_scalar
from tsql.planner.bind.types import coerce
from tsql.planner.hints.constraints import Hint
from tsql.planner.logical import nodes as logical

MAX_PLAN_DEPTH, MAX_PLAN_NODES = 600, 10_000
"""The maximum depth and number of nodes of a logical plan. Larger plans would take more than seconds to plan."""
MAX_COLUMNS = 100_000
"""The maximum number of result columns."""


def analyze(
    text: str, catalog: Any, parameters: dict[str, Type] | None = None, origin: str | None = None
) -> list[statements.Statement]:
    """The statements of `text`, bound against `catalog` (lookup, open_file, names).

    `parameters` gives the types of `?` ("1", "2", ..), `$1` and `$name`. Raises ParseError or BindError with the place.
    """
    try:
        parsed = parse(text)
        with deep_recursion():
            return [_analyzed(statement, catalog, parameters) for statement in parsed]
    except TsqlError as error:
        raise error.locate(text, origin) from None
    except RecursionError:
        raise ParseError("nested too deeply", position=0, text=text, origin=origin) from None


def _analyzed(parsed: Parsed, catalog: Any, parameters: dict[str, Type] | None) -> statements.Statement:
    """One statement; an error without a position is shown at its beginning."""
    try:
        return Analyzer(parsed, catalog, parameters).statement()
    except TsqlError as error:
        if error.position is None and error.text in (None, parsed.source.text):
            error.position = parsed.tokens[0].start
        raise


class Analyzer:
    """Analyzes one statement."""

    def __init__(self, parsed: Parsed, catalog: Any, parameters: dict[str, Type] | None):
        self.parsed = expand_macros(parsed, catalog)
        self.catalog = catalog
        self.parameters = parameters

    def statement(self) -> statements.Statement:
        node = self.parsed.node
        check_time(node)
        check_emit(self, node)
        check_progressive(self, node)
        match node:
            case parser.Explain():
                return statements.Explain(node.args["level"], self.query(node.this, self._inner_text(1, parser.LEVELS)))
            case parser.CompilePlan():
                return statements.CompilePlan(
                    node.args["path"].name,
                    self.query(node.this, self._inner_text(4)),
                    position=position_of(node.args["path"]),
                )
            case parser.ExecutePlan():
                return statements.ExecutePlan(node.args["path"].name, position=position_of(node.args["path"]))
            case parser.SetOption():
                return statements.Set(
                    node.name.lower(), self._setting(node.args.get("value")), position=position_of(node.this)
                )
            case parser.ShowTables():
                return statements.ShowTables(bool(node.args.get("all")))
            case ShowStreams():
                return statements.ShowStreams(bool(node.args.get("sinks")))
            case parser.DescribeQuery():
                return self._describe(node.this)
            case parser_changes.SummarizeQuery():
                return statements.Summarize(self.query(node.this, self._inner_text(1)))
            case parser_changes.TransactionStep():
                return statements.TransactionStep(node.name)
        handler = _CHANGES.get(type(node))
        if handler is not None:
            found = handler(self, node)
            return replace(found, position=_name_position(node)) if getattr(found, "position", 0) is None else found
        return self.query(node, self.parsed.text)

    def _describe(self, node: exp.Expr) -> statements.Describe:
        """DESCRIBE, which also shows columns that cannot be read."""
        relation = self._relation(node, None, True)
        query = self._shown(relation, node, self._inner_text(1))
        return statements.Describe(
            query, _only_table(node), tuple((f.name, INTEGER if f.type == NULL else f.type) for f in relation.fields)
        )

    def defined(self, node: exp.Expr, text: str) -> statements.Query:
        """The query of a view. It may have unreadable columns, because an enclosing query can leave them out."""
        return self._shown(self._relation(node, None, False), node, text)

    def query(self, node: exp.Expr, text: str, top: bool = True) -> statements.Query:
        """A query with its plan; NULL columns of the result are INTEGER, as in DuckDB. top: its rows are the result,
        and not the input of other queries."""
        return self._shown(self.relation(node, top=top), node, text)

    def _shown(self, relation: AnalyzedRelation, node: exp.Expr, text: str) -> statements.Query:
        shown = AnalyzedRelation(relation.plan, relation.readable, relation.life)
        return self.output(
            _typed(shown), tuple(f.column for f in shown.fields), tuple(f.name for f in shown.fields), node, text
        )

    def output(
        self,
        plan: logical.Node,
        columns: tuple[str, ...],
        names: tuple[str, ...],
        node: exp.Expr,
        text: str | None = None,
    ) -> statements.Query:
        """A query that gives these columns of a plan under these names."""
        _check_size(plan, self.parsed)
        if len(columns) > MAX_COLUMNS:
            raise _too_large(
                f"the query gives {len(columns):,} columns, and at most {MAX_COLUMNS:,} are possible", self.parsed
            )
        return statements.Query(
            logical.Output(plan, columns, names, progression(self, node), emission(self, node)),
            self.parsed.text if text is None else text,
            tuple(_hints(node, self.parsed)),
        )

    def _inner_text(self, skip: int, words: tuple[str, ...] = ()) -> str:
        tokens = self.parsed.tokens
        if len(tokens) > skip and tokens[skip].text.upper() in words:
            skip += 1
        return (
            self.parsed.source.text[tokens[skip].start : tokens[-1].end + 1] if len(tokens) > skip else self.parsed.text
        )

    def _setting(self, node: exp.Expr | None) -> Any:
        if node is None:
            return None
        if isinstance(node, (exp.Column, exp.Var, exp.Identifier)):
            word = node.name
            return {"true": True, "on": True, "false": False, "off": False}.get(word.lower(), word)
        return constant(node, self.parsed.source)

    def inside(self, node: exp.Expr, tokens: tuple[Token, ...]) -> statements.Statement:
        """The statement inside of this one that the last tokens are."""
        return Analyzer(Parsed(node, self.parsed.source, tokens), self.catalog, self.parameters).statement()

    def over(self, catalog: Any) -> Analyzer:
        """An analyzer of the same statement over another catalog."""
        return Analyzer(self.parsed, catalog, self.parameters)

    def relation(self, node: exp.Expr, plain: str | None = None, top: bool = True) -> AnalyzedRelation:
        """The relation of a query inside the statement. `plain` names a statement for which it may not be a temporal
        one."""
        relation = self._relation(node, plain, top)
        if len(relation.readable) != len(relation.fields):
            raise unread_star(relation.fields, *_first_star(node)).locate(self.parsed.source.text)
        return relation

    def _relation(self, node: exp.Expr, plain: str | None, top: bool) -> AnalyzedRelation:
        try:
            relation = QueryAnalyzer(self.parsed.source, self.catalog, self.parameters).query(node, top=top)
        except BindError as error:
            if error.position is None and error.text is None:
                error.position = self.parsed.tokens[0].start
            raise
        if plain is not None and relation.life is not None:
            raise BindError(
                f"{plain} cannot depend on a temporal relation: its rows change with time, those of a table do not",
                position=self.parsed.tokens[0].start,
                text=self.parsed.source.text,
                hint="keep the rows first: CREATE TABLE t AS SELECT ..",
            )
        return finished(relation)

    def text_of(self, node: exp.Expr) -> str:
        """An expression as text that reads back to an equal tree."""
        from tsql.grammar.dialect import Temporal

        return Temporal().generate(node)

    def mentions(self, text: str, column: str) -> bool:
        """Whether an expression that is kept as text has this column in it."""
        return any(found.name.lower() == column.lower() for found in parse_scalar(text)[0].find_all(exp.Column))

    def is_only(self, text: str, column: str) -> bool:
        """Whether an expression that is kept as text is over this column alone."""
        return {found.name.lower() for found in parse_scalar(text)[0].find_all(exp.Column)} == {column.lower()}

    def renamed_column(self, text: str, old: str, new: str) -> str:
        """An expression that is kept as text, with another name for a column."""
        node = parse_scalar(text)[0]
        for found in node.find_all(exp.Column):
            if found.name.lower() == old.lower():
                found.set("this", exp.Identifier(this=new, quoted=True))
        return self.text_of(node)

    def error(self, message: str, node: exp.Expr | None, hint: str | None = None) -> BindError:
        position = position_of(node)
        return BindError(
            message,
            position=self.parsed.tokens[0].start if position is None else position,
            text=self.parsed.source.text,
            hint=hint,
        )


_CHANGES: dict[type[exp.Expr], Callable[[Analyzer, Any], statements.Statement]] = {
    exp.Create: analyze_ddl.create,
    CreateSink: create_sink,
    CreateStream: create_stream,
    exp.Drop: analyze_ddl.drop,
    exp.Copy: analyze_ddl.copy,
    parser.PrepareStatement: prepare,
    parser.ExecuteStatement: execute,
    parser.DeallocateStatement: deallocate,
    parser_changes.AlterTable: analyze_ddl.alter,
    parser_changes.CreateMacro: analyze_ddl.create_macro,
    exp.Insert: analyze_change.insert,
    exp.Delete: analyze_change.delete,
    exp.Update: analyze_change.update,
    exp.TruncateTable: analyze_change.truncate,
}


def _name_position(node: exp.Expr) -> int | None:
    """Where the name stands that a statement is about: the first one in it."""
    return next((at for at in map(position_of, node.find_all(exp.Identifier)) if at is not None), None)


def _only_table(query: exp.Expr) -> str | None:
    """The name of the table of `SELECT * FROM table`, which is what DESCRIBE table becomes."""
    clause = query.args.get("from_")
    table = clause.this if clause is not None else None
    alone = (
        isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) and query.expressions == [exp.Star()]
    )
    return (
        table.name
        if alone and not any(query.args.get(k) for k in ("joins", "where", "with_", "limit", "order", "group"))
        else None
    )


def _first_star(query: exp.Expr) -> tuple[int | None, list[str], str]:
    """Where the first star of a select list stands, what it leaves out, and its text. FROM without SELECT has none: its
    first table stands for it."""
    for node in query.find_all(exp.Star):
        qualified = isinstance(node.parent, exp.Column)
        owner = node.parent if qualified else node
        if isinstance(owner.parent, exp.Select) and position_of(owner.parts[0] if qualified else node) is not None:
            text = f"{quote(owner.parts[-2].name)}.*" if qualified else "*"
            return position_of(owner.parts[0] if qualified else node), left_out(node), text
    return next((at for table in query.find_all(exp.Table) if (at := position_of(table)) is not None), None), [], "*"


def _typed(relation: AnalyzedRelation) -> logical.Node:
    """The plan with INTEGER in place of the type of a bare NULL."""
    if all(f.type != NULL for f in relation.fields):
        return relation.plan
    columns: list[tuple[str, Expr]] = [
        (f.column, coerce(f.to_column(), INTEGER if f.type == NULL else f.type)) for f in relation.fields
    ]
    return project(relation.plan, list(dict(columns).items()))


def _check_size(plan: logical.Node, parsed: Parsed) -> None:
    """Refuse a plan that later stages could not walk."""
    if sum(1 for _ in plan.walk()) > MAX_PLAN_NODES:
        raise _too_large(f"the query is too large: its plan has more than {MAX_PLAN_NODES:,} nodes", parsed)
    level: list[logical.Node] = [plan]
    for _ in range(MAX_PLAN_DEPTH):
        level = list({id(node): node for parent in level for node in parent.inputs}.values())
        if not level:
            return
    raise _too_large(f"the query is nested too deeply (more than {MAX_PLAN_DEPTH} levels)", parsed)


def _too_large(message: str, parsed: Parsed) -> BindError:
    return BindError(message, position=parsed.tokens[0].start, text=parsed.source.text)


def _hints(node: exp.Expr, parsed: Parsed) -> list[Hint]:
    """The hints of a query, as they are written."""
    if node.find(exp.Hint) is None:
        return []
    found: list[Hint] = []
    for token in parsed.tokens:
        if token.token_type == TokenType.HINT:
            text = parsed.source.text[token.start : token.end + 1]
            begin, end = text.find("+") + 1, text.rfind("*/")
            try:
                found += HintReader(text[begin : end if end >= 0 else None], token.start + begin).read()
            except ParseError as error:
                raise error.locate(parsed.source.text) from None
    return found
