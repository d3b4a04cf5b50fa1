"""INSERT, UPDATE, DELETE → statements with queries that compute whole rows, or row positions and their new values.

A change is a query and a step that stores its result (`tsql/statements/dml.py`). UPDATE and DELETE select from the
table under an internal name, so WHERE, FROM and subqueries work as in any query. The position of a row is an additional
column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from tsql.analyze import kinds as statements
from tsql.analyze.names.qualified import check_qualified
from tsql.analyze.outer_tables import insert_outer, saved_parts
from tsql.analyze.query import QueryAnalyzer
from tsql.analyze.scope import TARGET, AnalyzedRelation, Names
from tsql.analyze.select import project
from tsql.analyze.subquery import Level, computed_rows
from tsql.catalog.definition import ColumnDefinition, Key, Table, TableDefinition, View
from tsql.catalog.external import SINK, External
from tsql.kernels.aggregates.registry import AGGREGATES
from tsql.kernels.blocks.stored import PLACE, StoredTable, WithPlaces
from tsql.kernels.expr.errors import BindError, CatalogError, TsqlError
from tsql.kernels.expr.nodes import Expr, Literal
from tsql.kernels.expr.types import NULL, Type
from tsql.planner.bind.binder import Binder, nearest
from tsql.planner.bind.operators import rounded
from tsql.planner.bind.query_text import position_of
from tsql.planner.bind.syntax import parse_scalar
from tsql.planner.bind.syntax_nodes import CallNode
from tsql.planner.bind.types import castable, coerce
from tsql.planner.logical import nodes as logical

if TYPE_CHECKING:
    from tsql.analyze.statements import Analyzer

EXCLUDED = "excluded#"
"""The prefix of column names of the row that could not be inserted."""


class Overlay:
    """A catalog with a few more names."""

    def __init__(self, catalog: Any, **entries: Any):
        self.catalog, self.entries = catalog, entries

    def lookup(self, name: str) -> Any:
        found = self.entries.get(name.lower())
        return self.catalog.lookup(name) if found is None else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalog, name)


def _table_of(node: exp.Expr) -> exp.Table:
    """The table of `t` or `t (a, b)`."""
    return node.this if isinstance(node, exp.Schema) else node


def find_table(analyzer: Analyzer, node: exp.Expr, verb: str) -> tuple[str, Table]:
    """The table that a statement changes, with its name as it was created."""
    table = _table_of(node)
    name, position = table.name, position_of(table.this)
    check_qualified(analyzer.catalog, table, analyzer.error)
    entry = analyzer.catalog.entry(name)
    if entry is None:
        raise CatalogError(
            f'Table with name "{name}" does not exist', position=position, hint=nearest(name, analyzer.catalog.names())
        )
    if isinstance(entry, View):
        raise CatalogError(f'"{name}" is a view: {verb} needs a table', position=position)
    if isinstance(entry, External) and entry.files is not None:
        raise CatalogError(
            f'"{name}" is a {entry.kind} over files: {verb} needs a table that was made with CREATE TABLE',
            position=position,
        )
    if analyzer.catalog.dataset(name) is not None:
        raise CatalogError(
            f'"{name}" is kept in the cluster and does not change: {verb} needs a table of the session',
            position=position,
            hint=f"CREATE OR REPLACE TABLE {name} WITH (target = 'spark') AS .. makes another one",
        )
    if not isinstance(entry, Table):
        hint = f"CREATE TABLE copy AS SELECT * FROM {name}"
        raise CatalogError(
            f'"{name}" is data that was registered: {verb} needs a table that was made with CREATE TABLE',
            position=position,
            hint=hint,
        )
    return analyzer.catalog.shown_name(name), entry


def find_column(definition: TableDefinition, name: str, table: str, position: int | None) -> ColumnDefinition:
    found = definition.find(name)
    if found is None:
        raise BindError(
            f'Table "{table}" does not have a column with name "{name}"',
            position=position,
            hint=nearest(name, definition.names),
        )
    return found


def default_of(column: ColumnDefinition, analyzer: Analyzer) -> Expr:
    """The value of a column that a statement does not give."""
    if column.default is None:
        return Literal(None, column.type)
    node, source = parse_scalar(column.default)
    binder = QueryAnalyzer(source, analyzer.catalog, None)._constant_binder("DEFAULT")
    try:
        return rounded(coerce(binder.operand(node), column.type), column.unit)
    except TsqlError as error:
        raise error.locate(column.default, f'the default of "{column.name}"') from None


def as_type(expr: Expr, column: ColumnDefinition, node: exp.Expr | None) -> Expr:
    """A value as one of a column's type; every cast that exists may be done."""
    if not castable(expr.type, column.type):
        raise BindError(
            f'column "{column.name}" is {column.type}: there is no cast from {expr.type}', position=position_of(node)
        )
    return rounded(coerce(expr, column.type), column.unit)


