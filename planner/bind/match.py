"""Binds the conditions and measures of MATCH_RECOGNIZE: FIRST, LAST, PREV, NEXT, CLASSIFIER, MATCH_NUMBER, RUNNING,
FINAL and aggregates.

`tsql/analyze/time/match.py` uses it for queries, and plan files for the steps that `kernels/patterns` prints. A plan
file writes the variables of a read as strings after its argument: `last(price, 0, 'A')` for LAST(A.price). In both,
every aggregate stands inside a call `running(..)` or `final(..)` (`wrapped`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from sqlglot import exp

from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.nodes import Call, Column, Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import VARCHAR, Type
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.patterns.reads import Classifier, MatchFold, MatchNumber, Navigate, Read
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.process.recursion import deep_recursion
from tsql.planner.bind.binder import Binder, check_depth, schema_resolver
from tsql.planner.bind.calls import ORDERED_SETS, aggregate_call
from tsql.planner.bind.operators import to_boolean
from tsql.planner.bind.query_text import QueryText, position_of
from tsql.planner.bind.syntax import parse_scalar
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import settle

ENDS = ("first", "last")
STEPS = ("prev", "next")
SEMANTICS = ("running", "final")
MAX_OFFSET = 1 << 30


@dataclass
class Inside:
    """The argument of a read while it is bound: which variables its columns name. () stands for all rows."""

    what: str
    named: dict[tuple[str, ...], exp.Expr | None] = field(default_factory=dict)


@dataclass
class MatchNames:
    """What names mean in one MATCH_RECOGNIZE: `variables` those of the pattern and `subsets`, by lower-case name;
    `column` resolves a column without a variable."""

    source: QueryText
    column: Callable[[exp.Column], Expr]
    variables: dict[str, str]
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: dict[str, Type] | None = None
    in_plan: bool = False

    def of(self, name: str) -> tuple[str, ...]:
        """The variables that a variable or a subset stands for."""
        known = self.variables.get(name.lower())
        return self.subsets.get(name.lower(), ()) if known is None else (known,)


class MatchBinder:
    """Binds the condition of the variable `own`, or measures if that is None."""

    def __init__(self, names: MatchNames, own: str | None):
        self.names, self.own = names, own
        self.inside: Inside | None = None
        self.clause = "MEASURES" if own is None else "DEFINE"
        special = {
            **dict.fromkeys(ENDS, self._end),
            **dict.fromkeys(STEPS, self._step),
            **dict.fromkeys(SEMANTICS, self._semantics),
        }
        special |= {"classifier": self._classifier, "match_number": self._match_number}
        if names.in_plan:
            special |= {"final_first": self._end, "final_last": self._end}
        self.binder = Binder(
            names.source, self._resolve, clause=self.clause, parameters=names.parameters, special=special
        )

    def condition(self, node: exp.Expr) -> Expr:
        expr = to_boolean(self.binder, self.binder.operand(wrapped(node)), node)
        check_depth(expr, position_of(node))
        self._check_host_calls(expr, node)
        return expr

    def measure(self, node: exp.Expr) -> Expr:
        return self.binder.bind_typed(wrapped(node))

    def _check_host_calls(self, expr: Expr, node: exp.Expr) -> None:
        """Refuse functions that a library computes batch by batch: they cannot see the match so far."""
        for part in expr.walk():
            if not isinstance(part, Call) or not any(isinstance(e, Read) for e in part.walk()):
                continue
            if SCALARS.find(part.name, tuple(a.type for a in part.args)).host is not None:
                message = f"{part.name} in DEFINE cannot take PREV, NEXT, FIRST, LAST or an aggregate"
                hint = (
                    f"{part.name} may stand inside of them, PREV({part.name}(..)), or be computed in a "
                    "subquery that MATCH_RECOGNIZE reads"
                )
                raise self.binder.error(message, node if part.position is None else part.position, hint)

    def _resolve(self, node: exp.Column) -> Expr:
        """A column: of the current row, or of the last row of the variable before it."""
        if isinstance(node.this, exp.Star):
            raise self.binder.error("* of a variable is for count(A.*)", node)
        variables: tuple[str, ...] = ()
        named = node
        if not self.names.in_plan and len(node.parts) == 2:
            variables = self.names.of(node.parts[0].name)
            named = exp.Column(this=node.parts[1])
        expr = self.names.column(named)
        if not isinstance(expr, Column):
            # A column of a query around this one is the same for all rows.
            return expr
        if self.inside is not None:
            self.inside.named.setdefault(variables, node)
            return expr
        if self.names.in_plan or (self.own is not None and (not variables or self.own in variables)):
            return expr
        return Navigate(expr, variables, position=position_of(node))

    def _argument(self, what: str, bind: Callable[[], Expr], node: exp.Expr) -> tuple[Expr, tuple[str, ...]]:
        """The argument of a read, and the variables of the columns in it."""
        if self.inside is not None:
            raise self.binder.error(f"{what} cannot stand inside of {self.inside.what}", node, self._nesting(what))
        self.inside = Inside(what)
        try:
            expr, named = bind(), list(self.inside.named.items())
        finally:
            self.inside = None
        if len(named) > 1:
            first, second = (" or ".join(v) if v else "all rows" for v, _ in named[:2])
            raise self.binder.error(
                f"{what} names columns of {first} and of {second}: all of its argument is about one row",
                named[1][1] or node,
            )
        return expr, named[0][0] if named else ()

    def _nesting(self, what: str) -> str | None:
        return f"{what} may stand around it: {what}(LAST(A.x), 1)" if what in ("PREV", "NEXT") else None

    def _end(self, binder: Binder, node: CallNode) -> Expr:
        """FIRST(e, n) and LAST(e, n)."""
        name = node.name.removeprefix("final_")
        return self._navigate(node, from_last=name == "last", final=node.name.startswith("final_"))

    def _navigate(self, node: CallNode, from_last: bool, final: bool) -> Expr:
        what = node.name.removeprefix("final_").upper()
        arguments, given = self._given(node)
        if not 1 <= len(arguments) <= 2:
            raise self.binder.error(
                f"{what} takes an expression and a number of rows, not {len(arguments)} arguments", node
            )
        arg, variables = self._argument(what, lambda: settle(self.binder.bind_typed(arguments[0])), node)
        offset = self._offset(what, arguments[1]) if len(arguments) > 1 else 0
        return self._local(
            Navigate(arg, given or variables, from_last, offset, final=final, position=position_of(node))
        )

    def _local(self, read: Navigate) -> Navigate:
        """In the condition of a variable its last row is the current one."""
        if self.own is not None and self.own in read.variables and read.from_last and read.offset == 0:
            return replace(read, variables=())
        return read

    def _given(self, node: CallNode) -> tuple[list[exp.Expr], tuple[str, ...]]:
        """The arguments of a call, and the variables behind them as plan files have them."""
        arguments = list(node.expressions)
        if not self.names.in_plan:
            return arguments, ()
        least = 1 if node.name in SEMANTICS else 2
        return arguments[:least], tuple(self._variable(e) for e in arguments[least:])

    def _variable(self, node: exp.Expr) -> str:
        if not (isinstance(node, exp.Literal) and node.is_string and node.name.lower() in self.names.variables):
            raise self.binder.error(f"{node.sql()} is no variable of the pattern", node)
        return self.names.variables[node.name.lower()]

    def _step(self, binder: Binder, node: CallNode) -> Expr:
        """PREV(e, n) and NEXT(e, n), also around FIRST and LAST."""
        what = node.name.upper()
        if not 1 <= len(node.expressions) <= 2:
            raise self.binder.error(
                f"{what} takes an expression and a number of rows, not {len(node.expressions)} arguments", node
            )
        shift = self._offset(what, node.expressions[1]) if len(node.expressions) > 1 else 1
        inner = node.expressions[0]
        if (
            self.inside is None
            and isinstance(inner, CallNode)
            and inner.name in (*ENDS, *SEMANTICS, "final_first", "final_last")
        ):
            read = self.binder.operand(inner)
            if not isinstance(read, Navigate):
                raise self.binder.error(f"an aggregate cannot stand inside of {what}", inner)
        else:
            arg, variables = self._argument(what, lambda: settle(self.binder.bind_typed(inner)), node)
            read = self._local(Navigate(arg, variables, position=position_of(node)))
        return replace(read, shift=shift if node.name == "next" else -shift, position=position_of(node))

    def _offset(self, what: str, node: exp.Expr) -> int:
        expr = self.binder.operand(node) if not any(isinstance(n, exp.Column) for n in node.walk()) else None
        value = None if expr is None else settle(expr) if isinstance(expr, Literal) else evaluate(expr)
        if value is None or not value.type.is_integer or value.value is None or not 0 <= value.value <= MAX_OFFSET:
            raise self.binder.error(
                f"the second argument of {what} is a number of rows: a constant that is not negative", node
            )
        return value.value

    def _semantics(self, binder: Binder, node: CallNode) -> Expr:
        """RUNNING and FINAL before a call; every aggregate has one of them."""
        final, arguments = node.name == "final", list(node.expressions)
        inner = arguments[0] if arguments else None
        if isinstance(inner, CallNode) and inner.name in ENDS:
            return self._navigate(inner, from_last=inner.name == "last", final=final)
        if not is_aggregate(inner):
            raise self.binder.error(f"{node.name.upper()} is for FIRST, LAST and aggregates", node)
        arguments, given = self._given(node)
        name = _call_of(inner).name
        found: list[MatchFold] = []

        def bind() -> Expr:
            rows = Binder(
                self.names.source,
                self._resolve,
                clause=f"an argument of {name}",
                parameters=self.names.parameters,
                special=self.binder.special,
            )
            call = aggregate_call(self.binder, self._starred(inner), rows)
            found.append(MatchFold.of(call, (), final))
            return found[0]

        _, variables = self._argument(name, bind, inner)
        return replace(found[0], variables=given or variables)

    def _starred(self, node: exp.Expr) -> exp.Expr:
        """count(A.*) counts the rows of A."""
        call = _call_of(node)
        star = call.expressions[0] if len(call.expressions) == 1 else None
        if call.name != "count" or not (
            isinstance(star, exp.Column) and isinstance(star.this, exp.Star) and star.args.get("table")
        ):
            return node
        self.inside.named.setdefault(self.names.of(star.text("table")), star)
        copy = node.copy()
        _call_of(copy).set("expressions", [exp.Star()])
        return copy

    def _classifier(self, binder: Binder, node: CallNode) -> Expr:
        """CLASSIFIER() and CLASSIFIER(subset)."""
        variables: tuple[str, ...] = ()
        if node.expressions:
            subset = node.expressions[0]
            variables = (
                self.names.of(subset.name)
                if len(node.expressions) == 1 and isinstance(subset, exp.Column) and len(subset.parts) == 1
                else ()
            )
            if not variables:
                raise self.binder.error("CLASSIFIER takes nothing, or a variable of the PATTERN", subset)
        position = position_of(node)
        if self.inside is not None:
            if variables:
                self.inside.named.setdefault(variables, node)
            return Classifier(position)
        if self.own is not None and (not variables or self.own in variables):
            return Literal(self.own, VARCHAR, position)
        return Navigate(Classifier(position), variables, position=position)

    def _match_number(self, binder: Binder, node: CallNode) -> Expr:
        if node.expressions:
            raise self.binder.error("MATCH_NUMBER takes no arguments", node)
        return MatchNumber(position_of(node))


def _call_of(node: exp.Expr) -> CallNode:
    while isinstance(node, exp.Filter | exp.WithinGroup):
        node = node.this
    return node


def is_aggregate(node: exp.Expr | None) -> bool:
    """Whether a node is the call of an aggregate, with its FILTER perhaps; FIRST and LAST are none here."""
    call = None if node is None else _call_of(node)
    known = isinstance(call, CallNode) and call.name not in ENDS and call.name not in SCALARS.overloads
    return known and (call.name in AGGREGATES.overloads or call.name in ORDERED_SETS)


def wrapped(node: exp.Expr) -> exp.Expr:
    """The expression with every aggregate inside of `running(..)` or `final(..)`."""

    def change(part: exp.Expr) -> exp.Expr:
        inside = (
            isinstance(part.parent, CallNode)
            and part.parent.name in SEMANTICS
            or isinstance(part.parent, exp.Filter | exp.WithinGroup)
        )
        if not is_aggregate(part) or inside:
            return part
        call = CallNode(this="running", expressions=[part.copy()])
        call.meta["at"] = position_of(part)
        return call

    return node.copy().transform(change, copy=False)


def parse_condition(
    text: str, schema: Schema, variables: tuple[str, ...], own: str | None, parameters: dict[str, Type] | None = None
) -> Expr:
    """A condition of a `match` step, or a measure if `own` is None."""
    node, source = parse_scalar(text)
    names = MatchNames(
        source, schema_resolver(schema, source), {v.lower(): v for v in variables}, parameters=parameters, in_plan=True
    )
    with deep_recursion():
        binder = MatchBinder(names, own)
        return binder.measure(node) if own is None else binder.condition(node)
