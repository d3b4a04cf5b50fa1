"""SEQUENCED VALIDTIME, and the lifetime columns of a statement's result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsql.analyze.scope import LIFETIME_NAMES, AnalyzedRelation, Names, ScopeField, lived
from tsql.analyze.time.lifetimes import kept
from tsql.grammar.time.nodes import Sequenced
from tsql.kernels.expr.types import TIMESTAMP
from tsql.planner.logical import nodes as logical

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer


def sequenced(queries: QueryAnalyzer, node: Sequenced, environment: Any, top: bool) -> AnalyzedRelation:
    """A query in which every table with a PERIOD is a temporal relation, and every stream one of points. top: it is in
    no other query."""
    from tsql.analyze.query import QueryAnalyzer

    inner = QueryAnalyzer(
        queries.source, queries.catalog, queries.parameters, queries.views, queries.outer, sequenced=True
    )
    relation = inner.query(node.this, environment, top)
    if relation.life is None:
        raise queries.error(
            "SEQUENCED VALIDTIME needs a table with a PERIOD, or a stream: no relation of this query has a time",
            node,
            "CREATE TABLE t (.., PERIOD FOR valid_time (vs, ve)), or LIFETIME(t, start => ts) in FROM",
        )
    return relation


def finished(relation: AnalyzedRelation, taken: frozenset[str] = frozenset()) -> AnalyzedRelation:
    """The result of a statement: valid_from and valid_to become columns, at the end unless the select list has them
    (even under another name)."""
    if relation.life is None:
        return relation
    shown = {name for f in relation.fields for name in (f.name.lower(), f.also)}
    missing = [name for name in LIFETIME_NAMES if name not in shown]
    if not missing:
        return AnalyzedRelation(relation.plan, relation.fields)
    names = Names((*relation.plan.schema.names, *taken))
    fields, columns = list(relation.fields), kept(relation.plan)
    for name in missing:
        column = names.unique(name)
        columns.append((column, lived(relation.life, name)))
        fields.append(ScopeField(name, column, TIMESTAMP, name == "valid_to"))
    return AnalyzedRelation(logical.Project(relation.plan, tuple(columns)), tuple(fields))