def is_default(node: exp.Expr) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    return (
        isinstance(node, (exp.Var, exp.Column))
        and node.name.upper() == "DEFAULT"
        and not (isinstance(node.this, exp.Identifier) and node.this.quoted)
    )


def with_clause(outer: exp.Expr, query: exp.Expr) -> exp.Expr:
    """The query with the WITH of the statement that it is in."""
    clause = outer.args.get("with_")
    if clause is not None:
        if query.args.get("with_") is not None:
            clause = exp.With(expressions=[*clause.expressions, *query.args["with_"].expressions])
        query.set("with_", clause)
    return query


def insert(
    analyzer: Analyzer, node: exp.Insert
) -> statements.Insert | statements.SaveTable | statements.InsertIntoSink:
    """INSERT INTO table [(columns)] [BY NAME] VALUES | query | DEFAULT VALUES [ON CONFLICT ..] [RETURNING ..]."""
    outer = saved_parts(analyzer, _table_of(node.this))
    if outer is not None:
        return insert_outer(analyzer, node, outer, with_clause(node, node.expression))
    for clause, words, hint in (
        ("overwrite", "INSERT OVERWRITE", "DELETE FROM t, then INSERT INTO t, in a transaction"),
        ("partition", "PARTITION", "a table of the session has no partitions"),
    ):
        if node.args.get(clause):
            raise analyzer.error(f"{words} is for tables of Spark's catalogs", node.this, hint)
    entry = analyzer.catalog.entry(_table_of(node.this).name)
    if isinstance(entry, External) and entry.kind == SINK:
        from tsql.analyze.time.sinks import insert_into_sink

        return insert_into_sink(analyzer, node, _table_of(node.this).name, with_clause(node, node.expression))
    name, table = find_table(analyzer, node.this, "INSERT")
    definition = table.definition
    targets = _targets(node, definition, name)
    conflict = _conflict(analyzer, node, name, definition)
    returning = _returning(analyzer, node, name)
    query = node.args.get("expression")
    if node.args.get("default"):
        row = tuple(default_of(column, analyzer) for column in definition.columns)
        return statements.Insert(name, None, (row,), conflict, returning)
    if isinstance(query, exp.Values) and node.args.get("by_name"):
        raise analyzer.error("INSERT BY NAME can only be used when inserting from a SELECT statement", node.this)
    if isinstance(query, exp.Values) and not any(
        query.args.get(k) for k in ("order", "limit", "offset", "alias", "with_")
    ):
        return statements.Insert(
            name, *_given_rows(analyzer, node, query, definition, targets, name), conflict, returning
        )
    relation = analyzer.relation(with_clause(node, query))
    if node.args.get("by_name"):
        targets = [find_column(definition, f.name, name, position_of(query)) for f in relation.fields]
        _check_distinct(targets, query)
    _check_width(name, definition, targets, node, len(relation.fields), query)
    given = {
        column.name: as_type(_inlined(relation, field.column, field.to_column()), column, query)
        for column, field in zip(targets, relation.fields, strict=True)
    }
    columns = [
        (column.name, given[column.name] if column.name in given else default_of(column, analyzer))
        for column in definition.columns
    ]
    return statements.Insert(name, _project(analyzer, relation, columns, query), (), conflict, returning)


def _project(
    analyzer: Analyzer, relation: AnalyzedRelation, columns: list[tuple[str, Expr]], node: exp.Expr
) -> statements.Query:
    return analyzer.output(
        project(_below(relation), columns), tuple(n for n, _ in columns), tuple(n for n, _ in columns), node
    )


def _targets(node: exp.Insert, definition: TableDefinition, table: str) -> list[ColumnDefinition]:
    if not isinstance(node.this, exp.Schema):
        return list(definition.columns)
    found = [find_column(definition, c.name, table, position_of(c)) for c in node.this.expressions]
    _check_distinct(found, node.this.expressions[-1])
    return found


