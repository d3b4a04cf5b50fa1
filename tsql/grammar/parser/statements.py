"""The grammar of statements on top of the expression grammar (`planner/bind/syntax.py`): only what sqlglot lacks.

`parse` turns a text into statements with their positions. A statement that sqlglot would keep as an opaque command is
an error here. The node classes below are the added statements; `tsql/grammar/generator.py` prints them.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.grammar.parser.changes import ChangeParser
from tsql.grammar.parser.clauses import ClauseParser
from tsql.grammar.time.functions import TimeFunctionParser
from tsql.grammar.time.joins_in_time import TimeJoinParser
from tsql.grammar.time.match import MatchParser
from tsql.grammar.time.nodes import ShowStreams
from tsql.grammar.time.output import OutputParser
from tsql.grammar.time.sources import SourceParser
from tsql.kernels.expr.errors import ParseError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.query_text import QueryText, check_parentheses, tokenize
from tsql.planner.bind.syntax import run_parser

LEVELS = ("LOGICAL", "PHYSICAL", "PIPELINES", "KIR", "LLVM", "ASM", "ANALYZE")


class Explain(exp.Expression):
    """EXPLAIN [level] query."""

    arg_types = {"this": True, "level": True}


class CompilePlan(exp.Expression):
    """COMPILE PLAN 'path' FOR query."""

    arg_types = {"this": True, "path": True}


class ExecutePlan(exp.Expression):
    """EXECUTE PLAN 'path'."""

    arg_types = {"path": True}


class PrepareStatement(exp.Expression):
    """PREPARE name AS statement; `first` is the place of the statement among the tokens."""

    arg_types = {"this": True, "statement": True, "first": True}


class ExecuteStatement(exp.Expression):
    """EXECUTE name [(argument, ..)], where an argument may be `name := value`."""

    arg_types = {"this": True, "expressions": False}


class DeallocateStatement(exp.Expression):
    """DEALLOCATE [PREPARE] name."""

    arg_types = {"this": True}


class SetOption(exp.Expression):
    """SET name = value, RESET name (no value)."""

    arg_types = {"this": True, "value": False}


class ShowTables(exp.Expression):
    """SHOW TABLES, SHOW ALL TABLES."""

    arg_types = {"all": False}


class DescribeQuery(exp.Expression):
    """DESCRIBE query, or DESCRIBE table."""

    arg_types = {"this": True}


class TemporalParser(
    SourceParser, OutputParser, MatchParser, TimeJoinParser, TimeFunctionParser, ClauseParser, ChangeParser
):
    """Statements of the Temporal dialect."""

    def _parse_statement(self) -> exp.Expr | None:
        start = self._curr
        word = start.text.upper() if start and start.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) else ""
        own = {
            "EXPLAIN": self._parse_explain,
            "COMPILE": self._parse_compile,
            "EXECUTE": self._parse_execute,
            "PREPARE": self._parse_prepare,
            "DEALLOCATE": self._parse_deallocate,
            "SET": self._parse_set_option,
            "RESET": self._parse_reset,
            "SHOW": self._parse_show_tables,
            "DESCRIBE": self._parse_describe_query,
            "DESC": self._parse_describe_query,
            "ALTER": self._parse_alter_table,
            "SUMMARIZE": self._parse_summarize_query,
            **{word: lambda step=step: self._parse_transaction_step(step) for word, step in _STEPS.items()},
            "PIVOT": self._parse_simplified_pivot,
            "UNPIVOT": lambda: self._parse_simplified_pivot(is_unpivot=True),
        }.get(word)
        if own is not None:
            self._advance()
            return own()
        if start and start.token_type in self.STATEMENT_PARSERS and start.token_type not in _STATEMENTS:
            return self._parse_as_command(start)
        return self._query_or_create()

    def _parse_join(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """A comma in FROM is a join too. It is marked, because `a JOIN b` without a condition gives the same tree."""
        is_comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
        node = super()._parse_join(*args, **kwargs)
        if node is not None and is_comma:
            node.meta["comma"] = True
        return node

    def _parse_query_modifiers(self, this):  # type: ignore[no-untyped-def]
        """`FROM a JOIN b ..` with nothing or SELECT after it: sqlglot attaches the joins to `a`, here they belong to
        the query."""
        node = super()._parse_query_modifiers(this)
        first = node.args["from_"].this if isinstance(node, exp.Select) and node.args.get("from_") is not None else None
        if first is not None and first.args.get("joins") and not node.args.get("joins"):
            node.set("joins", first.args["joins"])
            first.set("joins", None)
        return node

    def _parse_simplified_pivot(self, is_unpivot: bool | None = None) -> exp.Select:
        """DuckDB's statements `PIVOT t ON ..` and `UNPIVOT t ON ..`: a query over the pivoted relation."""
        table = self._parse_table()
        self._expect("ON")
        expressions = self._parse_csv(self._parse_unpivot_on if is_unpivot else self._parse_pivot_on)
        into = self._parse_unpivot_columns()
        using = (
            self._parse_csv(lambda: self._parse_alias(self._parse_disjunction()))
            if self._match(TokenType.USING)
            else None
        )
        pivot = exp.Pivot(
            this=table,
            expressions=expressions,
            into=into,
            using=using,
            group=self._parse_group(),
            unpivot=bool(is_unpivot),
        )
        if not expressions:
            self.raise_error("Expected columns after ON")
        if using == []:
            self.raise_error("Expected an aggregate after USING")
        if into is not None and not (into.this and into.expressions):
            self.raise_error("Expected NAME column VALUE column after INTO")
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Subquery(this=self.expression(pivot))))
        return self._parse_query_modifiers(query)

    def _parse_pivot_on(self) -> exp.Expr | None:
        """`expression [IN (value [AS name], ..)]`."""
        index = self._index
        target = self._parse_bitwise()
        if not self._match(TokenType.IN):
            self._retreat(index)
            return self._parse_disjunction()
        values = self._parse_wrapped_csv(self._parse_pivot_value)
        return self.expression(exp.In(this=target, expressions=values))

    def _parse_pivot_value(self) -> exp.Expr | None:
        value = self._parse_disjunction()
        if not self._match(TokenType.ALIAS):
            return value
        name = self._parse_string() or self._parse_id_var(any_token=True)
        if name is None:
            self.raise_error("Expected a name after AS")
        return self.expression(exp.PivotAlias(this=value, alias=name))

    def _parse_unpivot_on(self) -> exp.Expr | None:
        """`expression`, `(a, b)`, `*`, `* LIKE ..` or `COLUMNS(..)`, with a name or without."""
        return self._parse_alias(self._parse_disjunction(), explicit=True)

    def _query_or_create(self) -> exp.Expr | None:
        start = self._curr
        if start.token_type == TokenType.CREATE and self._macro_ahead():
            return self._parse_create_macro()
        if start.token_type in _STATEMENTS:
            return super()._parse_statement()
        query = self._parse_paren() if start.token_type == TokenType.L_PAREN else self._parse_select(table=False)
        query = self._parse_query_modifiers(self._parse_set_operations(query))
        if not isinstance(query, (exp.Query, exp.Values, exp.Insert, exp.Update, exp.Delete)):
            query = None
        if query is None:
            self.raise_error("Invalid expression / Unexpected token", start)
        return self._parse_output(query)

    def _parse_query(self, after: str) -> exp.Expr:
        if not self._curr:
            self.raise_error(f"Expected a query after {after}")
        start = self._curr
        query = None if start.token_type in _STATEMENTS else self._query_or_create()
        if not isinstance(query, (exp.Query, exp.Values)):
            self.raise_error(f"Expected a query after {after}", start)
        return query

    def _parse_explain(self) -> Explain:
        level = "PHYSICAL"
        if self._match_texts(LEVELS):
            level = self._prev.text.upper()
        elif (
            self._curr
            and self._curr.token_type == TokenType.VAR
            and self._next
            and self._next.token_type in _QUERY_STARTS
            and self._curr.text.upper() != "SEQUENCED"
        ):
            self._refuse(
                f"EXPLAIN has no level {self._curr.text}", self._curr, hint=f"the levels are {', '.join(LEVELS)}"
            )
        return self.expression(Explain(this=self._parse_query("EXPLAIN"), level=level))

    def _parse_compile(self) -> CompilePlan:
        self._expect("PLAN")
        path = self._expect_string("the path of the plan file")
        self._expect("FOR")
        return self.expression(CompilePlan(this=self._parse_query("FOR"), path=path))

    def _parse_execute(self) -> ExecutePlan | ExecuteStatement:
        if self._word() == "PLAN" and self._next and self._next.token_type == TokenType.STRING:
            self._advance()
            return self.expression(ExecutePlan(path=self._expect_string("the path of the plan file")))
        name = self._named("a prepared statement, or PLAN and the path of a plan file")
        arguments = []
        if self._match(TokenType.L_PAREN):
            arguments = self._parse_csv(self._parse_argument)
            self._match_r_paren()
        return self.expression(ExecuteStatement(this=name, expressions=arguments))

    def _parse_argument(self) -> exp.Expr | None:
        """`value`, `name := value` or `name => value`."""
        if self._next and self._next.token_type in (TokenType.COLON_EQ, TokenType.FARROW):
            name = self._named("a parameter")
            self._advance()
            return self.expression(exp.PropertyEQ(this=name, expression=self._needed("a value")))
        return self._parse_disjunction()

    def _parse_prepare(self) -> PrepareStatement:
        name = self._named("the statement")
        self._expect("AS")
        first = self._index
        start = self._curr
        statement = self._parse_statement() if start else None
        if not isinstance(statement, (exp.Query, exp.Values, exp.Insert, exp.Update, exp.Delete)):
            self.raise_error("Expected a query, INSERT, UPDATE or DELETE after AS", start or self._prev)
        return self.expression(PrepareStatement(this=name, statement=statement, first=first))

    def _parse_deallocate(self) -> DeallocateStatement:
        self._match_text_seq("PREPARE")
        if self._word() == "ALL":
            self.raise_error("Expected the name of a prepared statement")
        return self.expression(DeallocateStatement(this=self._named("a prepared statement")))

    def _parse_set_option(self) -> SetOption:
        self._match_texts(("SESSION", "GLOBAL"))
        name = self._parse_id_var(any_token=True)
        if name is None:
            self.raise_error("Expected the name of a setting")
        if name.name.upper() == "TIME" and self._match_text_seq("ZONE"):
            name.set("this", "TimeZone")
        elif not self._match(TokenType.EQ) and not self._match_text_seq("TO"):
            self.raise_error("Expected = after the name of a setting")
        value = self._parse_unary() or self._parse_var(any_token=True)
        if value is None:
            self.raise_error("Expected a value")
        return self.expression(SetOption(this=name, value=value))

    def _parse_reset(self) -> SetOption:
        name = self._parse_id_var(any_token=True)
        if name is None:
            self.raise_error("Expected the name of a setting")
        return self.expression(SetOption(this=name))

    def _parse_show_tables(self) -> ShowTables | ShowStreams:
        start = self._curr
        if self._take("STREAMS"):
            return self._timed(ShowStreams(), start)
        if self._take("SINKS"):
            return self._timed(ShowStreams(sinks=True), start)
        everything = self._match(TokenType.ALL)
        self._expect("TABLES")
        return self.expression(ShowTables(all=bool(everything)))

    def _parse_describe_query(self) -> DescribeQuery:
        if (
            self._curr.token_type
            in (TokenType.SELECT, TokenType.FROM, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN)
            or self._sequenced_ahead()
        ):
            return self.expression(DescribeQuery(this=self._parse_query("DESCRIBE")))
        self._match(TokenType.TABLE)
        table = self._parse_table(schema=False)
        if table is None:
            self.raise_error("Expected a query or a table after DESCRIBE")
        return self.expression(DescribeQuery(this=exp.select("*").from_(table, copy=False)))

    def _expect(self, word: str) -> None:
        if not self._match_text_seq(word):
            self.raise_error(f"Expected {word}")

    def _expect_string(self, what: str) -> exp.Expr:
        value = self._parse_string()
        if value is None:
            self.raise_error(f"Expected {what} as a string")
        return value


