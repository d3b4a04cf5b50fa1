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
from tsql.kernels.expr.nodes import Expr, Literal
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, BOOLEAN, NULL, VARCHAR
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
    properties: exp.Properties | None,
    replaces: bool,
    exists: bool,
) -> statements.SaveTable:
    """CREATE [OR REPLACE] TABLE [IF NOT EXISTS] db.t [USING format] [PARTITIONED BY (a, b)]
    [WITH (format = .., partition_by = ..)] AS query."""
    stated = _options(analyzer, options)
    names = unique_names(list(query.plan.names))
    by = [part.strip() for part in stated.get("partition_by", "").split(",") if part.strip()]
    for item in properties.expressions if properties is not None else ():
        word = "format" if isinstance(item, exp.FileFormatProperty) else "partition_by"
        if isinstance(item, (exp.FileFormatProperty, exp.PartitionedByProperty)):
            if word in stated:
                raise analyzer.error(f"WITH ({word} = ..) says the same again", item)
            if isinstance(item, exp.FileFormatProperty):
                stated[word] = item.name
            else:
                by = _partitioned_by(analyzer, item)
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


def _partitioned_by(analyzer: Analyzer, item: exp.PartitionedByProperty) -> list[str]:
    found = []
    for column in item.this.expressions if isinstance(item.this, exp.Schema) else [item.this]:
        if not isinstance(column, exp.Identifier):
            raise analyzer.error("PARTITIONED BY takes names of columns", column)
        found.append(column.name)
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
    """INSERT INTO | OVERWRITE db.t [PARTITION (k = 1, d)] [(columns)] [BY NAME] query: the rows as the columns of the
    table, in their order."""
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
    static = _partition(analyzer, node, parts, schema)
    wanted = _wanted(analyzer, node, parts, schema, [f.name for f in relation.fields], static)
    if len(wanted) != len(relation.fields):
        raise BindError(
            f"table {dotted(parts)} has {len(wanted)} columns but {len(relation.fields)} values were supplied",
            position=position_of(query),
        )
    given: dict[str, Expr] = {name: field.to_column() for name, field in zip(wanted, relation.fields, strict=True)}
    given |= {name: literal for name, literal in static.items()}
    wrong = [
        f'"{name}" is {schema[name].type}, not {expr.type}'
        for name, expr in given.items()
        if not castable(expr.type, schema[name].type)
    ]
    if wrong:
        raise BindError(f"the rows do not fit the columns of {dotted(parts)}: {'; '.join(wrong)}")
    columns: list[tuple[str, Expr]] = [
        (f"c{place}", coerce(given[column.name], column.type)) for place, column in enumerate(schema)
    ]
    inner = tuple(name for name, _ in columns)
    bound = analyzer.output(project(relation.plan, columns), inner, tuple(schema.names), query)
    mode = "overwrite" if node.args.get("overwrite") else "append"
    fixed = tuple((name, literal.value) for name, literal in static.items())
    return statements.SaveTable(TableTarget(parts, mode, static=fixed), bound)


def _partition(analyzer: Analyzer, node: exp.Insert, parts: tuple[str, ...], schema: Schema) -> dict[str, Literal]:
    """The columns to which PARTITION (k = 1, d) gives a value."""
    clause = node.args.get("partition")
    if clause is None:
        return {}
    spelled = {name.lower(): name for name in _sinks(analyzer).table_partitions(parts)}
    found: dict[str, Literal] = {}
    seen = set()
    for part in clause.expressions:
        column = part.this if isinstance(part, exp.EQ) else part
        if not isinstance(column, exp.Column) or len(column.parts) > 1:
            raise analyzer.error("PARTITION takes columns, with a value or without: PARTITION (k = 1, day)", part)
        name = spelled.get(column.name.lower())
        if name is None:
            hint = (
                f"partitions are by {', '.join(spelled.values())}" if spelled else f"{dotted(parts)} has no partitions"
            )
            raise analyzer.error(f'"{column.name}" is no partition column of {dotted(parts)}', part, hint)
        if name in seen:
            raise analyzer.error(f'Duplicate column name "{name}" in PARTITION', part)
        seen.add(name)
        if isinstance(part, exp.EQ):
            found[name] = _literal(analyzer, part.expression)
    return found


def _literal(analyzer: Analyzer, node: exp.Expr) -> Literal:
    """A plain value: a text, a number, true, false or NULL. Spark casts it to the type of the column."""
    inner = node.this if isinstance(node, exp.Cast) and node.to.is_type("date", "timestamp") else node
    if isinstance(inner, exp.Null):
        return Literal(None, NULL)
    if isinstance(inner, exp.Boolean):
        return Literal(bool(inner.this), BOOLEAN)
    digits = inner.this if isinstance(inner, exp.Neg) else inner
    if isinstance(digits, exp.Literal) and (digits.is_string or digits.name.isdigit()):
        if digits.is_string and digits is inner:
            return Literal(digits.this, VARCHAR)
        if not digits.is_string and int(digits.this) <= BIGINT.bounds[1]:
            return Literal(int(digits.this) * (1 if digits is inner else -1), BIGINT)
    raise analyzer.error("a value in PARTITION is a text, a whole number, true, false or NULL", node)


def _wanted(
    analyzer: Analyzer,
    node: exp.Insert,
    parts: tuple[str, ...],
    schema: Schema,
    given: list[str],
    static: dict[str, Literal],
) -> list[str]:
    """The columns of the table that the columns of the query are, in the order of the query."""
    stated: list[Any] = list(node.this.expressions) if isinstance(node.this, exp.Schema) else []
    others = [name for name in schema.names if name not in static]
    names = [c.name for c in stated] if stated else given if node.args.get("by_name") else others
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
    twice = next((name for name in found if name in static), None)
    if twice is not None:
        raise analyzer.error(f'PARTITION gives a value for "{twice}", and so does the query', node.this)
    missing = [name for name in others if name not in found]
    if missing:
        raise analyzer.error(
            f"INSERT gives no values for {', '.join(missing)} of {dotted(parts)}: a table in a catalog of Spark needs "
            "all of its columns",
            node.this,
        )
    return found