def _check_distinct(columns: list[ColumnDefinition], node: exp.Expr) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise BindError(f'Duplicate column name "{column.name}" in INSERT', position=position_of(node))
        seen.add(column.name)


def _check_width(
    name: str, definition: TableDefinition, targets: list[ColumnDefinition], node: exp.Insert, width: int, at: exp.Expr
) -> None:
    if width == len(targets):
        return
    if isinstance(node.this, exp.Schema):
        message = f'INSERT into "{name}" names {len(targets)} columns but {width} values were supplied'
    else:
        message = f'table "{name}" has {len(definition.columns)} columns but {width} values were supplied'
    raise BindError(message, position=position_of(at))


def _given_rows(
    analyzer: Analyzer,
    node: exp.Insert,
    values: exp.Values,
    definition: TableDefinition,
    targets: list[ColumnDefinition],
    name: str,
) -> tuple[statements.Query | None, tuple[tuple[Expr, ...], ...]]:
    """The input of INSERT .. VALUES: rows of constants, or a query if they contain subqueries. Unlike in VALUES
    elsewhere, rows may differ in their types: each value is cast to the type of its column."""
    queries = QueryAnalyzer(analyzer.parsed.source, analyzer.catalog, analyzer.parameters)
    if values.find(exp.Query, bfs=False) in (None, values):
        return None, _rows(analyzer, queries._constant_binder("VALUES"), values, definition, targets, name)
    level = Level(queries, queries._with(node, {}), ())
    rows = _rows(analyzer, queries._constant_binder("VALUES", level), values, definition, targets, name)
    columns = definition.names
    return analyzer.output(computed_rows(level, rows, list(columns)), columns, columns, values), ()


def _rows(
    analyzer: Analyzer,
    binder: Binder,
    node: exp.Values,
    definition: TableDefinition,
    targets: list[ColumnDefinition],
    name: str,
) -> tuple[tuple[Expr, ...], ...]:
    """The rows of VALUES with all columns of the table, each value as the type of its column."""
    defaults: dict[str, Expr] = {}

    def default(column: ColumnDefinition) -> Expr:
        if column.name not in defaults:
            defaults[column.name] = default_of(column, analyzer)
        return defaults[column.name]

    rows = []
    for row in node.expressions:
        values = row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]
        _check_width(name, definition, targets, node.parent, len(values), row)
        given = {
            column.name: default(column) if is_default(value) else as_type(binder.operand(value), column, value)
            for column, value in zip(targets, values, strict=True)
        }
        rows.append(tuple(given[c.name] if c.name in given else default(c) for c in definition.columns))
    return tuple(rows)


def _returning(analyzer: Analyzer, node: exp.Expr, name: str, alias: str | None = None) -> statements.Returning | None:
    clause = node.args.get("returning")
    if clause is None:
        return None

    def query(source: Any) -> statements.Query:
        select = exp.Select(expressions=[e.copy() for e in clause.expressions])
        table = exp.Table(
            this=exp.Identifier(this=TARGET, quoted=True),
            alias=exp.TableAlias(this=exp.Identifier(this=alias or name, quoted=True)),
        )
        select.set("from_", exp.From(this=table))
        return analyzer.over(Overlay(analyzer.catalog, **{TARGET: source})).query(select, analyzer.parsed.text)

    return query


def _conflict(
    analyzer: Analyzer, node: exp.Insert, name: str, definition: TableDefinition
) -> statements.Conflict | None:
    clause, word = node.args.get("conflict"), (node.args.get("alternative") or "").upper()
    if clause is None and not word:
        return None
    if word and word not in ("IGNORE", "REPLACE"):
        raise analyzer.error(
            f"INSERT OR {word} is not supported: there is INSERT OR IGNORE and INSERT OR REPLACE", node.this
        )
    keys = _conflict_keys(clause, name, definition, node)
    if word == "IGNORE" or (clause is not None and clause.args["action"].name.upper() == "DO NOTHING"):
        return statements.Conflict(keys)
    if len(keys) > 1:
        raise BindError(
            (
                "Conflict target has to be provided for a DO UPDATE operation when the table has multiple "
                "UNIQUE/PRIMARY KEY constraints"
            ),
            position=position_of(node.this),
        )
    if word == "REPLACE":
        assigned = [(column, exp.column(column.name, table="excluded", quoted=True)) for column in definition.columns]
        where = None
    else:
        assigned = [(c, e) for c, e in assignments(clause.expressions, definition, name)]
        where = clause.args.get("where")
    return statements.Conflict(
        keys,
        _conflict_update(analyzer, name, _table_of(node.this).alias or name, assigned, where),
        tuple(c.name for c, _ in assigned),
    )


