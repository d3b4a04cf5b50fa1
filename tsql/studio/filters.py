"""The filters of the page (a brush over a chart) as conditions of a query.

In: the tree of a query, and what was brushed. Out: the same tree, in which every SELECT that reads a table with such a
column has the condition in its WHERE. Values become nodes of the type of the column; no text is put together. A SELECT
over a subquery or a WITH query gets none of its own: what stands inside has it. `Script.query` calls `add_filters`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp

from tsql.analyze import kinds
from tsql.analyze.statements import Analyzer
from tsql.backends.io.value_text import stamp_text
from tsql.catalog.catalog import Catalog
from tsql.grammar.dialect import Temporal
from tsql.grammar.parser.statements import DescribeQuery, Parsed
from tsql.kernels.expr.errors import BindError, TsqlError
from tsql.kernels.expr.types import Type
from tsql.kernels.process.quick_dataclass import dataclass

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Filter:
    """The rows that are wanted: a column between two values (None: no bound on this side), or with one of `values`."""

    column: str
    low: Value = None
    high: Value = None
    values: tuple[Value, ...] | None = None


def filters_of(given: Any) -> list[Filter]:
    """The filters of a request; a BindError says what is wrong with them."""
    if given is None:
        return []
    if not isinstance(given, list):
        raise BindError("filters are a list")
    return [_filter(one) for one in given]


def _filter(given: Any) -> Filter:
    column = given.get("column") if isinstance(given, dict) else None
    if not isinstance(column, str):
        raise BindError("a filter names its column")
    values = given.get("values")
    if values is not None:
        if not isinstance(values, list):
            raise BindError(f"the values of the filter of {column} are a list")
        return Filter(column, values=tuple(_value(value, column) for value in values))
    low, high = (_value(given.get(end), column) for end in ("low", "high"))
    if low is None and high is None:
        raise BindError(f"the filter of {column} has neither values nor bounds")
    return Filter(column, low, high)


def _value(value: Any, column: str) -> Value:
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise BindError(f"a value of the filter of {column} is a number, a text, true, false or null")


def add_filters(parsed: Parsed, catalog: Catalog, filters: Sequence[Filter]) -> list[str]:
    """Add the conditions to a query; a note for each filter that no table of the query has the column of."""
    used = [False] * len(filters)
    if filters:
        for select in list(parsed.node.find_all(exp.Select)):
            conditions = []
            for column, type, number in _brushed(select, parsed, catalog, filters):
                conditions.append(condition(column, filters[number], type))
                used[number] = True
            if conditions:
                select.where(*conditions, copy=False)
    return [
        f"no table of the query has the column {one.column}: its filter changes nothing"
        for one, is_used in zip(filters, used, strict=True)
        if not is_used
    ]


def _brushed(
    select: exp.Select, parsed: Parsed, catalog: Catalog, filters: Sequence[Filter]
) -> Iterator[tuple[exp.Column, Type, int]]:
    """The columns of a SELECT's own tables that are filtered, with their types and the numbers of the filters."""
    read = _tables(select)
    hidden = _with_names(select)
    for table in read:
        if table.name.lower() in hidden and not table.args.get("db"):
            continue
        columns = _columns(table, parsed, catalog)
        for number, one in enumerate(filters):
            for name, type in columns:
                if name.lower() == one.column.lower():
                    qualifier = _qualifier(table) if len(read) > 1 else None
                    yield _column(name, qualifier), type, number
                    break


def _tables(select: exp.Select) -> list[exp.Expr]:
    """What FROM and its joins read, without subqueries."""
    clause = select.args.get("from_")
    found = [] if clause is None else [clause.this, *(join.this for join in select.args.get("joins") or ())]
    found += [join.this for one in found for join in one.args.get("joins") or ()]
    return [one for one in found if not isinstance(one, exp.Subquery | exp.Unnest | exp.Lateral | exp.Values)]


def _with_names(node: exp.Expr) -> set[str]:
    """The names of the WITH queries that a SELECT may read. Those before its own are known inside of a WITH query, and
    all of them if it is recursive."""
    found: set[str] = set()
    inside: exp.Expr | None = None
    above: exp.Expr | None = node
    while above is not None:
        clause = above if isinstance(above, exp.With) else above.args.get("with_")
        if isinstance(clause, exp.With) and not (inside is clause and above is not clause):
            for one in clause.expressions:
                if one is inside and not clause.args.get("recursive"):
                    break
                found.add(one.alias.lower())
        inside, above = above, above.parent
    return found


def _columns(table: exp.Expr, parsed: Parsed, catalog: Catalog) -> tuple[tuple[str, Type], ...]:
    """The columns of what FROM names; none of what cannot be read by itself (the query has the error then)."""
    alone = table.copy()
    alone.set("joins", None)
    describe = DescribeQuery(this=exp.Select(expressions=[exp.Star()], from_=exp.From(this=alone)))
    describe.meta.update(parsed.node.meta)
    try:
        found = Analyzer(Parsed(describe, parsed.source, parsed.tokens), catalog, {}).statement()
    except TsqlError:
        return ()
    assert isinstance(found, kinds.Describe)
    return found.columns


def _qualifier(table: exp.Expr) -> exp.Identifier | None:
    name = table.alias_or_name
    return exp.Identifier(this=name, quoted=True) if name else None


def _column(name: str, qualifier: exp.Identifier | None) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=qualifier)


def condition(column: exp.Column, wanted: Filter, type: Type) -> exp.Expr:
    """A filter of one column as a condition."""
    if wanted.values is None:
        ends = [
            kind(this=column.copy(), expression=literal(end, type, wanted.column))
            for kind, end in ((exp.GTE, wanted.low), (exp.LTE, wanted.high))
            if end is not None
        ]
        return exp.and_(*ends, copy=False)
    values = [literal(value, type, wanted.column) for value in wanted.values if value is not None]
    parts: list[exp.Expr] = [exp.In(this=column.copy(), expressions=values)] if values else []
    if None in wanted.values:
        parts.append(exp.Is(this=column.copy(), expression=exp.Null()))
    return exp.or_(*parts, copy=False) if parts else exp.Boolean(this=False)


def literal(value: Value, type: Type, column: str) -> exp.Expr:
    """A value as a constant of a type. Numbers are times in milliseconds since 1970, as in JavaScript, where the column
    has times."""
    match value:
        case bool():
            if type.name == "BOOLEAN":
                return exp.Boolean(this=value)
        case int() | float() if type.name in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
            text = stamp_text(round(value * 1000)) + ("+00" if type.name == "TIMESTAMPTZ" else "")
            return _cast(text.partition(" ")[0] if type.name == "DATE" else text, type)
        case int() | float() if type.is_numeric:
            number = exp.Literal.number(repr(abs(value)))
            return exp.Neg(this=number) if value < 0 else number
        case str() if type.name == "VARCHAR":
            return exp.Literal.string(value)
        case str():
            return _cast(value, type)
    raise BindError(f"{value!r} is no value of the column {column}, which is {type}")


def _cast(text: str, type: Type) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(str(type), dialect=Temporal))
