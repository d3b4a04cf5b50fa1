"""Prints a logical plan as SQL, so that DuckDB can run what the analyzer understood.

Every node becomes a subquery. An outer column is printed by its bare name. DuckDB then finds it in the enclosing
relation, as long as no column in between has the same name, which the analyzer guarantees."""

from __future__ import annotations

from tsql.analyze.outer_columns import map_value
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.nodes import Column, Expr, Outer, SortKey, rewrite
from tsql.planner.logical import nodes as logical
from tsql.planner.logical.generating import Series
from tsql.planner.logical.positional_join import PositionalJoin


def plan_sql(node: logical.Node) -> str:
    """A query that gives the rows of the plan."""
    match node:
        case logical.Output():
            columns = ", ".join(f"{quote(c)} AS {quote(n)}" for c, n in zip(node.columns, node.names, strict=True))
            order = _order(node.input)
            return f"SELECT {columns} FROM {_nested(node.input)}{order}"
        case logical.Scan():
            return f"SELECT {_names(node)} FROM {quote(node.table)}"
        case logical.Values():
            return _values(node)
        case logical.Filter():
            return f"SELECT {_names(node)} FROM {_nested(node.input)} WHERE {_sql(node.predicate)}"
        case logical.Project():
            items = ", ".join(f"{_sql(e)} AS {quote(n)}" for n, e in node.columns)
            return f"SELECT {items} FROM {_nested(node.input)}{_order(node.input)}"
        case logical.Aggregate():
            return _aggregate(node)
        case logical.Distinct():
            on = f"ON ({', '.join(map(quote, node.on))}) " if node.on else ""
            return (
                f"SELECT DISTINCT {on}{_names(node)} FROM {_nested(node.input)}{_order(node.input) if node.on else ''}"
            )
        case logical.Sort():
            return f"SELECT {_names(node)} FROM {_nested(node.input)} ORDER BY {', '.join(map(_key, node.keys))}"
        case logical.Limit():
            count = "" if node.count is None else f" LIMIT {_sql(node.count)}"
            skip = "" if node.offset is None else f" OFFSET {_sql(node.offset)}"
            return f"SELECT {_names(node)} FROM {_nested(node.input)}{_order(node.input)}{count}{skip}"
        case logical.SetOperation():
            word = f"{node.kind.upper()}{' ALL' if node.all else ''}"
            return f"({plan_sql(node.left)}) {word} ({plan_sql(node.right)})"
        case logical.Join():
            return _join(node)
        case Series():
            made = f"{'generate_series' if node.inclusive else 'range'}({', '.join(map(_sql, node.expressions()))})"
            columns = [*map(quote, node.input.schema.names), f"unnest({made}) AS {quote(node.column)}"]
            return f"SELECT {', '.join(columns)} FROM {_nested(node.input)}"
        case PositionalJoin():
            return f"SELECT {_names(node)} FROM {_nested(node.left, 'l')} POSITIONAL JOIN {_nested(node.right, 'r')}"
    raise TypeError(f"no SQL for {type(node).__name__}")


def _nested(node: logical.Node, alias: str = "q") -> str:
    return f"({plan_sql(node)}) AS {alias}"


def _names(node: logical.Node) -> str:
    return ", ".join(quote(name) for name in node.schema.names) or "1 AS one"


def _sql(expr: Expr) -> str:
    return _plain(expr).sql()


def _plain(expr: Expr) -> Expr:
    return rewrite(expr, lambda e: Column(e.name, e.dtype, e.nullable) if isinstance(e, Outer) else e)


def _key(key: SortKey) -> str:
    return f"{_sql(key.expr)} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"


def _order(node: logical.Node) -> str:
    """The order of a sorted input, said again: SQL forgets it with every subquery."""
    while isinstance(node, (logical.Limit, logical.Filter, logical.Distinct)):
        node = node.input
    if isinstance(node, logical.Sort):
        return f" ORDER BY {', '.join(map(_key, node.keys))}"
    return ""


def _values(node: logical.Values) -> str:
    if not node.fields.names:
        return " UNION ALL ".join(["SELECT 1 AS one"] * len(node.rows))
    rows = ", ".join(
        f"({', '.join(f'CAST({_sql(v)} AS {_type(f.type)})' for v, f in zip(row, node.fields, strict=True))})"
        for row in node.rows
    )
    return f"SELECT * FROM (VALUES {rows}) AS v({', '.join(map(quote, node.fields.names))})"


def _type(dtype: object) -> str:
    return "INTEGER" if str(dtype) == "NULL" else str(dtype)


def _aggregate(node: logical.Aggregate) -> str:
    assert node.sets is None, "grouping sets are not said again"
    keys = [f"{_sql(e)} AS {quote(n)}" for n, e in node.keys]
    calls = [f"{map_value(call, _plain).sql()} AS {quote(n)}" for n, call in node.aggregates]
    group = ", ".join(f"({_sql(e)} IS NULL, {_sql(e)})" for _, e in node.keys)
    having = "" if group or calls else " HAVING true"
    first = [f"any_value({_sql(e)}) AS {quote(n)}" for n, e in node.keys]
    return (
        f"SELECT {', '.join((first if group else keys) + calls) or '1 AS one'} FROM "
        f"{_nested(node.input)}{' GROUP BY ' + group if group else having}"
    )


def _join(node: logical.Join) -> str:
    left = _nested(node.left, "l")
    condition = "true" if node.condition is None else _sql(node.condition)
    right = _nested(node.right, "r")
    if node.kind in ("semi", "anti"):
        return (
            f"SELECT {_names(node)} FROM {left} WHERE {'NOT ' if node.kind == 'anti' else ''}EXISTS (SELECT 1 "
            f"FROM {right} WHERE {condition})"
        )
    if node.kind == "mark":
        return f"SELECT {_kept(node)}{_mark(node, right, condition)} AS {quote(node.mark)} FROM {left}"
    if node.kind == "single":
        assert node.condition is None and len(node.right.schema.names) == 1
        return f"SELECT {_kept(node)}({plan_sql(node.right)}) AS {quote(node.right.schema.names[0])} FROM {left}"
    lateral = "LATERAL " if isinstance(node, logical.Apply) else ""
    shown = (
        ", ".join(
            [*(f"l.{quote(n)}" for n in node.left.schema.names), *(f"r.{quote(n)}" for n in node.right.schema.names)]
        )
        or "1"
    )
    return f"SELECT {shown} FROM {left} {node.kind.upper()} JOIN {lateral}{right} ON {condition}"


def _kept(node: logical.Join) -> str:
    return "".join(f"{quote(name)}, " for name in node.left.schema.names)


def _mark(node: logical.Join, right: str, condition: str) -> str:
    """The condition over all rows, joined by OR in three values."""
    if node.condition is None:
        return f"EXISTS (SELECT 1 FROM {right})"
    rows = f"(SELECT ({condition}) AS c FROM {right}) AS m"
    return (
        "(SELECT CASE WHEN count(*) FILTER (WHERE c) > 0 THEN true WHEN count(*) FILTER (WHERE c IS NULL) > "
        f"0 THEN NULL ELSE false END FROM {rows})"
    )
