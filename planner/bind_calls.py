"""Binding of calls: scalar functions and aggregates through their registries, and the forms that are rewritten
(COALESCE, NULLIF, IF, EXTRACT, typeof, ..). Called through `Binder.operand`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

import tsql.kernels.aggregates
import tsql.kernels.functions  # noqa: F401  (fills the registries)
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.constant import evaluate
from tsql.kernels.expr import Aggregate, Call, Expr, Literal, SortKey
from tsql.kernels.functions.datetime_parts import PARTS
from tsql.kernels.functions.registry import SCALARS, Registry
from tsql.kernels.types import DOUBLE, INTEGER, NULL, VARCHAR, Type
from tsql.kernels.windows.registry import WINDOW_FUNCTIONS
from tsql.planner.bind_operators import compare, make_case, to_boolean, unified
from tsql.planner.bind_syntax import Call as CallNode
from tsql.planner.bind_types import Bare, arithmetic_type, bitwise_type, coerce, is_bare_string, settle, unify

if TYPE_CHECKING:
    from tsql.planner.bind import Binder

PART_FUNCTIONS = {"date_part": "date_part", "datepart": "date_part", "date_trunc": "date_trunc", "datetrunc": "date_trunc",
    "date_diff": "date_diff", "datediff": "date_diff", "date_sub": "date_sub", "datesub": "date_sub"}  # fmt: skip
ORDERED_SETS = {"percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc", "mode": "mode"}
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
    special = binder.special.get(name) or _SPECIAL.get(name)
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


def scalar(binder: Binder, name: str, args: list[Expr], node: exp.Expr) -> Expr:
    """A call of a registered function."""
    found = _resolve(SCALARS, name, args)
    if found is None and len(args) > 1:
        both = unify(args)
        if both is not None and both != NULL:
            found = _resolve(SCALARS, name, [coerce(arg, both) for arg in args])
    if found is None:
        raise no_match(binder, SCALARS, name, args, node)
    function, types = found
    cast = tuple(coerce(arg, dtype) for arg, dtype in zip(args, types, strict=True))
    _check_constants(binder, function.constant, name, cast, node)
    values = tuple(arg.value if isinstance(arg, Literal) else None for arg in cast)
    return Call(name, cast, function.return_type(types, values), binder.position(node))


def _resolve(registry: Registry, name: str, args: list[Expr]) -> tuple[object, tuple[Type, ...]] | None:
    return registry.resolve(name, tuple(arg.type for arg in args), tuple(literal_of(arg) for arg in args))


def literal_of(arg: Expr) -> int | str | None:
    """What a registry may know of an argument that still adapts: the integer, or "string"; None for anything else."""
    if is_bare_string(arg):
        return "string"
    return arg.value if isinstance(arg, Bare) else None


def _check_constants(binder: Binder, constant: tuple[int, ...], name: str, args: tuple[Expr, ...], node: exp.Expr) -> None:
    for index in constant:
        if index < len(args) and not is_constant(args[index]):
            raise binder.error(f"argument {index + 1} of {name} must be a constant", node)


def _literals(binder: Binder, constant: tuple[int, ...], name: str, args: tuple[Expr, ...], node: exp.Expr) -> tuple[Expr, ...]:
    """The arguments of an aggregate, those that must be constants as literals."""
    _check_constants(binder, constant, name, args, node)
    found = list(args)
    for index in constant:
        if index < len(args) and not isinstance(args[index], Literal):
            literal = evaluate(args[index])
            if literal is None:
                raise binder.error(f"argument {index + 1} of {name} must be a constant", node)
            found[index] = literal
    return tuple(found)


def is_constant(expr: Expr) -> bool:
    """Whether an expression has one value for all rows."""
    return not expr.columns()


def no_match(binder: Binder, registry: Registry, name: str, args: list[Expr], node: exp.Expr) -> Exception:
    """The error for an unknown function, or for arguments that fit no overload."""
    from tsql.planner.bind import nearest

    overloads = registry.overloads.get(name)
    if not overloads and name in WINDOW_FUNCTIONS:
        return binder.error(f"{name} is a window function: it needs OVER (..)", node)
    if not overloads:
        names = {*SCALARS.names(), *AGGREGATES.names(), *_SPECIAL}
        return binder.error(f"function {name} does not exist", node, hint=nearest(name, (n for n in names if n[0].isalpha())))
    given = ", ".join("a string literal" if is_bare_string(a) else str(a.type) for a in args)
    candidates = "; ".join(f"{name}({', '.join(str(p) for p in f.args)}{', ...' if f.variadic else ''})" for f in overloads[:8])
    return binder.error(f"no overload of {name} takes ({given})", node, hint=f"there is {candidates}")


def bind_aggregate(binder: Binder, node: exp.Expr) -> Expr:
    """An aggregate call with its modifiers; `binder.aggregate` says what stands for the result."""
    bound = aggregate_call(binder, node)
    return binder.aggregate(bound, node)


def aggregate_call(binder: Binder, node: exp.Expr, inner: Binder | None = None) -> Aggregate:
    """An aggregate call with its modifiers. `inner` binds the arguments; one without aggregates unless given."""
    filter_node = order_node = None
    call = node
    if isinstance(call, exp.Filter):
        filter_node, call = call.expression.this, call.this
    if isinstance(call, exp.WithinGroup):
        order_node, call = call.expression, call.this
    if not isinstance(call, CallNode) or call.name not in AGGREGATES.overloads and call.name not in ORDERED_SETS:
        if isinstance(call, CallNode) and call.name not in SCALARS.overloads and call.name not in _SPECIAL:
            raise no_match(binder, AGGREGATES, call.name, [], call)
        raise binder.error("FILTER and WITHIN GROUP are for aggregates", node)
    if inner is None:
        if binder.aggregate is None:
            raise binder.error(f"an aggregate is not allowed in {binder.clause}", call)
        inner = binder.without_aggregates("an argument of an aggregate")
    arguments, distinct, ordering = unwrap_arguments(call.expressions)
    name = call.name
    if order_node is not None:
        name, arguments, ordering = _ordered_set(binder, name, arguments, order_node, call)
    if name == "count" and (not arguments or isinstance(arguments[0], exp.Star)) and not distinct:
        arguments = []
    args = [inner.operand(argument) for argument in arguments]
    # A bare NULL is taken as INTEGER first: that is the type which the column of the result has.
    typed = [coerce(arg, INTEGER) if arg.type == NULL else arg for arg in args]
    found = _resolve(AGGREGATES, name, typed) or _resolve(AGGREGATES, name, args)
    if found is None:
        raise no_match(binder, AGGREGATES, name, args, call)
    function, types = found
    cast = tuple(coerce(arg, dtype) for arg, dtype in zip(args, types, strict=True))
    cast = _literals(binder, function.constant, name, cast, call)
    if function.check is not None and (wrong := function.check(cast)) is not None:
        raise binder.error(wrong, call)
    condition = None
    if filter_node is not None:
        condition = to_boolean(inner, inner.operand(filter_node), filter_node)
    order = tuple(sort_key(inner, key) for key in ordering)
    return Aggregate(name, cast, function.return_type(types), distinct, condition, order, binder.position(call))


def unwrap_arguments(nodes: list[exp.Expr]) -> tuple[list[exp.Expr], bool, list[exp.Ordered]]:
    """Arguments, DISTINCT and ORDER BY: sqlglot hangs ORDER BY on the last argument and DISTINCT around all."""
    arguments = list(nodes)
    ordering: list[exp.Ordered] = []
    if arguments and isinstance(arguments[-1], exp.Order):
        ordering = arguments[-1].expressions
        arguments[-1] = arguments[-1].this
        if arguments[-1] is None:
            arguments.pop()
    distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = [*arguments[0].expressions, *arguments[1:]]
    return arguments, distinct, ordering


def _ordered_set(binder: Binder, name: str, arguments: list[exp.Expr], order: exp.Order, call: exp.Expr) -> tuple[str, list[exp.Expr], list[exp.Ordered]]:
    """`percentile_cont(0.5) WITHIN GROUP (ORDER BY x)` is quantile_cont(x, 0.5)."""
    if name not in ORDERED_SETS:
        raise binder.error(f"{name} is no ordered-set aggregate: WITHIN GROUP does not apply", call)
    if len(order.expressions) != 1:
        raise binder.error("WITHIN GROUP takes one ORDER BY expression", call)
    key = order.expressions[0]
    if name == "mode":
        return name, [key.this, *arguments], [key]
    if not key.args.get("desc") or not arguments:
        return ORDERED_SETS[name], [key.this, *arguments], []
    # A negative fraction counts from the greatest value; zero has no sign, and is 1 from the other end.
    zero = arguments[0].is_number and float(arguments[0].name or 1) == 0.0
    return ORDERED_SETS[name], [key.this, exp.Literal.number("1") if zero else exp.Neg(this=exp.Paren(this=arguments[0]))], []


def sort_key(binder: Binder, node: exp.Ordered) -> SortKey:
    """One key of an ORDER BY inside a call; NULLs are last unless said otherwise, as in DuckDB."""
    return SortKey(binder.bind(node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


def _coalesce(binder: Binder, node: CallNode) -> Expr:
    if not node.expressions:
        raise binder.error(f"{node.name} takes at least one argument", node)
    values = unified(binder, _arguments(binder, node), node, node.name.upper())
    return values[0] if len(values) == 1 else Call("coalesce", tuple(values), values[0].type, binder.position(node))


def _nullif(binder: Binder, node: CallNode) -> Expr:
    left, right = _exactly(binder, node, 2)
    equal = compare(binder, "=", left, right, binder.position(node))
    value = settle(left)
    from tsql.kernels.expr import Case

    return Case(((equal, Literal(None, value.type)),), value, binder.position(node))


def _if(binder: Binder, node: CallNode) -> Expr:
    condition, true, false = _exactly(binder, node, 3)
    return make_case(binder, [to_boolean(binder, condition, node)], [true, false], node, "IF")


def _exactly(binder: Binder, node: CallNode, count: int) -> list[Expr]:
    if len(node.expressions) != count:
        raise binder.error(f"{node.name} takes {count} arguments, not {len(node.expressions)}", node)
    return _arguments(binder, node)


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
    return scalar(binder, node.name, [coerce(arg, VARCHAR) for arg in args], node)


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
            from tsql.planner.bind import nearest

            raise binder.error(f'"{args[0].value}" is no part of a date or time', node, hint=nearest(args[0].value, PARTS))
        args = [Bare(part, VARCHAR, args[0].position), *args[1:]]
    return scalar(binder, name, args, node)


def _bind_extract(binder: Binder, node: exp.Extract) -> Expr:
    part = Bare(node.this.name, VARCHAR, binder.position(node.this))
    return _part_call(binder, "date_part", [part, binder.operand(node.expression)], node)


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


_SPECIAL: dict[str, Callable[[Binder, CallNode], Expr]] = {
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nullif": _nullif,
    "if": _if,
    "typeof": _typeof,
    "greatest": _greatest,
    "least": _greatest,
    "concat": _concat,
    "concat_ws": _concat,
    "pow": _power,
    "power": _power,
    "xor": _xor,
    "mod": _modulo,
    "count_if": _count_if,
    **dict.fromkeys(PART_FUNCTIONS, _with_part),
}

HANDLERS: dict[type[exp.Expr], Callable[[Binder, exp.Expr], Expr]] = {
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
