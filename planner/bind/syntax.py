"""The expression grammar: SQL text → sqlglot AST, with the text position of every node.

sqlglot rewrites function calls into its own classes (SUBSTR and SUBSTRING become one, argument orders change). Here a
call stays as the user wrote it: an `exp.Anonymous` with a lower-case name, except for forms with their own syntax.
`planner/bind/binder.py` reads expressions of plan files with it; `tsql/grammar/parser/statements.py` adds the
statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlglot.parser
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, TokenError
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import Token, TokenType

from tsql.kernels.expr.errors import ParseError
from tsql.kernels.process import stopping
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner.bind.clauses import check_clauses
from tsql.planner.bind.expression_clauses import EXPRESSIONS
from tsql.planner.bind.query_text import QueryText, check_parentheses, position_of, tokenize
from tsql.planner.bind.syntax_nodes import Absolute as Absolute
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.syntax_nodes import UnaryPlus as UnaryPlus

T = TypeVar("T")


def check_plain(file: str | None) -> None:
    """Refuse sqlglot's compiled modules: their grammar cannot be extended, so the first query would fail."""
    if not str(file).endswith((".py", ".pyc")):
        raise ImportError(
            "tsql extends the grammar of sqlglot, which its compiled modules do not allow: pip uninstall sqlglotc"
        )


check_plain(sqlglot.parser.__file__)