def _conflict_keys(
    clause: exp.OnConflict | None, name: str, definition: TableDefinition, node: exp.Insert
) -> tuple[Key, ...]:
    wanted = None
    if clause is not None and clause.args.get("conflict_keys"):
        parts = [part.this if isinstance(part, exp.Ordered) else part for part in clause.args["conflict_keys"]]
        wanted = {find_column(definition, part.name, name, position_of(part)).name for part in parts}
    keys = tuple(key for key in definition.keys if wanted is None or set(key.columns) == wanted)
    if keys:
        return keys
    if wanted is None:
        raise BindError(
            f'table "{name}" has no UNIQUE or PRIMARY KEY constraint that a row could conflict with',
            position=position_of(node.this),
        )
    raise BindError(
        "The specified columns as conflict target are not referenced by a UNIQUE/PRIMARY KEY constraint",
        position=position_of(node.this),
    )


def _conflict_update(
    analyzer: Analyzer, name: str, alias: str, assigned: list[tuple[ColumnDefinition, exp.Expr]], where: exp.Expr | None
) -> Callable[[Any], statements.Query]:
    """The query that gives place and new values, from a source with the old rows and those that were to be inserted."""

    def renamed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table.lower() == "excluded":
            column = exp.Column(this=exp.Identifier(this=EXCLUDED + node.name.lower(), quoted=True))
            column._meta = node._meta
            return column
        return node

    def query(source: Any) -> statements.Query:
        values = [(column, expr.copy().transform(renamed)) for column, expr in assigned]
        condition = None if where is None else where.copy().transform(renamed)
        over = analyzer.over(Overlay(analyzer.catalog, **{TARGET: source}))
        return place_query(over, alias, values, condition, [], (), None)

    return query


def assignments(
    nodes: list[exp.Expr], definition: TableDefinition, table: str
) -> list[tuple[ColumnDefinition, exp.Expr]]:
    """The columns that SET names, each with its expression."""
    found: list[tuple[ColumnDefinition, exp.Expr]] = []
    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise BindError("SET takes column = expression", position=position_of(node))
        left, right = node.this, node.expression
        lefts = (
            left.expressions if isinstance(left, exp.Tuple) else [left.this] if isinstance(left, exp.Paren) else [left]
        )
        rights = right.expressions if isinstance(right, exp.Tuple) and isinstance(left, exp.Tuple) else [right]
        if len(lefts) != len(rights):
            raise BindError(f"SET has {len(lefts)} columns but {len(rights)} values", position=position_of(right))
        for target, value in zip(lefts, rights, strict=True):
            if target.text("table"):
                raise BindError("Qualified column names in UPDATE .. SET not supported", position=position_of(target))
            column = find_column(definition, target.name, table, position_of(target))
            if any(column is known for known, _ in found):
                raise BindError(f'Multiple assignments to same column "{column.name}"', position=position_of(target))
            found.append((column, value))
    return found


def place_query(
    analyzer: Analyzer,
    alias: str,
    values: list[tuple[ColumnDefinition, exp.Expr]],
    where: exp.Expr | None,
    others: list[exp.Expr],
    old: tuple[str, ...],
    outer: exp.Expr | None,
) -> statements.Query:
    """SELECT place, new values, old columns FROM the target and the other relations WHERE ..."""
    items: list[exp.Expr] = [
        exp.Column(this=exp.Identifier(this=PLACE, quoted=True), table=exp.Identifier(this=alias, quoted=True))
    ]
    for column, value in values:
        given = _default_node(column) if is_default(value) else value
        items.append(exp.Alias(this=given, alias=exp.Identifier(this=f"new#{column.name}", quoted=True)))
    items += [
        exp.Column(this=exp.Identifier(this=name, quoted=True), table=exp.Identifier(this=alias, quoted=True))
        for name in old
    ]
    select = exp.Select(expressions=items)
    table = exp.Table(
        this=exp.Identifier(this=TARGET, quoted=True),
        alias=exp.TableAlias(this=exp.Identifier(this=alias, quoted=True)),
    )
    select.set("from_", exp.From(this=table))
    if others:
        select.set("joins", [join for other in others for join in _listed(other)])
    if where is not None:
        select.set("where", where)
    if outer is not None:
        with_clause(outer, select)
    relation = analyzer.relation(select, plain="UPDATE or DELETE")
    names = Names()
    columns: list[tuple[str, Expr]] = []
    for number, field in enumerate(relation.fields):
        expr: Expr = _inlined(relation, field.column, field.to_column())
        if 0 < number <= len(values):
            expr = as_type(expr, values[number - 1][0], values[number - 1][1])
        elif expr.type == NULL:
            expr = coerce(expr, Type("INTEGER"))
        columns.append((names.unique(field.column), expr))
    return analyzer.output(
        project(_below(relation), columns), tuple(n for n, _ in columns), tuple(n for n, _ in columns), select
    )


