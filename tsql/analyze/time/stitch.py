"""STITCH: equal rows whose lifetimes meet become one row."""

from __future__ import annotations

from collections.abc import Iterable

from tsql.analyze.scope import AnalyzedRelation, Life, Names
from tsql.analyze.time.lifetimes import bounds, columns_of, kept, new_life
from tsql.kernels.expr.nodes import Aggregate, SortKey
from tsql.kernels.expr.types import BIGINT, TIMESTAMP
from tsql.kernels.windows.call import WindowCall
from tsql.planner.logical import nodes as logical


def stitched(relation: AnalyzedRelation, taken: Iterable[str]) -> tuple[logical.Node, Life]:
    """The rows of a relation, each as long as equal ones follow it without a gap."""
    start, end = bounds(relation.life)
    keys = list(dict.fromkeys(f.to_column().name for f in relation.fields))
    names = Names((*taken, *relation.plan.schema.names))
    chain = names.unique("chain")
    calls = ((chain, WindowCall("stitch_chain", (end,), BIGINT)),)
    rows = logical.Project(relation.plan, (*kept(relation.plan, keys), *kept(relation.plan, relation.life.columns)))
    plan: logical.Node = logical.Window(rows, tuple(columns_of(rows, keys)), (SortKey(start), SortKey(end)), calls)
    life = new_life((*taken, *plan.schema.names))
    results = (life.start, Aggregate("min", (start,), TIMESTAMP)), (life.end, Aggregate("max", (end,), TIMESTAMP))
    plan = logical.Aggregate(plan, tuple(kept(plan, (*keys, chain))), results)
    return logical.Project(plan, (*kept(plan, keys), *kept(plan, life.columns))), life
