"""CREATE, DROP, ALTER, COPY → statements; `tsql/statements/ddl.py` and `tsql/statements/copying.py` carry them out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from tsql.analyze import kinds as statements
from tsql.analyze.changes import Overlay, empty_like, find_column, find_table, insert
from tsql.analyze.files import constant, source_for
from tsql.analyze.names.qualified import WithoutVariables, check_qualified
from tsql.analyze.outer_tables import check_dataset, create_outer, is_dataset, saved_parts
from tsql.analyze.query import QueryAnalyzer
from tsql.analyze.time.streams import create_external, main_name, period_of, with_period
from tsql.catalog.definition import ColumnDefinition, Key, Macro, Table, TableDefinition, View
from tsql.grammar.parser import changes as parser_changes
from tsql.grammar.time.nodes import Period, StreamOptions
from tsql.kernels.expr.errors import BindError, CatalogError, ParseError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BOOLEAN, Type
from tsql.planner.bind.operators import data_type, time_unit
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.types import castable
from tsql.planner.logical import nodes as logical

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer

_CONDITION = "#condition"


def create(analyzer: Analyzer, node: exp.Create) -> statements.Statement:
    """CREATE TABLE with columns or AS a query, and CREATE VIEW."""
    kind = (node.args.get("kind") or "").upper()
    target, query = node.this, node.expression
    columns = target.expressions if isinstance(target, exp.Schema) else []
    table = target.this if isinstance(target, exp.Schema) else target
    if kind not in ("TABLE", "VIEW") or not isinstance(table, exp.Table):
        raise analyzer.error(f"CREATE {kind or '..'} is not supported", node)
    outer = saved_parts(analyzer, table) if kind == "TABLE" else None
    temporary, with_data, options = _properties(analyzer, node, kind, outer is not None)
    name = main_name(analyzer, table) if outer is None else table.name
    periods = [part for part in columns if isinstance(part, Period)]
    replaces, exists = bool(node.args.get("replace")), bool(node.args.get("exists"))
    if replaces and exists:
        raise analyzer.error("CREATE takes OR REPLACE or IF NOT EXISTS, not both", table)
    if outer is not None:
        if query is None or temporary or periods or not with_data:
            raise analyzer.error("a table in a catalog of Spark is made with CREATE TABLE .. AS and a query", table)
        found = analyzer.query(query, analyzer.parsed.text_after(TokenType.ALIAS))
        found = _renamed(analyzer, found, columns) if columns else found
        return create_outer(analyzer, outer, found, options, node.args.get("properties"), replaces, exists)
    if options is not None:
        if query is not None and is_dataset(options):
            if temporary or periods or not with_data:
                raise analyzer.error("a dataset in the cluster is made with CREATE TABLE .. AS and a query", table)
            check_dataset(analyzer, options)
            found = analyzer.query(query, analyzer.parsed.text_after(TokenType.ALIAS))
            found = _renamed(analyzer, found, columns) if columns else found
            return statements.KeepDataset(name, found, replaces, exists)
        if query is not None:
            raise analyzer.error("CREATE TABLE reads files WITH (..) or stores the rows of a query, not both", options)
        return create_external(analyzer, "table", table, columns, options, replaces, exists, temporary)
    columns = [part for part in columns if part not in periods]
    if kind == "TABLE" and query is None:
        definition = with_period(definition_of(analyzer, name, columns, table), periods)
        return statements.CreateTable(name, None, replaces, exists, definition, temporary)
    if query is None:
        raise analyzer.error(f"CREATE {kind} needs AS and a query", table)
    text = analyzer.parsed.text_after(TokenType.ALIAS)
    if kind == "VIEW" and _is_materialized(node):
        if columns:
            raise analyzer.error("the columns of a materialized view are those of its query: name them there", table)
        return statements.CreateLiveView(name, analyzer.query(query, text), replaces, exists)
    if kind == "VIEW":
        analyzer.catalog = WithoutVariables(analyzer.catalog)
    bound = (
        analyzer.query(query, text, top=kind == "TABLE")
        if kind == "TABLE" or columns
        else analyzer.defined(query, text)
    )
    if columns:
        bound = _renamed(analyzer, bound, columns)
    if kind == "TABLE":
        period = (
            period_of(Schema(tuple(map(Field, bound.plan.names, (f.type for f in bound.plan.schema)))), periods)
            if periods
            else None
        )
        return statements.CreateTable(name, bound, replaces, exists, None, temporary, with_data, period)
    if periods:
        raise analyzer.error("a PERIOD belongs to a table", periods[0])
    if columns:
        text = f"SELECT * FROM ({text}) AS {quote(table.name)}({', '.join(quote(c.name) for c in columns)})"
    return statements.CreateView(name, text, replaces, exists, temporary)


def _properties(
    analyzer: Analyzer, node: exp.Create, kind: str, is_outer: bool
) -> tuple[bool, bool, StreamOptions | None]:
    temporary, with_data, options = False, True, None
    properties = node.args.get("properties")
    items = properties.expressions if properties is not None else []
    for place, item in enumerate(items):
        if any(type(item) is type(other) for other in items[:place]):
            raise analyzer.error(f"an option of CREATE {kind} is given twice", item)
        if isinstance(item, exp.TemporaryProperty):
            temporary = True
        elif isinstance(item, exp.MaterializedProperty) and kind == "VIEW":
            continue
        elif isinstance(item, exp.WithDataProperty) and kind == "TABLE":
            with_data = not item.args.get("no")
        elif isinstance(item, StreamOptions) and kind == "TABLE":
            options = item
        elif isinstance(item, (exp.FileFormatProperty, exp.PartitionedByProperty)) and kind == "TABLE":
            if not is_outer:
                raise _of_spark(analyzer, item, node.this)
        else:
            raise analyzer.error(f"these options of CREATE {kind} are not supported", item)
    return temporary, with_data, options


def _is_materialized(node: exp.Create) -> bool:
    properties = node.args.get("properties")
    return properties is not None and any(isinstance(one, exp.MaterializedProperty) for one in properties.expressions)


def _of_spark(analyzer: Analyzer, item: exp.Expr, at: exp.Expr) -> BindError:
    if isinstance(item, exp.FileFormatProperty):
        hint = "CREATE TABLE t WITH (connector = .., path = ..) reads files"
        return analyzer.error("USING is not supported: it is for tables of Spark's catalogs", at, hint)
    hint = "COPY .. TO 'folder' (PARTITION_BY (a)) writes files by their keys"
    return analyzer.error("PARTITIONED BY is not supported: it is for tables of Spark's catalogs", at, hint)


def _renamed(analyzer: Analyzer, query: statements.Query, columns: list[exp.Expr]) -> statements.Query:
    plan = query.plan
    if any(isinstance(c, exp.ColumnDef) and c.args.get("kind") is not None for c in columns):
        raise analyzer.error("CREATE TABLE AS takes column names without types", columns[0])
    if len(columns) > len(plan.columns):
        raise analyzer.error(
            f"the query has {len(plan.columns)} columns, but {len(columns)} names are given", columns[-1]
        )
    names = tuple(c.name for c in columns) + plan.names[len(columns) :]
    return statements.Query(logical.Output(plan.input, plan.columns, names), query.text, query.hints)


def definition_of(analyzer: Analyzer, name: str, nodes: list[exp.Expr], at: exp.Expr) -> TableDefinition:
    """The columns and constraints that a statement lists."""
    columns: list[ColumnDefinition] = []
    keys: list[tuple[Key, exp.Expr]] = []
    checks: list[exp.Expr] = []
    for node in nodes:
        if isinstance(node, exp.ColumnDef):
            columns.append(_column(analyzer, node, keys, checks))
        else:
            _table_constraint(analyzer, node, keys, checks)
    if not columns:
        raise ParseError(
            "Table must have at least one column", position=position_of(at), text=analyzer.parsed.source.text
        )
    seen: set[str] = set()
    for column, node in zip(columns, (n for n in nodes if isinstance(n, exp.ColumnDef)), strict=True):
        if column.name.lower() in seen:
            raise CatalogError(f'Column with name "{column.name}" already exists', position=position_of(node))
        seen.add(column.name.lower())
    definition = TableDefinition(tuple(columns))
    found = [_checked_key(definition, key, name, node) for key, node in keys]
    if sum(key.primary for key in found) > 1:
        raise ParseError(
            f'table "{name}" has more than one primary key', position=position_of(at), text=analyzer.parsed.source.text
        )
    required = {column for key in found if key.primary for column in key.columns}
    columns = [replace(c, not_null=True) if c.name in required else c for c in columns]
    definition = TableDefinition(tuple(columns), tuple(dict.fromkeys(found)))
    return replace(definition, checks=tuple(_check(analyzer, definition, node) for node in checks))


def _column(
    analyzer: Analyzer, node: exp.ColumnDef, keys: list[tuple[Key, exp.Expr]], checks: list[exp.Expr]
) -> ColumnDefinition:
    kind = node.args.get("kind")
    if kind is None:
        raise analyzer.error(f'column "{node.name}" has no type', node)
    not_null, default = False, None
    for constraint in node.args.get("constraints") or ():
        match constraint.args.get("kind"):
            case exp.NotNullColumnConstraint() as found:
                not_null |= not found.args.get("allow_null")
            case exp.DefaultColumnConstraint() as found:
                if default is not None:
                    raise ParseError(
                        f'column "{node.name}" has two defaults',
                        position=position_of(found.this),
                        text=analyzer.parsed.source.text,
                    )
                default = default_text(analyzer, found.this)
            case exp.PrimaryKeyColumnConstraint():
                keys.append((Key((node.name,), True), node))
            case exp.UniqueColumnConstraint() as found:
                keys.append((Key((node.name,), False, bool(found.args.get("nulls"))), node))
            case exp.CheckColumnConstraint() as found:
                checks.append(found.this)
            case exp.Reference():
                raise analyzer.error("foreign keys are not supported", constraint)
            case found:
                raise analyzer.error(
                    (
                        f'this constraint of column "{node.name}" is not supported '
                        f"({type(found).key.replace('columnconstraint', '')})"
                    ),
                    node,
                )
    dtype, unit = _type(analyzer, kind)
    return ColumnDefinition(node.name, dtype, not_null, default, unit)


def _type(analyzer: Analyzer, node: exp.DataType) -> tuple[Type, int | None]:
    """A type, and of how many microseconds its values are multiples."""
    binder = QueryAnalyzer(analyzer.parsed.source, analyzer.catalog, None)._constant_binder("a type")
    return data_type(binder, node), time_unit(binder, node)


def default_text(analyzer: Analyzer, node: exp.Expr) -> str:
    """The text of a default, which must not depend on columns."""
    binder = QueryAnalyzer(analyzer.parsed.source, analyzer.catalog, None)._constant_binder("DEFAULT")
    binder.bind(node)
    return analyzer.text_of(node)


def _table_constraint(
    analyzer: Analyzer, node: exp.Expr, keys: list[tuple[Key, exp.Expr]], checks: list[exp.Expr]
) -> None:
    match node:
        case exp.Constraint():
            for inner in node.expressions:
                _table_constraint(analyzer, inner, keys, checks)
        case exp.PrimaryKey():
            keys.append((Key(_names(node.expressions), True), node))
        case exp.UniqueColumnConstraint():
            columns = node.this.expressions if isinstance(node.this, exp.Schema) else node.expressions
            keys.append((Key(_names(columns), False, bool(node.args.get("nulls"))), node))
        case exp.CheckColumnConstraint():
            checks.append(node.this)
        case exp.ForeignKey():
            raise analyzer.error("foreign keys are not supported", node)
        case _:
            raise analyzer.error(
                f"this is no column with a type, and no constraint that is supported ({type(node).key})", node
            )


def _names(nodes: list[exp.Expr]) -> tuple[str, ...]:
    return tuple((node.this if isinstance(node, exp.Ordered) else node).name for node in nodes)


def _checked_key(definition: TableDefinition, key: Key, table: str, node: exp.Expr) -> Key:
    names = []
    for name in key.columns:
        column = definition.find(name)
        if column is None:
            raise CatalogError(f'table "{table}" does not have a column named "{name}"', position=position_of(node))
        if column.type.name == "INTERVAL":
            raise CatalogError(
                f'column "{name}" is INTERVAL, which cannot be part of a key', position=position_of(node)
            )
        if column.name in names:
            raise ParseError(f'column "{column.name}" is twice in a key', position=position_of(node))
        names.append(column.name)
    return replace(key, columns=tuple(names))


def _check(analyzer: Analyzer, definition: TableDefinition, node: exp.Expr) -> str:
    """The text of a CHECK, once it is known to be a condition over the table's columns."""
    if node.find(exp.Query) is not None:
        raise analyzer.error("CHECK cannot contain a subquery", node)
    text = analyzer.text_of(node)
    select = exp.Select(expressions=[node.copy()])
    select.set("from_", exp.From(this=exp.Table(this=exp.Identifier(this=_CONDITION, quoted=True))))
    relation = analyzer.over(Overlay(analyzer.catalog, **{_CONDITION: empty_like(definition)})).relation(select)
    if not castable(relation.fields[0].type, BOOLEAN):
        raise analyzer.error(f"CHECK takes a condition, not {relation.fields[0].type}", node)
    return text