def _listed(other: exp.Expr) -> list[exp.Join]:
    """A relation of USING or FROM as comma joins: sqlglot puts all relations after the first one into its node."""
    more = other.args.get("joins") or []
    first = other.copy()
    first.set("joins", None)
    comma = exp.Join(this=first)
    comma.meta["comma"] = True
    return [comma, *more]


def _inlined(relation: AnalyzedRelation, name: str, column: Expr) -> Expr:
    """The expression behind a column of a projection, so that the cast of a constant is done at once."""
    return dict(relation.plan.columns)[name] if isinstance(relation.plan, logical.Project) else column


def _below(relation: AnalyzedRelation) -> logical.Node:
    """What expressions that were `_inlined` are over."""
    return relation.plan.input if isinstance(relation.plan, logical.Project) else relation.plan


def _default_node(column: ColumnDefinition) -> exp.Expr:
    return exp.Null() if column.default is None else parse_scalar(column.default)[0]


def delete(analyzer: Analyzer, node: exp.Delete) -> statements.Delete:
    """DELETE FROM table [USING ..] [WHERE ..] [RETURNING ..]."""
    name, table = find_table(analyzer, node.this, "DELETE")
    alias, where, using = node.this.alias or name, node.args.get("where"), node.args.get("using") or []
    returning = _returning(analyzer, node, name, alias)
    if where is None and not using and returning is None:
        return statements.Delete(name, None)
    over = analyzer.over(Overlay(analyzer.catalog, **{TARGET: WithPlaces(table.data)}))
    old = table.definition.names if returning is not None else ()
    return statements.Delete(name, place_query(over, alias, [], where, list(using), old, node), returning)


def update(analyzer: Analyzer, node: exp.Update) -> statements.Update:
    """UPDATE table SET .. [FROM ..] [WHERE ..] [RETURNING ..]."""
    name, table = find_table(analyzer, node.this, "UPDATE")
    alias = node.this.alias or name
    values = assignments(node.expressions, table.definition, name)
    clause = node.args.get("from_")
    others = [] if clause is None else [clause.this]
    for _, value in values:
        for call in value.find_all(CallNode):
            if call.name in AGGREGATES.names() and call.find_ancestor(exp.Query) is None:
                raise analyzer.error("aggregate functions are not allowed in UPDATE", call)
        for call in value.find_all(exp.Window):
            if call.find_ancestor(exp.Query) is None:
                raise analyzer.error("window functions are not allowed in UPDATE", call)
    over = analyzer.over(Overlay(analyzer.catalog, **{TARGET: WithPlaces(table.data)}))
    returning = _returning(analyzer, node, name, alias)
    keys = {column for key in table.definition.keys for column in key.columns}
    old = tuple(n for n in table.definition.names if returning is not None or table.definition.checks or n in keys)
    query = place_query(over, alias, values, node.args.get("where"), others, old, node)
    return statements.Update(name, query, tuple(c.name for c, _ in values), old, returning)


def truncate(analyzer: Analyzer, node: exp.TruncateTable) -> statements.Delete:
    if len(node.expressions) != 1:
        raise analyzer.error("TRUNCATE takes one table", node)
    name, _ = find_table(analyzer, node.expressions[0], "TRUNCATE")
    return statements.Delete(name, None)


def empty_like(definition: TableDefinition) -> StoredTable:
    """A table of this definition without rows, to bind expressions against."""
    return StoredTable(definition.schema)
