"""Binds calls that need their own typing or a rewrite: COALESCE, NULLIF, IF, EXTRACT, typeof, format, arithmetic by
name, .. Called through `Binder.operand`; plain calls go on to `calls.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.nodes import Call, Case, Expr, Literal
from tsql.kernels.expr.types import BIGINT, BOOLEAN, DOUBLE, HUGEINT, NULL, VARCHAR
from tsql.kernels.functions.datetime.parts import PARTS
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.windows.call import WindowCall
from tsql.planner.bind.calls import bind_aggregate, no_match, scalar
from tsql.planner.bind.macros import MACROS, bind_macro
from tsql.planner.bind.near_names import nearest
from tsql.planner.bind.operators import combine, compare, make_case, negate, shown, to_boolean, unified
from tsql.planner.bind.strings import slice_text
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import Bare, arithmetic_type, bitwise_type, coerce, is_bare_string, settle

if TYPE_CHECKING:
    from tsql.planner.bind.binder import Binder

PART_FUNCTIONS = {"date_part": "date_part", "datepart": "date_part", "date_trunc": "date_trunc",
                  "datetrunc": "date_trunc",
    "date_diff": "date_diff", "datediff": "date_diff", "date_sub": "date_sub", "datesub": "date_sub"}  # fmt: skip
ARITHMETIC_NAMES = {"add": "+", "subtract": "-", "multiply": "*", "divide": "//", "date_add": "+"}
_WITHOUT_PARENTHESES: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "current_date",
    exp.CurrentTime: "current_time",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtime: "localtime",
    exp.Localtimestamp: "localtimestamp",
}
_SHOWN_TYPES = {"TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE", "NULL": '"NULL"'}


def _bind_call(binder: Binder, node: CallNode) -> Expr:
    name = node.name
    special = binder.special.get(name) or FORMS.get(name)
    if special is not None:
        return special(binder, node)
    if name in AGGREGATES.overloads and name not in SCALARS.overloads:
        return bind_aggregate(binder, node)
    if name not in SCALARS.overloads:
        raise no_match(binder, SCALARS, name, [], node)
    if any(isinstance(arg, (exp.Distinct, exp.Order)) for arg in node.expressions):
        raise binder.error(f"DISTINCT and ORDER BY are for aggregates: {name} is none", node)
    return scalar(binder, name, _arguments(binder, node), node)


def _arguments(binder: Binder, node: CallNode) -> list[Expr]:
    args = []
    for arg in node.expressions:
        if isinstance(arg, (exp.Kwarg, exp.PropertyEQ)):
            raise binder.error(f"{node.name} takes no named arguments", arg)
        args.append(binder.operand(arg))
    return args


def _exactly(binder: Binder, node: CallNode, count: int) -> list[Expr]:
    if len(node.expressions) != count:
        raise binder.error(f"{node.name} takes {count} arguments, not {len(node.expressions)}", node)
    return _arguments(binder, node)


def _coalesce(binder: Binder, node: CallNode) -> Expr:
    if not node.expressions:
        raise binder.error(f"{node.name} takes at least one argument", node)
    values = unified(binder, _arguments(binder, node), node, node.name.upper())
    return values[0] if len(values) == 1 else Call("coalesce", tuple(values), values[0].type, binder.position(node))


def _nullif(binder: Binder, node: CallNode) -> Expr:
    left, right = _exactly(binder, node, 2)
    equal = compare(binder, "=", left, right, binder.position(node))
    value = settle(left)
    return Case(((equal, Literal(None, value.type)),), value, binder.position(node))


def _if(binder: Binder, node: CallNode) -> Expr:
    condition, true, false = _exactly(binder, node, 3)
    return make_case(binder, [to_boolean(binder, condition, node)], [true, false], node, "IF")


def _typeof(binder: Binder, node: CallNode) -> Expr:
    (arg,) = _exactly(binder, node, 1)
    return Literal(_SHOWN_TYPES.get(arg.type.name, str(arg.type)), VARCHAR, binder.position(node))


def _greatest(binder: Binder, node: CallNode) -> Expr:
    if not node.expressions:
        raise binder.error(f"{node.name} takes at least one argument", node)
    values = unified(binder, _arguments(binder, node), node, node.name)
    return scalar(binder, node.name, values, node)


def _concat(binder: Binder, node: CallNode) -> Expr:
    args = _arguments(binder, node)
    if node.name == "concat_ws" and args and args[0].type not in (VARCHAR, NULL):
        raise no_match(binder, SCALARS, node.name, args, node)
    return scalar(binder, node.name, [coerce(arg, VARCHAR) for arg in args], node)


def _format(binder: Binder, node: CallNode) -> Expr:
    """Numbers are formatted as BIGINT, HUGEINT or DOUBLE, BOOLEAN as it is, anything else as text."""
    args = _arguments(binder, node)
    if not args or args[0].type not in (VARCHAR, NULL):
        raise no_match(binder, SCALARS, node.name, args, node)
    values = [coerce(args[0], VARCHAR)]
    for arg in args[1:]:
        number = (
            DOUBLE
            if arg.type.is_float or arg.type.is_decimal
            else HUGEINT
            if arg.type.name in ("UBIGINT", "HUGEINT")
            else BIGINT
        )
        values.append(coerce(arg, number if arg.type.is_numeric else BOOLEAN if arg.type == BOOLEAN else VARCHAR))
    return scalar(binder, node.name, values, node)


def _power(binder: Binder, node: CallNode) -> Expr:
    args = _exactly(binder, node, 2)
    for arg in args:
        if not (arg.type.is_numeric or arg.type == NULL or is_bare_string(arg)):
            raise binder.error(f"{node.name} takes numbers, not {arg.type}", node)
    return Call("pow", tuple(coerce(arg, DOUBLE) for arg in args), DOUBLE, binder.position(node))


def _xor(binder: Binder, node: CallNode) -> Expr:
    left, right = _exactly(binder, node, 2)
    both = bitwise_type(left, right)
    if both is None:
        raise binder.error(f"xor takes integers, not {left.type} and {right.type}", node)
    return Call("xor", (coerce(left, both), coerce(right, both)), both, binder.position(node))


def _with_part(binder: Binder, node: CallNode) -> Expr:
    args = _arguments(binder, node)
    return _part_call(binder, PART_FUNCTIONS[node.name], args, node)


def _part_call(binder: Binder, name: str, args: list[Expr], node: exp.Expr) -> Expr:
    if args and isinstance(args[0], Literal) and isinstance(args[0].value, str):
        part = PARTS.get(args[0].value.lower())
        if part is None:
            raise binder.error(
                f'"{args[0].value}" is no part of a date or time', node, hint=nearest(args[0].value, PARTS)
            )
        args = [Bare(part, VARCHAR, args[0].position), *args[1:]]
    if (
        name == "date_part"
        and len(args) == 2
        and isinstance(args[1], Literal)
        and args[1].value is None
        and args[1].type != NULL
    ):
        return Literal(None, DOUBLE, binder.position(node))
    return scalar(binder, name, args, node)


def _bind_extract(binder: Binder, node: exp.Extract) -> Expr:
    part = Bare(node.this.name, VARCHAR, binder.position(node.this))
    return _part_call(binder, "date_part", [part, binder.operand(node.expression)], node)


def _arithmetic(binder: Binder, node: CallNode) -> Expr:
    """`add(a, b)` is `a + b`, `divide(a, b)` is `a // b`, `subtract(a)` is `-a`."""
    op = ARITHMETIC_NAMES[node.name]
    args = _arguments(binder, node)
    if len(args) == 1 and op in ("+", "-"):
        return settle(args[0]) if op == "+" else negate(binder, args[0], node)
    if len(args) != 2:
        raise binder.error(f"{node.name} takes 2 arguments, not {len(args)}", node)
    if node.name != "date_add" and any(is_bare_string(arg) for arg in args):
        raise binder.error(
            (
                f"Could not choose a best candidate function for {node.name}({', '.join(map(shown, args))}): "
                "add an explicit type cast"
            ),
            node,
        )
    return combine(binder, op, *args, binder.position(node))


def _slice(binder: Binder, node: CallNode) -> Expr:
    """`array_slice(s, a, b)` is `s[a:b]`."""
    value, first, last = _exactly(binder, node, 3)
    return slice_text(binder, value, [first, last], node)


def _modulo(binder: Binder, node: CallNode) -> Expr:
    """`mod(a, b)` is `a % b`."""
    left, right = _exactly(binder, node, 2)
    rule = arithmetic_type("%", left, right)
    if rule is None:
        raise binder.error(f"mod takes numbers, not {left.type} and {right.type}", node)
    if rule.result == NULL:
        return Literal(None, NULL, binder.position(node))
    return Call("%", (coerce(left, rule.left), coerce(right, rule.right)), rule.result, binder.position(node))


def _count_if(binder: Binder, node: CallNode) -> Expr:
    """`count_if(c)` is `count(*) FILTER (WHERE c)` unless an aggregate of that name is registered."""
    if "count_if" in AGGREGATES.overloads:
        return bind_aggregate(binder, node)
    if len(node.expressions) != 1:
        raise binder.error("count_if takes one argument", node)
    call = CallNode(this="count", expressions=[]).update_positions(node)
    return bind_aggregate(binder, exp.Filter(this=call, expression=exp.Where(this=node.expressions[0].copy())))


def _bind_time_zone(binder: Binder, node: exp.AtTimeZone) -> Expr:
    """`x AT TIME ZONE z` is timezone(z, x)."""
    if "timezone" not in SCALARS.overloads:
        raise binder.error("AT TIME ZONE is not supported yet", node)
    return scalar(binder, "timezone", [binder.operand(node.args["zone"]), binder.operand(node.this)], node)


def _bind_starts_with(binder: Binder, node: exp.StartsWith) -> Expr:
    """`x ^@ y`."""
    return scalar(binder, "starts_with", [binder.operand(node.this), binder.operand(node.expression)], node)


def _bind_without_parentheses(binder: Binder, node: exp.Expr) -> Expr:
    return scalar(binder, _WITHOUT_PARENTHESES[type(node)], [], node)


def _bind_nulls(binder: Binder, node: exp.Expr) -> Expr:
    raise binder.error("IGNORE NULLS and RESPECT NULLS are not supported here", node)


def _version(binder: Binder, node: CallNode) -> Expr:
    """version(): that of this package."""
    from importlib.metadata import PackageNotFoundError, version

    _no_arguments(binder, node)
    try:
        found = version("tsql")
    except PackageNotFoundError:
        found = "0"
    return Literal(f"tsql {found}", VARCHAR, binder.position(node))


def _current_schema(binder: Binder, node: CallNode) -> Expr:
    """current_schema(): there is one."""
    _no_arguments(binder, node)
    return Literal("main", VARCHAR, binder.position(node))


def current_database(name: str) -> Callable[[Binder, CallNode], Expr]:
    """The handler of current_database() for a session whose database has this name."""

    def bind(binder: Binder, node: CallNode) -> Expr:
        _no_arguments(binder, node)
        return Literal(name, VARCHAR, binder.position(node))

    return bind


def _random(binder: Binder, node: CallNode) -> Expr:
    """random() is a function of the row's number in the result; `binder.windows` provides that number."""
    _no_arguments(binder, node)
    if binder.windows is None:
        raise binder.error(
            f"random() is not supported in {binder.clause}",
            node,
            hint="put it into a column first: FROM (SELECT *, random() AS r FROM t)",
        )
    position = binder.position(node)
    number = binder.windows.place(WindowCall("row_number", (), BIGINT, position=position), (), (), node)
    return Call("random_of_row", (number, Literal(position or 0, BIGINT)), DOUBLE, position)


