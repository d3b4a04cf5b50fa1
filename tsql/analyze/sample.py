"""Samples: TABLESAMPLE behind a relation, USING SAMPLE behind a query (it then samples what FROM gives)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tsql.analyze.files import constant
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import SAMPLE_METHODS, Sample

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer


def sampled(queries: QueryAnalyzer, plan: logical.Node, node: exp.TableSample) -> logical.Node:
    """The plan of a sample of a plan's rows."""
    percent, size, seed = (_number(queries, node.args.get(key)) for key in ("percent", "size", "seed"))
    if percent is None and size is None:
        raise queries.error("a sample takes a number of rows or a percentage", node)
    named = node.args.get("method")
    method = named.name.lower() if named is not None else "system" if size is None else "reservoir"
    if method not in SAMPLE_METHODS:
        raise queries.error(f'unknown sample method "{named.name}": it is one of {", ".join(SAMPLE_METHODS)}', named)
    if percent is not None and not 0 <= percent <= 100:
        raise queries.error(f"Sample sample_size {percent} out of range, must be between 0 and 100", node)
    if size is not None and (size < 0 or size != int(size)):
        raise queries.error(f"Sample size {size} must be a whole number, at least 0", node)
    if size is not None and method == "bernoulli":
        raise queries.error(
            (
                "Sample method Bernoulli cannot be used with a discrete sample count, either switch to "
                "reservoir sampling or use a sample_size"
            ),
            node,
        )
    if size is not None:
        method = "reservoir"
    return Sample(
        plan,
        method,
        None if size is None else int(size),
        None if percent is None else float(percent),
        None if seed is None else int(seed),
    )


def _number(queries: QueryAnalyzer, node: exp.Expr | bool | None) -> float | None:
    if not isinstance(node, exp.Expr):
        return None
    value = constant(node, queries.source)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise queries.error("a sample takes numbers", node) from None
