"""Binds window functions: `f(..) OVER (..)` becomes a `WindowCall` with its PARTITION BY and ORDER BY. Called through
`Binder.operand`, and by plan files for the calls of a `window` step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.expr.nodes import Call, Expr, Literal, SortKey
from tsql.kernels.expr.types import BIGINT, DATE, INTEGER, NULL, TIME, TIMESTAMP, TIMESTAMPTZ
from tsql.kernels.functions.registry import SCALARS
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.kernels.windows.call import DEFAULT_FRAME, Bound, Frame, WindowCall
from tsql.kernels.windows.registry import ALIASES, WINDOW_FUNCTIONS, WindowSignature
from tsql.planner.bind.calls import aggregate_call, no_match, sort_key, unwrap_arguments
from tsql.planner.bind.operators import no_operator
from tsql.planner.bind.query_text import is_all
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import arithmetic_type, castable, coerce, force_type, is_bare_string, settle

if TYPE_CHECKING:
    from tsql.planner.bind.binder import Binder

Place = Callable[[WindowCall, tuple[Expr, ...], tuple[SortKey, ...], exp.Expr], Expr]


@dataclass
class WindowScope:
    """Where window functions are allowed: the windows of the WINDOW clause by lower-case name, and `place`, which turns
    a bound call into the expression of its result."""

    place: Place
    named: dict[str, exp.Window] = field(default_factory=dict)


@dataclass(frozen=True)
class OverClause:
    """The content of the parentheses of OVER, with named windows filled in."""

    partition: tuple[exp.Expr, ...] = ()
    order: tuple[exp.Ordered, ...] = ()
    frame: exp.WindowSpec | None = None


def bind_window(binder: Binder, node: exp.Window) -> Expr:
    """A call with OVER."""
    if binder.windows is None:
        nested = binder.clause == INSIDE
        raise binder.error(
            "window function calls cannot be nested" if nested else f"{binder.clause} cannot contain window functions",
            node,
        )
    spec = over(binder, node)
    inner = binder.inside_window(INSIDE)
    partition = tuple(inner.bind_typed(p) for p in spec.partition)
    order = tuple(_order_key(inner, key, node) for key in spec.order)
    return binder.windows.place(bind_call(inner, node.this, spec.frame, order), partition, order, node)


INSIDE = "a window function"
TIMES = (TIMESTAMP, TIMESTAMPTZ)


def _order_key(binder: Binder, node: exp.Ordered, window: exp.Window) -> SortKey:
    if is_all(node.this):
        raise binder.error("Cannot ORDER BY ALL in a window expression", window)
    key = sort_key(binder, node)
    return replace(key, expr=coerce(key.expr, INTEGER)) if key.expr.type == NULL else key


def define_windows(binder_error: Callable[..., Exception], definitions: list[exp.Window]) -> dict[str, exp.Window]:
    """The WINDOW clause by name; each window may build on those before it."""
    named: dict[str, exp.Window] = {}
    for definition in definitions:
        name = definition.this.name.lower()
        if name in named:
            raise binder_error(f'window "{definition.this.name}" is already defined', definition.this)
        base = definition.args.get("alias")
        if base is not None and base.name.lower() not in named:
            raise binder_error(f'window "{base.name}" does not exist', base)
        named[name] = definition
    return named


def over(binder: Binder, node: exp.Window) -> OverClause:
    """The specification of a window, with that of the named window that it builds on."""
    own = OverClause(
        tuple(node.args.get("partition_by") or ()),
        tuple(node.args["order"].expressions) if node.args.get("order") else (),
        node.args.get("spec"),
    )
    name = node.args.get("alias")
    if name is None:
        return own
    base_node = binder.windows.named.get(name.name.lower()) if binder.windows is not None else None
    if base_node is None:
        raise binder.error(f'window "{name.name}" does not exist', name)
    base = over(binder, base_node)
    if own == OverClause() and not _in_parentheses(binder, name):
        return base
    if base.frame is not None:
        raise binder.error(f'cannot copy window "{name.name}" because it has a frame clause', name)
    if own.partition and base.partition:
        raise binder.error(f'Cannot override PARTITION BY clause of window "{name.name}"', name)
    if own.order and base.order:
        raise binder.error(f'Cannot override ORDER BY clause of window "{name.name}"', name)
    return OverClause(own.partition or base.partition, own.order or base.order, own.frame)


def _in_parentheses(binder: Binder, name: exp.Expr) -> bool:
    """Whether a window is named as `OVER (w)`, which copies it, and not as `OVER w`."""
    at = binder.position(name)
    return at is not None and binder.source.text[:at].rstrip().endswith("(")


def bind_call(binder: Binder, node: exp.Expr, spec: exp.WindowSpec | None, order: tuple[SortKey, ...]) -> WindowCall:
    """The function of a window with its frame; `order` is the window's."""
    call = node
    while isinstance(call, exp.Filter | exp.WithinGroup):
        call = call.this
    if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
        raise binder.error(
            "IGNORE NULLS and RESPECT NULLS stand inside the parentheses of the call",
            node,
            hint="first_value(x IGNORE NULLS) OVER (..)",
        )
    if not isinstance(call, CallNode):
        raise binder.error("OVER follows a call of a function", node)
    function = WINDOW_FUNCTIONS.get(ALIASES.get(call.name, call.name))
    frame = bind_frame(binder, spec, order, call)
    if function is not None:
        return _function(binder, function, node, call, frame, order)
    if call.name not in AGGREGATES.overloads:
        if call.name in SCALARS.overloads:
            raise binder.error(f"{call.name} is not an aggregate function: OVER does not apply", call)
        raise no_match(binder, AGGREGATES, call.name, [], call)
    if any(isinstance(a, exp.IgnoreNulls | exp.RespectNulls) for a in call.expressions):
        raise binder.error("RESPECT NULLS and IGNORE NULLS are not supported for windowed aggregates", call)
    bound = aggregate_call(binder, node, binder, windowed=True)
    return WindowCall(
        bound.name, bound.args, bound.dtype, frame, bound.distinct, bound.filter, bound.order, False, bound.position
    )


