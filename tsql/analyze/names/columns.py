"""The name of a result column that has no alias: DuckDB's own text of the expression, which users see and refer to.

`SELECT sum(a+1)` is called `sum((a + 1))`. Function names that are keywords are quoted, operators parenthesized, types
spelled as the user did where DuckDB does so.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tsql.analyze.names.queries import QueryNames
from tsql.kernels.expr.keywords import KEYWORDS
from tsql.planner.bind.operators import COMPARISON
from tsql.planner.bind.strings import collation_names
from tsql.planner.bind.subquery import listed_query
from tsql.planner.bind.syntax import Absolute, UnaryPlus, expression_text
from tsql.planner.bind.syntax_nodes import CallNode

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.DPipe: "||",
    exp.Pow: "^",
    exp.Glob: "~~~",
    exp.StartsWith: "^@",
    **{
        kind: {"<>": "!=", "is_distinct_from": "IS DISTINCT FROM", "is_not_distinct_from": "IS NOT DISTINCT FROM"}.get(
            op, op
        )
        for kind, op in COMPARISON.items()
    },
}
_TYPES = {
    "INT": "INTEGER",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "CHAR": "VARCHAR",
    "CHARACTER VARYING": "VARCHAR",
    "REAL": "FLOAT",
    "DOUBLE PRECISION": "DOUBLE",
    "TIME WITHOUT TIME ZONE": "TIME",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
}
_AS_WRITTEN = {"DOUBLE", "TEXT"}
"""Types whose names are keywords of the grammar but not part of its type rules."""
_WORDS: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtime: "localtime",
    exp.Localtimestamp: "localtimestamp",
}
_PARTS = {
    word: unit
    for unit in (
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "second",
        "week",
        "quarter",
        "decade",
        "millisecond",
        "microsecond",
    )
    for word in (unit, unit + "s")
} | {
    "century": "century",
    "centuries": "century",
    "millennium": "millennium",
    "millennia": "millennium",
}
_TO_FUNCTIONS = {"century": "centuries", "millennium": "millennia"}
_SMALL_UNITS = {"hour", "minute", "microsecond"}


def display_name(node: exp.Expr, text: str, windows: dict[str, exp.Window] | None = None) -> str:
    """The name DuckDB gives to a select item without an alias; `text` is the query, `windows` its WINDOW clause."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Column):
        return node.name
    return Namer(text, windows).show(node)


