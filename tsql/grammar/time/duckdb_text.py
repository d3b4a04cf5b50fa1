"""The DuckDB text of temporal SQL, for the oracle: each construct as plain SQL that gives the same rows.

Windows use `time_bucket` with the epoch as origin, sessions and count windows are window functions (OVER), ASOF with
TOLERANCE is a lateral join, AS OF a condition. EMIT and PROGRESSIVE are dropped: they never change the result. A
construct that DuckDB cannot express raises sqlglot's UnsupportedError with its name. Helper columns begin with two
underscores."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp
from sqlglot.errors import UnsupportedError

from tsql.grammar.time.intervals import constant_interval, length_us
from tsql.grammar.time.match_nodes import RowMatch
from tsql.grammar.time.nodes import (
    AsOf,
    AsofJoin,
    Chop,
    Clip,
    ClipJoin,
    CreateSink,
    CreateStream,
    Cumulate,
    Extend,
    Hop,
    Lifetime,
    LifetimeFunction,
    Period,
    PointAtEnd,
    Sequenced,
    Session,
    Shift,
    ShowStreams,
    Slide,
    StreamOptions,
    TimeFunction,
    Tumble,
    Watermark,
    WindowFunction,
)
from tsql.grammar.time.text import TimeGenerator
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.planner.bind.syntax_nodes import CallNode

_POINT = "INTERVAL 1 MICROSECOND"
Periods = dict[str, tuple[str, str]]
"""The start and end columns of the tables that have a PERIOD, by their names in lower case."""


def cannot_say(construct: str) -> NoReturn:
    raise UnsupportedError(f"DuckDB cannot say {construct}")


def periods_of(node: exp.Expr) -> Periods:
    """The periods that a CREATE statement declares."""
    table = node.this.this if isinstance(node, exp.Create) and isinstance(node.this, exp.Schema) else node.this
    found = node.find(Period) if isinstance(node, (exp.Create, CreateStream)) else None
    return {} if found is None else {table.name.lower(): (found.args["start"].name, found.args["end"].name)}


class DuckdbTimeText(TimeGenerator):
    """What concerns time, as DuckDB reads it."""

    periods: Periods = {}

    TRANSFORMS = {
        **TimeGenerator.TRANSFORMS,
        ClipJoin: lambda self, node: cannot_say("CLIP JOIN"),
        RowMatch: lambda self, node: cannot_say("MATCH_RECOGNIZE"),
        Sequenced: lambda self, node: cannot_say("SEQUENCED VALIDTIME"),
        CreateSink: lambda self, node: cannot_say("CREATE SINK"),
        ShowStreams: lambda self, node: cannot_say("SHOW STREAMS"),
    }

    def output_clauses(self, node: exp.Expr, text: str) -> str:
        return text

    def createstream_sql(self, node: CreateStream) -> str:
        if not node.expressions:
            cannot_say("a stream whose columns are those of its files")
        schema = exp.Schema(this=node.this, expressions=node.expressions)
        return self.sql(
            exp.Create(this=schema, kind="TABLE", replace=node.args.get("replace"), exists=node.args.get("exists"))
        )

    def schema_sql(self, expression: exp.Schema) -> str:
        expression.set(
            "expressions", [node for node in expression.expressions if not isinstance(node, (Period, Watermark))]
        )
        return super().schema_sql(expression)

    def create_sql(self, expression: exp.Create) -> str:
        properties = expression.args.get("properties")
        if properties is not None and properties.find(exp.MaterializedProperty):
            cannot_say("CREATE MATERIALIZED VIEW")
        if properties is not None:
            kept = [node for node in properties.expressions if not isinstance(node, StreamOptions)]
            expression.set("properties", exp.Properties(expressions=kept) if kept else None)
        return super().create_sql(expression)

    def drop_sql(self, expression: exp.Drop) -> str:
        if expression.args.get("kind") == "STREAM":
            expression.set("kind", "TABLE")
        return super().drop_sql(expression)

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        """A function of time or an AS OF as a subquery, which has the input's name if no other is given."""
        text = None
        name = expression.alias_or_name
        if isinstance(expression.this, TimeFunction) or isinstance(expression.args.get("version"), AsOf):
            expression = expression.copy()
        if isinstance(expression.this, TimeFunction):
            text = self.timefunction_sql(expression.this)
            name = expression.alias or _name_of(expression.this)
        elif isinstance(expression.args.get("version"), AsOf):
            at = expression.args["version"].this
            expression.set("version", None)
            bare = exp.Table(this=expression.this, db=expression.args.get("db"))
            text = f"(SELECT * FROM {self.sql(bare)} WHERE {self._alive(bare.name, bare.name, at)})"
        if text is not None:
            expression.set("this", exp.Var(this=text))
            expression.set("db", None)
            if not expression.args.get("alias") and name:
                expression.set("alias", exp.TableAlias(this=exp.Identifier(this=name, quoted=True)))
        return super().table_sql(expression, sep)

    def _alive(self, table: str, alias: str, at: exp.Expr) -> str:
        """The condition that a row of a table with a PERIOD is alive at a time."""
        if table.lower() not in self.periods:
            cannot_say(f'FOR VALID_TIME AS OF: the period of "{table}" is not known')
        start, end = (
            self.sql(exp.Column(this=_quoted(name), table=_quoted(alias))) for name in self.periods[table.lower()]
        )
        time = self.sql(exp.Paren(this=at.copy()))
        return f"{start} <= {time} AND ({end} IS NULL OR {time} < {end})"

    def join_sql(self, expression: exp.Join, join_op: str | None = None) -> str:
        table, on = expression.this, expression.args.get("on")
        if on is not None and isinstance(table, exp.Table) and isinstance(table.args.get("version"), AsOf):
            condition = self._alive(table.name, table.alias_or_name, table.args["version"].this)
            table.set("version", None)
            expression.set("on", exp.And(this=exp.Paren(this=on), expression=exp.Var(this=condition)))
        return super().join_sql(expression, join_op)

    def asofjoin_sql(self, node: AsofJoin) -> str:
        """With TOLERANCE: the nearest of the right rows that are near enough, for each left row. Among equal times
        DuckDB takes any."""
        tolerance, right = node.args.get("tolerance"), node.this.alias_or_name
        if tolerance is None:
            return self.join_sql(node)
        if node.args.get("on") is None or not right:
            cannot_say("ASOF JOIN .. USING with TOLERANCE")
        on = node.args["on"]
        times = [
            pair
            for pair in map(lambda part: _time_sides(part, right), on.flatten() if isinstance(on, exp.And) else [on])
            if pair
        ]
        # A column without its table would be the right one's inside of the subquery.
        if len(times) != 1 or any(not column.table for column in on.find_all(exp.Column)):
            cannot_say(
                "ASOF JOIN with TOLERANCE unless one inequality compares the times of both sides, with the tables named"
            )
        left_time, right_time, is_later = times[0]
        left, own, bound = self.sql(left_time), self.sql(right_time), self.sql(exp.Paren(this=tolerance))
        near = f"{own} <= {left} + {bound}" if is_later else f"{own} >= {left} - {bound}"
        kind = "LEFT JOIN" if node.args.get("side") == "LEFT" else "JOIN"
        rows = (
            f"SELECT * FROM {self.sql(node.this)} WHERE {self.sql(on)} AND {near} ORDER BY {own} "
            f"{'ASC' if is_later else 'DESC'} LIMIT 1"
        )
        return f" {kind} LATERAL ({rows}) AS {self.sql(_quoted(right))} ON TRUE"

    def select_sql(self, expression: exp.Select) -> str:
        """A filter and projection of a temporal relation also gives the lifetime; all else is evaluated per
        snapshot."""
        if _is_temporal(expression):
            shown = {item.alias_or_name.lower() for item in expression.expressions}
            if not any(item.is_star for item in expression.expressions):
                for name in ("valid_from", "valid_to"):
                    if name not in shown:
                        expression.append("expressions", exp.column(name))
        return super().select_sql(expression)

    def timefunction_sql(self, node: TimeFunction) -> str:
        timezone = node.args.get("timezone")
        if timezone is not None and timezone.name.upper() != "UTC":
            cannot_say(f"windows in the time zone {timezone.name}")
        if isinstance(node, WindowFunction) and _is_lifetime(node.this):
            cannot_say(f"{node.sql_name} of a temporal relation")
        match node:
            case Tumble() | Hop() if node.args.get("rows") is not None:
                return f"({self._count_windows(node)})"
            case Tumble():
                return f"({self._tumbled(node)})"
            case Hop():
                return f"({self._hops(node)})"
            case Cumulate():
                return f"({self._cumulated(node)})"
            case Session():
                return f"({self._sessions(node)})"
        return f"({self._lifetimes(node)})"

    def _time(self, node: TimeFunction, key: str = "time") -> str:
        return f"CAST({self.sql(node, key)} AS TIMESTAMP)"

    def _span(self, node: TimeFunction, key: str) -> str:
        return self.sql(exp.Paren(this=node.args[key].copy()))

    def _bucket(self, node: TimeFunction, key: str, time: str | None = None) -> str:
        """The start of the window of this size that a time is in."""
        origin = "TIMESTAMP '1970-01-01'" + (
            f" + {self._span(node, 'offset')}" if node.args.get("offset") is not None else ""
        )
        return f"time_bucket({self._span(node, key)}, {time or self._time(node)}, {origin})"

    def _windows(
        self, node: WindowFunction, start: str, end: str, condition: str, more: str = "", helpers: tuple[str, ...] = ()
    ) -> str:
        """Rows with the bounds of their windows; those of a window function directly below are replaced."""
        dropped = [*_window_columns(node.this), *helpers]
        star = f"* EXCLUDE ({', '.join(dropped)})" if dropped else "*"
        return (
            f"SELECT {star}, {start} AS window_start, {end} AS window_end FROM {self.sql(node, 'this')}{more} "
            f"WHERE {condition}"
        )

    def _steps(self, node: TimeFunction, whole: str, part: str) -> int:
        """How many parts cover the whole."""
        lengths = [constant_interval(node.args[key]) for key in (whole, part)]
        if None in lengths:
            cannot_say(f"{node.sql_name} with a {whole} or {part} that is no literal")
        return -(-length_us(lengths[0]) // length_us(lengths[1]))

    def _tumbled(self, node: Tumble) -> str:
        start = self._bucket(node, "size")
        return self._windows(node, start, f"{start} + {self._span(node, 'size')}", f"{self._time(node)} IS NOT NULL")

    def _hops(self, node: Hop) -> str:
        start = f"{self._bucket(node, 'slide')} - __back * {self._span(node, 'slide')}"
        end = f"{start} + {self._span(node, 'size')}"
        more = f", range({self._steps(node, 'size', 'slide')}) AS __hop(__back)"
        return self._windows(node, start, end, f"{self._time(node)} < {end}", more, ("__back",))

    def _cumulated(self, node: Cumulate) -> str:
        start = self._bucket(node, "size")
        end = f"{start} + __step * {self._span(node, 'step')}"
        more = f", range(1, {self._steps(node, 'size', 'step') + 1}) AS __cumulate(__step)"
        return self._windows(node, start, end, f"{self._time(node)} < {end}", more, ("__step",))

    def _timed_rows(self, node: WindowFunction, more: str = "") -> tuple[str, list[str]]:
        """The rows that have a time, with it and the keys as helper columns; and the names of the keys."""
        keys = [f"__key{place}" for place, _ in enumerate(node.args.get("partition_by") or ())]
        computed = [
            f"{self.sql(key)} AS {name}" for key, name in zip(node.args.get("partition_by") or (), keys, strict=True)
        ]
        dropped = _window_columns(node.this)
        star = f"* EXCLUDE ({', '.join(dropped)})" if dropped else "*"
        columns = ", ".join([star, *computed, f"{self._time(node)} AS __time"])
        return f"SELECT {columns}{more} FROM {self.sql(node, 'this')} WHERE {self._time(node)} IS NOT NULL", keys

    def _sessions(self, node: Session) -> str:
        if node.args.get("max_size") is not None:
            cannot_say("SESSION with max_size, which depends on where each session before has ended")
        rows, keys = self._timed_rows(node)
        gap, by = self._span(node, "gap"), _partition(keys)
        marked = (
            f"SELECT *, CASE WHEN __time <= lag(__time) OVER ({by}ORDER BY __time) + {gap} THEN 0 ELSE 1 END "
            f"AS __new FROM ({rows})"
        )
        numbered = (
            f"SELECT *, sum(__new) OVER ({by}ORDER BY __time RANGE UNBOUNDED PRECEDING) AS __session FROM ({marked})"
        )
        over = f"OVER ({_partition([*keys, '__session'])})"
        dropped = ", ".join([*keys, "__time", "__new", "__session"])
        return (
            f"SELECT * EXCLUDE ({dropped}), min(__time) {over} AS window_start, max(__time) {over} + {gap} AS "
            f"window_end FROM ({numbered})"
        )

    def _count_windows(self, node: Tumble | Hop) -> str:
        rows, keys = self._timed_rows(node, ", row_number() OVER () AS __position")
        size = self.sql(node, "rows")
        numbered = (
            f"SELECT *, row_number() OVER ({_partition(keys)}ORDER BY __time, __position) - 1 AS __row FROM ({rows})"
        )
        number = f"__row // {size}"
        if isinstance(node, Hop):
            slide = self.sql(node, "slide_rows")
            number = f"unnest(range(greatest(0, __row - {size} + {slide}) // {slide}, __row // {slide} + 1))"
        windows = f"SELECT *, {number} AS window_id FROM ({numbered})"
        over = f"OVER ({_partition([*keys, 'window_id'])})"
        dropped = ", ".join([*keys, "__time", "__position", "__row", "window_id"])
        bounds = f"min(__time) {over} AS window_start, max(__time) {over} + {_POINT} AS window_end, window_id"
        return f"SELECT * EXCLUDE ({dropped}), {bounds} FROM ({windows}) QUALIFY count(*) {over} = {size}"

    def _lifetimes(self, node: TimeFunction) -> str:
        if isinstance(node, (Lifetime, Slide)):
            return self._begun(node)
        if not _is_lifetime(node.this):
            cannot_say(f"{node.sql_name} of a relation that is not made by LIFETIME or SLIDE")
        source = self.sql(node, "this")
        match node:
            case Shift():
                by = self._span(node, "by")
                return f"SELECT * REPLACE (valid_from + {by} AS valid_from, valid_to + {by} AS valid_to) FROM {source}"
            case Extend():
                return f"SELECT * REPLACE (valid_to + {self._span(node, 'by')} AS valid_to) FROM {source}"
            case Clip():
                return (
                    f"SELECT * REPLACE (least(valid_to, valid_from + {self._span(node, 'duration')}) AS "
                    f"valid_to) FROM {source}"
                )
            case PointAtEnd():
                return (
                    f"SELECT * REPLACE (valid_to AS valid_from, valid_to + {_POINT} AS valid_to) FROM {source} "
                    "WHERE valid_to IS NOT NULL"
                )
            case Chop():
                size = self._span(node, "size")
                pieces = (
                    f"SELECT *, unnest(range({self._bucket(node, 'size', 'valid_from')}, valid_to, {size})) AS "
                    f"__piece FROM {source}"
                )
                ends = f"greatest(valid_from, __piece) AS valid_from, least(valid_to, __piece + {size}) AS valid_to"
                return f"SELECT * EXCLUDE (__piece) REPLACE ({ends}) FROM ({pieces})"
        cannot_say(node.sql_name)

    def _begun(self, node: Lifetime | Slide) -> str:
        start_key = "time" if isinstance(node, Slide) else "start"
        if node.args.get(start_key) is None:
            period = self.periods.get(_name_of(node).lower()) if isinstance(node.this, exp.Table) else None
            if period is None:
                cannot_say("LIFETIME without start, unless the table's period is known")
            start, end = (f"CAST({self.sql(_quoted(name))} AS TIMESTAMP)" for name in period)
        else:
            start, end = self._time(node, start_key), "CAST(NULL AS TIMESTAMP)"
        length = "size" if isinstance(node, Slide) else "duration"
        if node.args.get(length) is not None:
            end = f"{start} + {self._span(node, length)}"
        elif node.args.get("end") is not None:
            end = self._time(node, "end")
        star = "* EXCLUDE (valid_from, valid_to)" if _is_lifetime(node.this) else "*"
        alive = f"{start} IS NOT NULL AND ({end} IS NULL OR {start} < {end})"
        return f"SELECT {star}, {start} AS valid_from, {end} AS valid_to FROM {self.sql(node, 'this')} WHERE {alive}"


def _quoted(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def _partition(keys: list[str]) -> str:
    return f"PARTITION BY {', '.join(keys)} " if keys else ""


def _name_of(node: TimeFunction) -> str:
    """The name of the table at the bottom of a function of time; nothing if there is none."""
    source = node.this
    if isinstance(source, exp.Table) and isinstance(source.this, TimeFunction):
        return source.alias or _name_of(source.this)
    return source.alias_or_name


def _is_lifetime(node: exp.Expr) -> bool:
    return isinstance(node, exp.Table) and isinstance(node.this, LifetimeFunction)


def _window_columns(node: exp.Expr) -> list[str]:
    if not isinstance(node, exp.Table) or not isinstance(node.this, WindowFunction):
        return []
    return ["window_start", "window_end", *(["window_id"] if node.this.args.get("rows") is not None else [])]


def _time_sides(part: exp.Expr, right: str) -> tuple[exp.Expr, exp.Expr, bool] | None:
    """The left time, the right time, and whether the right one is the later, if a condition is an inequality of both
    sides."""
    if not isinstance(part, (exp.GT, exp.GTE, exp.LT, exp.LTE)):
        return None
    sides = [
        {column.table.lower() == right.lower() for column in side.find_all(exp.Column)}
        for side in (part.this, part.expression)
    ]
    is_less = isinstance(part, (exp.LT, exp.LTE))
    if sides == [{False}, {True}]:
        return part.this, part.expression, is_less
    if sides == [{True}, {False}]:
        return part.expression, part.this, not is_less
    return None


def _is_temporal(query: exp.Select) -> bool:
    """Whether a query reads one temporal relation and only filters and projects it. Raises if it does more, for DuckDB
    has no snapshots."""
    clause = query.args.get("from_")
    relations = [clause.this, *(join.this for join in query.args.get("joins") or ())] if clause is not None else []
    temporal = [relation.this.sql_name for relation in relations if _is_lifetime(relation)]
    if not temporal:
        return False
    calls = (
        call
        for item in (*query.expressions, query.args.get("qualify"))
        if item is not None
        for call in item.find_all(CallNode, exp.Window)
    )
    is_row_wise = len(relations) == 1 and not any(
        query.args.get(key) for key in ("group", "having", "distinct", "laterals", "sample")
    )
    if (
        not is_row_wise
        or any(isinstance(call, exp.Window) or call.name in AGGREGATES.overloads for call in calls)
        or not _is_outermost(query)
    ):
        cannot_say(f"{temporal[0]} in a query that is evaluated per snapshot")
    return True


def _is_outermost(query: exp.Select) -> bool:
    """Whether what a query gives is the statement's result: inside of another query it would still be a temporal
    relation."""
    return (
        query.find_ancestor(exp.Query, exp.CTE, TimeFunction) is None
        and query.find(exp.Subquery, exp.Exists, exp.In) is None
    )