def drop(analyzer: Analyzer, node: exp.Drop) -> statements.Drop | statements.DropSaved:
    kind = (node.args.get("kind") or "").lower()
    kind = "macro" if kind == "function" else kind
    if node.args.get("materialized"):
        if kind != "view":
            raise analyzer.error(f"DROP MATERIALIZED {kind.upper()} is not supported", node)
        kind = "materialized view"
    if kind not in ("table", "view", "materialized view", "macro", "stream", "sink"):
        raise analyzer.error(f"DROP {kind.upper() or '..'} is not supported", node)
    tables = node.args.get("tables") or []
    if not tables:
        raise analyzer.error(f"DROP {kind.upper()} needs a name", node)
    outer = [saved_parts(analyzer, table) for table in tables] if kind == "table" else []
    saved = tuple(parts for parts in outer if parts is not None)
    if saved:
        if len(saved) < len(tables):
            raise analyzer.error("DROP TABLE takes tables of the session, or tables of Spark, not both", node)
        return statements.DropSaved(saved, bool(node.args.get("exists")))
    for table in tables:
        if isinstance(table, exp.Table):
            check_qualified(analyzer.catalog, table, analyzer.error)
    return statements.Drop(kind, tuple(table.name for table in tables), bool(node.args.get("exists")))


