"""Errors for temporal subqueries in places without a meaning per row, or with clauses without a meaning per
snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.kernels.expr.errors import BindError
from tsql.planner.bind.query_text import position_of

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer


def misplaced(queries: QueryAnalyzer, place: exp.Expr | int | None) -> BindError:
    """A temporal subquery elsewhere than as [NOT] EXISTS or IN among the conditions of WHERE."""
    position = position_of(place) if isinstance(place, exp.Expr) else place
    message = (
        "a subquery over a temporal relation stands in WHERE, as EXISTS, NOT EXISTS or IN, by itself or joined by AND"
    )
    return BindError(
        message,
        position=position,
        text=queries.source.text,
        hint="join the relation instead: a join is evaluated per snapshot",
    )


def cut_short(queries: QueryAnalyzer, node: exp.Query) -> BindError:
    """LIMIT, OFFSET or FETCH in a temporal subquery that is no constant number of rows: at each instant it would be
    another number."""
    clause = node.args.get("limit") or node.args["offset"]
    name = "FETCH" if isinstance(clause, exp.Fetch) else "LIMIT" if isinstance(clause, exp.Limit) else "OFFSET"
    message = (
        f"{name} in a subquery over a temporal relation takes a constant number of rows, which it keeps at each instant"
    )
    hint = (
        f"{name} at the end of the whole query cuts its finished rows; CREATE TABLE t AS SELECT .. {name} .. "
        "keeps some of them for another query"
    )
    return queries.error(message, clause, hint)
