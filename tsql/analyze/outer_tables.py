"""CREATE TABLE AS, INSERT and DROP TABLE of tables in the catalogs of the cluster: `default.t`, `catalog.db.t`.

A qualified name is such a table if the session is on Spark and has no schema of that name. A plain name is always the
session's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze import kinds as statements
from tsql.analyze.files import constant
from tsql.analyze.names.qualified import is_own
from tsql.analyze.select import project
from tsql.backends.io.normalize import unique_names
from tsql.backends.sinks import Sinks, TableTarget
from tsql.kernels.expr.errors import BindError, CatalogError
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.types import castable, coerce
from tsql.planner.physical.text import dotted

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer
    from tsql.grammar.time.nodes import StreamOptions

_OWN = ("main", "temp")
_OPTIONS = ("format", "partition_by")


def saved_parts(analyzer: Analyzer, table: exp.Expr) -> tuple[str, ...] | None:
    """The parts of the name of a table in the cluster's catalogs; None if the name is the session's."""
    if not isinstance(table, exp.Table) or is_own(analyzer.catalog, table, _OWN):
        return None
    sinks = getattr(analyzer.catalog, "sinks", lambda: None)()
    return tuple(part.name for part in table.parts) if sinks is not None and sinks.has_tables else None


def _sinks(analyzer: Analyzer) -> Sinks:
    sinks: Sinks | None = analyzer.catalog.sinks()
    assert sinks is not None
    return sinks


def create_outer(
    analyzer: Analyzer,
    parts: tuple[str, ...],
    query: statements.Query,
    options: StreamOptions | None,
    replaces: bool,
    exists: bool,
) -> statements.SaveTable:
    """CREATE [OR REPLACE] TABLE [IF NOT EXISTS] db.t [WITH (format = .., partition_by = ..)] AS query."""
    stated = _options(analyzer, options)
    names = unique_names(list(query.plan.names))
    by = [part.strip() for part in stated.get("partition_by", "").split(",") if part.strip()]
    spelled = {name.lower(): name for name in names}
    for name in by:
        if name.lower() not in spelled:
            raise analyzer.error(f'partition_by: there is no column "{name}"', options)
    target = TableTarget(
        parts,
        "replace" if replaces else "create",
        stated.get("format"),
        tuple(spelled[name.lower()] for name in by),
    )
    return statements.SaveTable(target, query, if_not_exists=exists)


def _options(analyzer: Analyzer, options: StreamOptions | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in options.expressions if options is not None else ():
        name, value = option.name.lower(), constant(option.args["value"], analyzer.parsed.source)
        if name not in _OPTIONS:
            hint = f"options are {', '.join(_OPTIONS)}"
            raise analyzer.error(f'unknown option "{name}" of a table in a catalog of Spark', option, hint)
        if not isinstance(value, str) or not value:
            raise analyzer.error(f'option "{name}" takes a string', option)
        found[name] = value
    return found


def is_dataset(options: StreamOptions) -> bool:
    """Whether WITH (..) says where the rows of a query stay."""
    return any(option.name.lower() == "target" for option in options.expressions)


def check_dataset(analyzer: Analyzer, options: StreamOptions) -> None:
    """Refuse options of CREATE TABLE t WITH (target = 'spark') AS .. that mean nothing."""
    for option in options.expressions:
        if option.name.lower() != "target":
            raise analyzer.error(f'unknown option "{option.name.lower()}" of a dataset', option, "options are target")
        value = constant(option.args["value"], analyzer.parsed.source)
        if value != "spark":
            raise analyzer.error(f"a dataset stays in the cluster: target is 'spark', not {value!r}", option)
    if getattr(analyzer.catalog, "sinks", lambda: None)() is None:
        raise CatalogError(
            "a dataset stays in the cluster of a session on Spark, and this session has none",
            position=position_of(options),
            hint='connect with tsql.connect(backend="spark") or tsql.connect(spark=session)',
        )


def insert_outer(analyzer: Analyzer, node: exp.Insert, parts: tuple[str, ...], query: exp.Expr) -> statements.SaveTable:
    """INSERT INTO db.t [(columns)] [BY NAME] query: the rows as the columns of the table, in their order."""
    for clause, words in (
        ("conflict", "ON CONFLICT"),
        ("alternative", "OR .."),
        ("returning", "RETURNING"),
        ("default", "DEFAULT VALUES"),
    ):
        if node.args.get(clause):
            raise analyzer.error(f"INSERT into a table in a catalog of Spark takes no {words}", node.this)
    schema = _sinks(analyzer).table_schema(parts)
    if schema is None:
        raise CatalogError(f"Table with name {dotted(parts)} does not exist", position=position_of(node.this))
    relation = analyzer.relation(query)
    wanted = _wanted(analyzer, node, parts, schema, [f.name for f in relation.fields])
    if len(wanted) != len(relation.fields):
        raise BindError(
            f"table {dotted(parts)} has {len(wanted)} columns but {len(relation.fields)} values were supplied",
            position=position_of(query),
        )
    given = dict(zip(wanted, relation.fields, strict=True))
    wrong = [
        f'"{name}" is {schema[name].type}, not {field.type}'
        for name, field in given.items()
        if not castable(field.type, schema[name].type)
    ]
    if wrong:
        raise BindError(f"the rows do not fit the columns of {dotted(parts)}: {'; '.join(wrong)}")
    columns: list[tuple[str, Expr]] = [
        (f"c{place}", coerce(given[column.name].to_column(), column.type)) for place, column in enumerate(schema)
    ]
    inner = tuple(name for name, _ in columns)
    bound = analyzer.output(project(relation.plan, columns), inner, tuple(schema.names), query)
    return statements.SaveTable(TableTarget(parts, "append"), bound)


def _wanted(
    analyzer: Analyzer, node: exp.Insert, parts: tuple[str, ...], schema: Schema, given: list[str]
) -> list[str]:
    """The columns of the table that the columns of the query are, in the order of the query."""
    stated: list[Any] = list(node.this.expressions) if isinstance(node.this, exp.Schema) else []
    names = [c.name for c in stated] if stated else given if node.args.get("by_name") else list(schema.names)
    spelled = {name.lower(): name for name in schema.names}
    for name in names:
        if name.lower() not in spelled:
            raise analyzer.error(
                f'Table {dotted(parts)} does not have a column with name "{name}"',
                node.this,
                f"columns are {', '.join(schema.names)}",
            )
    found = [spelled[name.lower()] for name in names]
    repeated = next((name for place, name in enumerate(found) if name in found[:place]), None)
    if repeated is not None:
        raise analyzer.error(f'Duplicate column name "{repeated}" in INSERT', node.this)
    missing = [name for name in schema.names if name not in found]
    if missing:
        raise analyzer.error(
            f"INSERT gives no values for {', '.join(missing)} of {dotted(parts)}: a table in a catalog of Spark needs "
            "all of its columns",
            node.this,
        )
    return found
