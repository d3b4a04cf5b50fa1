"""UNNEST in the select list: each row once per element of its lists, which are walked in parallel.

A call becomes a placeholder column while clauses are bound. `Unnests.expand` then adds a series of positions to the
plan and replaces the placeholders: by the element at the position, or NULL past the end of a shorter list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlglot import exp

from tsql.analyze.lists import ONE, ZERO, Listed, Literals, Ranged, read_list
from tsql.analyze.scope import Names
from tsql.analyze.subquery import Pending, columns_read
from tsql.kernels.expr.nodes import Call, Case, Column, Expr, rewrite
from tsql.kernels.expr.types import BIGINT, BOOLEAN, INTEGER, NULL
from tsql.planner.bind.binder import Binder
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import coerce
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Series

PLACEHOLDER = "\0unnest"


class Unnests:
    """The UNNESTs of one SELECT."""

    def __init__(self) -> None:
        self.lists: list[Listed] = []
        self._inside = False

    def bind(self, binder: Binder, node: CallNode) -> Expr:
        """What a Binder of the select list calls for UNNEST."""
        if self._inside:
            raise binder.error("Nested UNNEST calls are not supported", node)
        if len(node.expressions) != 1:
            raise binder.error(f"UNNEST takes one list, not {len(node.expressions)}", node)
        self._inside = True
        try:
            listed = read_list(binder, node.expressions[0])
        finally:
            self._inside = False
        if listed is None:
            raise binder.error(
                "UNNEST takes a list literal, range(..) or generate_series(..): there are no columns of lists", node
            )
        self.lists.append(listed)
        dtype = INTEGER if listed.type == NULL else listed.type
        return Column(f"{PLACEHOLDER}{len(self.lists) - 1}", dtype, True, position_of(node))

    def expressions(self) -> list[Expr]:
        """What the lists compute."""
        return [expr for listed in self.lists for expr in listed.expressions()]

    def map(self, change: Callable[[Expr], Expr]) -> None:
        """Put the expressions of the lists through `change`."""
        self.lists = [_changed(listed, change) for listed in self.lists]

    def expand(
        self, plan: logical.Node, taken: Iterable[str], error: Callable[[str], Exception]
    ) -> tuple[logical.Node, Callable[[Expr], Expr]]:
        """The plan with a row for each place, and what an expression with placeholders is over it."""
        place = Names((*taken, *plan.schema.names)).unique("place")
        if len(self.lists) == 1 and isinstance(self.lists[0], Ranged):
            (only,) = self.lists
            plan = Series(plan, place, only.start, only.stop, only.step, only.inclusive)
            values: list[Expr] = [Column(place, only.type, False)]
        else:
            if any(isinstance(one, Ranged) and not one.is_numeric for one in self.lists):
                raise error("UNNEST of a series of times beside another UNNEST is not supported")
            count = _largest([one.count() for one in self.lists])
            plan = Series(plan, place, ONE, count, ONE, True)
            at = Column(place, BIGINT, False)
            values = [coerce(one.at(at), INTEGER) if one.type == NULL else one.at(at) for one in self.lists]

        def put(expr: Expr) -> Expr:
            is_place = isinstance(expr, Column) and expr.name.startswith(PLACEHOLDER)
            if isinstance(expr, Pending) and is_unnest(expr):
                return expr.over(over_places)
            return values[int(expr.name.removeprefix(PLACEHOLDER))] if is_place else expr

        def over_places(expr: Expr) -> Expr:
            return rewrite(expr, put)

        return plan, over_places


def is_unnest(expr: Expr) -> bool:
    """Whether an expression contains an UNNEST, even in a subquery."""
    return any(column.name.startswith(PLACEHOLDER) for column in columns_read(expr))


def refuse_unnest(binder: Binder, node: exp.Expr) -> Expr:
    """What a Binder calls for UNNEST in a clause that cannot have it."""
    raise binder.error("UNNEST not supported here", node)


def _changed(listed: Listed, change: Callable[[Expr], Expr]) -> Listed:
    if isinstance(listed, Literals):
        return replace(listed, values=tuple(map(change, listed.values)))
    return Ranged(change(listed.start), change(listed.stop), change(listed.step), listed.inclusive)


def _largest(counts: list[Expr]) -> Expr:
    result = counts[0]
    for count in counts[1:]:
        if isinstance(count, type(result)) and hasattr(count, "value"):
            result = count if count.value > result.value else result
        else:
            result = Case(((Call(">", (result, count), BOOLEAN), result),), count)
    return result if counts else ZERO
