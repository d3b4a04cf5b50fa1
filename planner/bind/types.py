"""Typing rules of operators, in one place and after DuckDB: what types meet, what they are cast to, what comes out.

A literal as the user wrote it is `Bare`: an integer adapts to the integer type of the other side if its value fits, a
string to any type. `coerce` makes a cast explicit (or folds it) and ends a literal's freedom.

The arithmetic Calls that come out have these argument types:
  integers, floats            both sides the result type ("/" has only FLOAT and DOUBLE)
  DECIMAL + - %               both sides one type D; + and - give DECIMAL(D.width + 1, D.scale) up to 38 digits, % gives
  D
  DECIMAL *                   each side its own DECIMAL type; scales add up
  DATE + - INTEGER            DATE first, gives DATE;  DATE - DATE gives BIGINT;  DATE + TIME gives TIMESTAMP
  TIMESTAMP[TZ] + - INTERVAL  the time first (a DATE is cast to TIMESTAMP), also TIME + - INTERVAL
  TIMESTAMP[TZ] - TIMESTAMP[TZ] of the same type gives INTERVAL
  INTERVAL + - INTERVAL, INTERVAL * BIGINT, INTERVAL * DOUBLE, INTERVAL / DOUBLE (the interval first)
"""

from __future__ import annotations

from collections.abc import Sequence

from tsql.kernels.expr.nodes import Cast, Expr, Literal, Parameter
from tsql.kernels.expr.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    HUGEINT,
    INTEGER,
    INTERVAL,
    NULL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UBIGINT,
    VARCHAR,
    Type,
    as_decimal,
    common_type,
    implicit_cast_cost,
)
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.bind.fold import fold, fold_exact


@dataclass(frozen=True, eq=False)
class Bare(Literal):
    """A number or a string as written, whose type is not settled yet."""


def settle(expr: Expr) -> Expr:
    """A plain Literal in place of a Bare one."""
    return Literal(expr.value, expr.dtype, expr.position) if isinstance(expr, Bare) else expr


def coerce(expr: Expr, target: Type) -> Expr:
    """`expr` as a value of `target`: itself, a folded constant, or an explicit Cast."""
    if expr.type == target:
        return settle(expr)
    if isinstance(expr, Literal):
        folded = fold(expr, target)
        if folded is not None:
            return folded
    return Cast(settle(expr), target, position=getattr(expr, "position", None))


def castable(source: Type, target: Type) -> bool:
    """Whether an explicit cast exists at all."""
    if source == target or VARCHAR in (source, target) or source == NULL:
        return True
    plain = source.is_numeric or source == BOOLEAN
    if plain:
        return target.is_numeric or target == BOOLEAN
    allowed = {DATE: (TIMESTAMP, TIMESTAMPTZ), TIMESTAMP: (DATE, TIME, TIMESTAMPTZ), TIMESTAMPTZ: (DATE, TIMESTAMP)}
    return target in allowed.get(source, ())


def is_bare_string(expr: Expr) -> bool:
    """A string literal, or a parameter that holds a string: both take the type of what they meet."""
    return isinstance(expr, (Bare, Parameter)) and expr.dtype == VARCHAR


def is_bare_integer(expr: Expr) -> bool:
    return isinstance(expr, Bare) and expr.dtype.is_integer


def fits(expr: Literal, target: Type) -> bool:
    low, high = target.bounds
    return low <= expr.value <= high


def max_type(a: Type, b: Type) -> Type | None:
    """The type of a CASE, COALESCE or `<` over values of both types; None where a cast must be written."""
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if BOOLEAN in (a, b):
        other = b if a == BOOLEAN else a
        return other if other.is_integer else None
    if VARCHAR in (a, b):
        return None
    return common_type(a, b)


