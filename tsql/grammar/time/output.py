"""The grammar around a whole query: SEQUENCED VALIDTIME before it, EMIT and PROGRESSIVE behind it."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.grammar.time.base import TimeParser
from tsql.grammar.time.check_parameters import check_interval
from tsql.grammar.time.nodes import Emit, Progressive, Sequenced

_QUERY_STARTS = (TokenType.SELECT, TokenType.FROM, TokenType.WITH, TokenType.VALUES, TokenType.TABLE)
_OUTPUT = ("EMIT", "PROGRESSIVE")


class OutputParser(TimeParser):
    """What stands around a query."""

    def _sequenced_ahead(self) -> bool:
        """Whether a query follows the two words, or they begin the statement: else they are a table and its alias."""
        if not self._ahead("SEQUENCED", "VALIDTIME"):
            return False
        kinds = [token.token_type for token in self._tokens[self._index + 2 :]]
        behind = next((kind for kind in kinds if kind != TokenType.L_PAREN), None)
        return self._index == 0 or behind in _QUERY_STARTS

    def _parse_select(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if self._sequenced_ahead():
            return self._parse_sequenced()
        return super()._parse_select(*args, **kwargs)

    def _parse_select_or_expression(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        return (
            self._parse_sequenced() if self._sequenced_ahead() else super()._parse_select_or_expression(*args, **kwargs)
        )

    def _parse_sequenced(self) -> Sequenced:
        start = self._curr
        self._advance(2)
        if self._ahead("SEQUENCED"):
            self._refuse("SEQUENCED VALIDTIME is given twice", self._curr)
        query = self._parse_paren() if self._curr.token_type == TokenType.L_PAREN else self._parse_select()
        query = self._parse_query_modifiers(self._parse_set_operations(query))
        if not isinstance(query, exp.Query):
            self._refuse("expected a query behind SEQUENCED VALIDTIME", start)
        return self._timed(Sequenced(this=query), start)

    def _parse_table(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """`(SEQUENCED VALIDTIME ..` in FROM: not a table of this name with an alias."""
        if not self._sequenced_ahead():
            return super()._parse_table(*args, **kwargs)
        if self._prev.token_type == TokenType.L_PAREN:
            return self._parse_sequenced()
        return self._refuse("a query in FROM stands in parentheses", self._curr, "FROM (SEQUENCED VALIDTIME SELECT ..)")

    def _parse_paren(self) -> exp.Expr | None:
        node = super()._parse_paren()
        if isinstance(node, exp.Paren) and isinstance(node.this, Sequenced):
            return self.expression(exp.Subquery(this=node.this))
        return node

    def parse_set_operation(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        node = super().parse_set_operation(*args, **kwargs)
        if node is not None and isinstance(node.expression, Sequenced):
            self._refuse("a SEQUENCED VALIDTIME query behind a set operation stands in parentheses", node.expression)
        return node

    def _parse_ddl_select(self) -> exp.Expr | None:
        return self._parse_output(super()._parse_ddl_select())

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        """`GROUP BY ALL EMIT ..`: what stands behind ALL is no key where a clause of ours begins."""
        start = self._index
        if (
            (skip_group_by_token or self._match(TokenType.GROUP_BY))
            and self._match(TokenType.ALL)
            and self._clause_ahead()
        ):
            return self.expression(exp.Group(all=True))
        self._retreat(start)
        return super()._parse_group(skip_group_by_token)

    def _parse_query_modifiers(self, this):  # type: ignore[no-untyped-def]
        node = super()._parse_query_modifiers(this)
        if node is not None and self._word() in _OUTPUT and self._clause_ahead() and self._depth():
            self._refuse(
                f"{self._word()} stands at the end of the whole query: it says when its result leaves", self._curr
            )
        return node

    def _parse_output(self, query: exp.Expr | None) -> exp.Expr | None:
        """EMIT or PROGRESSIVE behind a query, which become args of it."""
        while isinstance(query, exp.Expr) and self._word() in _OUTPUT:
            start, key = self._curr, self._word().lower()
            if not isinstance(query, exp.Query):
                self._refuse(f"{key.upper()} needs a query with SELECT before it", start)
            for other in _OUTPUT:
                if query.args.get(other.lower()) is not None:
                    same = other.lower() == key
                    self._refuse(
                        f"{other} is given twice" if same else "a query has EMIT or PROGRESSIVE, not both", start
                    )
            self._advance()
            query.set(key, self._parse_emit(start) if key == "emit" else self._parse_progressive(start))
        self._refuse_tolerance()
        if isinstance(query, exp.Expr) and self._ahead("WITHIN", "INTERVAL"):
            self._refuse(
                "WITHIN belongs to EMIT, to PROGRESSIVE or to the PATTERN of MATCH_RECOGNIZE",
                self._curr,
                "EMIT FINAL WITHIN INTERVAL '200 milliseconds'",
            )
        return query

    def _parse_emit(self, start: Token) -> Emit:
        mode = self._word()
        if mode not in ("FINAL", "CHANGES", "EVERY"):
            self._expected("FINAL, CHANGES or EVERY behind EMIT")
        self._advance()
        parts: dict[str, Any] = {"this": exp.Var(this=mode)}
        if mode == "EVERY":
            parts["every"] = self._parse_span("EVERY", "length")
        while True:
            at, word = self._curr, self._word()
            if word == "BEFORE":
                self._advance()
                self._need("WATERMARK")
                if mode != "EVERY":
                    self._refuse(f"BEFORE WATERMARK goes with EMIT EVERY, not with EMIT {mode}", at)
                key, value = "before_watermark", True
            elif word == ",":
                self._advance()
                for wanted in ("CHANGES", "AFTER", "WATERMARK"):
                    self._need(wanted)
                if mode == "CHANGES":
                    self._refuse("EMIT CHANGES gives the changes after the watermark anyway", at)
                key, value = "changes_after_watermark", True
            elif word == "WITHIN":
                self._advance()
                key, value = "within", self._parse_span("WITHIN", "length")
            else:
                return self._timed(Emit(**parts), start)
            if key in parts:
                self._refuse(f"{key.replace('_', ' ').upper()} of EMIT is given twice", at)
            parts[key] = value

    def _parse_span(self, what: str, kind: str) -> exp.Expr:
        first = self._curr
        value = self._parse_bitwise()
        if value is None or isinstance(value, (exp.Literal, exp.Column)):
            self._refuse(f"{what} takes an interval, such as INTERVAL '10 seconds'", first)
        check_interval(self, value, what, first, kind)
        return value

    def _parse_progressive(self, start: Token) -> Progressive:
        parts: dict[str, Any] = {}
        while True:
            at, word = self._curr, self._word()
            if word not in ("EVERY", "UNTIL", "WITHIN", "CONFIDENCE", "SEED"):
                return self._timed(Progressive(**parts), start)
            self._advance()
            key = word.lower()
            if word == "EVERY":
                value, unit = self._parse_every()
                if unit is not None:
                    parts.setdefault("unit", exp.Var(this=unit))
            elif word == "UNTIL":
                self._need("ERROR")
                self._need("<=")
                key, value = "until_error", self._parse_bounded("UNTIL ERROR", 0, None)
            elif word == "WITHIN":
                value = self._parse_span("WITHIN", "length")
            elif word == "CONFIDENCE":
                value = self._parse_bounded("CONFIDENCE", 0, 1, below=True)
            else:
                value = self._parse_seed()
            if key in parts:
                self._refuse(f"{word} of PROGRESSIVE is given twice", at)
            parts[key] = value

    def _parse_every(self) -> tuple[exp.Expr, str | None]:
        """How often: a number and its unit, or an interval."""
        first = self._curr
        if self._word() == "INTERVAL":
            return self._parse_span("EVERY", "length"), None
        value = self._parse_bounded("EVERY", 0, None)
        if self._take("ROWS"):
            return value, "ROWS"
        if not self._take("PERCENT") and not self._match(TokenType.MOD):
            self._expected("PERCENT or ROWS")
        if float(value.name) > 100:
            self._refuse("EVERY takes a number that is more than 0 and at most 100", first)
        return value, "PERCENT"

    def _parse_bounded(self, what: str, low: float, high: float | None, below: bool = False) -> exp.Literal:
        """A number literal above `low`, and at most (or below) `high`."""
        first = self._curr
        node = self._parse_unary()
        number = float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None
        if number is None or not number > low or (high is not None and (number >= high if below else number > high)):
            bound = "" if high is None else f" and {'less than' if below else 'at most'} {high}"
            self._refuse(f"{what} takes a number that is more than {low}{bound}", first)
        return node

    def _parse_seed(self) -> exp.Literal:
        first = self._curr
        node = self._parse_unary()
        if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
            self._refuse("SEED takes a whole number", first)
        return node