_STATEMENTS = {
    TokenType.CREATE,
    TokenType.DROP,
    TokenType.INSERT,
    TokenType.UPDATE,
    TokenType.DELETE,
    TokenType.TRUNCATE,
    TokenType.COPY,
}
_QUERY_STARTS = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.L_PAREN}
_STEPS = {
    "BEGIN": "begin",
    "START": "begin",
    "COMMIT": "commit",
    "END": "commit",
    "ROLLBACK": "rollback",
    "ABORT": "rollback",
    "CHECKPOINT": "checkpoint",
}


@dataclass(frozen=True)
class Parsed:
    """One statement: its tree, and its place in the text (`start` and `end` are offsets of characters)."""

    node: exp.Expr
    source: QueryText
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        return self.source.text[self.tokens[0].start : self.tokens[-1].end + 1]

    def text_after(self, kind: TokenType) -> str:
        """The text behind the first token of this kind outside parentheses."""
        depth = 0
        for index, token in enumerate(self.tokens):
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if token.token_type == kind and depth == 0:
                return self.source.text[self.tokens[index + 1].start : self.tokens[-1].end + 1]
        return self.text


def parse(text: str) -> list[Parsed]:
    """The statements of a text. Raises ParseError with the position."""
    from tsql.grammar.dialect import Temporal

    source = tokenize(text, Temporal)
    chunks: list[list[Token]] = [[]]
    for token in source.tokens:
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [_parse_one(source, chunk) for chunk in chunks if chunk]


def _parse_one(source: QueryText, tokens: list[Token]) -> Parsed:
    from tsql.grammar.clauses import check_statement
    from tsql.grammar.dialect import Temporal

    nodes = run_parser(
        source, Temporal, lambda parser: parser._parse(type(parser)._parse_statement, tokens, source.text)
    )
    node = nodes[0] if len(nodes) == 1 else None
    if node is None or isinstance(node, exp.Command):
        raise ParseError(f'syntax error at "{tokens[0].text}"', position=tokens[0].start, text=source.text)
    check_parentheses(source.text, tokens)
    check_statement(node, tokens, source.text)
    return Parsed(node, source, tuple(tokens))