def _no_arguments(binder: Binder, node: CallNode) -> None:
    if node.expressions:
        raise binder.error(f"{node.name} takes no arguments", node.expressions[0])


FORMS: dict[str, Callable[[Binder, CallNode], Expr]] = {
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nullif": _nullif,
    "if": _if,
    "typeof": _typeof,
    "greatest": _greatest,
    "least": _greatest,
    "concat": _concat,
    "concat_ws": _concat,
    "format": _format,
    "printf": _format,
    "pow": _power,
    "power": _power,
    "xor": _xor,
    "mod": _modulo,
    "array_slice": _slice,
    "list_slice": _slice,
    "count_if": _count_if,
    "random": _random,
    "version": _version,
    "current_schema": _current_schema,
    **dict.fromkeys(PART_FUNCTIONS, _with_part),
    **dict.fromkeys(ARITHMETIC_NAMES, _arithmetic),
    **dict.fromkeys(MACROS, bind_macro),
}

HANDLERS: dict[type[exp.Expr], Callable[[Binder, Any], Expr]] = {
    CallNode: _bind_call,
    exp.Filter: bind_aggregate,
    exp.WithinGroup: bind_aggregate,
    exp.Extract: _bind_extract,
    exp.AtTimeZone: _bind_time_zone,
    exp.StartsWith: _bind_starts_with,
    exp.IgnoreNulls: _bind_nulls,
    exp.RespectNulls: _bind_nulls,
    **dict.fromkeys(_WITHOUT_PARENTHESES, _bind_without_parentheses),
}