def _function(
    binder: Binder, function: WindowSignature, node: exp.Expr, call: CallNode, frame: Frame, window: tuple[SortKey, ...]
) -> WindowCall:
    name = function.name
    if function.over_time and (not window or window[0].descending or window[0].expr.type not in TIMES):
        raise binder.error(f"{name} is computed over rows in the order of a time, from the earliest on", call)
    if node is not call:
        raise binder.error(f"FILTER is not implemented for the window function {name}", call)
    nodes, ignore = _without_nulls(call.expressions)
    nodes, distinct, ordering = unwrap_arguments(nodes)
    if distinct:
        raise binder.error(f"DISTINCT is not implemented for the window function {name}", call)
    if ignore is not None and not function.nulls:
        raise binder.error(f"RESPECT NULLS and IGNORE NULLS are not supported for the window function {name}", call)
    if ordering and not function.ordered:
        raise binder.error(f"ORDER BY inside the call is not supported for the window function {name}", call)
    least, most = function.takes
    if not least <= len(nodes) <= most:
        takes = f"{least}" if least == most else f"{least} to {most}"
        raise binder.error(f"{name} takes {takes} argument{'s' if most != 1 else ''}, not {len(nodes)}", call)
    args: list[Expr] = []
    for index, argument in enumerate(nodes):
        value = binder.operand(argument)
        if index in function.integers:
            if not (value.type.is_integer or value.type == NULL or is_bare_string(value)):
                raise binder.error(f"argument {index + 1} of {name} is a whole number, not {value.type}", argument)
            args.append(coerce(value, BIGINT))
        elif index in function.like_first:
            if not castable(value.type, args[0].type):
                raise binder.error(
                    f"argument {index + 1} of {name} is {args[0].type} as its first, not {value.type}", argument
                )
            args.append(coerce(value, args[0].type))
        elif function.over_time and value.type not in TIMES:
            raise binder.error(f"argument {index + 1} of {name} is a TIMESTAMP, not {value.type}", argument)
        else:
            args.append(coerce(value, INTEGER) if value.type == NULL else settle(value))
    order = tuple(sort_key(binder, key) for key in ordering)
    dtype = function.returns if function.returns is not None else args[0].type
    return WindowCall(
        name,
        tuple(args),
        dtype,
        frame if function.framed else DEFAULT_FRAME,
        False,
        None,
        order,
        bool(ignore),
        binder.position(call),
    )


def _without_nulls(nodes: list[exp.Expr]) -> tuple[list[exp.Expr], bool | None]:
    """The arguments without IGNORE NULLS or RESPECT NULLS, which hang on the last one (or inside its ORDER BY), and
    which it was."""
    found = None
    result = []
    for node in nodes:
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            found = isinstance(node, exp.IgnoreNulls)
            node = node.this
        elif isinstance(node, exp.Order) and isinstance(node.this, exp.IgnoreNulls | exp.RespectNulls):
            found = isinstance(node.this, exp.IgnoreNulls)
            node = exp.Order(this=node.this.this, expressions=node.expressions)
        result.append(node)
    return result, found


