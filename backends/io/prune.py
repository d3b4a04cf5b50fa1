"""Skipping by statistics: whether a filter can be true for any row of a part with known column bounds.

Sources call `may_match` for each file and row group. It may return True for any filter that it does not understand, and
returns False only if no row can pass: NULLs never satisfy a comparison, and NaN is above every number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tsql.kernels.expr.nodes import Call, Cast, Column, Expr, InList, Literal
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRROR = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Bounds:
    """What is known of a column in a part: all non-NULL values are in [low, high] (stored form; None = unknown), and
    how many of its `rows` are NULL (None = unknown)."""

    low: Any
    high: Any
    nulls: int | None
    rows: int | None

    @property
    def all_null(self) -> bool:
        return self.nulls is not None and self.rows is not None and self.nulls >= self.rows


def columns_of(filter: Expr | None) -> tuple[str, ...]:
    """The columns whose bounds `may_match` could use."""
    return () if filter is None else filter.columns()


def conjuncts(filter: Expr | None) -> list[Expr]:
    """The conjuncts of a filter."""
    found, stack = [], [] if filter is None else [filter]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.name.lower() == "and":
            stack.extend(reversed(node.args))
        else:
            found.append(node)
    return found


def may_match(filter: Expr | None, bounds: Mapping[str, Bounds]) -> bool:
    """False only if `filter` is true for no row of a part with these bounds."""
    return all(_may_be_true(part, bounds, 0) for part in conjuncts(filter))


def _may_be_true(node: Expr, bounds: Mapping[str, Bounds], depth: int) -> bool:
    if depth > 50:
        return True
    if isinstance(node, Literal):
        return bool(node.value)
    if isinstance(node, InList):
        return _in_list(node, bounds)
    if not isinstance(node, Call):
        return True
    name = node.name.lower()
    if name == "and":
        return all(_may_be_true(arg, bounds, depth + 1) for arg in node.args)
    if name == "or":
        return any(_may_be_true(arg, bounds, depth + 1) for arg in node.args)
    if name in COMPARISONS and len(node.args) == 2:
        return _compare(COMPARISONS[name], node.args[0], node.args[1], bounds)
    if name == "between" and len(node.args) == 3:
        arg, low, high = node.args
        return _compare(">=", arg, low, bounds) and _compare("<=", arg, high, bounds)
    if name in ("is_null", "isnull", "is_not_null", "notnull", "isnotnull") and len(node.args) == 1:
        return _null_test(node.args[0], name in ("is_null", "isnull"), bounds)
    if name == "not" and len(node.args) == 1:
        return _may_be_false(node.args[0], bounds)
    return True


def _may_be_false(node: Expr, bounds: Mapping[str, Bounds]) -> bool:
    if isinstance(node, Call):
        name = node.name.lower()
        if name in COMPARISONS and len(node.args) == 2:
            return _compare(_NEGATED[COMPARISONS[name]], node.args[0], node.args[1], bounds)
        if name in ("is_null", "isnull") and len(node.args) == 1:
            return _null_test(node.args[0], False, bounds)
        if name in ("is_not_null", "notnull", "isnotnull") and len(node.args) == 1:
            return _null_test(node.args[0], True, bounds)
    return True


def _null_test(arg: Expr, wants_null: bool, bounds: Mapping[str, Bounds]) -> bool:
    found = bounds.get(arg.name) if isinstance(arg, Column) else None
    if found is None or found.nulls is None:
        return True
    return found.nulls > 0 if wants_null else not found.all_null


def _in_list(node: InList, bounds: Mapping[str, Bounds]) -> bool:
    return any(_compare("=", node.arg, option, bounds) for option in node.options)


def _compare(op: str, left: Expr, right: Expr, bounds: Mapping[str, Bounds]) -> bool:
    if isinstance(left, Literal):
        left, right, op = right, left, _MIRROR[op]
    if not isinstance(right, Literal):
        return True
    if right.value is None:
        return False
    found = _bounds_of(left, bounds)
    if found is None:
        return True
    if found.all_null:
        return False
    value = right.value
    if isinstance(value, str):
        # String bounds are compared as bytes: truncated bounds may end inside a character.
        value = value.encode("utf-8", "surrogatepass")
    if left.type.is_float and (op in (">", ">=", "<>") or value != value):
        return True  # statistics leave NaN out, and NaN is above every number
    return _in_range(op, found.low, found.high, value)


def _in_range(op: str, low: Any, high: Any, value: Any) -> bool:
    """Whether `x op value` can hold for an x in [low, high]."""
    above, below = low is None or low <= value, high is None or value <= high
    match op:
        case "=":
            return above and below
        case "<>":
            return low is None or high is None or not low == value == high
        case "<":
            return low is None or low < value
        case "<=":
            return above
        case ">":
            return high is None or high > value
        case _:
            return below


def _bounds_of(expr: Expr, bounds: Mapping[str, Bounds]) -> Bounds | None:
    """Bounds of a column, or of a cast of one that keeps the order of values; in the stored form of `expr`'s type."""
    if isinstance(expr, Column):
        found = bounds.get(expr.name)
        return (
            None if found is None else Bounds(_comparable(found.low), _comparable(found.high), found.nulls, found.rows)
        )
    if not isinstance(expr, Cast) or expr.safe:
        return None
    inner = _bounds_of(expr.arg, bounds)
    if inner is None:
        return None
    low, high = (_widen(value, expr.arg.type, expr.dtype) for value in (inner.low, inner.high))
    return Bounds(low, high, inner.nulls, inner.rows)


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _widen(value: Any, source: Type, target: Type) -> Any:
    """The stored form after a cast that cannot fail and keeps order; None (unknown) for any other cast."""
    if value is None:
        return None
    if source == target:
        return value
    if (
        source.is_integer
        and target.is_integer
        and target.bounds[0] <= source.bounds[0]
        and source.bounds[1] <= target.bounds[1]
    ):
        return value
    if (source.is_integer or source.is_decimal) and target.is_decimal and target.scale >= source.scale:
        return value * 10 ** (target.scale - source.scale)
    if source.is_integer and target.name == "DOUBLE":
        return float(value)
    if source.name == "DATE" and target.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        return value * 86_400_000_000
    if source.name == "TIMESTAMP" and target.name == "TIMESTAMPTZ":
        return value
    return None
