"""The text of a query for the binder: its tokens, the position of each node, and tokenizer errors.
`planner/bind/syntax.py` parses the tokens."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import field
from functools import cached_property

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from tsql.kernels.expr.errors import ParseError
from tsql.kernels.process.quick_dataclass import dataclass

MAX_NESTING = 200
"""Maximum nesting of parentheses, CASE and prefix operators. The parser uses about 20 stack frames per level."""


@dataclass
class QueryText:
    """A text and its tokens: what positions refer to."""

    text: str
    tokens: list[Token] = field(repr=False, default_factory=list)

    @cached_property
    def starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    def before(self, position: int) -> int:
        """The start of the token in front of the one at `position`."""
        index = bisect_left(self.starts, position)
        return self.starts[index - 1] if index > 0 else position


def position_of(node: exp.Expr | None) -> int | None:
    """The offset of the first token of `node`. Nodes on the way remember it, so that long chains are walked once."""
    passed: list[exp.Expr] = []
    found = None
    while isinstance(node, exp.Expr):
        meta = node._meta or {}
        found = meta.get("at", meta.get("first", meta.get("start")))
        if found is not None:
            break
        passed.append(node)
        node = node.parts[0] if isinstance(node, exp.Column) else next(iter(node.iter_expressions()), None)
    if found is not None:
        for visited in passed:
            visited.meta["first"] = found
    return found


def tokenize(text: str, dialect: type[DuckDB]) -> QueryText:
    """The tokens of `text`; raises ParseError for an open quote, an unknown character or too deep a nesting."""
    try:
        tokens = dialect().tokenize(text)
    except TokenError as error:
        raise _token_error(text, str(error)) from None
    tokens = [part for token in tokens for part in _split_number(text, token)]
    _check_nesting(text, tokens)
    return QueryText(text, tokens)


def _split_number(text: str, token: Token) -> list[Token]:
    """There are no hexadecimal numbers: `0x1F` is the number 0 and the name x1F, as in DuckDB."""
    if token.token_type != TokenType.HEX_STRING or text[token.start] != "0":
        return [token]
    zero = Token(TokenType.NUMBER, "0", token.line, token.col - (token.end - token.start), token.start, token.start)
    return [
        zero,
        Token(TokenType.VAR, text[token.start + 1 : token.end + 1], token.line, token.col, token.start + 1, token.end),
    ]


def _token_error(text: str, message: str) -> ParseError:
    """sqlglot reports neither the position nor the reason, so look for the quote or comment that is not closed."""
    index = 0
    while index < len(text):
        for opening, closing, what in (
            ("--", "\n", ""),
            ("/*", "*/", "comment"),
            ("'", "'", "string"),
            ('"', '"', "name"),
            ("$$", "$$", "string"),
        ):
            if text.startswith(opening, index):
                end = text.find(closing, index + len(opening))
                if end < 0 and what:
                    return ParseError(f"this {what} has no end: {closing} is missing", position=index, text=text)
                index = len(text) if end < 0 else end + len(closing) - 1
                break
        index += 1
    return ParseError(f"cannot read the text: {message.splitlines()[0]}", position=0, text=text)


_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL}


def check_parentheses(text: str, tokens: list[Token]) -> None:
    """Refuse a statement with a parenthesis that is not closed, or not opened: sqlglot forgives some."""
    open_at: list[Token] = []
    for token in tokens:
        if token.token_type == TokenType.L_PAREN:
            open_at.append(token)
        elif token.token_type == TokenType.R_PAREN and (not open_at or not open_at.pop()):
            raise ParseError('syntax error at ")": it closes nothing', position=token.start, text=text)
    if open_at:
        raise ParseError('syntax error at "(": it is not closed', position=open_at[-1].start, text=text)


def _check_nesting(text: str, tokens: list[Token]) -> None:
    depth = run = 0
    for token in tokens:
        kind = token.token_type
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE:
            depth -= 1
        run = run + 1 if kind in _PREFIX else 0
        if depth > MAX_NESTING or run > MAX_NESTING:
            raise ParseError(f"nested too deeply (more than {MAX_NESTING} levels)", position=token.start, text=text)


def is_all(node: exp.Expr) -> bool:
    """Whether this is the ALL of ORDER BY ALL."""
    return (
        isinstance(node, exp.Column)
        and len(node.parts) == 1
        and node.name.upper() == "ALL"
        and not node.this.args.get("quoted")
        or isinstance(node, exp.Var)
        and node.name.upper() == "ALL"
    )