def create_macro(analyzer: Analyzer, node: parser_changes.CreateMacro) -> statements.CreateMacro:
    """A macro is kept as text; its names are looked up where it is used."""
    parameters = [p.name for p in node.args.get("parameters") or ()]
    if len({p.lower() for p in parameters}) < len(parameters):
        raise analyzer.error(f'macro "{node.name}" has two parameters of one name', node.this)
    body = node.expression
    if body.find(exp.Query) is not None:
        raise analyzer.error("a macro is one expression: subqueries are not supported in it", body)
    known = {p.lower() for p in parameters}
    for column in body.find_all(exp.Column):
        if len(column.parts) > 1 and column.parts[0].name.lower() in known:
            raise analyzer.error("a parameter of a macro has no parts", column)
    defaults = tuple(analyzer.text_of(d) for d in node.args.get("defaults") or ())
    macro = Macro(node.name, tuple(parameters), defaults, analyzer.text_of(body), bool(node.args.get("temporary")))
    return statements.CreateMacro(macro, bool(node.args.get("replace")), bool(node.args.get("exists")))


def alter(analyzer: Analyzer, node: parser_changes.AlterTable) -> statements.Alter | statements.Nothing:
    """The table as it will be."""
    check_qualified(analyzer.catalog, node.this, analyzer.error)
    kind, action = node.args["kind"].name, node.args["action"].name
    entry = analyzer.catalog.entry(node.this.name)
    if entry is None and node.args.get("exists"):
        return statements.Nothing()
    if kind == "view" and isinstance(entry, View):
        return statements.Alter(analyzer.catalog.shown_name(node.this.name), node.args["value"].name)
    if kind == "view":
        raise CatalogError(f'View with name "{node.this.name}" does not exist', position=position_of(node.this))
    name, table = find_table(analyzer, node.this, "ALTER TABLE")
    if action == "rename":
        return statements.Alter(name, node.args["value"].name)
    definition = table.definition
    same = [(c.name, c.name) for c in definition.columns]
    if action == "add column":
        return _add_column(analyzer, node, name, table)
    if action == "drop column" and node.args.get("optional") and definition.find(node.args["column"].name) is None:
        return statements.Nothing()
    column = find_column(definition, node.args["column"].name, name, position_of(node.args["column"]))
    match action:
        case "rename column":
            return _rename_column(analyzer, node, name, definition, column)
        case "drop column":
            definition = replace(
                definition, checks=tuple(text for text in definition.checks if not analyzer.is_only(text, column.name))
            )
            _check_unused(analyzer, definition, column, node, "drop")
            if len(definition.columns) == 1:
                raise CatalogError(
                    "Cannot drop column: table only has one column remaining", position=position_of(node.args["column"])
                )
            return statements.Alter(
                name,
                None,
                definition.with_column(column.name, None),
                tuple(pair for pair in same if pair[0] != column.name),
            )
        case "set default":
            changed = replace(column, default=default_text(analyzer, node.args["value"]))
        case "drop default":
            changed = replace(column, default=None)
        case "set not null":
            if table.data.column(column.name).null_count:
                raise CatalogError(
                    f"NOT NULL constraint failed: {name}.{column.name}", position=position_of(node.args["column"])
                )
            changed = replace(column, not_null=True)
        case "drop not null":
            if any(key.primary and column.name in key.columns for key in definition.keys):
                raise CatalogError(
                    f'column "{column.name}" is in the primary key: it cannot be NULL',
                    position=position_of(node.args["column"]),
                )
            changed = replace(column, not_null=False)
        case _:
            return _change_type(analyzer, node, name, table, column)
    return statements.Alter(name, None, definition.with_column(column.name, changed), tuple(same))


