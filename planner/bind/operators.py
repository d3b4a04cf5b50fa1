"""Binding of operators: arithmetic, comparison, logic, CASE, IN, BETWEEN, LIKE, casts. Called through
`Binder.operand`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.nodes import Call, Case, Cast, Expr, InList, Literal, Parameter
from tsql.kernels.expr.types import (
    BIGINT,
    BLOB,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    INTEGER,
    INTERVAL,
    NULL,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    VARCHAR,
    Type,
    parse_type,
    split_type,
)
from tsql.planner.bind.fold import INTERVAL_UNITS, fold, fold_exact
from tsql.planner.bind.strings import operands
from tsql.planner.bind.subquery import bind_subquery, listed_query, quantified
from tsql.planner.bind.syntax import expression_text
from tsql.planner.bind.types import (
    Bare,
    arithmetic_type,
    bitwise_type,
    castable,
    coerce,
    comparison_type,
    is_bare_string,
    settle,
    unify,
)

if TYPE_CHECKING:
    from tsql.planner.bind.binder import Binder

ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
}
BITWISE: dict[type[exp.Expr], str] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
COMPARISON: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is_not_distinct_from",
    exp.NullSafeNEQ: "is_distinct_from",
}
_EQUALITY = {"=", "<>", "is_not_distinct_from", "is_distinct_from"}
_UNCHAINED = {"=", "<>", "<", "<=", ">", ">="}
_WIDER = {TINYINT: SMALLINT, SMALLINT: INTEGER, INTEGER: BIGINT, BIGINT: HUGEINT}
_OTHER_UNITS = {"TIMESTAMP_S": "second", "TIMESTAMP_MS": "millisecond", "TIMESTAMP_NS": "nanosecond"}
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP WITHOUT TIME ZONE", "DATETIME")
_CHAINS = {**ARITHMETIC, **BITWISE, exp.Pow: "pow", exp.DPipe: "||"}


def _bind_chain(binder: Binder, node: exp.Binary) -> Expr:
    """`a + b - c ..`: the left spine is walked in a loop, because it may have thousands of terms."""
    spine = []
    while type(node) in _CHAINS:
        spine.append(node)
        node = node.this
    result = binder.operand(node)
    for step in reversed(spine):
        result = combine(
            binder, _CHAINS[type(step)], result, binder.operand(step.expression), binder.operator_position(step)
        )
    return result


def combine(binder: Binder, op: str, left: Expr, right: Expr, position: int | None) -> Expr:
    """One binary operator over bound sides."""
    if op == "||":
        return _concat(left, right, position)
    if op == "pow":
        return _power(binder, left, right, position)
    if op in BITWISE.values():
        both = bitwise_type(left, right)
        if both is None:
            raise no_operator(binder, op, (left, right), position)
        return Call(op, (coerce(left, both), coerce(right, both)), both, position)
    rule = arithmetic_type(op, left, right)
    if rule is None:
        raise no_operator(binder, op, (left, right), position)
    if rule.result == NULL:
        return Literal(None, NULL, position)
    if rule.swap:
        left, right = right, left
    return Call(op, (coerce(left, rule.left), coerce(right, rule.right)), rule.result, position)


def no_operator(binder: Binder, op: str, args: tuple[Expr, ...], position: int | None) -> Exception:
    """The error for operands that an operator does not take."""
    types = " and ".join(shown(a) for a in args)
    return binder.error(
        f"there is no operator {op} for {types}", position, hint="an explicit cast may be needed: CAST(x AS type)"
    )


def shown(expr: Expr) -> str:
    """The type of an operand in a message."""
    return "a string literal" if isinstance(expr, Bare) and expr.dtype == VARCHAR else str(expr.type)


def _concat(left: Expr, right: Expr, position: int | None) -> Expr:
    if NULL in (left.type, right.type):
        return Literal(None, NULL, position)
    both = BLOB if left.type == right.type == BLOB else VARCHAR
    return Call("concat_op", (coerce(left, both), coerce(right, both)), both, position)


def _power(binder: Binder, left: Expr, right: Expr, position: int | None) -> Expr:
    for side in (left, right):
        if not (side.type.is_numeric or side.type == NULL or is_bare_string(side)):
            raise no_operator(binder, "^", (left, right), position)
    return Call("pow", (coerce(left, DOUBLE), coerce(right, DOUBLE)), DOUBLE, position)


def negate(binder: Binder, arg: Expr, node: exp.Expr) -> Expr:
    """Unary minus of an operand that is not a literal."""
    dtype = BIGINT if arg.type == NULL else arg.type
    if not (dtype.is_numeric or dtype == INTERVAL):
        raise binder.error(f"there is no operator - for {shown(arg)}", node)
    lowest = _lowest(arg)
    if lowest is not None:
        return Literal(-lowest.value, _WIDER[lowest.dtype], binder.position(node))
    return Call("neg", (coerce(arg, dtype),), dtype, binder.position(node))


def _lowest(arg: Expr) -> Literal | None:
    """The least value of a type, if that is what the constant `arg` is: as in DuckDB its negation is of a wider
    type."""
    if isinstance(arg, Cast) and isinstance(arg.arg, Literal) and arg.arg.value is not None:
        arg = fold(arg.arg, arg.dtype) or arg
    is_lowest = isinstance(arg, Literal) and arg.dtype in _WIDER and arg.value == arg.dtype.bounds[0]
    return arg if is_lowest else None


def _bind_bitwise_not(binder: Binder, node: exp.BitwiseNot) -> Expr:
    arg = binder.operand(node.this)
    dtype = BIGINT if arg.type == NULL else arg.type
    if not dtype.is_integer:
        raise binder.error(f"there is no operator ~ for {shown(arg)}", node)
    return Call("~", (coerce(arg, dtype),), dtype, binder.position(node))


def _bind_comparison(binder: Binder, node: exp.Binary) -> Expr:
    if quantified(node.expression) is not None:
        return bind_subquery(binder, node)
    op = COMPARISON[type(node)]
    if op in _UNCHAINED and any(COMPARISON.get(type(side)) in _UNCHAINED for side in (node.this, node.expression)):
        raise binder.error(
            "Chained comparisons are not supported, use AND to combine comparisons", binder.operator_position(node)
        )
    left, right = operands(binder, (node.this, node.expression))
    return compare(binder, op, left, right, binder.operator_position(node))


def compare(binder: Binder, op: str, left: Expr, right: Expr, position: int | None) -> Expr:
    """A comparison, both sides cast to the type in which DuckDB compares them."""
    both = comparison_type(left, right, op in _EQUALITY)
    if both is None or not (castable(left.type, both) and castable(right.type, both)):
        raise binder.error(f"cannot compare {shown(left)} with {shown(right)}: an explicit cast is required", position)
    return Call(op, (coerce(left, both), coerce(right, both)), BOOLEAN, position)


def to_boolean(binder: Binder, expr: Expr, node: exp.Expr | None) -> Expr:
    if not castable(expr.type, BOOLEAN):
        raise binder.error(f"a condition is BOOLEAN, not {expr.type}", node)
    return coerce(expr, BOOLEAN)


def _bind_connector(binder: Binder, node: exp.Connector) -> Expr:
    """AND and OR become one flat Call, whatever the nesting; long chains are walked in a loop."""
    kind = type(node)
    operands: list[exp.Expr] = []
    stack: list[exp.Expr] = [node]
    while stack:
        part = stack.pop()
        inner = part
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if type(inner) is kind:
            stack.append(inner.expression)
            stack.append(inner.this)
        else:
            operands.append(part)
    args: list[Expr] = []
    name = "and" if kind is exp.And else "or"
    for operand in operands:
        bound = to_boolean(binder, binder.operand(operand), operand)
        # BETWEEN binds to an AND, which joins the chain too.
        args.extend(bound.args if isinstance(bound, Call) and bound.name == name else (bound,))
    return Call(name, tuple(args), BOOLEAN, binder.position(node))


def _bind_not(binder: Binder, node: exp.Not) -> Expr:
    inner = node.this
    if isinstance(inner, exp.Is):
        return _bind_is(binder, inner, negated=True)
    return Call("not", (to_boolean(binder, binder.operand(inner), inner),), BOOLEAN, binder.position(node))


def _bind_is(binder: Binder, node: exp.Is, negated: bool = False) -> Expr:
    negated = negated != bool(node.args.get("negate"))
    position = binder.operator_position(node) if position_known(node.expression) else binder.position(node)
    arg = binder.operand(node.this)
    if isinstance(node.expression, exp.Null) or (
        isinstance(node.expression, exp.Column) and node.expression.name.upper() == "UNKNOWN"
    ):
        dtype = INTEGER if arg.type == NULL else arg.type
        return Call("is_not_null" if negated else "is_null", (coerce(arg, dtype),), BOOLEAN, position)
    if isinstance(node.expression, exp.Boolean):
        name = "is_distinct_from" if negated else "is_not_distinct_from"
        return Call(
            name, (to_boolean(binder, arg, node.this), Literal(bool(node.expression.this), BOOLEAN)), BOOLEAN, position
        )
    raise binder.error("IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", node)


def position_known(node: exp.Expr | None) -> bool:
    return node is not None and bool(node._meta) and ("at" in node._meta or "start" in node._meta)


def _bind_between(binder: Binder, node: exp.Between) -> Expr:
    value, lowest, highest = operands(binder, (node.this, node.args["low"], node.args["high"]))
    position = binder.position(node)
    low = compare(binder, ">=", value, lowest, position)
    high = compare(binder, "<=", value, highest, position)
    return Call("and", (low, high), BOOLEAN, position)


def _bind_in(binder: Binder, node: exp.In) -> Expr:
    if listed_query(node) is not None:
        return bind_subquery(binder, node)
    if not node.expressions:
        raise binder.error("IN takes a list in parentheses", node)
    position = binder.position(node)
    value, *options = operands(binder, (node.this, *node.expressions))
    if len(options) == 1:
        return compare(binder, "=", value, options[0], position)
    both = _in_type(value, options)
    if not all(castable(e.type, both) for e in (value, *options)):
        raise binder.error(
            f"cannot compare {shown(value)} with the values of the IN list: an explicit cast is required", node
        )
    arg = coerce(value, both)
    cast = tuple(coerce(option, both) for option in options)
    if all(isinstance(option, (Literal, Parameter)) for option in cast):
        return InList(arg, cast, position)
    return Call("or", tuple(Call("=", (arg, option), BOOLEAN, position) for option in cast), BOOLEAN, position)


def _in_type(value: Expr, options: list[Expr]) -> Type:
    if not isinstance(value, Literal) and value.type.is_numeric:
        if all(
            isinstance(o, Literal) and not is_bare_string(o) and (fold_exact(o, value.type) is not None)
            for o in options
        ):
            return value.type
    both = unify((value, *options), force=True)
    if both == VARCHAR:
        others = [e.type for e in (value, *options) if e.type not in (VARCHAR, NULL)]
        both = others[0] if others else VARCHAR
    return INTEGER if both == NULL else both


def _bind_like(binder: Binder, node: exp.Expr, escape: Expr | None = None) -> Expr:
    name = "ilike" if isinstance(node, exp.ILike) else "like"
    if isinstance(node.expression, (exp.Any, exp.All)):
        raise binder.error("LIKE ANY and LIKE ALL are not supported", node)
    position = binder.operator_position(node)
    sides = (node.this, node.expression)
    args = [
        _text(binder, name.upper(), bound, side) for bound, side in zip(operands(binder, sides), sides, strict=True)
    ]
    call = Call(name, (*args, *((escape,) if escape is not None else ())), BOOLEAN, position)
    return Call("not", (call,), BOOLEAN, position) if node.args.get("negate") else call


def _text(binder: Binder, op: str, bound: Expr, node: exp.Expr) -> Expr:
    if bound.type not in (VARCHAR, NULL):
        raise binder.error(
            f"{op} takes VARCHAR, not {bound.type}", node, hint="an explicit cast may be needed: CAST(x AS VARCHAR)"
        )
    return coerce(bound, VARCHAR)


def _bind_escape(binder: Binder, node: exp.Escape) -> Expr:
    given = settle(binder.operand(node.expression))
    is_known = all(isinstance(part, (Literal, Call, Cast)) for part in given.walk())
    escape = given if isinstance(given, Literal) else evaluate(given) if is_known else None
    if escape is None:
        raise binder.error("ESCAPE takes a constant", node.expression)
    if escape.type not in (VARCHAR, NULL) or len(escape.value or "") > 1:
        raise binder.error("ESCAPE takes a string of at most one character", node.expression)
    bound = _bind_like(binder, node.this, escape)
    return Literal(None, BOOLEAN, bound.position) if escape.value is None else bound


def _bind_similar(binder: Binder, node: exp.SimilarTo) -> Expr:
    args = [_text(binder, "SIMILAR TO", binder.operand(side), side) for side in (node.this, node.expression)]
    return Call("regexp_full_match", tuple(args), BOOLEAN, binder.operator_position(node))


def _bind_case(binder: Binder, node: exp.Case) -> Expr:
    branches = [branch.this for branch in node.args["ifs"]]
    if node.this is None:
        conditions = [to_boolean(binder, binder.operand(branch), branch) for branch in branches]
    else:
        subject, *values = operands(binder, (node.this, *branches))
        conditions = [
            compare(binder, "=", subject, value, binder.position(branch))
            for value, branch in zip(values, branches, strict=True)
        ]
    values = [binder.operand(branch.args["true"]) for branch in node.args["ifs"]]
    default = node.args.get("default")
    values.append(Literal(None, NULL) if default is None else binder.operand(default))
    return make_case(binder, conditions, values, node, "CASE")


def make_case(binder: Binder, conditions: list[Expr], values: list[Expr], node: exp.Expr, what: str) -> Expr:
    """A Case whose branches (the last is ELSE) have one type."""
    cast = unified(binder, values, node, what)
    return Case(tuple(zip(conditions, cast[:-1], strict=True)), cast[-1], binder.position(node))


def unified(binder: Binder, values: list[Expr], node: exp.Expr, what: str) -> list[Expr]:
    """Values cast to their common type."""
    both = unify(values)
    if both is None:
        types = ", ".join(dict.fromkeys(str(v.type) for v in values))
        raise binder.error(f"cannot mix values of types {types} in {what}: an explicit cast is required", node)
    return [coerce(value, both) for value in values]


def data_type(binder: Binder, node: exp.DataType) -> Type:
    """The type that a type name in the query means."""
    return _typed(binder, node)[0]


def time_unit(binder: Binder, node: exp.DataType) -> int | None:
    """Of what multiple of microseconds the values of a type are: TIMESTAMP(0) has whole seconds, TIMESTAMP(3)
    milliseconds, and so, as in DuckDB, do TIMESTAMP(1) and TIMESTAMP(2). None for every other type."""
    return _typed(binder, node)[1]


def _typed(binder: Binder, node: exp.DataType) -> tuple[Type, int | None]:
    text = node.meta.get("spelled") or expression_text(node)
    words, parameters = split_type(text)
    if words in _OTHER_UNITS:
        hint = (
            f"TIMESTAMP has microseconds; date_trunc('{_OTHER_UNITS[words]}', x) cuts the rest off"
            if words != "TIMESTAMP_NS"
            else "TIMESTAMP has microseconds"
        )
        raise binder.error(f"{words} is not supported: every time is in microseconds", node, hint=hint)
    if parameters and words in _TIMESTAMPS:
        if len(parameters) != 1 or not parameters[0].isdigit():
            raise binder.error("TIMESTAMP takes one whole number: the digits behind the seconds", node)
        digits = int(parameters[0])
        if digits > 6:
            raise binder.error(
                f"TIMESTAMP({digits}) is not supported: every time is in microseconds",
                node,
                hint="TIMESTAMP has microseconds",
            )
        return TIMESTAMP, 1_000_000 if digits == 0 else 1_000 if digits <= 3 else None
    other = {"DOUBLE PRECISION": "DOUBLE", "CHARACTER VARYING": "VARCHAR", "CHARACTER": "VARCHAR"}.get(words, words)
    try:
        return parse_type(f"{other}({', '.join(parameters)})" if parameters else other), None
    except ValueError as error:
        raise binder.error(f"{error}", node) from None


def rounded(expr: Expr, unit: int | None) -> Expr:
    """A TIMESTAMP rounded to a multiple of `unit` microseconds; the expression itself without a unit."""
    if unit is None or isinstance(expr, Literal) and expr.value is None:
        return expr
    return Call("time_round", (expr, Literal(unit, BIGINT)), TIMESTAMP, getattr(expr, "position", None))


def _bind_cast(binder: Binder, node: exp.Cast) -> Expr:
    target, unit = _typed(binder, node.args["to"])
    return rounded(_cast(binder, node, target), unit)


def _cast(binder: Binder, node: exp.Cast, target: Type) -> Expr:
    arg = binder.operand(node.this)
    safe = isinstance(node, exp.TryCast)
    position = binder.position(node)
    if not castable(arg.type, target):
        if safe:
            return Literal(None, target, position)
        raise binder.error(f"there is no cast from {arg.type} to {target}", node)
    if arg.type == target:
        return settle(arg)
    if isinstance(arg, Literal):
        folded = fold(arg, target)
        if folded is not None:
            return Literal(folded.value, target, position)
    return Cast(settle(arg), target, safe, position)


def _bind_interval(binder: Binder, node: exp.Interval) -> Expr:
    value, unit = binder.operand(node.this), node.args.get("unit")
    position = binder.position(node)
    if unit is None:
        folded = fold(value, INTERVAL)
        return folded if folded is not None else Cast(settle(value), INTERVAL, position=position)
    months, days, us = INTERVAL_UNITS[_singular(unit.name)]
    if isinstance(value, Literal):
        count = fold(value, DOUBLE) if value.type != DOUBLE else value
        if count is not None and count.value is not None:
            amount = count.value if us and unit.name.lower().startswith(("second", "millisecond")) else int(count.value)
            parts = (int(months * amount), int(days * amount), round(us * amount))
            if any(not -(2**bits) <= part < 2**bits for part, bits in zip(parts, (31, 31, 63), strict=True)):
                raise binder.error(f"Interval value {int(amount)} {unit.name.lower()} out of range", node)
            return Literal(parts, INTERVAL, position)
    if not (value.type.is_numeric or value.type in (NULL, VARCHAR)):
        raise binder.error(f"INTERVAL takes a number, not {value.type}", node)
    singular = _singular(unit.name)
    name = "to_" + {"century": "centuries", "millennium": "millennia"}.get(singular, f"{singular}s")
    if singular in ("second", "millisecond"):
        return Call(name, (coerce(value, DOUBLE),), INTERVAL, position)
    whole = value if value.type.is_integer else Call("trunc", (coerce(value, DOUBLE),), DOUBLE, position)
    return Call(name, (coerce(whole, BIGINT),), INTERVAL, position)


def _singular(name: str) -> str:
    lowered = name.lower()
    return {"centuries": "century", "millennia": "millennium"}.get(lowered, lowered.removesuffix("s"))


HANDLERS: dict[type[exp.Expr], Callable[[Binder, Any], Expr]] = {
    **dict.fromkeys(_CHAINS, _bind_chain),
    **dict.fromkeys(COMPARISON, _bind_comparison),
    exp.BitwiseNot: _bind_bitwise_not,
    exp.And: _bind_connector,
    exp.Or: _bind_connector,
    exp.Not: _bind_not,
    exp.Is: _bind_is,
    exp.Between: _bind_between,
    exp.In: _bind_in,
    exp.Like: _bind_like,
    exp.ILike: _bind_like,
    exp.Escape: _bind_escape,
    exp.SimilarTo: _bind_similar,
    exp.Case: _bind_case,
    exp.Cast: _bind_cast,
    exp.TryCast: _bind_cast,
    exp.Interval: _bind_interval,
}
