"""The grammar of sources with time: CREATE STREAM with its WATERMARK, PERIOD FOR, WITH (..), DROP STREAM; and of
sinks."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tsql.grammar.time.base import TimeParser
from tsql.grammar.time.check_parameters import check_interval
from tsql.grammar.time.nodes import CreateSink, CreateStream, Period, StreamOption, StreamOptions, Watermark

_LATE = ("DROP", "ADJUST", "ERROR", "INTO")


class SourceParser(TimeParser):
    """Sources with time."""

    CONSTRAINT_PARSERS = {**TimeParser.CONSTRAINT_PARSERS, "PERIOD": lambda self: self._parse_period()}

    def reset(self) -> None:
        super().reset()
        self._in_stream = False

    def _parse_create(self):  # type: ignore[no-untyped-def]
        start = self._prev
        if self._ahead("SINK") or self._ahead("OR", "REPLACE", "SINK"):
            return self._parse_create_sink()
        replaces = self._ahead("OR", "REPLACE", "STREAM")
        if not replaces and not self._ahead("STREAM"):
            return super()._parse_create()
        self._advance(3 if replaces else 1)
        exists = self._take("IF", "NOT", "EXISTS")
        if replaces and exists:
            self._refuse("CREATE takes OR REPLACE or IF NOT EXISTS, not both", start)
        self._in_stream = True
        schema = self._parse_schema(this=self._parse_table_parts(schema=True))
        self._in_stream = False
        table, columns = (schema.this, schema.expressions) if isinstance(schema, exp.Schema) else (schema, [])
        if isinstance(schema, exp.Schema) and not columns:
            self._refuse("a list of columns cannot be empty", table, "leave it out to read the columns from the files")
        marks = [node for node in columns if isinstance(node, Watermark)]
        if len(marks) > 1:
            self._refuse("a stream has one WATERMARK", marks[1])
        options = self._parse_options() if self._match(TokenType.WITH) else None
        if self._curr and self._curr.token_type == TokenType.ALIAS:
            self._refuse("CREATE STREAM takes columns and WITH (..); a query is kept with CREATE VIEW", self._curr)
        return self._timed(
            CreateStream(
                this=table,
                expressions=columns or None,
                options=options,
                replace=replaces or None,
                exists=exists or None,
            ),
            start,
        )

    def _parse_create_sink(self) -> CreateSink:
        start = self._prev
        replaces = self._take("OR", "REPLACE")
        self._advance()
        exists = self._take("IF", "NOT", "EXISTS")
        if replaces and exists:
            self._refuse("CREATE takes OR REPLACE or IF NOT EXISTS, not both", start)
        table = self._parse_table_parts(schema=True)
        if not self._match(TokenType.WITH):
            hint = f"CREATE SINK {table.name} WITH (connector = 'parquet', path = 'folder/')"
            self._refuse("a sink has no columns: WITH (..) says where results go", self._curr or start, hint)
        return self._timed(
            CreateSink(this=table, options=self._parse_options(), replace=replaces or None, exists=exists or None),
            start,
        )

    def _parse_constraint(self) -> exp.Expr | None:
        start = self._curr
        if not self._take("WATERMARK", "FOR"):
            return super()._parse_constraint()
        if not self._in_stream:
            self._refuse("a WATERMARK belongs to a stream", start, "CREATE STREAM name (.., WATERMARK FOR ts AS ts)")
        return self._parse_watermark(start)

    def _parse_watermark(self, start: Token) -> Watermark:
        column = self._need_identifier("the time column behind WATERMARK FOR")
        if not self._match(TokenType.ALIAS):
            self._expected("AS and the watermark, such as ts - INTERVAL '5 seconds'")
        parts: dict[str, Any] = {"this": column, "expression": self._need_expression("an expression behind AS")}
        while True:
            at, key = self._curr, None
            if self._take("IDLE", "TIMEOUT"):
                key, value = "idle_timeout", self._parse_bound("IDLE TIMEOUT", "length")
            elif self._take("ALLOWED", "LATENESS"):
                key, value = "allowed_lateness", self._parse_bound("ALLOWED LATENESS", "bound")
            elif self._take("ON", "LATE"):
                if self._word() not in _LATE:
                    self._expected("DROP, ADJUST, ERROR or INTO and a table behind ON LATE")
                key, value = "on_late", exp.Var(this=self._word())
                self._advance()
            if key is None:
                return self._timed(Watermark(**parts), start)
            if key in parts:
                self._refuse(f"{key.replace('_', ' ').upper()} of WATERMARK is given twice", at)
            parts[key] = value
            if key == "on_late" and value.name == "INTO":
                parts["into"] = self._parse_table_parts(schema=True)

    def _parse_bound(self, what: str, kind: str) -> exp.Expr:
        first = self._curr
        value = self._parse_bitwise()
        if value is None or isinstance(value, (exp.Literal, exp.Column)):
            self._refuse(f"{what} takes an interval, such as INTERVAL '1 minute'", first)
        check_interval(self, value, what, first, kind)
        return value

    def _parse_period(self) -> Period | None:
        start = self._prev
        if not self._match(TokenType.FOR):
            return None
        name = self._need_identifier("the name of the period")
        columns = self._parse_wrapped_id_vars()
        if len(columns) != 2:
            self._refuse(
                f"PERIOD FOR {name.name} takes two columns: the start and the end",
                start,
                f"PERIOD FOR {name.name} (valid_from, valid_to)",
            )
        return self._timed(Period(this=name, start=columns[0], end=columns[1]), start)

    def _parse_with_property(self):  # type: ignore[no-untyped-def]
        if self._curr and self._curr.token_type == TokenType.L_PAREN:
            return self._parse_options()
        return super()._parse_with_property()

    def _parse_options(self) -> StreamOptions:
        start = self._prev
        if not self._match(TokenType.L_PAREN):
            self._expected("( behind WITH")
        options: list[StreamOption] = []
        while True:
            option = self._parse_option()
            if any(done.name == option.name for done in options):
                self._refuse(f'option "{option.name}" is given twice', option)
            options.append(option)
            if not self._match(TokenType.COMMA):
                break
        if not self._match(TokenType.R_PAREN):
            self._expected(", or )")
        return self._timed(StreamOptions(expressions=options), start)

    def _parse_option(self) -> StreamOption:
        start = self._curr
        if not start or start.token_type != TokenType.STRING and not start.text.isidentifier():
            self._expected("the name of an option, as in connector = 'parquet'")
        self._advance()
        if not self._match(TokenType.EQ):
            self._expected("= behind the name of an option")
        first = self._curr
        value = self._parse_unary()
        number = value.this if isinstance(value, exp.Neg) else value
        if not isinstance(number, (exp.Literal, exp.Boolean)):
            hint = f"'{value.name}'" if isinstance(value, exp.Column) and len(value.parts) == 1 else None
            self._refuse(f'option "{start.text.lower()}" takes a string, a number, TRUE or FALSE', first, hint)
        return self._timed(StreamOption(this=exp.Var(this=start.text.lower()), value=value), start)

    def _parse_drop(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        start = self._prev
        kind = "SINK" if self._ahead("SINK") else "STREAM"
        if args or kwargs or not self._take(kind):
            return super()._parse_drop(*args, **kwargs)
        exists = self._take("IF", "EXISTS")
        tables = self._parse_csv(lambda: self._parse_table_parts(schema=True))
        return self._timed(exp.Drop(kind=kind, tables=tables, exists=exists or None), start)