def _add_column(
    analyzer: Analyzer, node: parser_changes.AlterTable, name: str, table: Table
) -> statements.Alter | statements.Nothing:
    given = node.args["value"]
    definition = table.definition
    if definition.find(given.name) is not None:
        if node.args.get("optional"):
            return statements.Nothing()
        raise CatalogError(f'Column with name "{given.name}" already exists', position=position_of(given))
    keys: list[tuple[Key, exp.Expr]] = []
    checks: list[exp.Expr] = []
    column = _column(analyzer, given, keys, checks)
    if keys or checks or column.not_null:
        raise ParseError(
            "Adding columns with constraints not yet supported",
            position=position_of(given),
            text=analyzer.parsed.source.text,
        )
    value = (
        exp.Null()
        if column.default is None
        else next(
            c.args["kind"].this
            for c in given.args["constraints"]
            if isinstance(c.args["kind"], exp.DefaultColumnConstraint)
        )
    )
    columns = [(c.name, c.name) for c in definition.columns]
    added: list[tuple[str, Any]] = [*columns, (column.name, _column_query(analyzer, table, value, column, name))]
    return statements.Alter(name, None, replace(definition, columns=(*definition.columns, column)), tuple(added))


def _column_query(
    analyzer: Analyzer, table: Table, value: exp.Expr, column: ColumnDefinition, name: str
) -> statements.Query:
    """A query that gives, for each row of the table in order, the value of a column."""
    from tsql.analyze.changes import TARGET, place_query
    from tsql.kernels.blocks.stored import WithPlaces

    over = analyzer.over(Overlay(analyzer.catalog, **{TARGET: WithPlaces(table.data)}))
    return place_query(over, name, [(column, value.copy())], None, [], (), None)


