"""Executes an analyzed statement: `PERFORM` has a function for each kind. `ScriptRunner` calls `perform`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from tsql import settings as setting
from tsql.analyze import kinds as statements
from tsql.backends.backend import not_on_spark
from tsql.backends.names import Use
from tsql.backends.sinks import Sinks
from tsql.catalog.catalog import Catalog, as_source
from tsql.grammar.script import Piece
from tsql.kernels.expr.errors import CatalogError, PlanError, TransactionError
from tsql.kernels.expr.keywords import quote
from tsql.kernels.expr.types import VARCHAR, Type
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.loaded import load_plan, save_plan
from tsql.planner import PhysicalPlan
from tsql.planner.logical import nodes as logical
from tsql.planner.physical.text import dotted
from tsql.prepared import Prepared
from tsql.relation import Relation, of_text
from tsql.statements import changes, copying, introspect
from tsql.statements.changes import done

if TYPE_CHECKING:
    from tsql.statements.script_runner import ScriptRunner


@dataclass
class StatementContext:
    """The context of a statement: where it runs, its text, and the stored values of its parameters."""

    scripts: ScriptRunner
    piece: Piece
    values: dict[str, Any]
    files: tuple[Use, ...] = ()
    """The files that the analysis has opened."""
    spent: dict[str, float] = field(default_factory=dict)
    """Milliseconds of the analysis."""
    key: Any = None
    """The key of a query in the plan cache; None if it is not cached."""
    keep: Callable[[PhysicalPlan], None] | None = None
    """Writes the plan of a query to disk."""

    @property
    def catalog(self) -> Catalog:
        return self.scripts.catalog

    def prepared(self, query: statements.Query) -> Prepared:
        """A query of the statement, ready to be planned."""
        scan, names = query.plan.input, tuple(query.plan.names)
        is_whole = isinstance(scan, logical.Scan) and scan.columns == scan.source.schema.names == names
        types = tuple(f.type for f in query.plan.schema)
        source = scan.source if is_whole else None
        return Prepared(self.piece, lambda: query, names, types, self.files, self.spent, source=source)

    def relation(self, query: statements.Query) -> Relation:
        """The lazy result of a query of the statement."""
        return self.scripts.queries.relation(self.prepared(query), self.values)


def perform(context: StatementContext, statement: Any) -> Relation:
    """Execute one statement. A query is lazy, as its relation is; everything else is done when this returns."""
    carry_out = PERFORM.get(type(statement))
    if carry_out is None:
        raise PlanError(f"{type(statement).__name__} statements cannot run here")
    return carry_out(context, statement)


def _query(context: StatementContext, statement: statements.Query) -> Relation:
    scripts, prepared = context.scripts, context.prepared(statement)
    if context.key is not None:
        prepared.keep = context.keep if prepared.source is None else None
        scripts.plans.keep(context.key, context.catalog.version, prepared)
    return scripts.queries.relation(prepared, context.values)


def _explain(context: StatementContext, statement: statements.Explain) -> Relation:
    level, prepared = (statement.level or "physical").lower(), context.prepared(statement.query)
    queries, values = context.scripts.queries, context.values
    return of_text(
        f"{level}_plan",
        lambda: queries.explain(prepared, values, level),
        ("explain_key", "explain_value"),
        VARCHAR,
    )


def _compile_plan(context: StatementContext, statement: statements.CompilePlan) -> Relation:
    save_plan(context.scripts.queries.plan(context.prepared(statement.query)).text(), statement.path)
    return done()


def _execute_plan(context: StatementContext, statement: statements.ExecutePlan) -> Relation:
    return load_plan(statement.path).run(context.scripts.session)


def _prepare(context: StatementContext, statement: statements.Prepare) -> Relation:
    context.scripts.named.prepare(statement)
    return done()


def _execute(context: StatementContext, statement: statements.Execute) -> Relation:
    known, kinds, given = context.scripts.named.find(statement, context.relation)
    return context.scripts.sql(known.text, kinds, given, f'prepared statement "{known.name}"')


def _deallocate(context: StatementContext, statement: statements.Deallocate) -> Relation:
    context.scripts.named.deallocate(statement)
    return done()


def _set(context: StatementContext, statement: statements.Set) -> Relation:
    setting.change(context.scripts.queries.settings, statement.name, statement.value)
    return done()


def _show_tables(context: StatementContext, statement: statements.ShowTables) -> Relation:
    catalog = context.catalog
    if not statement.all:
        return introspect.show_tables(catalog)

    def columns_of(name: str) -> tuple[tuple[str, ...], tuple[Type, ...]]:
        from tsql.analyze.statements import analyze

        (found,) = analyze(f"DESCRIBE {quote(name)}", catalog, {}, None)
        return tuple(column for column, _ in found.columns), tuple(kind for _, kind in found.columns)

    return introspect.show_all_tables(catalog, catalog.database, columns_of)


def _show_streams(context: StatementContext, statement: statements.ShowStreams) -> Relation:
    return introspect.show_sinks(context.catalog) if statement.sinks else introspect.show_streams(context.catalog)


def _insert_into_sink(context: StatementContext, statement: statements.InsertIntoSink) -> Relation:
    from tsql.statements.live import insert_into_sink

    return insert_into_sink(context, statement)


def _create_live_view(context: StatementContext, statement: statements.CreateLiveView) -> Relation:
    from tsql.statements.live import create_live_view

    return create_live_view(context, statement)


def _describe(context: StatementContext, statement: statements.Describe) -> Relation:
    names, types = zip(*statement.columns, strict=True)
    entry = None if statement.table is None else context.catalog.entry(statement.table)
    return introspect.describe(names, types, entry)


def _summarize(context: StatementContext, statement: statements.Summarize) -> Relation:
    from tsql.analyze.changes import Overlay
    from tsql.analyze.statements import Analyzer
    from tsql.grammar.parser.statements import parse

    relation = context.relation(statement.query)
    numbered = relation.arrow().rename_columns([f"c{i}" for i in range(len(relation.columns))])
    rows = as_source("#summarized", numbered)

    def run(text: str) -> pa.Table:
        (parsed,) = parse(text)
        found = Analyzer(parsed, Overlay(context.catalog, **{"#summarized": rows}), None).query(parsed.node, text)
        return context.scripts.queries.relation(context.prepared(found), {}).arrow()

    return introspect.summarize(tuple(relation.columns), relation.sql_types, run)


def _copy_to(context: StatementContext, statement: statements.CopyTo) -> Relation:
    queries, relation, options = context.scripts.queries, context.relation(statement.query), statement.options
    path = copying.target_path(statement.path)
    context.catalog.know_store(path)
    if queries.target == "spark":
        if copying.is_folder(path, options, statement.places):
            target = copying.folder_target(relation, path, options, statement.places)
            prepared = context.prepared(statement.query)
            return _ran(context, queries.into(prepared, context.values, lambda s, *run: s.write_folder(*run, target)))
        options = copying.of_one_file(options)
    with context.scripts.session.watch(lambda: relation.progress):
        rows = copying.copy_to(relation, path, options, statement.places)
    return changes.counted(rows).tell(relation.notes)


def _save_table(context: StatementContext, statement: statements.SaveTable) -> Relation:
    target, sinks = statement.target, _sinks(context)
    if target.mode == "create" and sinks.table_exists(target.parts):
        if statement.if_not_exists:
            return done()
        hint = "use CREATE OR REPLACE, or IF NOT EXISTS"
        raise CatalogError(f"Table with name {dotted(target.parts)} already exists", hint=hint)
    prepared = context.prepared(statement.query)
    return _ran(
        context, context.scripts.queries.into(prepared, context.values, lambda s, *run: s.save_table(*run, target))
    )


def _drop_saved(context: StatementContext, statement: statements.DropSaved) -> Relation:
    sinks = _sinks(context)
    there = [parts for parts in statement.tables if sinks.table_exists(parts)]
    missing = next((parts for parts in statement.tables if parts not in there), None)
    if missing is not None and not statement.if_exists:
        raise CatalogError(f"Table with name {dotted(missing)} does not exist")
    for parts in there:
        sinks.drop_table(parts)
    return done()


def _sinks(context: StatementContext) -> Sinks:
    if context.scripts.session.transactions.is_open:
        raise TransactionError("a change of a table of Spark cannot be part of a transaction: it cannot be taken back")
    sinks = context.catalog.sinks()
    if sinks is None:
        raise not_on_spark()
    return sinks


def _keep_dataset(context: StatementContext, statement: statements.KeepDataset) -> Relation:
    from tsql.statements.datasets import keep

    _sinks(context)
    return keep(context, statement)


def _ran(context: StatementContext, relation: Relation) -> Relation:
    """The count of a statement whose rows the tasks of a cluster write."""
    with context.scripts.session.watch(lambda: relation.progress):
        (row,) = relation.fetchall()
    return changes.counted(row[0]).tell(relation.notes)


def _change(context: StatementContext, statement: Any) -> Relation:
    scripts, ran = context.scripts, []
    here = isinstance(statement, statements.Update | statements.Delete | statements.Alter)
    relate = scripts.queries.local_relation if here else scripts.queries.relation
    if not isinstance(statement, statements.Insert):
        scripts.inserts.clear()

    def related(query: statements.Query) -> Relation:
        ran.append(relate(context.prepared(query), context.values))
        return ran[-1]

    with scripts.session.watch(lambda: ran[-1].progress if ran else None):
        result = changes.perform(scripts.session, statement, related, context.values)
    scripts.plans.clear()
    return result.tell(note for relation in ran if relation is not result for note in relation.notes)


PERFORM: dict[type, Callable[[StatementContext, Any], Relation]] = {
    statements.Query: _query,
    statements.Explain: _explain,
    statements.CompilePlan: _compile_plan,
    statements.ExecutePlan: _execute_plan,
    statements.Prepare: _prepare,
    statements.Execute: _execute,
    statements.Deallocate: _deallocate,
    statements.Set: _set,
    statements.ShowTables: _show_tables,
    statements.ShowStreams: _show_streams,
    statements.InsertIntoSink: _insert_into_sink,
    statements.CreateLiveView: _create_live_view,
    statements.Describe: _describe,
    statements.Summarize: _summarize,
    statements.CopyTo: _copy_to,
    statements.SaveTable: _save_table,
    statements.DropSaved: _drop_saved,
    statements.KeepDataset: _keep_dataset,
    **dict.fromkeys(get_args(statements.Change), _change),
}
"""The function that executes each kind of statement."""