def bind_frame(binder: Binder, spec: exp.WindowSpec | None, order: tuple[SortKey, ...], call: exp.Expr) -> Frame:
    """The frame clause; DuckDB's default without one."""
    if spec is None:
        return DEFAULT_FRAME
    mode = (spec.args.get("kind") or "range").lower()
    start_kind, start_node = _side(binder, spec, "start", call)
    end_kind, end_node = _side(binder, spec, "end", call) if spec.args.get("end") is not None else ("current", None)
    _check_order(binder, call, start_kind, end_kind)
    excluded = spec.args.get("exclude")
    exclude = "" if excluded is None else excluded.name.lower()
    exclude = "" if exclude == "no others" else exclude
    start_kind, end_kind = (k.split()[0] if k.startswith("unbounded") else k for k in (start_kind, end_kind))
    if mode != "range" or (start_node is None and end_node is None):
        bounds = [
            Bound(k, None if n is None else binder.bind_as(n, BIGINT))
            for k, n in ((start_kind, start_node), (end_kind, end_node))
        ]
        return Frame(mode, *bounds, exclude)
    if len(order) != 1:
        raise binder.error("RANGE frames with an offset must have only one ORDER BY expression", call)
    return _range_frame(binder, order[0], (start_kind, start_node), (end_kind, end_node), exclude)


def _range_frame(
    binder: Binder, key: SortKey, start: tuple[str, exp.Expr | None], end: tuple[str, exp.Expr | None], exclude: str
) -> Frame:
    """RANGE with offsets: each end of the frame is a value of the ORDER BY expression. All values are compared in one
    type."""
    ends: list[tuple[str, Expr | None, Expr | None]] = []
    if key.expr.type == TIME:
        # TIME + INTERVAL wraps around at midnight, so frames end at midnight.
        key = replace(key, expr=Call("+", (Literal(0, DATE), key.expr), TIMESTAMP))
    dtype = key.expr.type
    for kind, node in (start, end):
        if node is None:
            ends.append((kind, None, None))
            continue
        operation = "-" if (kind == "preceding") != key.descending else "+"
        offset = binder.operand(node)
        if isinstance(offset, Literal) and offset.value is None:
            raise binder.error("Window RANGE expressions cannot be NULL", node)
        rule = arithmetic_type(operation, key.expr, offset)
        if rule is None or rule.swap or rule.result == NULL:
            raise no_operator(binder, operation, (key.expr, offset), binder.position(node))
        offset = coerce(offset, rule.right)
        limit = Call(operation, (coerce(key.expr, rule.left), offset), rule.result, binder.position(node))
        dtype = force_type(dtype, rule.result)
        ends.append((kind, offset, limit))
    bounds = [Bound(kind, offset, None if limit is None else coerce(limit, dtype)) for kind, offset, limit in ends]
    return Frame("range", *bounds, exclude, coerce(key.expr, dtype))


def _side(binder: Binder, spec: exp.WindowSpec, which: str, call: exp.Expr) -> tuple[str, exp.Expr | None]:
    """("unbounded preceding", "current", "preceding", ..) and the offset of an end of the frame."""
    value, side = spec.args.get(which), (spec.args.get(f"{which}_side") or "").lower()
    if isinstance(value, str):
        return ("current", None) if value.upper().startswith("CURRENT") else (f"unbounded {side}", None)
    if value is None or not side:
        raise binder.error("a frame needs a start, as in ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", call)
    return side, value


def _check_order(binder: Binder, call: exp.Expr, start: str, end: str) -> None:
    problem = None
    if start == "unbounded following":
        problem = "Frame start cannot be UNBOUNDED FOLLOWING"
    elif end == "unbounded preceding":
        problem = "Frame end cannot be UNBOUNDED PRECEDING"
    elif start == "current" and end == "preceding":
        problem = "Frame starting from current row cannot have preceding rows"
    elif start == "following" and end == "preceding":
        problem = "Frame starting from following row cannot have preceding rows"
    elif start == "following" and end == "current":
        problem = "Frame starting from following row cannot end with current row"
    if problem is not None:
        raise binder.error(problem, call)
