"""The grammar of `input MATCH_RECOGNIZE (..)` behind a relation of FROM; `pattern.py` reads its PATTERN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from tsql.grammar.time.base import TimeParser
from tsql.grammar.time.check_parameters import check_interval
from tsql.grammar.time.match_nodes import ROWS_PER_MATCH, MatchSemantics, PatternVariable, RowMatch, SkipTo, Subset
from tsql.grammar.time.pattern import read_pattern
from tsql.planner.bind.binder import nearest

_EXAMPLE = "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES .. PATTERN (A B+) DEFINE B AS B.x > A.x)"


class MatchParser(TimeParser):
    """Row pattern matching."""

    def reset(self) -> None:
        super().reset()
        self._matches_open = 0

    def _parse_table(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        node = super()._parse_table(*args, **kwargs)
        while node is not None and self._ahead("MATCH_RECOGNIZE", "("):
            node = self._parse_match(node)
            if kwargs.get("joins"):
                for join in self._parse_joins():
                    node.append("joins", join)
        return node

    def _parse_match(self, source: exp.Expr) -> exp.Table:
        start = self._curr
        self._advance(2)
        self._matches_open += 1
        parts = self._parse_match_clauses()
        self._matches_open -= 1
        if not self._match(TokenType.R_PAREN):
            self._expected("a clause of MATCH_RECOGNIZE or )")
        for key, word in (("pattern", "PATTERN"), ("define", "DEFINE")):
            if key not in parts:
                self._refuse(f"MATCH_RECOGNIZE needs {word}", start, f"as in {_EXAMPLE}")
        match = self._timed(RowMatch(this=source, **parts), start)
        _check_variables(self, match)
        table = exp.Table(this=match, alias=self._parse_table_alias())
        table.meta["at"] = start.start
        return table

    def _parse_match_clauses(self) -> dict[str, Any]:
        clauses: list[tuple[str, str, Callable[[], Any]]] = [
            ("partition_by", "PARTITION BY", lambda: self._parse_csv(self._parse_disjunction)),
            ("order", "ORDER BY", self._parse_match_order),
            ("measures", "MEASURES", lambda: self._parse_csv(self._parse_measure)),
            ("rows", "ROWS PER MATCH", self._parse_rows_per_match),
            ("after", "AFTER MATCH SKIP", self._parse_skip),
            ("pattern", "PATTERN", self._parse_pattern),
            ("within", "WITHIN", self._parse_match_within),
            ("subset", "SUBSET", lambda: self._parse_csv(self._parse_subset)),
            ("define", "DEFINE", lambda: self._parse_csv(self._parse_definition)),
        ]
        names = [key for key, _, _ in clauses]
        parts: dict[str, Any] = {}
        while (place := self._match_clause()) is not None:
            key, word, read = clauses[names.index(place)]
            at = self._curr
            later = next((w for k, w, _ in reversed(clauses) if k in parts), None)
            if key in parts:
                self._refuse(f"{word} of MATCH_RECOGNIZE is given twice", at)
            if any(names.index(done) > names.index(key) for done in parts):
                self._refuse(
                    f"{word} of MATCH_RECOGNIZE stands before {later}",
                    at,
                    "the order is " + ", ".join(w for _, w, _ in clauses),
                )
            if key not in ("rows", "after", "order"):
                self._advance()
            parts[key] = read()
            if parts[key] in (None, []):
                self._expected(f"something behind {word}")
        return parts

    def _match_clause(self) -> str | None:
        """The arg of the clause that is next."""
        if self._ahead("ONE", "ROW") or self._ahead("ALL", "ROWS"):
            return "rows"
        if self._ahead("AFTER", "MATCH"):
            return "after"
        word = self._word()
        words = {
            "PARTITION BY": "partition_by",
            "ORDER BY": "order",
            "MEASURES": "measures",
            "PATTERN": "pattern",
            "WITHIN": "within",
            "SUBSET": "subset",
            "DEFINE": "define",
        }
        return words.get(word)

    def _parse_match_order(self) -> exp.Order:
        order = self._parse_order()
        order.set("this", None)
        return order

    def _parse_measure(self) -> exp.Alias:
        value = self._need_expression("a measure")
        if not self._match(TokenType.ALIAS):
            self._expected("AS and a name: every measure has one")
        return self.expression(exp.Alias(this=value, alias=self._need_identifier("the name of the measure")))

    def _parse_rows_per_match(self) -> exp.Var:
        for text in sorted(ROWS_PER_MATCH, key=len, reverse=True):
            if self._take(*text.split(" ")):
                return exp.Var(this=text)
        self._advance(2)
        return self._expected("PER MATCH")

    def _parse_skip(self) -> SkipTo:
        start = self._curr
        if not self._take("AFTER", "MATCH", "SKIP"):
            self._advance(2)
            self._expected("SKIP behind AFTER MATCH")
        for text in ("PAST LAST ROW", "TO NEXT ROW"):
            if self._take(*text.split(" ")):
                return self._timed(SkipTo(this=exp.Var(this=text)), start)
        if not self._take("TO"):
            self._expected("PAST LAST ROW, TO NEXT ROW, or TO [FIRST | LAST] and a variable")
        is_first = self._word() == "FIRST" and self._word(1) not in _SKIP_ENDS
        if not is_first and self._word() == "LAST" and self._word(1) in _SKIP_ENDS:
            variable = self._need_identifier("a variable of the pattern")
        else:
            if is_first or self._word() == "LAST":
                self._advance()
            variable = self._need_identifier("a variable of the pattern")
        return self._timed(SkipTo(this=exp.Var(this="TO FIRST" if is_first else "TO LAST"), variable=variable), start)

    def _parse_pattern(self) -> exp.Expr:
        opening = self._curr
        if not self._match(TokenType.L_PAREN):
            self._expected("( behind PATTERN")
        pattern, closing = read_pattern(self.sql, opening.end + 1)
        while self._curr and self._curr.start < closing:
            self._marks_in_patterns += self._curr.token_type == TokenType.PLACEHOLDER
            self._advance()
        if not self._match(TokenType.R_PAREN):
            self._expected(") behind the pattern")
        return pattern

    def _parse_match_within(self) -> exp.Expr:
        first = self._curr
        value = self._need_expression("an interval behind WITHIN")
        if isinstance(value, exp.Literal):
            self._refuse("WITHIN takes an interval, such as INTERVAL '1 hour'", first)
        check_interval(self, value, "WITHIN", first, "length")
        return value

    def _parse_subset(self) -> Subset:
        start = self._curr
        name = self._need_identifier("the name of a subset")
        if not self._match(TokenType.EQ) or not self._match(TokenType.L_PAREN):
            self._expected("= (A, B) behind the name of a subset")
        members = self._parse_csv(lambda: self._need_identifier("a variable of the pattern"))
        if not self._match(TokenType.R_PAREN):
            self._expected(", or )")
        return self._timed(Subset(this=name, expressions=members), start)

    def _parse_definition(self) -> exp.Alias:
        name = self._need_identifier("a variable of the pattern")
        if not self._match(TokenType.ALIAS):
            self._expected(f"AS and a condition behind {name.name}")
        return self.expression(exp.Alias(this=self._need_expression("a condition"), alias=name))

    def _parse_unary(self) -> exp.Expr | None:
        """FINAL f(..) and RUNNING f(..) inside of MATCH_RECOGNIZE."""
        start = self._curr
        if not (
            self._matches_open
            and self._word() in ("FINAL", "RUNNING")
            and self._word(2) == "("
            and self._word(1).isidentifier()
        ):
            return super()._parse_unary()
        self._advance()
        call = self._timed(MatchSemantics(this=self._parse_function(), kind=exp.Var(this=start.text.upper())), start)
        node = self._parse_column_ops(call)
        node.meta["at"] = start.start
        return node


_SKIP_ENDS = ("PATTERN", "WITHIN", "SUBSET", "DEFINE", ")", "")


def _check_variables(parser: MatchParser, match: RowMatch) -> None:
    """Refuse names that are no variables of the pattern, and names that are given twice."""
    variables = {node.name.lower(): node.name for node in match.args["pattern"].find_all(PatternVariable)}
    names = dict(variables)
    for subset in match.args.get("subset") or ():
        if subset.name.lower() in names:
            what = "a variable of the PATTERN" if subset.name.lower() in variables else "another subset"
            parser._refuse(f'SUBSET "{subset.name}" is called like {what}', subset.this)
        for member in subset.expressions:
            _check_variable(parser, member, variables)
        names[subset.name.lower()] = subset.name
    defined: set[str] = set()
    for definition in match.args["define"]:
        variable = definition.args["alias"]
        _check_variable(parser, variable, variables, "DEFINE")
        if variable.name.lower() in defined:
            parser._refuse(f'DEFINE gives "{variable.name}" twice', variable)
        defined.add(variable.name.lower())
        for found in definition.find_all(MatchSemantics):
            if found.args["kind"].name == "FINAL":
                parser._refuse("FINAL is for MEASURES: in DEFINE the match is not finished", found)
    skip = match.args.get("after")
    if skip is not None and skip.args.get("variable") is not None:
        _check_variable(parser, skip.args["variable"], names)
    for part in (*(match.args.get("measures") or ()), *match.args["define"]):
        for column in part.find_all(exp.Column):
            if column.table:
                _check_variable(parser, column.args["table"], names)


def _check_variable(
    parser: MatchParser, name: exp.Identifier, known: dict[str, str], clause: str | None = None
) -> None:
    if name.name.lower() not in known:
        hint = nearest(name.name, known.values()) or f"there is {', '.join(known.values()) or 'none'}"
        parser._refuse(
            (
                f'{clause + " gives " if clause else ""}"{name.name}"{", which" if clause else ""} is no '
                "variable of the PATTERN"
            ),
            name,
            hint,
        )
