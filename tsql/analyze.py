"""SQL text → statements with typed logical plans. The session calls `analyze`; every error has a place in the text.

The parts: `parser.py` text to tree, `analyze_query.py` queries, `analyze_from.py` FROM and joins, `analyze_select.py` one
SELECT, `analyze_group.py` its aggregation, `analyze_subquery.py` subqueries in expressions, `analyze_scope.py` names,
`analyze_names.py` names of unnamed columns, `planner/bind.py` expressions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from tsql import parser, statements
from tsql.analyze_files import constant
from tsql.analyze_query import QueryAnalyzer
from tsql.analyze_scope import Relation
from tsql.analyze_select import project
from tsql.hints import HintReader
from tsql.kernels.errors import BindError, ParseError, TsqlError
from tsql.kernels.expr import Expr
from tsql.kernels.keywords import quote
from tsql.kernels.types import INTEGER, NULL, Type
from tsql.parser import Parsed, parse
from tsql.planner import logical
from tsql.planner.bind_source import deep_recursion, position_of
from tsql.planner.bind_types import coerce
from tsql.planner.hints import Hint

MAX_PLAN_DEPTH = 200
"""Levels of a logical plan."""


def analyze(text: str, catalog: Any, parameters: dict[str, Type] | None = None, origin: str | None = None) -> list[statements.Statement]:
    """The statements of `text`, bound against `catalog` (lookup, open_file, names).

    `parameters` gives the types of `?` ("1", "2", ..), `$1` and `$name`. Raises ParseError or BindError with the place.
    """
    try:
        parsed = parse(text)
        with deep_recursion():
            return [_Analyzer(statement, catalog, parameters).statement() for statement in parsed]
    except TsqlError as error:
        raise error.locate(text, origin) from None
    except RecursionError:
        raise ParseError("nested too deeply", position=0, text=text, origin=origin) from None


class _Analyzer:
    """Analyzes one statement."""

    def __init__(self, parsed: Parsed, catalog: Any, parameters: dict[str, Type] | None):
        self.parsed = parsed
        self.catalog = catalog
        self.parameters = parameters

    def statement(self) -> statements.Statement:
        node = self.parsed.node
        match node:
            case parser.Explain():
                return statements.Explain(node.args["level"], self.query(node.this, self._inner_text(1, parser.LEVELS)))
            case parser.CompilePlan():
                return statements.CompilePlan(node.args["path"].name, self.query(node.this, self._inner_text(4)))
            case parser.ExecutePlan():
                return statements.ExecutePlan(node.args["path"].name)
            case parser.SetOption():
                return statements.Set(node.name.lower(), self._setting(node.args.get("value")))
            case parser.ShowTables():
                return statements.ShowTables()
            case parser.DescribeQuery():
                return statements.Describe(self.query(node.this, self._inner_text(1)))
            case exp.Create():
                return self._create(node)
            case exp.Drop():
                return self._drop(node)
        return self.query(node, self.parsed.text)

    def query(self, node: exp.Expr, text: str) -> statements.Query:
        """A query with its plan; NULL columns of the result are INTEGER, as in DuckDB."""
        relation = QueryAnalyzer(self.parsed.source, self.catalog, self.parameters).query(node)
        plan = _typed(relation)
        _check_depth(plan, self.parsed)
        columns = tuple(f.column for f in relation.fields)
        output = logical.Output(plan, columns, tuple(f.name for f in relation.fields))
        return statements.Query(output, text, tuple(_hints(node, self.parsed)))

    def _inner_text(self, skip: int, words: tuple[str, ...] = ()) -> str:
        tokens = self.parsed.tokens
        if len(tokens) > skip and tokens[skip].text.upper() in words:
            skip += 1
        return self.parsed.source.text[tokens[skip].start : tokens[-1].end + 1] if len(tokens) > skip else self.parsed.text

    def _setting(self, node: exp.Expr | None) -> Any:
        if node is None:
            return None
        if isinstance(node, (exp.Column, exp.Var, exp.Identifier)):
            word = node.name
            return {"true": True, "on": True, "false": False, "off": False}.get(word.lower(), word)
        return constant(node, self.parsed.source)

    def _create(self, node: exp.Create) -> statements.Statement:
        kind = (node.args.get("kind") or "").upper()
        target, query = node.this, node.expression
        columns = target.expressions if isinstance(target, exp.Schema) else []
        table = target.this if isinstance(target, exp.Schema) else target
        if kind not in ("TABLE", "VIEW") or not isinstance(table, exp.Table):
            raise self._error(f"CREATE {kind or '..'} is not supported yet", node)
        properties = node.args.get("properties")
        if properties is not None and any(not isinstance(p, exp.TemporaryProperty) for p in properties.expressions):
            raise self._error(f"these options of CREATE {kind} are not supported", properties)
        if query is None:
            raise self._error(f"CREATE {kind} needs AS and a query", table)
        replace, if_not_exists = bool(node.args.get("replace")), bool(node.args.get("exists"))
        text = self.parsed.text_after(TokenType.ALIAS)
        bound = self.query(query, text)
        if kind == "TABLE":
            if columns:
                bound = self._renamed(bound, columns)
            return statements.CreateTable(table.name, bound, replace, if_not_exists)
        if if_not_exists:
            raise self._error("CREATE VIEW IF NOT EXISTS is not supported: use CREATE OR REPLACE VIEW", table)
        if columns:
            self._renamed(bound, columns)
            text = f"SELECT * FROM ({text}) AS {quote(table.name)}({', '.join(quote(c.name) for c in columns)})"
        return statements.CreateView(table.name, text, replace)

    def _renamed(self, query: statements.Query, columns: list[exp.Expr]) -> statements.Query:
        plan = query.plan
        if any(isinstance(c, exp.ColumnDef) and c.args.get("kind") is not None for c in columns):
            raise self._error("CREATE TABLE AS takes column names without types", columns[0])
        if len(columns) > len(plan.columns):
            raise self._error(f"the query has {len(plan.columns)} columns, but {len(columns)} names are given", columns[-1])
        names = tuple(c.name for c in columns) + plan.names[len(columns) :]
        return statements.Query(logical.Output(plan.input, plan.columns, names), query.text, query.hints)

    def _drop(self, node: exp.Drop) -> statements.Drop:
        kind = (node.args.get("kind") or "").lower()
        tables = node.args.get("tables") or []
        if kind not in ("table", "view"):
            raise self._error(f"DROP {kind.upper() or '..'} is not supported", node)
        if len(tables) != 1:
            raise self._error(f"DROP {kind.upper()} takes one name", tables[1] if tables else node)
        if node.args.get("cascade") or node.args.get("constraints"):
            raise self._error("DROP .. CASCADE is not supported", node)
        return statements.Drop(kind, tables[0].name, bool(node.args.get("exists")))

    def _error(self, message: str, node: exp.Expr | None) -> BindError:
        position = position_of(node)
        return BindError(message, position=self.parsed.tokens[0].start if position is None else position, text=self.parsed.source.text)


def _typed(relation: Relation) -> logical.Node:
    """The plan with INTEGER in place of the type of a bare NULL."""
    if all(f.type != NULL for f in relation.fields):
        return relation.plan
    columns: list[tuple[str, Expr]] = [(f.column, coerce(f.to_column(), INTEGER if f.type == NULL else f.type)) for f in relation.fields]
    return project(relation.plan, list(dict(columns).items()))


def _check_depth(plan: logical.Node, parsed: Parsed) -> None:
    """Refuse a plan that later stages could not walk."""
    level: list[logical.Node] = [plan]
    for _ in range(MAX_PLAN_DEPTH):
        level = list({id(node): node for parent in level for node in parent.inputs}.values())
        if not level:
            return
    raise BindError(f"the query is nested too deeply (more than {MAX_PLAN_DEPTH} levels)", position=parsed.tokens[0].start, text=parsed.source.text)


def _hints(node: exp.Expr, parsed: Parsed) -> list[Hint]:
    """The hints of a query; a table's alias, as a first argument, stands for the table."""
    if node.find(exp.Hint) is None:
        return []
    aliases = {table.alias.lower(): table.name for table in node.find_all(exp.Table) if table.alias}
    found: list[Hint] = []
    for token in parsed.tokens:
        if token.token_type == TokenType.HINT:
            text = parsed.source.text[token.start : token.end + 1]
            begin, end = text.find("+") + 1, text.rfind("*/")
            try:
                found += HintReader(text[begin : end if end >= 0 else None], token.start + begin).read()
            except ParseError as error:
                raise error.locate(parsed.source.text) from None
    return [replace(h, args=(aliases.get(h.args[0].lower(), h.args[0]), *h.args[1:])) if h.args and isinstance(h.args[0], str) else h for h in found]
