"""CREATE STREAM, CREATE TABLE .. WITH (..), WATERMARK FOR and PERIOD FOR → an entry of the catalog;
`tsql/statements/ddl.py` puts it there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze import kinds as statements
from tsql.analyze.files import constant
from tsql.analyze.names.qualified import check_qualified
from tsql.backends.io.kinds import CONNECTORS, KINDS
from tsql.backends.io.pipes import is_fifo
from tsql.backends.io.watermark import DROP
from tsql.backends.io.watermark import Watermark as WatermarkRecord
from tsql.catalog.definition import TableDefinition
from tsql.catalog.external import TIMES, Connection, External, Files, checked_period, checked_time, paths_of
from tsql.grammar.time.intervals import DAY_US
from tsql.grammar.time.nodes import CreateStream, Period, StreamOptions, Watermark
from tsql.kernels.expr.constant import evaluate
from tsql.kernels.expr.errors import CatalogError, TsqlError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import INTERVAL
from tsql.planner.bind.binder import Binder, schema_resolver
from tsql.planner.bind.query_text import position_of

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer

FILE_CONNECTORS = (*CONNECTORS, "ipc")
FOLLOWING = ("follow", "poll_interval", "settle")
"""Options of a stream whose files go on; their readers do not know them."""


def create_stream(analyzer: Analyzer, node: CreateStream) -> statements.CreateExternal | statements.Nothing:
    """CREATE STREAM name [(columns, WATERMARK .., PERIOD ..)] WITH (..)."""
    return create_external(
        analyzer,
        "stream",
        node.this,
        node.expressions,
        node.args.get("options"),
        bool(node.args.get("replace")),
        bool(node.args.get("exists")),
    )


def create_external(
    analyzer: Analyzer,
    kind: str,
    table: exp.Table,
    parts: list[exp.Expr],
    options: StreamOptions | None,
    replaces: bool,
    exists: bool,
    temporary: bool = False,
) -> statements.CreateExternal | statements.Nothing:
    """The statement that makes a stream or a table over files; the files of one that may stay as it is are not looked
    at."""
    name = main_name(analyzer, table)
    if exists and analyzer.catalog.entry(name) is not None:
        return statements.Nothing()
    return statements.CreateExternal(name, _external(analyzer, kind, table, parts, options, temporary), replaces)


def _external(
    analyzer: Analyzer,
    kind: str,
    table: exp.Table,
    parts: list[exp.Expr],
    options: StreamOptions | None,
    temporary: bool,
) -> External:
    """The entry for a list of columns and WITH (..). The files are opened once, to check that they exist and to read
    their schema."""
    from tsql.analyze.definitions import definition_of

    if options is None:
        raise analyzer.error(
            f"a {kind} needs WITH (..) to say where its rows are",
            table,
            "WITH (connector = 'parquet', path = 'folder/*.parquet')",
        )
    periods = [part for part in parts if isinstance(part, Period)]
    marks = [part for part in parts if isinstance(part, Watermark)]
    columns = [part for part in parts if not isinstance(part, Period | Watermark)]
    stated, positions = _stated(analyzer, options)
    connection = _connection(analyzer, kind, stated, positions)
    is_connected = connection is not None and connection.connector not in FILE_CONNECTORS
    files = None if is_connected else _files(analyzer, stated, positions, options)
    schema = None
    if columns:
        definition = definition_of(analyzer, table.name, columns, table)
        for column, part in zip(definition.columns, columns, strict=False):
            if column.unit is not None:
                raise analyzer.error(
                    f"the times of a {kind} are read as they are: TIMESTAMP takes no digits here", part
                )
            if column.not_null or column.default is not None:
                raise _without_constraints(analyzer, kind, part)
        if definition.keys or definition.checks or len(columns) > len(definition.columns):
            raise _without_constraints(
                analyzer, kind, next((part for part in columns if not isinstance(part, exp.ColumnDef)), columns[0])
            )
        schema = definition.schema
    if files is None:
        assert connection is not None
        if schema is None:
            raise analyzer.error(
                f"the rows of connector '{connection.connector}' do not tell their columns: name them",
                table,
                f"CREATE STREAM {table.name} (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (..)",
            )
        mark = None if not marks else _watermark(analyzer, schema, marks[0])
        period = None if not periods else period_of(schema, periods)
        return External(kind, schema, None, None, period, mark, temporary, connection)
    fifo = next((path for path in files.paths if is_fifo(path)), None)
    if fifo is not None:
        raise analyzer.error(
            f"{fifo} is a pipe: the rows of a {kind} over files are read whenever it is used, those of a pipe once",
            table,
            f"CREATE TABLE {table.name} AS FROM '{fifo}' keeps them",
        )
    if connection is None or schema is None or files.kind not in KINDS:
        opened = _opened(analyzer, files, schema, options)
        schema = Schema(tuple(f for f in opened.schema if f.type.is_readable)) if schema is None else schema
        files = replace(files, kind=opened.describe()["kind"])
    if connection is not None:
        connection = replace(connection, connector=files.connector)
    period = None if not periods else period_of(schema, periods)
    watermark = None if not marks else _watermark(analyzer, schema, marks[0])
    return External(kind, schema, files, None, period, watermark, temporary, connection)


def _without_constraints(analyzer: Analyzer, kind: str, at: exp.Expr) -> TsqlError:
    return analyzer.error(
        f"the columns of a {kind} over files have no constraints and no defaults: its rows are read as they are", at
    )


def _stated(analyzer: Analyzer, node: StreamOptions) -> tuple[dict[str, Any], dict[str, exp.Expr]]:
    """What WITH (..) says, and where."""
    options: dict[str, Any] = {}
    positions: dict[str, exp.Expr] = {}
    for option in node.expressions:
        name = option.name.lower()
        options[name], positions[name] = constant(option.args["value"], analyzer.parsed.source), option
    for name in ("connector", "path"):
        if name in options and (not isinstance(options[name], str) or not options[name]):
            raise analyzer.error(f'option "{name}" takes a string', positions[name])
    return options, positions


def _connection(
    analyzer: Analyzer, kind: str, options: dict[str, Any], positions: dict[str, exp.Expr]
) -> Connection | None:
    """What a job reads a stream by, if it does not end."""
    from tsql.backends.live.sources.connectors import CONNECTORS as LIVE
    from tsql.backends.live.sources.connectors import check_options

    connector = str(options.get("connector", "")).lower()
    is_followed = options.get("follow") is True
    if connector in FILE_CONNECTORS or connector not in LIVE:
        if not is_followed:
            options.pop("follow", None)
            return None
        if connector and connector not in FILE_CONNECTORS:
            return None
    if kind != "stream":
        goes_on = "follow = true" if is_followed else f"connector '{connector}'"
        raise analyzer.error(
            f"a table is complete, and {goes_on} goes on",
            positions["follow" if is_followed else "connector"],
            "CREATE STREAM",
        )
    given = {name: value for name, value in options.items() if name != "connector"}
    if connector:
        try:
            check_options(connector, given)
        except TsqlError as error:
            error.position = position_of(named_option(positions, error.message))
            raise error.locate(analyzer.parsed.source.text) from None
    return Connection(connector, given)


def named_option(positions: dict[str, exp.Expr], message: str) -> exp.Expr:
    """The option that a message is about."""
    words = message.replace("'", " ").replace('"', " ").split()
    named = next((name for name in positions if name != "connector" and name in words), "connector")
    return positions[named]


def _files(analyzer: Analyzer, options: dict[str, Any], positions: dict[str, exp.Expr], node: StreamOptions) -> Files:
    options = {name: value for name, value in options.items() if name not in FOLLOWING}
    connector, path = options.pop("connector", None), options.pop("path", None)
    if connector is not None and connector.lower() not in FILE_CONNECTORS:
        from tsql.backends.live.sources.connectors import CONNECTORS as LIVE

        raise analyzer.error(
            f"unknown connector '{connector}'",
            positions["connector"],
            f"connectors are {', '.join(dict.fromkeys((*CONNECTORS, *LIVE)))}",
        )
    if path is None:
        raise analyzer.error(
            'option "path" is missing: a file, a folder or a pattern',
            node,
            "WITH (connector = 'parquet', path = 'folder/*.parquet')",
        )
    return Files("" if connector is None else connector.lower(), paths_of(path), options)


def _opened(analyzer: Analyzer, files: Files, schema: Schema | None, at: exp.Expr) -> Any:
    options = dict(files.options)
    if schema is not None:
        options["schema"] = {column.name: str(column.type) for column in schema}
    try:
        return analyzer.catalog.open_file(list(files.paths), kind=files.kind or None, options=options)
    except TsqlError as error:
        error.position = position_of(at) if error.position is None else error.position
        raise error.locate(analyzer.parsed.source.text) from None


def period_of(schema: Schema, nodes: list[Period]) -> tuple[str, str]:
    """The columns of PERIOD FOR."""
    if len(nodes) > 1:
        raise CatalogError("a table has one PERIOD", position=position_of(nodes[1]))
    try:
        return checked_period(schema, nodes[0].args["start"].name, nodes[0].args["end"].name)
    except CatalogError as error:
        error.position = position_of(nodes[0])
        raise


def with_period(definition: TableDefinition, nodes: list[Period]) -> TableDefinition:
    """A definition with the period that stands among its columns, if there is one."""
    return replace(definition, period=period_of(definition.schema, nodes)) if nodes else definition


def _watermark(analyzer: Analyzer, schema: Schema, node: Watermark) -> WatermarkRecord:
    try:
        column = checked_time(schema, node.this.name)
    except CatalogError as error:
        error.position = position_of(node.this)
        raise
    source = analyzer.parsed.source
    bound = Binder(source, schema_resolver(schema, source), clause="WATERMARK").bind(node.expression)
    if bound.type.name not in TIMES:
        raise analyzer.error(
            f"the watermark is {bound.type}: it must be a time, such as {column.name} - INTERVAL '5 seconds'",
            node.expression,
        )
    policy = node.args.get("on_late")
    into = node.args.get("into")
    return WatermarkRecord(
        column.name,
        analyzer.text_of(node.expression),
        bound,
        constant_length(analyzer, node.args.get("idle_timeout"), "IDLE TIMEOUT"),
        constant_length(analyzer, node.args.get("allowed_lateness"), "ALLOWED LATENESS") or 0,
        DROP if policy is None else policy.name,
        None if into is None else main_name(analyzer, into),
    )


def constant_length(analyzer: Analyzer, node: exp.Expr | None, what: str) -> int | None:
    """Microseconds of an interval that is a constant; the parser has checked those that are written as literals."""
    if node is None:
        return None
    source = analyzer.parsed.source
    found = evaluate(Binder(source, schema_resolver(Schema(()), source), clause=what).bind_as(node, INTERVAL))
    if found is None or found.value is None:
        raise analyzer.error(f"{what} takes an interval, such as INTERVAL '1 minute'", node)
    months, days, us = found.value
    length = days * DAY_US + us
    if months or length < 0:
        raise analyzer.error(f"{what} takes an interval of days and times that is not negative", node)
    return length


def main_name(analyzer: Analyzer, table: exp.Table) -> str:
    """The name of a table; there is one schema."""
    check_qualified(analyzer.catalog, table, analyzer.error, ("main", "temp"))
    return table.name
