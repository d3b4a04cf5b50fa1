"""Shared by the parts of the temporal grammar: lookahead, errors with a fix, and words that are not aliases.

Errors are raised as our own ParseError: sqlglot would swallow its own while it tries to parse a relation (after a
comma, for example)."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.grammar.time.nodes import FUNCTIONS
from tsql.kernels.expr.errors import ParseError
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax import ExpressionParser
from tsql.planner.bind.syntax_nodes import CallNode

E = TypeVar("E", bound=exp.Expr)
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
_CLAUSES = {
    "MATCH_RECOGNIZE": ("(",),
    "CLIP": ("JOIN",),
    "PROGRESSIVE": ("EVERY", "UNTIL", "WITHIN", "CONFIDENCE", "SEED"),
    "TOLERANCE": ("INTERVAL",),
    "WITHIN": ("INTERVAL",),
}
"""Words that start a clause if one of these follows, and are names otherwise."""


class TimeParser(ExpressionParser):
    """Base of the parts of the temporal grammar."""

    FUNC_TOKENS = ExpressionParser.FUNC_TOKENS | {TokenType.SESSION}

    def reset(self) -> None:
        super().reset()
        self._has_time = False
        self._marks_in_patterns = 0

    def _parse(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """As sqlglot's. A statement with temporal syntax gets `meta["time"]`, so that others need not be searched for
        it."""
        found = super()._parse(*args, **kwargs)
        if self._has_time:
            for node in found:
                if node is not None:
                    node.meta["time"] = True
        return found

    def _timed(self, node: E, start: Token) -> E:
        """A new node of temporal SQL, which begins with the token `start`."""
        node.meta["at"] = start.start
        self._has_time = True
        return self.expression(node)

    def _refuse(self, message: str, at: Token | exp.Expr | int | None, hint: str | None = None) -> NoReturn:
        """Raise an error at a token, a node or an offset (else at the present token, or at the end of the text)."""
        position = (
            at.start
            if isinstance(at, Token) and at
            else at
            if isinstance(at, int)
            else position_of(at)
            if isinstance(at, exp.Expr)
            else None
        )
        if position is None:
            position = self._curr.start if self._curr else self._prev.end + 1
        raise ParseError(message, position=position, text=self.sql, hint=hint)

    def _refuse_tolerance(self) -> None:
        """Refuse a TOLERANCE that is behind no ASOF JOIN."""
        if self._ahead("TOLERANCE"):
            self._refuse(
                "TOLERANCE belongs to an ASOF JOIN",
                self._curr,
                "ASOF JOIN .. ON .. AND l.ts >= r.ts TOLERANCE INTERVAL '1 second'",
            )

    def _expected(self, what: str) -> NoReturn:
        where = f'"{self._curr.text}"' if self._curr else "the end of the text"
        self._refuse(f"syntax error at {where}: expected {what}", self._curr)

    def _word(self, ahead: int = 0) -> str:
        """The token that many places ahead in upper case; nothing for what is quoted."""
        index = self._index + ahead
        if not 0 <= index < len(self._tokens):
            return ""
        token = self._tokens[index]
        return "" if token.token_type in _QUOTED else " ".join(token.text.upper().split())

    def _ahead(self, *words: str) -> bool:
        return all(self._word(place) == word for place, word in enumerate(words))

    def _take(self, *words: str) -> bool:
        """Whether these words are next; if so, they are passed."""
        if not self._ahead(*words):
            return False
        self._advance(len(words))
        return True

    def _need(self, word: str) -> None:
        if not self._take(word):
            self._expected(word)

    def _need_identifier(self, what: str) -> exp.Identifier:
        found = self._parse_id_var(any_token=False)
        if found is None:
            self._expected(what)
        return found

    def _need_expression(self, what: str) -> exp.Expr:
        found = self._parse_disjunction()
        if found is None:
            self._expected(what)
        return found

    def _depth(self) -> int:
        """The number of open parentheses here."""
        kinds = [token.token_type for token in self._tokens[: self._index]]
        return kinds.count(TokenType.L_PAREN) - kinds.count(TokenType.R_PAREN)

    def _clause_ahead(self) -> bool:
        """Whether the next word starts one of our clauses, and is therefore no alias."""
        word = self._word()
        if word not in _CLAUSES and word != "EMIT":
            return False
        following = self._word(1)
        if word == "EMIT":
            index = self._index + 1
            is_word = index < len(self._tokens) and self._tokens[index].token_type == TokenType.VAR
            return is_word and following not in (*_CLAUSES, "EMIT")
        return following in _CLAUSES[word]

    def _progressive_ahead(self) -> bool:
        """Whether PROGRESSIVE ends the statement behind a table: as the table's alias it would have no use, if no name
        before it is the same."""
        if self._word() != "PROGRESSIVE" or self._index < len(self._tokens) - 1:
            return False
        earlier = (token.text.upper() for token in self._tokens[: self._index])
        return "PROGRESSIVE" not in earlier and self._prev.token_type != TokenType.ALIAS

    def _parse_table_alias(self, alias_tokens=None):  # type: ignore[no-untyped-def]
        if self._clause_ahead() or self._progressive_ahead():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _parse_alias(self, this, explicit=False):  # type: ignore[no-untyped-def]
        return this if self._clause_ahead() else super()._parse_alias(this, explicit)

    def _parse_question_mark(self) -> exp.Placeholder:
        """A `?` in a PATTERN is no parameter, and is not counted."""
        node = super()._parse_question_mark()
        node.meta["number"] -= self._marks_in_patterns
        return node

    def _parse_function_call(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """A call like `TUMBLE(..)` outside of FROM is a call like any other; the analyzer says what is wrong if there
        is no such function."""
        node = super()._parse_function_call(*args, **kwargs)
        if isinstance(node, CallNode) and node.name.upper() in FUNCTIONS:
            self._has_time = True
        return node
