"""Binding of calls through the registries: which overload of a scalar function or an aggregate fits, with its casts,
and the modifiers of aggregates. Forms that are no plain calls are in `forms.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.nodes import Aggregate, Call, Expr, Literal, Outer, SortKey
from tsql.kernels.expr.types import BIGINT, INTEGER, NULL, Type
from tsql.kernels.functions.registry import SCALARS, Registry
from tsql.kernels.windows.registry import WINDOW_FUNCTIONS
from tsql.planner.bind.ambiguous import is_ambiguous, may_unify, with_typed_null
from tsql.planner.bind.near_names import nearest
from tsql.planner.bind.operators import shown, to_boolean
from tsql.planner.bind.strings import collated
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import Bare, coerce, is_bare_string, unify

if TYPE_CHECKING:
    from tsql.planner.bind.binder import Binder

SCALARS.fill()
AGGREGATES.fill()

BIT_AGGREGATES = ("bit_and", "bit_or", "bit_xor")
QUANTILES = ("quantile_cont", "quantile_disc")
PERCENTILE_RANGE = "PERCENTILEs can only take parameters in the range [0, 1]"
ORDERED_SETS = {"percentile_cont": "quantile_cont", "percentile_disc": "quantile_disc", "mode": "mode"}


def scalar(binder: Binder, name: str, args: list[Expr], node: exp.Expr) -> Expr:
    """A call of a registered function."""
    if is_ambiguous(name, args):
        given = ", ".join(shown(arg) for arg in args)
        raise binder.error(
            f"Could not choose a best candidate function for {name}({given}): add an explicit type cast", node
        )
    args = with_typed_null(name, args)
    found = _resolve(SCALARS, name, args)
    if found is None and may_unify(args):
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
    """The value of an untyped literal for overload resolution: the integer, or "string". None for anything else."""
    if is_bare_string(arg):
        return "string"
    return arg.value if isinstance(arg, Bare) else None


def _check_constants(
    binder: Binder, constant: tuple[int, ...], name: str, args: tuple[Expr, ...], node: exp.Expr
) -> None:
    for index in constant:
        if index < len(args) and not is_constant(args[index]):
            raise binder.error(f"argument {index + 1} of {name} must be a constant", node)


def _literals(
    binder: Binder, constant: tuple[int, ...], name: str, args: tuple[Expr, ...], node: exp.Expr
) -> tuple[Expr, ...]:
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
    return not expr.columns() and not any(isinstance(part, Outer) for part in expr.walk())


ELSEWHERE = {
    "date_bin": "time_bucket(width, time)",
    "dateadd": "time + INTERVAL '1 day'",
    "nvl": "coalesce(a, b)",
    "to_date": "strptime(text, format)::DATE",
    "approx_distinct": "approx_count_distinct(x)",
}
"""Names that other engines use for our functions, where the spelling is too different for a near-name hint."""


def no_match(binder: Binder, registry: Registry, name: str, args: list[Expr], node: exp.Expr) -> Exception:
    """The error for an unknown function, or for arguments that fit no overload."""
    overloads = registry.overloads.get(name)
    if not overloads and name in WINDOW_FUNCTIONS:
        return binder.error(f"{name} is a window function: it needs OVER (..)", node)
    if not overloads:
        if name in ELSEWHERE:
            return binder.error(f"function {name} does not exist", node, hint=f"{ELSEWHERE[name]} does the same")
        names = {*SCALARS.names(), *AGGREGATES.names(), *binder.forms}
        return binder.error(
            f"function {name} does not exist", node, hint=nearest(name, (n for n in names if n[0].isalpha()))
        )
    given = ", ".join(shown(arg) for arg in args)
    candidates = "; ".join(
        f"{name}({', '.join(str(p) for p in f.args)}{', ...' if f.variadic else ''})" for f in overloads[:8]
    )
    return binder.error(f"no overload of {name} takes ({given})", node, hint=f"there is {candidates}")


def bind_aggregate(binder: Binder, node: exp.Expr) -> Expr:
    """An aggregate call with its modifiers; `binder.aggregate` gives the expression of its result."""
    bound = aggregate_call(binder, node)
    return binder.aggregate(bound, node)


def aggregate_call(binder: Binder, node: exp.Expr, inner: Binder | None = None, windowed: bool = False) -> Aggregate:
    """An aggregate call with its modifiers. `inner` binds the arguments; one without aggregates unless given.
    `windowed`: OVER follows."""
    filter_node = order_node = None
    call = node
    if isinstance(call, exp.Filter):
        filter_node, call = call.expression.this, call.this
    if isinstance(call, exp.WithinGroup):
        order_node, call = call.expression, call.this
    if not isinstance(call, CallNode) or call.name not in AGGREGATES.overloads and call.name not in ORDERED_SETS:
        if isinstance(call, CallNode) and call.name not in SCALARS.overloads and call.name not in binder.forms:
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
    key = ordering[0] if name in QUANTILES and len(ordering) == 1 and not windowed else None
    if key is not None:
        # Only its direction counts, and in a window not even that, as in DuckDB.
        ordering = []
    if name == "count" and arguments and isinstance(arguments[0], exp.Star) and not distinct:
        if len(arguments) > 1 or any(arguments[0].args.values()):
            raise binder.error(
                "count(*) takes the * alone",
                arguments[0],
                hint="count(COLUMNS(* EXCLUDE a)) counts the values of each column",
            )
        arguments = []
    args = [inner.operand(argument) for argument in arguments]
    # A bare NULL is tried as INTEGER first: the result column has that type.
    typed = [coerce(arg, BIGINT if name in BIT_AGGREGATES else INTEGER) if arg.type == NULL else arg for arg in args]
    found = _resolve(AGGREGATES, name, typed) or _resolve(AGGREGATES, name, args)
    if found is None:
        raise no_match(binder, AGGREGATES, name, args, call)
    function, types = found
    distinct = distinct and not function.ignores_repeats
    cast = tuple(coerce(arg, dtype) for arg, dtype in zip(args, types, strict=True))
    cast = _literals(binder, function.constant, name, cast, call)
    if key is not None:
        cast = (cast[0], _in_order(binder, cast[1], bool(key.args.get("desc")), call))
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


def _ordered_set(
    binder: Binder, name: str, arguments: list[exp.Expr], order: exp.Order, call: exp.Expr
) -> tuple[str, list[exp.Expr], list[exp.Ordered]]:
    """`percentile_cont(0.5) WITHIN GROUP (ORDER BY x)` is quantile_cont(x, 0.5)."""
    if name not in ORDERED_SETS:
        raise binder.error(f"{name} is no ordered-set aggregate: WITHIN GROUP does not apply", call)
    if len(order.expressions) != 1:
        raise binder.error("WITHIN GROUP takes one ORDER BY expression", call)
    key = order.expressions[0]
    return ORDERED_SETS[name], [key.this, *arguments], [key]


def _in_order(binder: Binder, fraction: Literal, descending: bool, call: exp.Expr) -> Literal:
    """The fraction of a quantile with ORDER BY. A negative one counts from the greatest value; zero has no sign, and is
    1 from the other end."""
    value, one = fraction.value, 10**fraction.type.scale
    if value is None or not descending:
        if value is not None and not 0 <= value <= one:
            raise binder.error(PERCENTILE_RANGE, call)
        return fraction
    if not 0 <= value <= one:
        raise binder.error(PERCENTILE_RANGE, call)
    return Literal(one if value == 0 else -value, fraction.type, fraction.position)


def sort_key(binder: Binder, node: exp.Ordered) -> SortKey:
    """One key of an ORDER BY inside a call; NULLs are last unless said otherwise, as in DuckDB."""
    return SortKey(collated(binder, node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first")))
