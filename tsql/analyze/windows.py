"""Window functions of one SELECT: the calls that its clauses use, and the Window nodes that compute them.

Clauses are first bound with a placeholder column for each call. `Windows.build` adds the nodes above the plan, and
`Windows.over_result` then replaces the placeholders by their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlglot import exp

from tsql.analyze.group import WINDOW_PLACEHOLDER, mentions_aggregate
from tsql.analyze.scope import Names, plan_name
from tsql.analyze.subquery import Pending, columns_read
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.nodes import Column, Expr, SortKey, rewrite
from tsql.kernels.windows.call import WindowCall
from tsql.planner.bind.query_text import QueryText, position_of
from tsql.planner.bind.windows import WindowScope, define_windows
from tsql.planner.logical import nodes as logical

Window = tuple[tuple[Expr, ...], tuple[SortKey, ...], WindowCall]


class WindowCalls:
    """The calls of window functions in one SELECT; equal calls are one."""

    def __init__(self, source: QueryText, definitions: list[exp.Window]):
        self.source = source
        self.calls: list[Window] = []
        self.names: list[str | None] = []
        self.scope = WindowScope(self.placeholder, define_windows(self._error, definitions))

    def _error(self, message: str, node: exp.Expr | None) -> BindError:
        return BindError(message, position=position_of(node), text=self.source.text)

    def placeholder(
        self, call: WindowCall, partition: tuple[Expr, ...], order: tuple[SortKey, ...], node: exp.Expr
    ) -> Expr:
        """The column that stands for a call until the plan is built."""
        window = (tuple(e for e in dict.fromkeys(partition) if e.columns()), order, call)
        if any(mentions_window(e) for e in self._expressions(window)):
            raise self._error("window function calls cannot be nested", node)
        if window not in self.calls:
            self.calls.append(window)
            self.names.append(None)
        return Column(f"{WINDOW_PLACEHOLDER}{self.calls.index(window)}", call.type, position=call.position)

    @staticmethod
    def _expressions(window: Window) -> tuple[Expr, ...]:
        partition, order, call = window
        return (*partition, *(k.expr for k in order), *call.expressions())

    def uses_aggregate(self, expr: Expr) -> bool:
        """Whether a bound clause uses an aggregate, in itself or inside of a window function."""
        used = [self.calls[_number(e)] for e in columns_read(expr) if _is_placeholder(e)]
        return mentions_aggregate(expr) or any(
            mentions_aggregate(e) for window in used for e in self._expressions(window)
        )

    def depends_on_rows(self, expr: Expr) -> bool:
        """Whether a window function in a bound clause names a column, even in a subquery."""
        used = [self.calls[_number(e)] for e in columns_read(expr) if _is_placeholder(e)]
        return any(
            not isinstance(c, Pending) for window in used for e in self._expressions(window) for c in columns_read(e)
        )

    def change(self, change: Callable[[Expr], Expr]) -> None:
        """Put all calls over other expressions: over the result of an aggregation, say."""
        for number, (partition, order, call) in enumerate(self.calls):
            keys = tuple(SortKey(change(k.expr), k.descending, k.nulls_first) for k in order)
            self.calls[number] = (tuple(map(change, partition)), keys, call.changed(change))

    def name_result(self, expr: Expr, name: str) -> None:
        """Let a select item that is just a call give it its name in the plan."""
        if _is_placeholder(expr):
            self.names[_number(expr)] = self.names[_number(expr)] or name

    def expressions(self) -> list[Expr]:
        """All that the Window nodes compute over their input."""
        return [expr for window in self.calls for expr in self._expressions(window)]

    def build(self, plan: logical.Node, used: Iterable[str]) -> logical.Node:
        """The Window nodes, one for all calls that share PARTITION BY and ORDER BY. Also chooses the names of their
        columns, none of which is in `used`: enclosing and neighbouring subqueries already use those names."""
        taken = Names((*plan.schema.names, *used))
        self.names = [
            taken.unique(name or plan_name(call.sql()))
            for name, (_, _, call) in zip(self.names, self.calls, strict=True)
        ]
        nodes: dict[tuple[tuple[Expr, ...], tuple[SortKey, ...]], list[tuple[str, WindowCall]]] = {}
        for name, (partition, order, call) in zip(self.names, self.calls, strict=True):
            nodes.setdefault((partition, order), []).append((name, call))
        for (partition, order), calls in nodes.items():
            plan = logical.Window(plan, partition, order, tuple(calls))
        return plan

    def over_result(self, expr: Expr) -> Expr:
        """An expression with the columns of the Window nodes in place of placeholders. A subquery that reads none stays
        the same object: its Apply may be below the Window nodes already."""

        def put(e: Expr) -> Expr:
            if isinstance(e, Pending) and mentions_window(e):
                return e.over(self.over_result)
            return Column(self.names[_number(e)], e.dtype, position=e.position) if _is_placeholder(e) else e

        return rewrite(expr, put)


def _is_placeholder(expr: Expr) -> bool:
    return isinstance(expr, Column) and expr.name.startswith(WINDOW_PLACEHOLDER)


def _number(expr: Column) -> int:
    return int(expr.name.removeprefix(WINDOW_PLACEHOLDER))


def mentions_window(expr: Expr) -> bool:
    """Whether a bound clause uses a window function, even in a subquery."""
    return any(map(_is_placeholder, columns_read(expr)))