class ExpressionParser(DuckDBParser):
    """DuckDB's expressions, with calls kept as written and positions on every operand (`meta["at"]`)."""

    FUNCTIONS: dict = {}
    FUNCTION_PARSERS = {
        "CAST": lambda self: self._parse_cast(True),
        "TRY_CAST": lambda self: self._parse_cast(False, safe=True),
        "EXTRACT": lambda self: self._parse_extract(),
        "SUBSTRING": lambda self: self._parse_substring_call(),
        "TRIM": lambda self: self._parse_trim_call(),
        "POSITION": lambda self: self._parse_position_call(),
        "OVERLAY": lambda self: self._parse_overlay_call(),
    }
    NO_PAREN_FUNCTION_PARSERS = {"CASE": lambda self: self._parse_case()}
    UNARY_PARSERS = {
        **DuckDBParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: self.expression(UnaryPlus(this=self._parse_unary())),
    }
    RANGE_PARSERS = {
        **DuckDBParser.RANGE_PARSERS,
        TokenType.TILDE: lambda self, this: self._call("regexp_matches", [this, self._parse_bitwise()]),
        TokenType.IRLIKE: lambda self, this: self._call(
            "regexp_matches", [this, self._parse_bitwise(), exp.Literal.string("i")]
        ),
    }
    PLACEHOLDER_PARSERS = {
        **DuckDBParser.PLACEHOLDER_PARSERS,
        TokenType.PLACEHOLDER: lambda self: self._parse_question_mark(),
    }
    INTERVAL_UNITS = frozenset(
        f"{unit}{plural}"
        for unit in (
            "MICROSECOND",
            "MILLISECOND",
            "SECOND",
            "MINUTE",
            "HOUR",
            "DAY",
            "WEEK",
            "MONTH",
            "QUARTER",
            "YEAR",
            "DECADE",
        )
        for plural in ("", "S")
    ) | {"CENTURY", "CENTURIES", "MILLENNIUM", "MILLENNIA"}

    def expression(self, instance, token=None, comments=None):  # type: ignore[no-untyped-def]
        """As sqlglot's, but comments are not copied into the tree: they mean nothing to a plan."""
        if token:
            instance.update_positions(token)
        return instance if instance.is_primitive else self.validate_expression(instance)

    def _parse_unary(self) -> exp.Expr | None:
        start = self._curr.start
        if self._curr.token_type == TokenType.NOT and self._curr.text == "!":
            self.raise_error("Invalid expression / Unexpected token", self._curr)
        if self._match(TokenType.DAT):
            node = self.expression(Absolute(this=self._parse_term()))
        else:
            node = super()._parse_unary()
        if node is not None:
            node.meta["at"] = start
        return node

    def _parse_id_var(self, any_token=True, tokens=None):  # type: ignore[no-untyped-def]
        """In `OVER (GROUPS ..` the word starts the frame; sqlglot would take it for the name of a window."""
        if (
            tokens is self.WINDOW_ALIAS_TOKENS
            and self._curr.token_type == TokenType.VAR
            and self._curr.text.upper() == "GROUPS"
        ):
            return None
        return super()._parse_id_var(any_token, tokens)

    def _parse_ordered(self, parse_method=None):  # type: ignore[no-untyped-def]
        """A key of ORDER BY, with one direction and one place of NULLs; `meta["nulls"]` says whether that was
        written."""
        node = super()._parse_ordered(parse_method)
        if node is None:
            return None
        end = self._index
        words = []
        for pair in (("NULLS", "LAST"), ("NULLS", "FIRST"), ("DESC",), ("ASC",)):
            before = self._tokens[end - len(pair) : end]
            if [token.text.upper() for token in before] == list(pair) and before[0].token_type != TokenType.IDENTIFIER:
                words.append(pair)
                end -= len(pair)
        for first, second in (((("NULLS", "LAST"), ("NULLS", "FIRST"))), (("DESC",), ("ASC",))):
            if first in words and second in words:
                self.raise_error(
                    f"{' '.join(second)} {' '.join(first)} contradict each other", self._tokens[end + len(second)]
                )
        if node.args.get("with_fill"):
            self.raise_error("WITH FILL is not supported", self._prev)
        if words and len(words[0]) == 2:
            node.meta["nulls"] = " ".join(words[0])
        return node

    def _parse_question_mark(self) -> exp.Placeholder:
        """`?` is numbered by its place among the question marks of the statement."""
        node = self.expression(exp.Placeholder(), self._prev)
        node.meta["number"] = sum(token.token_type == TokenType.PLACEHOLDER for token in self._tokens[: self._index])
        return node

    def _parse_primary(self) -> exp.Expr | None:
        if self._match_pair(TokenType.DOT, TokenType.NUMBER):
            return exp.Literal(this=f".{self._prev.text}", is_string=False).update_positions(self._prev)
        if self._curr.token_type == TokenType.STRING and self._next.token_type == TokenType.STRING:
            self.raise_error("two strings in a row", self._next)
        return super()._parse_primary()

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> exp.Expr | None:
        """`INTERVAL '3 days'` (no unit), or a number, a string or a parenthesized expression followed by a unit."""
        if self._curr.token_type != TokenType.INTERVAL or self._next.token_type not in (
            TokenType.STRING,
            TokenType.NUMBER,
            TokenType.L_PAREN,
            TokenType.DASH,
        ):
            return None
        start = self._index
        self._advance()
        value = self._parse_unary() if self._curr.token_type == TokenType.DASH else self._parse_primary()
        unit = None
        if self._curr.text.upper() in self.INTERVAL_UNITS and self._curr.token_type not in (
            TokenType.STRING,
            TokenType.IDENTIFIER,
        ):
            unit = exp.Var(this=self._curr.text.upper()).update_positions(self._curr)
            self._advance()
        elif not (isinstance(value, exp.Literal) and value.is_string):
            self._retreat(start)
            return None
        return self.expression(exp.Interval(this=value, unit=unit))

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """In `TIMESTAMP '..'::DATE` it is the timestamp that is cast; sqlglot would cast the text first."""
        start = self._index
        if (
            self._curr is not None
            and self._curr.token_type in self.TYPE_TOKENS
            and self._curr.token_type != TokenType.INTERVAL
        ):
            kind = self._parse_types(check_func=True, allow_identifiers=False)
            if isinstance(kind, exp.DataType) and self._curr is not None and self._curr.token_type == TokenType.STRING:
                return self._parse_column_ops(self.expression(exp.Cast(this=self._parse_primary(), to=kind)))
            self._retreat(start)
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_types(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        start = self._curr
        node = super()._parse_types(*args, **kwargs)
        if isinstance(node, exp.DataType) and self._index > 0 and start is not self._curr:
            node.meta["spelled"] = self.sql[start.start : self._prev.end + 1]
            node.meta["start"] = start.start
        return node

    def _parse_function_call(self, functions=None, anonymous=False, optional_parens=True, any_token=False):  # type: ignore[no-untyped-def]
        token = self._curr
        node = super()._parse_function_call(functions, anonymous, optional_parens, any_token)
        inner = node
        while isinstance(inner, (exp.Filter, exp.WithinGroup, exp.Window, exp.IgnoreNulls, exp.RespectNulls)):
            inner = inner.this
        if type(inner) is exp.Anonymous:
            if (
                inner.expressions
                and isinstance(inner.expressions[0], exp.Distinct)
                and not inner.expressions[0].expressions
            ):
                self.raise_error("DISTINCT needs an argument", self._prev)
            name = inner.this
            quoted = isinstance(name, exp.Identifier)
            call = CallNode(
                this=(name.name if quoted else name).lower(), expressions=inner.expressions, quoted=quoted or None
            )
            call.update_positions(token)
            if inner is node:
                return _quantifier(call)
            inner.replace(call)
        return node

    def _call(self, name: str, args: list[exp.Expr | None]) -> CallNode:
        if any(arg is None for arg in args):
            self.raise_error(f"an argument of {name} is missing")
        return self.expression(CallNode(this=name, expressions=args))

    def _parse_substring_call(self) -> CallNode:
        node = super()._parse_substring()
        return self._call(
            "substring",
            [node.this, node.args.get("start"), *([node.args["length"]] if node.args.get("length") else [])],
        )

    def _parse_trim_call(self) -> CallNode:
        node = super()._parse_trim()
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
        value, characters = node.this, node.args.get("expression")
        if value is None:
            value, characters = characters, None
        return self._call(name, [value, characters] if characters is not None else [value])

    def _parse_position_call(self) -> CallNode:
        needle = self._parse_bitwise()
        if not self._match(TokenType.IN):
            self.raise_error("expected IN: position(needle IN text)")
        return self._call("position", [self._parse_bitwise(), needle])

    def _parse_overlay_call(self) -> CallNode:
        node = super()._parse_overlay()
        return self._call(
            "overlay",
            [
                node.this,
                node.expression,
                node.args.get("from_"),
                *([node.args["for_"]] if node.args.get("for_") else []),
            ],
        )

    def _parse_csv(self, parse_method, sep=TokenType.COMMA):  # type: ignore[no-untyped-def]
        """A list; DuckDB allows a comma after the last item, but no empty items."""
        items = []
        while True:
            stopping.check()
            item = parse_method()
            if item is not None:
                items.append(item)
            elif self._curr.token_type == sep:
                self.raise_error("Expected an expression")
            if not self._match(sep):
                return items

    def _parse_star_ops(self) -> exp.Expr | None:
        """`*` and what changes its columns. `* ILIKE 'x'` is left to the grammar of ILIKE, as `* LIKE 'x'` is."""
        start = self._prev
        if self._match_text_seq("COLUMNS", "(", advance=False):
            self.raise_error("*COLUMNS(..) is not supported: COLUMNS(..) gives an expression for each column", start)
        parts = {
            key: self._parse_star_op(*words)
            for key, words in (("except_", ("EXCEPT", "EXCLUDE")), ("replace", ("REPLACE",)), ("rename", ("RENAME",)))
        }
        return self.expression(exp.Star(**parts)).update_positions(start)

    def _parse_star_op(self, *keywords: str) -> list[exp.Expr] | None:
        found = super()._parse_star_op(*keywords)
        if found == [] or not found and self._prev.text.upper() in keywords:
            self.raise_error(f"Expected columns after {keywords[-1]}")
        return found

    def _parse_extract(self) -> exp.Extract:
        part = self._curr
        if not part or (part.token_type != TokenType.STRING and not part.text.isidentifier()):
            self.raise_error("Expected a part of a date, as in EXTRACT(year FROM x)")
        self._advance()
        if not self._match(TokenType.FROM):
            self.raise_error("Expected FROM, as in EXTRACT(year FROM x)")
        name = exp.Var(this=part.text.lower()).update_positions(part)
        return self.expression(exp.Extract(this=name, expression=self._parse_bitwise()))

    def _parse_case(self) -> exp.Expr | None:
        """As sqlglot's, which does not ask for THEN."""
        subject = self._parse_disjunction()
        branches = []
        while self._match(TokenType.WHEN):
            condition = self._parse_disjunction()
            if not self._match(TokenType.THEN):
                self.raise_error("Expected THEN")
            branches.append(self.expression(exp.If(this=condition, true=self._parse_disjunction())))
        if not branches:
            self.raise_error("CASE needs at least one WHEN")
        default = None
        if self._match(TokenType.ELSE):
            default = self._parse_disjunction()
            if default is None:
                self.raise_error("Expected an expression after ELSE")
        if not self._match(TokenType.END):
            self.raise_error("Expected END after CASE")
        return self.expression(exp.Case(this=subject, ifs=branches, default=default))

    def _parse_escape(self, this: exp.Expr | None) -> exp.Expr | None:
        """ESCAPE behind LIKE and ILIKE; sqlglot takes it behind every operator that compares texts."""
        if not self._match(TokenType.ESCAPE):
            return this
        if not isinstance(this, (exp.Like, exp.ILike)):
            raise ParseError("ESCAPE stands behind LIKE or ILIKE", position=self._prev.start, text=self.sql)
        return self.expression(exp.Escape(this=this, expression=self._parse_bitwise()))

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        """As sqlglot's, which does not ask for AND."""
        if self._match_texts(("SYMMETRIC", "ASYMMETRIC")):
            self.raise_error(f"BETWEEN {self._prev.text.upper()} is not supported", self._prev)
        if isinstance(this, (exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)):
            this = exp.Paren(this=this)
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("Expected AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_window_spec(self) -> dict[str, str | exp.Expr | None]:
        """One end of a frame; BETWEEN and AND go together."""
        before = self._prev.token_type
        found = super()._parse_window_spec()
        if found["value"] is None or not found["side"] and found["value"] != "CURRENT ROW":
            self.raise_error("Expected PRECEDING or FOLLOWING")
        is_end = before == TokenType.AND
        if not is_end and (before == TokenType.BETWEEN) != (self._curr.token_type == TokenType.AND):
            self.raise_error("Expected AND" if before == TokenType.BETWEEN else "Expected BETWEEN before AND")
        return found

    def _parse_as_command(self, start: Token) -> exp.Command:
        self.raise_error(f"{start.text.upper()} is not supported here", start)
        raise AssertionError("raise_error raises")

    def _parse_command(self) -> exp.Command:
        return self._parse_as_command(self._prev)


def _quantifier(call: CallNode) -> exp.Expr:
    """`EXISTS (VALUES ..)` and `ANY (VALUES ..)`, which sqlglot takes for calls."""
    kind = {"exists": exp.Exists, "any": exp.Any, "some": exp.Any, "all": exp.All}.get(call.name)
    if kind is None or len(call.expressions) != 1 or not isinstance(call.expressions[0], (exp.Query, exp.Values)):
        return call
    node = kind(this=call.expressions[0])
    node.meta["at"] = position_of(call)
    return node


def _unwrapped(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Paren) else node


class ExpressionGenerator(DuckDBGenerator):
    """Text of the same grammar: calls as they were written."""

    NORMALIZE_FUNCTIONS = False
    RESERVED_KEYWORDS: set = set()
    LIMIT_FETCH = "ALL"
    TRANSFORMS = {
        **DuckDBGenerator.TRANSFORMS,
        UnaryPlus: lambda self, node: f"+{self.sql(node, 'this')}",
        Absolute: lambda self, node: f"@ {self.sql(node, 'this')}",
        exp.StartsWith: lambda self, node: self.binary(node, "^@"),
        exp.Pow: lambda self, node: self.binary(node, "**"),
        CallNode: lambda self, node: self.callnode_sql(node),
    }

    def any_sql(self, node: exp.Any) -> str:
        return f"ANY ({self.sql(_unwrapped(node.this))})"

    def all_sql(self, node: exp.All) -> str:
        return f"ALL ({self.sql(_unwrapped(node.this))})"

    def withingroup_sql(self, node: exp.WithinGroup) -> str:
        return f"{self.sql(node, 'this')} WITHIN GROUP ({self.sql(node, 'expression').strip()})"

    def interval_sql(self, node: exp.Interval) -> str:
        unit = node.args.get("unit")
        return f"INTERVAL {self.sql(node, 'this')}" + (f" {unit.name}" if unit else "")

    def extract_sql(self, node: exp.Extract) -> str:
        return f"EXTRACT({node.this.name} FROM {self.sql(node, 'expression')})"

    def hexstring_sql(self, node: exp.HexString, *args: object, **kwargs: object) -> str:
        return f"X'{node.name}'"

    def callnode_sql(self, node: CallNode) -> str:
        name = node.name
        text = self.sql(exp.Identifier(this=name, quoted=True)) if node.args.get("quoted") else name
        if name in ("position", "substring", "trim", "overlay") and not node.args.get("quoted"):
            args = [self.sql(arg) for arg in node.expressions]
            words = {
                "position": None,
                "substring": (", ", ", "),
                "trim": (", ",),
                "overlay": (" PLACING ", " FROM ", " FOR "),
            }[name]
            if words is None:
                return f"position({args[1]} IN {args[0]})"
            return f"{name}({args[0]}{''.join(word + arg for word, arg in zip(words, args[1:], strict=False))})"
        return f"{text}({self.expressions(node, flat=True)})"


class TemporalExpressions(DuckDB):
    """The dialect of expressions. `Temporal` in tsql/grammar/dialect.py extends it with statements and hints."""

    INDEX_OFFSET = 0

    class Tokenizer(DuckDB.Tokenizer):
        KEYWORDS = {
            **DuckDB.Tokenizer.KEYWORDS,
            "/*+": TokenType.HINT,
            "EXPLAIN": TokenType.VAR,
            "EXECUTE": TokenType.VAR,
        }
        KEYWORDS.pop("?::")
        KEYWORDS.pop("<=>")
        COMMANDS: set = set()
        # Behind a PARAMETER a number has no fraction, but `@` is an operator.
        SINGLE_TOKENS = {**DuckDB.Tokenizer.SINGLE_TOKENS, "@": TokenType.DAT}
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]

    Parser = ExpressionParser
    Generator = ExpressionGenerator


def expression_text(node: exp.Expr) -> str:
    """A node as text; for names and messages, not for reading back."""
    return TemporalExpressions().generate(node, unsupported_level=ErrorLevel.IGNORE)


def run_parser(source: QueryText, dialect: type[DuckDB], parse: Callable[[ExpressionParser], T]) -> T:
    """Run `parse` over the tokens and turn sqlglot's errors into ours, with the position."""
    parser = dialect().parser()
    try:
        with deep_recursion():
            return parse(parser)
    except SqlglotParseError as error:
        detail = error.errors[0] if error.errors else {}
        message = detail.get("description") or str(error).split("\n")[0]
        raise ParseError(
            _readable(message, parser), position=_error_position(source, detail), text=source.text
        ) from None
    except RecursionError:
        raise ParseError("nested too deeply", position=0, text=source.text) from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, TokenError) as error:
        # sqlglot fails on some malformed texts; its last position is the best one to report.
        token = parser._curr or parser._prev
        raise ParseError(
            _readable("Invalid expression / Unexpected token", parser),
            position=token.start if token else 0,
            text=source.text,
        ) from error


