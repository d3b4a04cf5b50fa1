"""number_panes: groups of windows in time are groups of pane numbers, and a bound that another bound determines is no
key.

    aggregate by=(k, s=window_start, e=window_end)         project k s=pane_time(s, ..) e=pane_time(s, ..) + size
      project window_start=time_floor(ts, ..)       ->       aggregate by=(k, s=time_pane(ts, ..))
              window_end=time_floor(ts, ..) + size             t
        t

Numbers of panes are small and dense where times are not, so that groups can be in an array. Windows that overlap are
left to `planner/logical/panes.py`."""

from __future__ import annotations

from typing import TypeGuard

from tsql.kernels.expr.nodes import Call, Column, Expr, Literal, rewrite, substitute
from tsql.kernels.expr.types import BIGINT
from tsql.planner.logical.calls import map_call
from tsql.planner.logical.nodes import Aggregate, Node, Project
from tsql.planner.logical.panes import paned
from tsql.planner.rules.framework import BOTTOM_UP, Surroundings, rule


@rule(BOTTOM_UP, about=(Aggregate,))
def number_panes(node: Aggregate, around: Surroundings) -> Node:
    if node.sets is not None or paned(node) is not None:
        return node
    below, columns = node.input, None
    while isinstance(below, Project) and id(below) not in around.shared:
        inner = dict(below.columns)
        columns = inner if columns is None else {n: substitute(e, inner) for n, e in columns.items()}
        below = below.input
    keys = node.keys if columns is None else tuple((n, substitute(e, columns)) for n, e in node.keys)
    floors = {e: None for _, key in keys for e in key.walk() if _is_floor(e)}
    if not floors:
        return node
    numbers: dict[Call, str] = {}
    made: list[tuple[str, Expr]] = []
    shown: dict[str, Expr] = {}
    for name, key in keys:
        if _is_floor(key) and key not in numbers:
            numbers[key] = name
            made.append((name, Call("time_pane", key.args, BIGINT)))
    for name, key in keys:
        if name in numbers.values():
            continue
        bare = rewrite(key, lambda e: Literal(0, BIGINT) if e in numbers else e)
        if bare.columns() or not any(e in numbers for e in key.walk()):
            made.append((name, key))
        else:
            shown[name] = rewrite(key, lambda e: _start(e, numbers) if isinstance(e, Call) and e in numbers else e)
    if not numbers:
        return node
    calls = (
        node.aggregates
        if columns is None
        else tuple((n, map_call(c, lambda e: substitute(e, columns))) for n, c in node.aggregates)
    )
    grouped = Aggregate(below, tuple(made), calls)
    starts = {name: _start(key, numbers) for key, name in numbers.items()}
    return Project(
        grouped,
        tuple(
            (f.name, starts.get(f.name) or shown.get(f.name) or Column(f.name, f.type, f.nullable)) for f in node.schema
        ),
    )


def _is_floor(expr: Expr) -> TypeGuard[Call]:
    return isinstance(expr, Call) and expr.name == "time_floor"


def _start(key: Call, numbers: dict[Call, str]) -> Expr:
    return Call("pane_time", (Column(numbers[key], BIGINT), *key.args[1:]), key.type)