def _rename_column(
    analyzer: Analyzer,
    node: parser_changes.AlterTable,
    name: str,
    definition: TableDefinition,
    column: ColumnDefinition,
) -> statements.Alter:
    new = node.args["value"].name
    other = definition.find(new)
    if other is not None and other is not column:
        raise CatalogError(f'Column with name "{new}" already exists', position=position_of(node.args["value"]))
    changed = definition.with_column(column.name, replace(column, name=new))
    if definition.period is not None:
        changed = replace(changed, period=tuple(new if name == column.name else name for name in definition.period))
    keys = tuple(
        replace(key, columns=tuple(new if c == column.name else c for c in key.columns)) for key in definition.keys
    )
    checks = tuple(analyzer.renamed_column(text, column.name, new) for text in definition.checks)
    columns = tuple((new if c.name == column.name else c.name, c.name) for c in definition.columns)
    return statements.Alter(name, None, replace(changed, keys=keys, checks=checks), columns)


def _check_unused(
    analyzer: Analyzer,
    definition: TableDefinition,
    column: ColumnDefinition,
    node: parser_changes.AlterTable,
    verb: str,
) -> None:
    position = position_of(node.args["column"])
    if definition.period is not None and column.name in definition.period:
        raise CatalogError(
            f'Cannot {verb} column "{column.name}" because there is a PERIOD that depends on it', position=position
        )
    for key in definition.keys:
        if column.name in key.columns:
            what = "PRIMARY KEY" if key.primary else "UNIQUE"
            raise CatalogError(
                f'Cannot {verb} column "{column.name}" because there is a {what} constraint that depends on it',
                position=position,
            )
    if any(analyzer.mentions(text, column.name) for text in definition.checks):
        raise CatalogError(
            f'Cannot {verb} column "{column.name}" because there is a CHECK constraint that depends on it',
            position=position,
        )