def _error_position(source: QueryText, detail: dict) -> int:
    line, column = detail.get("line"), detail.get("col")
    if line is None or column is None:
        return len(source.text)
    for token in source.tokens:
        if token.line == line and token.col == column:
            return token.start
    return len(source.text)


def _readable(message: str, parser: ExpressionParser) -> str:
    token = parser._curr
    where = f'"{token.text}"' if token else "the end of the text"
    if message.startswith("Invalid expression / Unexpected token"):
        return f"syntax error at {where}"
    if message.startswith("Required keyword"):
        return f"syntax error at {where}: expected an expression"
    if message.startswith(("Expected", "Expecting")):
        # sqlglot adds the token as Python shows it.
        wanted = message.split(" but got ")[0]
        return f"syntax error at {where}: {wanted[0].lower()}{wanted[1:]}"
    return f"syntax error: {message}"


def parse_scalar(text: str) -> tuple[exp.Expr, QueryText]:
    """One expression, with nothing after it."""
    source = tokenize(text, TemporalExpressions)
    nodes = run_parser(
        source, TemporalExpressions, lambda parser: parser._parse(lambda p: p._parse_lambda(), source.tokens, text)
    )
    if len(nodes) != 1 or nodes[0] is None:
        raise ParseError("expected one expression", position=0, text=text)
    check_parentheses(text, source.tokens)
    check_clauses(nodes[0], source.tokens, text, EXPRESSIONS, whole=False)
    return nodes[0], source
