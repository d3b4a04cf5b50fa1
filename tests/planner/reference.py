"""Executes logical plans by definition: plain Python over lists of tuples, an Apply row by row, a join by nested loops.

Rules and unnesting are tested against it. It knows the nodes of `planner/logical/nodes.py` and the scalar functions of
`CALLS`; a left row with two partners in a single join raises `TooManyRows`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tsql.kernels.expr.nodes import Aggregate as AggregateCall
from tsql.kernels.expr.nodes import Call, Case, Cast, Column, Expr, InList, Literal, Outer, SortKey
from tsql.planner.logical.nodes import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    Limit,
    LimitBy,
    Node,
    Output,
    Project,
    Scan,
    SetOperation,
    Sort,
    Values,
)

Row = tuple[Any, ...]
Scope = Mapping[str, Any]


class TooManyRows(Exception):
    """A scalar subquery gave two rows."""


def rows_of(plan: Node) -> Counter[Row]:
    """The result of a plan as a bag."""
    return Counter(run(plan, {}))


def run(node: Node, outer: Scope) -> list[Row]:
    """The rows of a node where outer columns have these values."""
    match node:
        case Scan():
            return (
                list(zip(*(node.source.table().column(c).to_pylist() for c in node.columns), strict=True))
                if node.columns
                else [()] * node.source.table().num_rows
            )
        case Values():
            return [tuple(value(e, {}, outer) for e in row) for row in node.rows]
        case Filter():
            return [
                row for row in run(node.input, outer) if value(node.predicate, _named(node.input, row), outer) is True
            ]
        case Project():
            return [
                tuple(value(e, _named(node.input, row), outer) for _, e in node.columns)
                for row in run(node.input, outer)
            ]
        case Aggregate():
            return _aggregate(node, outer)
        case Distinct():
            places = [node.schema.names.index(n) for n in node.on or node.schema.names]
            first: dict[Row, Row] = {}
            for row in run(node.input, outer):
                first.setdefault(tuple(row[p] for p in places), row)
            return list(first.values())
        case Sort():
            return _sorted(run(node.input, outer), node.keys, node.input, outer)
        case Limit():
            return _cut(run(node.input, outer), node.count, node.offset, outer)
        case LimitBy():
            places = [node.schema.names.index(n) for n in node.by]
            groups: dict[Row, list[Row]] = {}
            for row in _sorted(run(node.input, outer), node.order, node.input, outer):
                groups.setdefault(tuple(row[p] for p in places), []).append(row)
            return [row for group in groups.values() for row in _cut(group, node.count, node.offset, outer)]
        case SetOperation():
            return _set_operation(node, outer)
        case Join():
            return _join(node, outer)
        case Output():
            places = [node.input.schema.names.index(n) for n in node.columns]
            return [tuple(row[p] for p in places) for row in run(node.input, outer)]
    raise TypeError(node.describe())


def _named(node: Node, row: Row) -> Scope:
    return dict(zip(node.schema.names, row, strict=True))


def _cut(rows: list[Row], count: Expr | None, offset: Expr | None, outer: Scope) -> list[Row]:
    start = 0 if offset is None else value(offset, {}, outer)
    most = None if count is None else value(count, {}, outer)
    return rows[start:] if most is None else rows[start : start + most]


def _sorted(rows: list[Row], keys: tuple[SortKey, ...], node: Node, outer: Scope) -> list[Row]:
    def compare(a: Row, b: Row) -> int:
        for key in keys:
            x, y = (value(key.expr, _named(node, row), outer) for row in (a, b))
            if x == y or (x is None and y is None):
                continue
            if x is None or y is None:
                return -1 if (x is None) == key.nulls_first else 1
            return -1 if (x < y) != key.descending else 1
        return 0

    return sorted(rows, key=functools.cmp_to_key(compare))


def _aggregate(node: Aggregate, outer: Scope) -> list[Row]:
    rows = [_named(node.input, row) for row in run(node.input, outer)]
    result = []
    for chosen in node.sets if node.sets is not None else (tuple(range(len(node.keys))),):
        groups: dict[Row, list[Scope]] = {} if chosen else {(None,) * len(node.keys): []}
        for row in rows:
            key = tuple(value(e, row, outer) if i in chosen else None for i, (_, e) in enumerate(node.keys))
            groups.setdefault(key, []).append(row)
        mask = sum(1 << i for i in range(len(node.keys)) if i not in chosen)
        for key, members in groups.items():
            calls = tuple(_call_aggregate(c, members, node.input, outer) for _, c in node.aggregates)
            result.append(key + calls + ((mask,) if node.sets is not None else ()))
    return result


def _call_aggregate(call: AggregateCall, rows: list[Scope], node: Node, outer: Scope) -> Any:
    if call.filter is not None:
        rows = [row for row in rows if value(call.filter, row, outer) is True]
    if not call.args:
        return len(rows)
    found = [v for row in rows if (v := value(call.args[0], row, outer)) is not None]
    if call.distinct:
        found = list(dict.fromkeys(found))
    if call.name == "count":
        return len(found)
    return {"sum": sum, "min": min, "max": max}[call.name](found) if found else None


def _set_operation(node: SetOperation, outer: Scope) -> list[Row]:
    left, right = run(node.left, outer), run(node.right, outer)
    if node.kind == "union":
        return left + right
    a, b = Counter(left), Counter(right)
    if node.all:
        return list((a - b if node.kind == "except" else a & b).elements())
    return [row for row in a if (row in b) == (node.kind == "intersect")]


def _join(node: Join, outer: Scope) -> list[Row]:
    left, names = run(node.left, outer), (*node.left.schema.names, *node.right.schema.names)
    fixed = None if isinstance(node, Apply) else run(node.right, outer)
    met: set[int] = set()
    result: list[Row] = []
    padding = (None,) * len(node.right.schema)
    for row in left:
        right = fixed if fixed is not None else run(node.right, {**outer, **_named(node.left, row)})
        truth = [
            True if node.condition is None else value(node.condition, dict(zip(names, row + other, strict=True)), outer)
            for other in right
        ]
        partners = [other for other, true in zip(right, truth, strict=True) if true is True]
        met.update(i for i, true in enumerate(truth) if true is True)
        match node.kind:
            case "semi" | "anti":
                result += [row] if bool(partners) == (node.kind == "semi") else []
            case "mark":
                result.append((*row, True if partners else None if None in truth else False))
            case "single" if len(partners) > 1:
                raise TooManyRows
            case _:
                result += [row + other for other in partners]
                if not partners and node.kind != "inner":
                    result.append(row + padding)
    if node.kind == "full":
        result += [(None,) * len(node.left.schema) + other for i, other in enumerate(fixed or []) if i not in met]
    return result


def _strict(compute: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: None if None in args else compute(*args)


CALLS: dict[str, Callable[..., Any]] = {
    "=": _strict(lambda a, b: a == b),
    "<>": _strict(lambda a, b: a != b),
    "<": _strict(lambda a, b: a < b),
    "<=": _strict(lambda a, b: a <= b),
    ">": _strict(lambda a, b: a > b),
    ">=": _strict(lambda a, b: a >= b),
    "+": _strict(lambda a, b: a + b),
    "-": _strict(lambda a, b: a - b),
    "*": _strict(lambda a, b: a * b),
    "not": _strict(lambda a: not a),
    "is_null": lambda a: a is None,
    "is_not_null": lambda a: a is not None,
    "is_not_distinct_from": lambda a, b: a == b,
    "is_distinct_from": lambda a, b: a != b,
    "coalesce": lambda *args: next((a for a in args if a is not None), None),
    "and": lambda *args: False if False in args else None if None in args else True,
    "or": lambda *args: True if True in args else None if None in args else False,
}


def value(expr: Expr, row: Scope, outer: Scope) -> Any:
    """The value of an expression at a row."""
    match expr:
        case Column():
            return row[expr.name]
        case Outer():
            return outer[expr.name]
        case Literal():
            return expr.value
        case Cast():
            return value(expr.arg, row, outer)
        case Case():
            for condition, result in expr.whens:
                if value(condition, row, outer) is True:
                    return value(result, row, outer)
            return value(expr.otherwise, row, outer)
        case InList():
            found = value(expr.arg, row, outer)
            options = [value(o, row, outer) for o in expr.options]
            return (
                None
                if found is None
                else True
                if found in [o for o in options if o is not None]
                else None
                if None in options
                else False
            )
        case Call():
            return CALLS[expr.name](*(value(a, row, outer) for a in expr.args))
    raise TypeError(str(expr))