class Namer(QueryNames):
    """Prints expressions the way DuckDB does."""

    def __init__(self, text: str, windows: dict[str, exp.Window] | None = None):
        self.text = text
        self.windows = windows or {}

    def show(self, node: exp.Expr) -> str:
        kind = type(node)
        if kind in _BINARY:
            return self._chain(node)
        if kind in _WORDS:
            return _WORDS[kind]
        method: Callable[[exp.Expr], str] | None = getattr(self, f"_{kind.key}", None)
        return expression_text(node) if method is None else method(node)

    def _chain(self, node: exp.Binary) -> str:
        """A left-deep chain of operators, in a loop: it may have thousands of terms."""
        spine = []
        while type(node) in _BINARY:
            spine.append(node)
            node = node.this
        text = self.show(node)
        for step in reversed(spine):
            if isinstance(step.expression, exp.All):
                text = self.compared_with_all(text, self._operator(step), step.expression)
            else:
                text = f"({text} {self._operator(step)} {self.show(step.expression)})"
        return text

    def _operator(self, node: exp.Binary) -> str:
        if isinstance(node, exp.Pow):
            start = node.expression.meta.get("at")
            return "**" if start is not None and self.text[:start].rstrip().endswith("**") else "^"
        return _BINARY[type(node)]

    def _paren(self, node: exp.Paren) -> str:
        return self.show(node.this)

    def _alias(self, node: exp.Alias) -> str:
        return self.show(node.this)

    def _column(self, node: exp.Column) -> str:
        return ".".join(_identifier(part) for part in node.parts)

    def _literal(self, node: exp.Literal) -> str:
        if node.is_string:
            return _string(node.this)
        meta = node._meta or {}
        spelled = self.text[meta["start"] : meta["end"] + 1] if "end" in meta else ""
        return spelled if spelled.replace("_", "") == node.this else node.this

    def _bytestring(self, node: exp.ByteString) -> str:
        return _string(node.name)

    def _rawstring(self, node: exp.RawString) -> str:
        return _string(node.name)

    def _hexstring(self, node: exp.HexString) -> str:
        return f"X'{node.name}'"

    def _null(self, node: exp.Null) -> str:
        return "NULL"

    def _boolean(self, node: exp.Boolean) -> str:
        return "true" if node.this else "false"

    def _placeholder(self, node: exp.Placeholder) -> str:
        name = node.args.get("this")
        return f"${node.meta.get('number', 1)}" if name is None else f"${name if isinstance(name, str) else name.name}"

    def _neg(self, node: exp.Neg) -> str:
        inner = node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return f"-{inner.this}"
        shown = self.show(inner)
        if isinstance(inner, exp.Neg) and not shown.startswith("("):
            return shown.removeprefix("-")
        return f"(-({shown}))"

    def _unaryplus(self, node: UnaryPlus) -> str:
        return f"(+({self.show(node.this)}))"

    def _absolute(self, node: Absolute) -> str:
        return f"(@({self.show(node.this)}))"

    def _bracket(self, node: exp.Bracket) -> str:
        index = node.expressions[0]
        if not isinstance(index, exp.Slice):
            return f"{self.show(node.this)}[{self.show(index)}]"
        ends = [index.args.get(end) for end in ("this", "expression")]
        return f"{self.show(node.this)}[{':'.join('' if end is None else self.show(end) for end in ends)}]"

    def _collate(self, node: exp.Collate) -> str:
        name = ".".join(collation_names(node))
        return f"{self.show(node.this)} COLLATE {name if name.isidentifier() else _quoted(name)}"

    def _bitwisenot(self, node: exp.BitwiseNot) -> str:
        return f"(~({self.show(node.this)}))"

    def _and(self, node: exp.And) -> str:
        return self._connector(node, "AND")

    def _or(self, node: exp.Or) -> str:
        return self._connector(node, "OR")

    def _connector(self, node: exp.Connector, word: str) -> str:
        operands: list[exp.Expr] = []
        stack: list[exp.Expr] = [node]
        while stack:
            part = stack.pop()
            while isinstance(part, exp.Paren):
                part = part.this
            if type(part) is type(node):
                stack += [part.expression, part.this]
            else:
                operands.append(part)
        return f"({f' {word} '.join(map(self.show, operands))})"

    def _not(self, node: exp.Not) -> str:
        inner = node.this
        written_not = "at" in (node._meta or {}) and self.text[node.meta["at"] :][:3].upper() == "NOT"
        if isinstance(inner, exp.Is) and not written_not:
            return self._is(inner, negated=True)
        return f"(NOT {self.show(inner)})"

    def _is(self, node: exp.Is, negated: bool = False) -> str:
        negated = negated != bool(node.args.get("negate"))
        value = self.show(node.this)
        if isinstance(node.expression, exp.Boolean):
            return (
                f"(CAST({value} AS BOOLEAN) IS {'' if negated else 'NOT '}DISTINCT FROM {self.show(node.expression)})"
            )
        return f"({value} IS {'NOT ' if negated else ''}NULL)"

    def _between(self, node: exp.Between) -> str:
        return f"({self.show(node.this)} BETWEEN {self.show(node.args['low'])} AND {self.show(node.args['high'])})"

    def _in(self, node: exp.In) -> str:
        if listed_query(node) is not None:
            return self.in_query(node)
        return f"({self.show(node.this)} IN ({', '.join(map(self.show, node.expressions))}))"

    def _like(self, node: exp.Like) -> str:
        return f"({self.show(node.this)} {'!' if node.args.get('negate') else ''}~~ {self.show(node.expression)})"

    def _ilike(self, node: exp.ILike) -> str:
        return f"({self.show(node.this)} {'!' if node.args.get('negate') else ''}~~* {self.show(node.expression)})"

    def _escape(self, node: exp.Escape) -> str:
        like = node.this
        name = "ilike_escape" if isinstance(like, exp.ILike) else "like_escape"
        text = f"{name}({', '.join(map(self.show, (like.this, like.expression, node.expression)))})"
        return f"(NOT {text})" if like.args.get("negate") else text

    def _similarto(self, node: exp.SimilarTo) -> str:
        return f"regexp_full_match({self.show(node.this)}, {self.show(node.expression)})"

    def _case(self, node: exp.Case) -> str:
        subject = self.show(node.this) if node.this is not None else None
        whens = []
        for branch in node.args["ifs"]:
            condition = self.show(branch.this)
            condition = condition if subject is None else f"({subject} = {condition})"
            whens.append(f" WHEN ({condition}) THEN ({self.show(branch.args['true'])})")
        default = node.args.get("default")
        return f"CASE {''.join(whens)} ELSE {'NULL' if default is None else self.show(default)} END"

    def _cast(self, node: exp.Cast, word: str = "CAST") -> str:
        return f"{word}({self.show(node.this)} AS {type_name(node.args['to'])})"

    def _trycast(self, node: exp.TryCast) -> str:
        return self._cast(node, "TRY_CAST")

    def _interval(self, node: exp.Interval) -> str:
        unit = node.args.get("unit")
        if unit is None:
            return f"CAST({self.show(node.this)} AS INTERVAL)"
        name = unit.name.lower()
        singular = {"centuries": "century", "millennia": "millennium"}.get(name, name.removesuffix("s"))
        function = f"to_{_TO_FUNCTIONS.get(singular, singular + 's')}"
        value = f"CAST({self.show(node.this)} AS DOUBLE)"
        if singular in ("second", "millisecond"):
            return f"{function}({value})"
        return f"{function}(CAST(trunc({value}) AS {'BIGINT' if singular in _SMALL_UNITS else 'INTEGER'}))"

    def _extract(self, node: exp.Extract) -> str:
        part = node.this.name
        spelled = (
            self.text[node.this.meta["start"] : node.this.meta["end"] + 1]
            if node.this._meta and "start" in node.this.meta
            else part
        )
        if not spelled.startswith("'"):
            unit = _PARTS.get(spelled.lower())
            spelled = f"'{spelled if unit is None else unit.upper()}'"
        return f"date_part({spelled}, {self.show(node.expression)})"

    def _attimezone(self, node: exp.AtTimeZone) -> str:
        return f"timezone({self.show(node.args['zone'])}, {self.show(node.this)})"

    def _distinct(self, node: exp.Distinct) -> str:
        return f"DISTINCT {', '.join(map(self.show, node.expressions))}"

    def _order(self, node: exp.Order) -> str:
        keys = ", ".join(map(self._ordered, node.expressions))
        return f"{self.show(node.this)} ORDER BY {keys}" if node.this is not None else f"ORDER BY {keys}"

    def _ordered(self, node: exp.Ordered) -> str:
        text = self.show(node.this)
        if node.args.get("desc"):
            text += " DESC"
        elif node.args.get("desc") is False:
            text += " ASC"
        nulls = (node._meta or {}).get("nulls") or ("NULLS FIRST" if node.args.get("nulls_first") else "")
        return f"{text} {nulls}".rstrip()

    def _filter(self, node: exp.Filter) -> str:
        return f"{self.show(node.this)} FILTER (WHERE {self.show(node.expression.this)})"

    def _withingroup(self, node: exp.WithinGroup) -> str:
        call = node.this
        order = ", ".join(map(self._ordered, node.expression.expressions))
        renamed = {"percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc"}.get(call.name)
        if renamed:
            return f"{renamed}({', '.join(map(self.show, call.expressions))} ORDER BY {order})"
        return f"{self.show(call)} WITHIN GROUP ( ORDER BY {order})"

    def _callnode(self, node: CallNode) -> str:
        name = node.name
        if name == "count" and (not node.expressions or isinstance(node.expressions[0], exp.Star)):
            return "count_star()"
        args = ", ".join(map(self.show, node.expressions))
        if name in ("coalesce", "ifnull"):
            return f"COALESCE({args})"
        if name in ("grouping", "grouping_id"):
            return f"GROUPING({args})"
        return f"{_function(name)}({args})"

    def _array(self, node: exp.Array) -> str:
        return f"list_value({', '.join(map(self.show, node.expressions))})"

    def _star(self, node: exp.Star) -> str:
        return "*"

    def _ignorenulls(self, node: exp.IgnoreNulls) -> str:
        return f"{self.show(node.this)} IGNORE NULLS"

    def _respectnulls(self, node: exp.RespectNulls) -> str:
        return self.show(node.this)

    def _window(self, node: exp.Window) -> str:
        call, condition = node.this, ""
        if isinstance(call, exp.Filter):
            call, condition = call.this, f" FILTER (WHERE {self.show(call.expression.this)})"
        name = {"first": "first_value", "last": "last_value"}.get(call.name, call.name)
        args = ", ".join(self.show(a) for a in call.expressions if not isinstance(a, exp.Star))
        return f"{name}({args}){condition} OVER ({' '.join(self._over(node))})"

    def _over(self, node: exp.Window) -> list[str]:
        """PARTITION BY, ORDER BY and the frame, with those of the named window."""
        base = self.windows.get(node.args["alias"].name.lower()) if node.args.get("alias") else None
        inherited = self._over(base) if base is not None else []
        partition, order = node.args.get("partition_by"), node.args.get("order")
        own = [f"PARTITION BY {', '.join(map(self.show, partition))}"] if partition else []
        own += [f"ORDER BY {', '.join(map(self._ordered, order.expressions))}"] if order else []
        frame = self._frame(node.args["spec"]) if node.args.get("spec") else ""
        places = ("PARTITION", "ORDER")
        return sorted(
            filter(None, (*inherited, *own, frame)),
            key=lambda part: next((i for i, word in enumerate(places) if part.startswith(word)), len(places)),
        )

    def _frame(self, spec: exp.WindowSpec) -> str:
        """The frame; nothing for the default one."""
        ends = []
        for which in ("start", "end"):
            value, side = spec.args.get(which), (spec.args.get(f"{which}_side") or "").upper()
            shown = "CURRENT ROW" if value is None else value if isinstance(value, str) else self.show(value)
            ends.append(f"{shown} {side}".strip())
        exclude = spec.args.get("exclude")
        excluded = (
            f" EXCLUDE {exclude.name.upper()}" if exclude is not None and exclude.name.upper() != "NO OTHERS" else ""
        )
        text = f"{spec.args['kind'].upper()} BETWEEN {ends[0]} AND {ends[1]}{excluded}"
        return "" if text == "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW" else text


