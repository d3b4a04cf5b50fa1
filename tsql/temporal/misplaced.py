"""The error for temporal subqueries that stand where they have no meaning per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.kernels.errors import BindError
from tsql.planner.bind_source import position_of

if TYPE_CHECKING:
    from tsql.analyze_query import QueryAnalyzer


def misplaced(queries: QueryAnalyzer, place: exp.Expr | int | None) -> BindError:
    """A temporal subquery elsewhere than as [NOT] EXISTS or IN among the conditions of WHERE."""
    position = position_of(place) if isinstance(place, exp.Expr) else place
    message = "a subquery over a temporal relation stands in WHERE, as EXISTS, NOT EXISTS or IN, by itself or joined by AND"
    return BindError(message, position=position, text=queries.source.text, hint="join the relation instead: a join is evaluated per snapshot")
