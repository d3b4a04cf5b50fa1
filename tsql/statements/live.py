"""Statements that run jobs: INSERT INTO a sink, and CREATE MATERIALIZED VIEW."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tsql.analyze import kinds as statements
from tsql.backends import Run
from tsql.backends.live.sinks.connectors import sink_of
from tsql.backends.live.sinks.sink import Output
from tsql.catalog.external import SINK, External
from tsql.kernels.expr.errors import CatalogError
from tsql.kernels.expr.schema import Field, Schema
from tsql.kernels.expr.types import BIGINT
from tsql.live_view import LiveView
from tsql.relation import Relation

if TYPE_CHECKING:
    from tsql.statements.perform import StatementContext

WAIT_SECONDS = 0.05


def insert_into_sink(context: StatementContext, statement: statements.InsertIntoSink) -> Relation:
    """The number of rows that went into a sink, as a lazy relation: `start` runs it as a job, and reading it runs it to
    its end."""
    query = context.relation(statement.query)
    entry = context.catalog.entry(statement.name)
    if not isinstance(entry, External) or entry.kind != SINK or entry.connection is None:
        raise CatalogError(f'Sink with name "{statement.name}" does not exist')
    connection = entry.connection

    def start_job(sink: Any = None, *, checkpoint: Any = None, **more: Any) -> Any:
        if sink is not None:
            raise CatalogError(f"the statement names its sink: {statement.name}", hint="start() without sink")
        if more.get("compares"):
            return query.compare_checkpoint(checkpoint)
        made = sink_of(connection.connector, connection.options, checkpoint)
        return query.start(made, checkpoint=checkpoint, **more)

    def start(run: Run) -> Iterator[pa.RecordBatch]:
        if query.reads_streams:
            job = start_job()
            try:
                while not job.wait(WAIT_SECONDS):
                    run.check()
            finally:
                if not job.is_over:
                    job.stop(now=True)
            rows = job.progress().rows_out
        else:
            rows = _write(query, sink_of(connection.connector, connection.options))
        yield pa.record_batch([pa.array([rows], pa.int64())], ["Count"])

    return Relation(
        ("Count",),
        (BIGINT,),
        start,
        lambda: Run(settings=context.scripts.queries.settings, parameters=context.values),
        describe_plan=query.explain,
        running=context.scripts.queries.running,
        start_job=start_job,
        reads_streams=lambda: query.reads_streams,
        is_endless=lambda: query.is_endless,
    )


def _write(query: Relation, sink: Any) -> int:
    """Write the rows of a query over tables: one epoch."""
    rows = 0
    try:
        sink.open(Output(query.schema, query.sql_types, f"insert-{id(query):x}"))
        sink.recover(0, None)
        for batch in query.batches():
            sink.write(batch)
            rows += batch.num_rows
        sink.commit(1, sink.prepare(1))
    finally:
        sink.close()
    return rows


def create_live_view(context: StatementContext, statement: statements.CreateLiveView) -> Relation:
    """Start the job of a view, and give its result a name."""
    from tsql.statements.changes import done

    session, catalog = context.scripts.session, context.catalog
    there = catalog.entry(statement.name)
    if there is not None and statement.if_not_exists:
        return done()
    if there is not None and not (statement.replace and isinstance(there, LiveView)):
        raise CatalogError(
            f'"{statement.name}" already exists', hint="use another name, or CREATE MATERIALIZED VIEW IF NOT EXISTS"
        )
    query = context.relation(statement.query)
    schema = Schema(tuple(Field(name, kind) for name, kind in zip(query.columns, query.sql_types, strict=True)))
    view = LiveView(statement.name, schema)
    view.job = query.start(view)
    with session.transactions.lock:
        catalog.add(statement.name, view)
    if isinstance(there, LiveView):
        there.drop()
    return done()