def type_name(node: exp.DataType) -> str:
    """A type as DuckDB prints it in a name: grammar words in their full form and in capitals, other names as
    written."""
    spelled = node.meta.get("spelled") or expression_text(node)
    name, bracket, rest = " ".join(spelled.split()).partition("(")
    inside, _, after = rest.rpartition(")")
    name = f"{name.strip()} {after.strip()}".strip()
    digits = [part.strip() for part in inside.split(",")] if bracket and inside.strip() else []
    upper = _TYPES.get(name.strip().upper(), name.strip().upper())
    if upper == "TIMESTAMP" and len(digits) == 1 and digits[0].isdigit():
        return "TIMESTAMP_S" if digits[0] == "0" else "TIMESTAMP_MS" if int(digits[0]) <= 3 else "TIMESTAMP"
    name = upper if upper.split()[0].lower() in KEYWORDS and name.strip().upper() not in _AS_WRITTEN else name.strip()
    return f"{name}({', '.join(digits)})" if digits else name


def _function(name: str) -> str:
    return f'"{name}"' if name in KEYWORDS or not name.replace("_", "a").isalnum() else name


def _identifier(node: exp.Expr) -> str:
    name = node.name
    plain = name.isidentifier() and name.isascii() and name.lower() not in KEYWORDS
    return name if plain else _quoted(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _string(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