def _change_type(
    analyzer: Analyzer, node: parser_changes.AlterTable, name: str, table: Table, column: ColumnDefinition
) -> statements.Alter:
    definition = table.definition
    if any(column.name in key.columns for key in definition.keys):
        raise BindError(
            "Cannot change the type of a column that has a UNIQUE or PRIMARY KEY constraint specified",
            position=position_of(node.args["column"]),
        )
    if any(analyzer.mentions(text, column.name) for text in definition.checks):
        raise BindError(
            "Cannot change the type of a column that has a CHECK constraint specified",
            position=position_of(node.args["column"]),
        )
    if definition.period is not None and column.name in definition.period:
        raise BindError("Cannot change the type of a column of a PERIOD", position=position_of(node.args["column"]))
    dtype, unit = _type(analyzer, node.args["value"])
    changed = replace(column, type=dtype, unit=unit)
    using = node.args.get("using")
    value = using if using is not None else exp.Column(this=exp.Identifier(this=column.name, quoted=True))
    query = _column_query(analyzer, table, value, changed, name)
    columns: list[tuple[str, Any]] = [(c.name, query if c.name == column.name else c.name) for c in definition.columns]
    return statements.Alter(name, None, definition.with_column(column.name, changed), tuple(columns))


def copy(analyzer: Analyzer, node: exp.Copy) -> statements.CopyTo | statements.Insert | statements.SaveTable:
    """COPY .. TO a file; COPY .. FROM a file is an INSERT from it."""
    files = node.args.get("files") or []
    if len(files) != 1 or not isinstance(files[0], exp.Literal):
        raise analyzer.error("COPY takes the name of one file, as a string", node.this)
    path = files[0].name
    options: dict[str, Any] = {}
    for parameter in node.args.get("params") or ():
        if parameter.this.name.lower() in options:
            raise analyzer.error(f'the option "{parameter.this.name.lower()}" is given twice', parameter.this)
        options[parameter.this.name.lower()] = _option(parameter.args.get("expression"), analyzer)
    if node.args.get("kind"):
        return _copy_from(analyzer, node, files[0], options)
    source = node.this
    if isinstance(source, exp.Subquery):
        query = analyzer.query(source.this, analyzer.parsed.text)
    else:
        table = source.this if isinstance(source, exp.Schema) else source
        columns = (
            [exp.Column(this=c.copy()) for c in source.expressions] if isinstance(source, exp.Schema) else [exp.Star()]
        )
        query = analyzer.query(exp.Select(expressions=columns, from_=exp.From(this=table)), analyzer.parsed.text)
    places = {p.this.name.lower(): position_of(p.this) for p in node.args.get("params") or ()}
    return statements.CopyTo(query, path, options, places, position=position_of(files[0]))


def _option(node: exp.Expr | None, analyzer: Analyzer) -> Any:
    if node is None:
        return True
    if isinstance(node, (exp.Column, exp.Var, exp.Identifier)):
        return {"true": True, "false": False}.get(node.name.lower(), node.name)
    if isinstance(node, (exp.Tuple, exp.Paren, exp.Array)):
        return [_option(item, analyzer) for item in (node.expressions or [node.this])]
    return constant(node, analyzer.parsed.source)


def _copy_from(
    analyzer: Analyzer, node: exp.Copy, file: exp.Expr, options: dict[str, Any]
) -> statements.Insert | statements.SaveTable:
    """INSERT INTO table FROM read_x('path', ..): text files are read with the types of the table."""
    name, table = find_table(analyzer, node.this, "COPY")
    names = (
        [c.name for c in node.this.expressions] if isinstance(node.this, exp.Schema) else list(table.definition.names)
    )
    columns = Schema(
        tuple(
            table.definition.schema[find_column(table.definition, n, name, position_of(node.this)).name] for n in names
        )
    )
    source = source_for(analyzer.catalog, file.name, options, columns, position_of(file), analyzer.parsed.source.text)
    rows = exp.Select(
        expressions=[exp.Star()], from_=exp.From(this=exp.Table(this=exp.Identifier(this="#file", quoted=True)))
    )
    rows._meta = dict(file._meta or {})
    over = analyzer.over(Overlay(analyzer.catalog, **{"#file": source}))
    return insert(over, exp.Insert(this=node.this, expression=rows))
