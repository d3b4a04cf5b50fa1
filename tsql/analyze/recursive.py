"""WITH RECURSIVE: a query of the form `first UNION [ALL] next`, where `next` names the query itself.

`first` gives the types; the rows of `next` are cast to them. Inside `next` the name means the rows of the previous
round (`generating.Working`).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze.scope import AnalyzedRelation, Names, ScopeField
from tsql.analyze.select import project
from tsql.kernels.expr.schema import Field as SchemaField
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import INTEGER, NULL
from tsql.planner.bind.types import castable, coerce
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Recursive, Working

if TYPE_CHECKING:
    from tsql.analyze.query import QueryAnalyzer

_numbers = count(1)


def names_itself(cte: exp.CTE) -> bool:
    """Whether a query of WITH names itself in FROM."""
    return _mentions(cte.this, cte.alias)


def _mentions(node: exp.Expr, name: str) -> bool:
    return any(table.name.lower() == name.lower() and not table.args.get("db") for table in node.find_all(exp.Table))


def recursive(queries: QueryAnalyzer, cte: exp.CTE, environment: dict[str, Any]) -> AnalyzedRelation:
    """The relation of a recursive query of WITH."""
    node, name = cte.this, cte.alias
    while isinstance(node, exp.Subquery) and not any(
        node.args.get(key) for key in ("order", "limit", "offset", "with_", "alias")
    ):
        node = node.this
    if cte.args.get("key_expressions"):
        raise queries.error("USING KEY is not supported yet", cte.args["key_expressions"][0])
    if not isinstance(node, exp.Union) or _mentions(node.this, name):
        raise queries.error(
            (
                f'Circular reference to CTE "{name}": a recursive query is of the form `first UNION [ALL] '
                "next`, and only next may name it"
            ),
            cte.args["alias"],
        )
    for key, what in (("order", "ORDER BY"), ("limit", "LIMIT or OFFSET"), ("offset", "LIMIT or OFFSET")):
        if node.args.get(key):
            raise queries.error(f"{what} in a recursive query is not allowed", node.args[key])
    if node.args.get("by_name"):
        raise queries.error("UNION BY NAME in a recursive query is not supported", node.expression)
    if node.args.get("with_") is not None:
        environment = queries._with(node, environment)
    first = queries._aliased(queries.query(node.this, environment), cte.args["alias"], name)
    names = Names(queries.taken)
    fields = tuple(
        ScopeField(f.name, names.unique(f.column), INTEGER if f.type == NULL else f.type) for f in first.fields
    )
    number = next(_numbers)
    working = Working(name, number, Schema(tuple(SchemaField(f.column, f.type) for f in fields)))
    again = queries.query(node.expression, {**environment, name.lower(): lambda: AnalyzedRelation(working, fields)})
    if first.life is not None or again.life is not None:
        raise queries.error("a recursive query over temporal relations is not supported", cte.args["alias"])
    if len(again.fields) != len(fields):
        raise queries.error(
            f"UNION needs the same number of columns on both sides: {len(fields)} and {len(again.fields)}",
            node.expression,
        )
    for field, target in zip(again.fields, fields, strict=True):
        if not castable(field.type, target.type):
            raise queries.error(
                f'UNION of column "{target.name}": there is no cast from {field.type} to {target.type}', node.expression
            )
    plan = Recursive(name, number, bool(node.args.get("distinct")), _recast(first, fields), _recast(again, fields))
    return AnalyzedRelation(plan, fields)


def _recast(relation: AnalyzedRelation, fields: tuple[ScopeField, ...]) -> logical.Node:
    """The shown columns under other names and as other types."""
    return project(
        relation.plan, [(f.column, coerce(g.to_column(), f.type)) for f, g in zip(fields, relation.fields, strict=True)]
    )