_RANK = ("BOOLEAN", "NUMBER", "TIME", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL", "VARCHAR", "BLOB")


def force_type(a: Type, b: Type) -> Type:
    """The type of a UNION column: `max_type`, else the type that ranks higher."""
    found = max_type(a, b)
    if found is not None:
        return found
    return max(a, b, key=lambda t: _RANK.index("NUMBER" if t.is_numeric else t.name))


def unify(exprs: Sequence[Expr], force: bool = False) -> Type | None:
    """The common type of values; literals adapt to the others. None where there is none."""
    typed = [e for e in exprs if not is_bare_string(e) and not is_bare_integer(e)]
    result = NULL
    for expr in typed:
        found = force_type(result, expr.type) if force else max_type(result, expr.type)
        if found is None:
            return None
        result = found
    for expr in exprs:
        if is_bare_integer(expr) and not (result.is_integer and fits(expr, result)):
            found = force_type(result, expr.type) if force else max_type(result, expr.type)
            if found is None:
                return None
            result = found
    if result == NULL and any(is_bare_string(e) for e in exprs):
        return VARCHAR
    return result


def comparison_type(left: Expr, right: Expr, equality: bool) -> Type | None:
    """The type in which two values are compared. Equality tries harder than order: a string meets anything."""
    found = unify((left, right), force=equality)
    if found is None:
        return None
    if found == VARCHAR and equality and {left.type, right.type} != {VARCHAR}:
        others = [t for t in (left.type, right.type) if t not in (VARCHAR, NULL)]
        found = others[0] if others else VARCHAR
    for value, other in ((left, right), (right, left)):
        # A column compared with a number it can hold needs no cast of the column.
        if (
            isinstance(value, Literal)
            and not isinstance(other, Literal)
            and other.type.is_numeric
            and value.type.is_numeric
        ):
            if found != other.type and fold_exact(value, other.type) is not None:
                return other.type
    return NULL_AS_INTEGER if found == NULL else found


NULL_AS_INTEGER = INTEGER
"""The type in which NULL is compared with NULL."""


def integer_type(left: Expr, right: Expr) -> Type:
    """The type of integer arithmetic: the wider side if the other converts to it, else BIGINT or HUGEINT."""
    a, b = left.type, right.type
    if is_bare_integer(left) and not is_bare_integer(right) and fits(left, b):
        return b
    if is_bare_integer(right) and not is_bare_integer(left) and fits(right, a):
        return a
    if implicit_cast_cost(a, b) is not None:
        return b
    if implicit_cast_cost(b, a) is not None:
        return a
    return HUGEINT if UBIGINT in (a, b) else BIGINT


@dataclass(frozen=True)
class Arithmetic:
    """How a binary operator is typed: the types to cast the sides to, the result, and whether the sides change
    places."""

    left: Type
    right: Type
    result: Type
    swap: bool = False


def arithmetic_type(op: str, left: Expr, right: Expr) -> Arithmetic | None:
    """The typing of `left op right` for + - * / // %, or None where DuckDB has no such operator."""
    left_type, right_type = _settle_side(op, left, right), _settle_side(op, right, left, is_right=True)
    if left_type is None or right_type is None:
        return None
    if left_type == NULL and right_type == NULL:
        left_type = right_type = BIGINT
    if INTERVAL in (left_type, right_type) or left_type.is_temporal or right_type.is_temporal:
        return _temporal(op, left_type, right_type)
    if left_type == NULL or right_type == NULL:
        known = right_type if left_type == NULL else left_type
        if known.is_decimal and op not in ("/", "//"):
            return Arithmetic(NULL, NULL, NULL)
        left_type = right_type = known
    if not (left_type.is_numeric and right_type.is_numeric):
        return None
    if left_type.is_integer and right_type.is_integer and op != "/":
        both = integer_type(left, right) if left.type == left_type and right.type == right_type else left_type
        return Arithmetic(both, both, both)
    if left_type.is_float or right_type.is_float or op in ("/", "//"):
        has_double = DOUBLE in (left_type, right_type) or FLOAT not in (left_type, right_type)
        both = DOUBLE if has_double else FLOAT
        return Arithmetic(both, both, both)
    return _decimal(op, left_type, right_type)


def _settle_side(op: str, side: Expr, other: Expr, is_right: bool = False) -> Type | None:
    """The type of a side once a bare string has adapted to the other side."""
    if not is_bare_string(side):
        return side.type
    target = other.type
    if is_bare_string(other):
        return None
    if target == NULL:
        return BIGINT
    if target.is_decimal:
        return DOUBLE
    if target.is_numeric:
        return target
    if op == "/" and target == INTERVAL:
        return DOUBLE
    if op == "-" and not is_right and target in (DATE, TIMESTAMP, TIMESTAMPTZ):
        return target
    if op in ("+", "-") and target in (INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ) and (is_right or op == "+"):
        return INTERVAL
    return None


def _decimal(op: str, a: Type, b: Type) -> Arithmetic | None:
    a, b = as_decimal(a), as_decimal(b)
    if op == "*":
        scale = a.scale + b.scale
        if scale > 38:
            return None
        width = a.width + b.width
        # DuckDB stays in 64 bits where both sides do, and reports an overflow instead of widening.
        if width > 18 and max(a.width, b.width) <= 18 and scale < 18:
            width = 18
        return Arithmetic(a, b, DECIMAL(min(width, 38), scale))
    if op == "%" and max(a.width - a.scale, b.width - b.scale) + max(a.scale, b.scale) > 38:
        return Arithmetic(DOUBLE, DOUBLE, DOUBLE)
    both = common_type(a, b)
    if op == "%":
        return Arithmetic(both, both, both)
    return Arithmetic(both, both, DECIMAL(min(both.width + 1, 38), both.scale))


def _temporal(op: str, a: Type, b: Type) -> Arithmetic | None:
    if op == "+" and (
        b in (DATE, TIMESTAMP, TIMESTAMPTZ) or (b == TIME and a == INTERVAL) or (a == NULL and b == INTERVAL)
    ):
        swapped = _temporal_ordered(op, b, a)
        return None if swapped is None else Arithmetic(swapped.left, swapped.right, swapped.result, swap=True)
    if op == "*" and b == INTERVAL:
        swapped = _temporal_ordered(op, b, a)
        return None if swapped is None else Arithmetic(swapped.left, swapped.right, swapped.result, swap=True)
    return _temporal_ordered(op, a, b)


def _temporal_ordered(op: str, a: Type, b: Type) -> Arithmetic | None:
    if a == NULL and op == "-":
        return _temporal_ordered(op, b, b)
    if a == INTERVAL:
        if op in ("+", "-") and b in (INTERVAL, NULL):
            return Arithmetic(INTERVAL, INTERVAL, INTERVAL)
        if op == "*" and ((b.is_integer and b != HUGEINT) or b == NULL):
            return Arithmetic(INTERVAL, BIGINT, INTERVAL)
        if op in ("*", "/") and (b.is_numeric or b == NULL):
            return Arithmetic(INTERVAL, DOUBLE, INTERVAL)
        return None
    if op not in ("+", "-") or not a.is_temporal:
        return None
    if b == INTERVAL:
        time = TIMESTAMP if a == DATE else a
        return Arithmetic(time, INTERVAL, time)
    if a == DATE:
        if b == NULL or (b.is_integer and implicit_cast_cost(b, INTEGER) is not None):
            return Arithmetic(DATE, INTEGER, DATE)
        if op == "+":
            return Arithmetic(DATE, TIME, TIMESTAMP) if b == TIME else None
        if b == DATE:
            return Arithmetic(DATE, DATE, BIGINT)
    if b == NULL:
        return Arithmetic(a, INTERVAL, a)
    if op == "-" and a in (DATE, TIMESTAMP, TIMESTAMPTZ) and b in (DATE, TIMESTAMP, TIMESTAMPTZ):
        both = common_type(a, b)
        return Arithmetic(both, both, INTERVAL)
    return None


def bitwise_type(left: Expr, right: Expr) -> Type | None:
    """The type of & | << >> and xor, or None."""
    sides = []
    for side, other in ((left, right), (right, left)):
        if is_bare_string(side) and not is_bare_string(other) and (other.type.is_integer or other.type == NULL):
            sides.append(other.type)
        else:
            sides.append(side.type)
    known = [t for t in sides if t != NULL]
    if not all(t.is_integer for t in known):
        return None
    if len(known) == 2:
        return integer_type(left, right) if (left.type, right.type) == tuple(sides) else known[0]
    return known[0] if known else BIGINT
