"""The grammar of the functions of time in FROM: TUMBLE, HOP, .., LIFETIME, .., in our spelling and in Flink's.

    TUMBLE(bids PARTITION BY auction, ts, INTERVAL '10 minutes')
    TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES))

Outside of FROM these are ordinary names. `check_parameters.py` checks what can be known about the arguments without a
catalog."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.grammar.time.base import TimeParser
from tsql.grammar.time.check_parameters import check_function
from tsql.grammar.time.nodes import FUNCTIONS, LifetimeFunction, TimeFunction
from tsql.grammar.time.parameters import OTHER_NAMES, PARAMETERS, USAGE, TimeParameter
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.binder import nearest

_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES)


@dataclass(frozen=True)
class Argument:
    """One argument behind the table: its name, if it was given by name, its value, and its place in the text."""

    name: str | None
    value: exp.Expr
    start: Token
    end: Token


class TimeFunctionParser(TimeParser):
    """Functions of time."""

    def _parse_table_part(self, schema: bool = False) -> exp.Expr | None:
        if not schema:
            if self._is_time_function():
                return self._parse_time_function()
            if self._curr and self._curr.token_type == TokenType.TABLE and self._word(1) == "(":
                return self._parse_table_call()
        return super()._parse_table_part(schema)

    def _parse_lateral(self) -> exp.Lateral | None:
        if self._word() == "LATERAL" and self._is_time_function(1):
            self._refuse("LATERAL stands before a subquery", self._curr, f"LATERAL (SELECT * FROM {self._word(1)}(..))")
        return super()._parse_lateral()

    def _is_time_function(self, ahead: int = 0) -> bool:
        return self._word(ahead) in FUNCTIONS and self._word(ahead + 1) == "("

    def _parse_table_call(self) -> TimeFunction:
        """TABLE(function(..))."""
        self._advance(2)
        if not self._is_time_function():
            self._refuse(
                "TABLE(..) takes a function of time",
                self._curr,
                nearest(self._word(), FUNCTIONS) or f"such as {', '.join(FUNCTIONS)}",
            )
        node = self._parse_time_function()
        if not self._match(TokenType.R_PAREN):
            self._expected(") behind the function of TABLE(")
        return node

    def _parse_time_function(self) -> TimeFunction:
        start = self._curr
        kind = FUNCTIONS[start.text.upper()]
        self._advance(2)
        first = self._curr
        source, is_flink = self._parse_time_input(kind)
        keys = self._parse_time_keys(kind, is_flink)
        table_text = self.sql[first.start : self._prev.end + 1]
        arguments = []
        while self._match(TokenType.COMMA):
            arguments.append(self._parse_time_argument(kind))
        node = kind(this=source, partition_by=keys or None)
        given = self._assign(kind, arguments, start, table_text)
        for name, argument in given.items():
            node.set(name, argument.value)
        if not self._match(TokenType.R_PAREN):
            self._expected(", or )")
        check_function(self, kind, given, start)
        return self._timed(node, start)

    def _parse_time_input(self, kind: type[TimeFunction]) -> tuple[exp.Expr, bool]:
        """The table of a function of time, and whether it was said as Flink does: TABLE name."""
        if OTHER_NAMES.get(self._word().lower(), self._word().lower()) == "table" and self._word(1) == "=>":
            self._advance(2)
        elif self._word(1) == "=>":
            self._refuse(f"{kind.sql_name} takes the table first", self._curr, f"as in {USAGE[kind]}")
        if self._curr.token_type in _QUERY_STARTS or self._ahead("SEQUENCED", "VALIDTIME", "SELECT"):
            self._refuse(
                f"a query as the input of {kind.sql_name} stands in parentheses",
                self._curr,
                f"{kind.sql_name}((SELECT ..), ..)",
            )
        if not self._curr or self._curr.token_type in (
            TokenType.R_PAREN,
            TokenType.COMMA,
            TokenType.INTERVAL,
            TokenType.NUMBER,
        ):
            self._refuse(f"{kind.sql_name} needs a table", self._curr, f"as in {USAGE[kind]}")
        is_flink = bool(self._word(1) != "(" and self._match(TokenType.TABLE))
        source = None if self._curr.token_type == TokenType.TABLE and self._word(1) != "(" else self._parse_table()
        if source is None:
            self._expected("a table")
        return source, is_flink

    def _parse_time_keys(self, kind: type[TimeFunction], is_flink: bool) -> list[exp.Expr]:
        """PARTITION BY one key, or several in parentheses: a comma ends it. Flink's form may list them, up to
        DESCRIPTOR."""
        start = self._curr
        if not self._match(TokenType.PARTITION_BY):
            return []
        if issubclass(kind, LifetimeFunction):
            self._refuse(f"{kind.sql_name} works on each row by itself and takes no PARTITION BY", start)
        keys = [self._need_expression("a key behind PARTITION BY")]
        while is_flink and self._word() == "," and self._word(1) != "DESCRIPTOR" and self._word(2) != "=>":
            self._advance()
            keys.append(self._need_expression("a key behind PARTITION BY"))
        if len(keys) == 1 and isinstance(keys[0], exp.Tuple):
            keys = keys[0].expressions
        return [key.this if isinstance(key, exp.Paren) else key for key in keys]

    def _parse_time_argument(self, kind: type[TimeFunction]) -> Argument:
        start, name = self._curr, None
        if self._word(1) in ("=>", ":="):
            name = self._curr.text.lower()
            self._advance(2)
        if self._ahead("DESCRIPTOR", "("):
            self._advance(2)
            value = self._need_expression("a column in DESCRIPTOR")
            if not self._match(TokenType.R_PAREN):
                self._expected(") behind the one column of DESCRIPTOR")
        else:
            value = self._need_expression(f"an argument of {kind.sql_name}")
        if self._word() == "=>":
            self._expected("the name of an option before =>")
        return Argument(name, value, start, self._prev)

    def _assign(
        self, kind: type[TimeFunction], arguments: list[Argument], start: Token, table_text: str
    ) -> dict[str, Argument]:
        """The arguments by the names of their parameters."""
        places = [p for p in PARAMETERS[kind] if p.positional]
        given: dict[str, Argument] = {}
        named = False
        for place, argument in enumerate(arguments):
            if argument.name is not None:
                named = True
                parameter = self._option(kind, argument)
            elif named:
                self._refuse(
                    "an argument without a name follows one that has a name", argument.start, f"as in {USAGE[kind]}"
                )
            elif place >= len(places):
                hint = (
                    f"by name: {', '.join(p.name for p in PARAMETERS[kind])}"
                    if PARAMETERS[kind]
                    else f"as in {USAGE[kind]}"
                )
                self._refuse(f"{kind.sql_name} takes {_count(len(places))} behind the table", argument.start, hint)
            else:
                parameter = places[place]
                self._check_order(kind, parameter, arguments, place, table_text)
            if parameter.name in given:
                self._refuse(f"{parameter.name} of {kind.sql_name} is given twice", argument.start)
            given[parameter.name] = argument
        return given

    def _option(self, kind: type[TimeFunction], argument: Argument) -> TimeParameter:
        name = OTHER_NAMES.get(argument.name, argument.name)
        for parameter in PARAMETERS[kind]:
            if parameter.name == name:
                return parameter
        names = [p.name for p in PARAMETERS[kind]]
        hint = nearest(argument.name, names) or (f"there is {', '.join(names)}" if names else f"as in {USAGE[kind]}")
        self._refuse(f'{kind.sql_name} has no option "{argument.name}"', argument.start, hint)

    def _check_order(
        self, kind: type[TimeFunction], parameter: TimeParameter, arguments: list[Argument], place: int, table_text: str
    ) -> None:
        """Refuse an interval where the time belongs, with the call as it should be."""
        value = arguments[place].value
        if parameter.kind != "time" or not isinstance(value, exp.Interval):
            return
        later = next((a for a in arguments[place + 1 :] if a.name is None and isinstance(a.value, exp.Column)), None)
        hint = f"as in {USAGE[kind]}"
        if later is not None:
            ordered = [later, *(a for a in arguments if a is not later)]
            texts = [self.sql[a.start.start : a.end.end + 1] for a in ordered]
            hint = f"{kind.sql_name}({', '.join([table_text, *texts])})"
        self._refuse(f"{kind.sql_name} takes the time of a row before an interval", arguments[place].start, hint)


def _count(number: int) -> str:
    return "nothing" if number == 0 else "one argument" if number == 1 else f"at most {number} arguments"
